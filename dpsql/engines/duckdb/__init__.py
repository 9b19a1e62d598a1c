"""Private data in DuckDB: its catalog, and the SQL that counts."""
