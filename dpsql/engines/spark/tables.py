"""Tables that Spark counts: the sources of their rows, and ways from these to their units. Trusted.

Guarantees:
    `rows_of_units` has each (row, u) once: a row of a table for each unit u that its way leads to,
    with the id of u beside it. To add or to remove a unit u leaves (row, v) for v ≠ u as it is.

    *Proof.* No key is enforced here, so that a row may have several units. Each step meets the
    distinct (key, u) of the rows that have the key, of which there is one for each unit that the
    way leads to from there; a row that refers to none has no unit. Both sides are compared as
    values of which equal ones are the same, texts as bytes. What comes or goes with u are the rows
    with its id in the table that has the ids. So u's rows are those (row, u). By induction over the
    steps, from the last one on, they follow from the rows with its id. ∎

An id of several columns is a struct of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from dpsql.engines.spark.sessions import functions_of
from dpsql.engines.spark.sql.text import call, constant, identity, quoted
from dpsql.schema import Table
from dpsql.schema.names import unused
from dpsql.schema.units import KeyStep, ResolvedUnit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkTables(Protocol):
    """The source of the rows of tables."""

    @property
    def session(self) -> SparkSession:
        """A session with settings that are pinned."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is read inside be of one state; see `Engine.snapshot`."""

    def rows(self, table: Table) -> DataFrame:
        """Return all rows of a table, in the snapshot; reads none."""

    def at(self, path: tuple[str, ...], types: Mapping[str, str]) -> DataFrame:
        """Return all rows of a table on the way to a unit, in the snapshot; reads none.

        Args:
            path: where it is.
            types: columns that it must have, with their types.

        Raises:
            StaleSchemaError: it has others.
        """

    def check_unchanged(self, path: tuple[str, ...]) -> None:
        """Check that what was read is still what it was when the snapshot was entered.

        Raises:
            StaleSchemaError: it isn't.
        """


# ── Spark's ways from rows to their units ──


def rows_of_units(tables: SparkTables, table: Table) -> tuple[DataFrame, str]:
    """Return the rows of a table that belong to units, and the column with the ids of these."""
    unit, rows = table.own_unit, tables.rows(table)
    stored = [*table.columns, *table.undeclared]
    prefix, shown = unused(stored), list(map(quoted, stored))
    id_ = f"{prefix}id"
    if not unit.joins:
        return _known(rows, unit).selectExpr(*shown, f"{_id(unit)} AS {id_}"), id_
    refers = (identity(quoted(pair.column), pair.type) for pair in unit.joins[0].pairs)
    met = _joined(rows, _on_way(tables, unit, 0, prefix), refers, _keys(unit.joins[0], 0, prefix))
    return met.selectExpr(*shown, id_), id_


def parts_of_id(table: Table, id_: str) -> list[tuple[str, str]]:
    """Return what the id of a unit is made of, with its types; bytes stand for texts.

    Args:
        table: whose rows have the ids; what is made of rows has those of these.
        id_: the column with the ids.
    """
    while table.made_of:
        table = table.made_of[0]
    types = [type_ for _, type_ in table.own_unit.columns]
    parts = [f"{id_}.{_part(i)}" for i in range(len(types))] if types[1:] else [id_]
    return list(zip(parts, types, strict=True))


def _on_way(tables: SparkTables, unit: ResolvedUnit, step: int, prefix: str) -> DataFrame:
    """Return each key of the rows that a step leads to, once with each unit that it is of."""
    join, last = unit.joins[step], step + 1 == len(unit.joins)
    types = {pair.key: pair.type for pair in join.pairs}
    rows = tables.at(join.path, types | (dict(unit.columns) if last else {}))
    identities = (identity(quoted(pair.key), pair.type) for pair in join.pairs)
    keys = _keys(join, step, prefix)
    shown = [f"{value} AS {key}" for value, key in zip(identities, keys, strict=True)]
    if last:
        return _known(rows, unit).selectExpr(*shown, f"{_id(unit)} AS {prefix}id").distinct()
    # These tables have other columns besides, which could have our names.
    onward = unit.joins[step + 1]
    refers = [f"{prefix}r{i}" for i in range(len(onward.pairs))]
    pairs = zip(onward.pairs, refers, strict=True)
    shown += [f"{identity(quoted(pair.column), pair.type)} AS {name}" for pair, name in pairs]
    further, their = _on_way(tables, unit, step + 1, prefix), _keys(onward, step + 1, prefix)
    met = _joined(rows.selectExpr(*shown), further, refers, their)
    return met.selectExpr(*keys, f"{prefix}id").distinct()


def _keys(join: KeyStep, step: int, prefix: str) -> list[str]:
    return [f"{prefix}k{step}_{i}" for i in range(len(join.pairs))]


def _joined(
    rows: DataFrame, met: DataFrame, refers: Iterable[str], keys: Sequence[str]
) -> DataFrame:
    same = " AND ".join(f"{reference} = {key}" for reference, key in zip(refers, keys, strict=True))
    return rows.join(met, functions_of(rows).expr(same), "inner")


def _known(rows: DataFrame, unit: ResolvedUnit) -> DataFrame:
    """Leave out rows that belong to nobody."""
    return rows.where(" AND ".join(f"{quoted(name)} IS NOT NULL" for name, _ in unit.columns))


def _id(unit: ResolvedUnit) -> str:
    """Write the id of a unit, of which equal ones are the same, byte for byte."""
    ids = [identity(quoted(name), type_) for name, type_ in unit.columns]
    named = ((constant(_part(i), "STRING"), id_) for i, id_ in enumerate(ids))
    return call("named_struct", *(part for pair in named for part in pair)) if ids[1:] else ids[0]


def _part(number: int) -> str:
    return f"i{number}"
