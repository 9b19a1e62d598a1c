"""Expressions of one row that may run where the private rows are.

Read it in this order: `expression.py` says what an expression is, `functions.py` what may stand in
it and why, `types.py` and `write.py` turn it into SQL; `read.py` makes it from DuckDB's own syntax
tree. `known.py` says what is known of its values without any row.
"""
