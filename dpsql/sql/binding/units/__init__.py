"""Expressions over other rows of the same unit: subqueries, groups, windows."""
