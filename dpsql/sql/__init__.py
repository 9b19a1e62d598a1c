"""The SQL front end: text → allowed syntax tree → bound statement → workload."""

from dpsql.sql.frontend import KeyColumn, Script, Statement, ValueColumn, compile_script
from dpsql.sql.script import split_script

__all__ = ["KeyColumn", "Script", "Statement", "ValueColumn", "compile_script", "split_script"]
