"""Joins of private tables: which rows are counted, and which rows these meet."""
