"""Mechanisms side by side, and lower bounds for those without a certificate."""
