"""Averaging weights: along which residual spaces are taken."""
