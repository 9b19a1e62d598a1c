"""What is said of other rows of the same unit: subqueries, groups, windows."""
