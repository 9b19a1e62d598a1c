"""Evaluate conditions over the public domain, in a DuckDB of our own.

The evaluator is a separate in-memory database that holds domains and nothing else. Its SQL is
built here from bound terms; no text of the analyst is in it but string literals, which are
parameters. So three-valued logic, and the order of strings, are DuckDB's own, while nothing can
depend on a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError, ResourceLimitError, SqlError
from dpsql.schema import Domain
from dpsql.sql.terms import Condition, Term

MAX_JOINT_CELLS = 4_000_000
"""The largest joint domain over which conditions are evaluated."""

_HARDENED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
    "memory_limit": "2GB",
    "lock_configuration": "true",
}
_STORED = {"BOOLEAN": "BOOLEAN", "VARCHAR": "VARCHAR", "ENUM": "VARCHAR"}


class Evaluator(AbstractContextManager["Evaluator"]):
    """Evaluates conditions on the cells of joint domains.

    An ENUM is held as VARCHAR, because DuckDB compares an ENUM with a string as strings.
    """

    def __init__(self) -> None:
        self._con = duckdb.connect(":memory:", config=_HARDENED)
        self._tables: dict[tuple[str, Domain], str] = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the database."""
        self._con.close()

    def mask(
        self, conditions: Sequence[Condition], domains: dict[str, Domain], sql: str
    ) -> NDArray[np.bool_]:
        """Tell for each joint cell whether all conditions are true (not false, not unknown).

        Args:
            conditions: conditions on columns of `domains` only.
            domains: column → domain, in the order of the axes; may be empty.
            sql: the statement, for error messages.

        Returns:
            An array with one axis per domain.

        Raises:
            ResourceLimitError: the joint domain has too many cells.
            SqlError: DuckDB can't evaluate a condition.
        """
        shape = tuple(domain.size for domain in domains.values())
        cells = check_cells(domains)
        tables = [self._table(name, domain) for name, domain in domains.items()]
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        code = " + ".join(f"{t}.code * {s}" for t, s in zip(tables, strides, strict=True)) or "0"
        parameters: list[str] = []
        names = {name: f"{table}.value" for name, table in zip(domains, tables, strict=True)}
        holds = " AND ".join(render(c.term, names, parameters) for c in conditions)
        # Selected, not filtered by: DuckDB's planning takes seconds for a thousand filters.
        select = f"SELECT {code} AS cell, ({holds}) IS TRUE AS kept"
        query = f"{select} FROM {', '.join(tables) or '(SELECT 1)'}"
        mask = np.zeros(cells, dtype=np.bool_)
        try:
            found = self._con.execute(query, parameters).fetchnumpy()
        except duckdb.Error:
            raise SqlError(
                "The condition can't be evaluated on the public domain.",
                sql=sql,
                span=conditions[0].span,
                hint="write it more simply; the bounds and labels of the columns are its input.",
            ) from None
        mask[np.asarray(found["cell"], dtype=np.int64)] = np.asarray(found["kept"], dtype=np.bool_)
        return mask.reshape(shape)

    def _table(self, name: str, domain: Domain) -> str:
        """Store a domain under a generated name, once."""
        key = (name, domain)
        if key not in self._tables:
            table = f"domain_{len(self._tables)}"
            try:
                self._store(table, domain)
            except duckdb.Error:
                raise ResourceLimitError(
                    f"The domain of {name} can't be stored for evaluation.",
                    hint="are its labels plain text, and is there memory left?",
                ) from None
            self._tables[key] = table
        return self._tables[key]

    def _store(self, table: str, domain: Domain) -> None:
        type_ = _STORED.get(domain.type, "HUGEINT")
        self._con.execute(f"CREATE TABLE {table} (code BIGINT, value {type_})").fetchall()
        values, count = domain.values, domain.size - domain.nullable
        if isinstance(values, range):
            select = f"SELECT range, range::HUGEINT + ({values.start})::HUGEINT FROM range({count})"
            self._con.execute(f"INSERT INTO {table} {select}").fetchall()
        else:
            texts = [v if isinstance(v, str) else str(v).lower() for v in values]
            select = f"SELECT unnest(range({count})), unnest(?::VARCHAR[])::{type_}"
            self._con.execute(f"INSERT INTO {table} {select}", [texts]).fetchall()
        if domain.nullable:
            self._con.execute(f"INSERT INTO {table} VALUES ({count}, NULL)").fetchall()


def check_cells(domains: dict[str, Domain]) -> int:
    """Count the joint cells of some columns.

    Raises:
        ResourceLimitError: there are more than the evaluator accepts.
    """
    cells = math.prod(domain.size for domain in domains.values())
    if cells > MAX_JOINT_CELLS:
        sizes = " x ".join(f"{name} ({domain.size:,})" for name, domain in domains.items())
        raise ResourceLimitError(
            f"Conditions over {sizes} together have {cells:,} cells, "
            f"more than {MAX_JOINT_CELLS:,}.",
            hint="compare coarser columns, or fewer of them, in one condition.",
        )
    return cells


def render(term: Term, names: dict[str, str], parameters: list[str]) -> str:
    """Write a term of truth values, strings or NULL as SQL; strings go to `parameters`."""
    operator = term.operator
    if operator == "column":
        return names[str(term.value)]
    if operator == "literal":
        return _literal(term, parameters)
    scale = term.scale
    parts = [
        _integer(operand, scale, names) if operand.kind == "number"
        else render(operand, names, parameters)
        for operand in term.operands
    ]  # fmt: skip
    if operator in {"AND", "OR"}:
        return "(" + f" {operator} ".join(parts) + ")"
    if operator == "NOT":
        return f"(NOT {parts[0]})"
    if operator in {"IS NULL", "IS TRUE", "IS FALSE"}:
        return f"({parts[0]} {operator})"
    if operator == "BETWEEN":
        return f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})"
    if operator == "IN":
        return f"({parts[0]} IN ({', '.join(parts[1:])}))"
    if operator in {"=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"}:
        return f"({parts[0]} {operator} {parts[1]})"
    raise InternalError(f"no rule to write {operator!r}")


def _literal(term: Term, parameters: list[str]) -> str:
    if isinstance(term.value, str):
        parameters.append(term.value)
        return "?::VARCHAR"
    return {True: "TRUE", False: "FALSE", None: "NULL"}[term.value]  # type: ignore[index]


def _integer(term: Term, scale: int, names: dict[str, str]) -> str:
    """Write a number times 10**scale as an exact integer expression."""
    if term.operator == "literal" and isinstance(term.value, int):
        return f"{term.value * 10 ** (scale - term.scale)}::HUGEINT"
    factor = 10 ** (scale - term.scale)
    if factor > 1:
        return f"({_integer(term, term.scale, names)} * {factor}::HUGEINT)"
    if term.operator == "column":
        return names[str(term.value)]
    inner = [
        _integer(operand, operand.scale if term.operator == "*" else term.scale, names)
        for operand in term.operands
    ]
    if term.operator == "NEG":
        return f"(-{inner[0]})"
    if term.operator == "ABS":
        return f"abs({inner[0]})"
    if term.operator in {"+", "-", "*"}:
        return f"({inner[0]} {term.operator} {inner[1]})"
    raise InternalError(f"no rule to write {term.operator!r}")
