"""UNION ALL of private rows: of one table, and of several."""
