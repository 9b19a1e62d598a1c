"""Spark's SQL: names, constants, types, and expressions of a row with DuckDB's values."""
