"""Strategies: what to measure of one residual space, in real numbers and then in integers."""
