"""The SQL front end: text → allowed syntax tree → cores and what is computed on them → workload."""

from dpsql.sql.compiled import Script, Statement
from dpsql.sql.frontend import compile_script
from dpsql.sql.text.script import split_script

__all__ = ["Script", "Statement", "compile_script", "split_script"]
