"""Computations of statements on noisy answers, and what becomes of the noise."""
