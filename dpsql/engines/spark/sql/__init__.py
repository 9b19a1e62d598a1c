"""How Spark's SQL is written: names, constants, types, and expressions of a row with DuckDB's values."""
