"""Put scripts over single tables together: one workload, and statements in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dpsql.errors import SchemaError, SqlError, printable
from dpsql.schema import Table
from dpsql.schema.referred import over_both
from dpsql.sql.assemble import scale_of
from dpsql.sql.binding.outline import Outlined
from dpsql.sql.compiled import AnswerTable, GroupingSet, Script, Statement, StatisticColumn
from dpsql.sql.lowering.lower import GroupsOf
from dpsql.sql.text.parse import Parsed
from dpsql.workload import Family
from dpsql.workload.several import UnitTable, named, over_all

T = TypeVar("T")
SameUnits = Callable[[Table, Table], None]
"""Raises a SchemaError if the rows of a second table are not of the same units as of the first."""


Written = tuple[str, Parsed, Outlined]


def one_table_only(first: Table, other: Table) -> None:
    """Know of no two tables with rows of the same units.

    Raises:
        SchemaError: always.
    """
    raise SchemaError(
        f"{over_both(first, other)}: one script releases from one table.",
        hint="release from each table in its own call.",
    )


def by_table(
    outlined: Sequence[Written], several: bool, same_units: SameUnits
) -> list[tuple[Table, list[Written]]]:
    """Return each private table that is named, and the statements over it.

    A statement that names none, of which all is public, goes with the first table.

    Raises:
        SqlError: no table is named; a statement is over several, or over one whose rows are of
            other units.
    """
    found: dict[tuple[str, ...], tuple[Table, list[Written]]] = {}
    public = [written for written in outlined if not written[2].tables]
    for written in outlined:
        name, parsed, outline = written
        for table, span in outline.tables:
            key = table.path or (table.name,)
            try:
                _check_same(table, outline.tables[0][0])
                if key not in found and found:
                    same_units(next(iter(found.values()))[0], table)
            except SchemaError as error:
                located = parsed.source.located(error, span)
                located.statement = printable(name) if several else None
                raise located from None
            widest, own = found.get(key, (table, []))
            widest = max(widest, table, key=lambda one: len(one.parents))
            found[key] = widest, (own if written in own else [*own, written])
    if not found:
        raise _counts_nothing(outlined[0][1])
    (table, own), *others = found.values()
    first = [written for written in outlined if written in own or written in public]
    return [(table, first), *others]


def _check_same(table: Table, first: Table) -> None:
    """Refuse a second table in one statement."""
    if (table.path or table.name) != (first.path or first.name):
        raise SchemaError(
            f"This is over {printable(table.name)}, but the statement begins with "
            f"{printable(first.name)}: a statement counts the rows of one table.",
            hint="count each table in a statement of its own, in one release.",
        )


def _counts_nothing(parsed: Parsed) -> SqlError:
    source = parsed.source
    return source.unsupported(
        source.whole(),
        "The statement counts nothing: no private table is named after FROM.",
        "name one: SELECT COUNT(*) FROM people. What is public needs no noise: ask DuckDB.",
    )


def over_several(scripts: Sequence[Script], order: Sequence[str]) -> Script:
    """Return one script for the statements of several, each over a table of its own.

    What was scaled for each table by itself, so that weights of its counts add up to their number,
    is so for all tables together then.

    Args:
        scripts: one for each table.
        order: the names of all statements, as they were given.
    """
    names = named(script.table.name for script in scripts)
    tables = [
        UnitTable(name, script.table.contributions)
        for name, script in zip(names, scripts, strict=True)
    ]
    families: list[Family] = []
    weights: list[float] = []
    statements: dict[str, Statement] = {}
    for table, script in zip(tables, scripts, strict=True):
        first, own = len(families), script.workload.families
        statements |= {s.name: _among(s, table, script, first) for s in script.statements}
        families += own
        weights += [family.weight / script.scale / table.rows**2 for family in own]
    scale = scale_of(families, weights)
    asked = [[f.weight * scale / s.scale for f in s.workload.families] for s in scripts]
    apart = tuple(zip(tables, scripts, strict=True))
    return Script(
        tuple(script.table for script in scripts),
        tuple(statements[name] for name in order),
        over_all([(table, script.workload) for table, script in apart], asked),
        _all(apart, [script.merged for script in scripts]),
        _all(apart, [script.measures for script in scripts]),
        _all(apart, [script.keys for script in scripts]),
        {
            **{table.name: f"rows of {table.name}" for table in tables},
            **_all(apart, [_labels(table, script) for table, script in apart]),
        },
        scale,
        apart,
    )


def _all(
    apart: Sequence[tuple[UnitTable, Script]], found: Sequence[Mapping[str, T]]
) -> dict[str, T]:
    """Put what is said of the attributes of each table together."""
    return {
        table.attribute(name): of
        for (table, _), each in zip(apart, found, strict=True)
        for name, of in each.items()
    }


def _labels(table: UnitTable, script: Script) -> dict[str, str]:
    return {name: table.attribute(label) for name, label in script.labels.items()}


def _among(statement: Statement, table: UnitTable, script: Script, first: int) -> Statement:
    """Return a statement whose families are among others, from number `first` on."""

    def column(one: StatisticColumn) -> StatisticColumn:
        counts = script.workload.families[one.family].measure is None
        return replace(
            one,
            family=first + one.family,
            axes=(*one.axes, ()) if counts else one.axes,
            over=frozenset(map(table.attribute, one.over)),
        )

    def group(one: GroupingSet) -> GroupingSet:
        return GroupsOf(one.axes, tuple(map(column, one.columns)))

    tables = tuple(
        AnswerTable(answer.keys, tuple(map(group, answer.sets)), answer.floor)
        for answer in statement.tables
    )
    return replace(statement, tables=tables)
