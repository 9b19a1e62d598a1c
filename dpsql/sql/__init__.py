"""The SQL front end: text → allowed syntax tree → cores and what is computed on them → workload."""

from dpsql.sql.frontend import Script, Statement, compile_script
from dpsql.sql.script import split_script

__all__ = ["Script", "Statement", "compile_script", "split_script"]
