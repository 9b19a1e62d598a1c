"""The sandbox: a DuckDB of our own, which holds public things only."""
