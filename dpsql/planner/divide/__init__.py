"""Divide: residual spaces, and what the queries ask of each."""
