"""Take statements apart by the tables that they are over, and put together what each is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from dpsql.errors import SchemaError, SqlError, printable
from dpsql.hints import never
from dpsql.schema import Table
from dpsql.schema.references import check_stored_apart, over_both
from dpsql.sql.assemble import Asked, AskedPart, scale_of
from dpsql.sql.binding.core import counts_units
from dpsql.sql.binding.tables import SameUnits, Unbounded
from dpsql.sql.compiled import GroupingSet, Script, StatisticColumn
from dpsql.sql.lowering.lower import GroupsOf
from dpsql.sql.outline import Outlined
from dpsql.sql.text.parse import Parsed
from dpsql.workload import Family
from dpsql.workload.workload import UnitTable, named, over_all

T = TypeVar("T")
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
    """Return each private table that is named, and what statements ask of it.

    A statement over several tables is taken apart: each table has those of its cores that are over
    it. One that names no table, of which all is public, goes with the first.

    Raises:
        SqlError: no table is named; or a statement is over one whose rows are of other units.
    """
    tables: dict[tuple[str, ...], Table] = {}
    for name, parsed, outline in outlined:
        for table, span in outline.tables:
            key = _key(table)
            if tables and key not in tables:
                try:
                    leading = next(iter(tables.values()))
                    same_units(leading, table)
                    check_stored_apart(leading, table)
                except SchemaError as error:
                    located = parsed.source.located(error, span)
                    located.statement = printable(name) if several else None
                    raise located from None
            tables[key] = max(tables.get(key, table), table, key=lambda one: len(one.parents))
    if not tables:
        raise _counts_nothing(outlined[0][1])
    first = next(iter(tables))
    return [
        (table, [_over(key, *w) for w in outlined if key in (_keys(w[2]) or {first})])
        for key, table in tables.items()
    ]


def check_bounded(outlined: Sequence[Written], several: bool, unbounded: Unbounded) -> None:
    """Check that something bounds the rows of units wherever rows are counted.

    Where units are counted, nothing has to: each is one. All else that may be wrong is looked for
    before, so that nobody gives a bound for a statement that is refused all the same.

    Raises:
        SqlError: a statement counts rows that nothing bounds.
    """
    for name, parsed, outline in outlined:
        for (table, span), core in zip(outline.tables, outline.cores, strict=False):
            if table.is_bounded or all(counts_units(each) for each in core.statistics):
                continue
            error = unbounded(table)
            located = parsed.source.located(error, span)
            located.statement = printable(name) if several else None
            raise located from error


def _key(table: Table) -> tuple[str, ...]:
    return table.path or (table.name,)


def _keys(outline: Outlined) -> set[tuple[str, ...]]:
    return {_key(table) for table, _ in outline.tables}


def _over(key: tuple[str, ...], name: str, parsed: Parsed, outline: Outlined) -> Written:
    """Return what a statement asks of one table."""
    own = [i for i, (table, _) in enumerate(outline.tables) if _key(table) == key]
    cores = tuple(outline.cores[i] for i in own) if outline.cores else ()
    tables = tuple(outline.tables[i] for i in own)
    return name, parsed, replace(outline, cores=cores, tables=tables)


def _counts_nothing(parsed: Parsed) -> SqlError:
    source = parsed.source
    return source.unsupported(
        source.whole(),
        "The statement counts nothing: no private table is named after FROM.",
        never(
            "nothing in it is private, so it needs no noise. Name a private table, or "
            "ask DuckDB itself."
        ),
    )


def over_all_tables(asked: Sequence[Asked]) -> Asked:
    """Put what is asked of each table together.

    What was scaled for each table by itself, so that weights of its counts add up to their number,
    is so for all tables together then.
    """
    if len(asked) == 1:
        return asked[0]
    scripts = [of.script for of in asked]
    names = named(script.table.name for script in scripts)
    tables = [
        UnitTable(name, script.table.contributions)
        for name, script in zip(names, scripts, strict=True)
    ]
    families: list[Family] = []
    weights: list[float] = []
    parts: list[AskedPart] = []
    for table, of in zip(tables, asked, strict=True):
        script = of.script
        parts += [_among(part, table, script, len(families)) for part in of.parts]
        families += script.workload.families
        weights += [f.weight / script.scale / table.rows**2 for f in script.workload.families]
    scale = scale_of(families, weights)
    given = [[f.weight * scale / s.scale for f in s.workload.families] for s in scripts]
    apart = tuple(zip(tables, scripts, strict=True))
    script = Script(
        tuple(script.table for script in scripts),
        (),
        over_all([(table, script.workload) for table, script in apart], given),
        _all(apart, [script.merged for script in scripts]),
        _all(apart, [script.measures for script in scripts]),
        _all(apart, [script.keys for script in scripts]),
        {
            **{table.name: f"rows of {table.name}" for table in tables},
            **_all(apart, [_labels(table, script) for table, script in apart]),
        },
        scale,
        _all(apart, [script.units for script in scripts]),
        {name: of for script in scripts for name, of in script.drawn.items()},
        apart,
    )
    return Asked(script, tuple(parts))


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


def _among(part: AskedPart, table: UnitTable, script: Script, first: int) -> AskedPart:
    """Return what is asked of a table by families among others, from number `first` on."""

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

    answers = tuple(
        replace(answer, sets=tuple(map(group, answer.sets)), table=table.name)
        for answer in part.answers
    )
    return replace(part, answers=answers)
