"""Combinations: rows that are made of rows of several private tables, all of one unit.

    orders o JOIN visits v ON o.customer_id = v.customer_id

has a row for each pair of an order and a visit of the same customer: no order refers to one visit,
nor a visit to one order. So it is a relation of its own, "orders, visits", with its own bound on
the rows of a unit, of which `max_rows` says how large it is; and it is counted as a table is.

*Why it is of one unit.* Each side has the rows that belong to units, and a pair is one of two rows
of the same unit, whatever the statement says: so the pairs of a unit are made of its own rows, and
to add or remove another one changes nothing of them. At most `max_rows` pairs of a unit are kept,
by the rule of `engines/duckdb/bounded.py`, when they have been made.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from dpsql.errors import InternalError, SchemaError, UnboundedError, printable
from dpsql.hints import option
from dpsql.schema.declarations import Schema
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.facts import Catalog
from dpsql.schema.grain import origins, unit_columns
from dpsql.schema.keys import comments
from dpsql.schema.lookup import means
from dpsql.schema.names import folded
from dpsql.schema.table import Origin, Parent, Table
from dpsql.schema.units import MAX_ROWS, EachRow, KeyStep, ResolvedUnit, Unit, from_comment

UNIT = "unit"
"""The column with the ids of units; all others have the name of a table before them."""
_EXAMPLE = 20
"""A bound that is proposed where those of the tables aren't known."""
Place: TypeAlias = tuple[int, str]
"""A column: the number of the table whose it is, and its name there."""


@dataclass(frozen=True, slots=True)
class RowCombination:
    """A combination of rows: the tables that they are of, and the columns that are equal."""

    sources: tuple[Table, ...]
    """The tables, in the order of their paths, with columns of rows that theirs refer to; one may
    be there twice."""
    equal: frozenset[frozenset[Place]] = frozenset()
    """Columns of two of them that are equal, besides the ids of their units."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tables, which are not combinations themselves."""
        return tuple(sorted(one.name for table in self.sources for one in made_of(table)))

    @property
    def name(self) -> str:
        """The name of the combination, also in `max_rows`."""
        return ", ".join(self.names)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of the columns of each table, so that no two of all have the same name.

        Names of tables and of columns may have points and numbers in them. Where two columns would
        get the same name in this way, the tables are numbered.
        """
        found = list[str]()
        for number, table in enumerate(self.sources):
            copy = sum(other.name == table.name for other in self.sources[:number])
            found.append(f"{table.name} {copy + 1}." if copy else f"{table.name}.")
        of = zip(found, self.sources, strict=True)
        names = [folded(before + own) for before, one in of for own in ("", *columns_of(one))]
        if len(set(names)) == len(names):
            return tuple(found)
        return tuple(f"{i}.{table.name}." for i, table in enumerate(self.sources, start=1))

    @property
    def sides(self) -> tuple[Parent, ...]:
        """The sides that its columns are from: its tables, and what the rows of these refer to."""
        found = list[Parent]()
        for prefix, table in zip(self.prefixes, self.sources, strict=True):
            step = KeyStep(prefix.removesuffix("."), table.path, "", "")
            own = Parent("", step, table.alone, on_way=True)
            below = table.origin.sides if table.origin is not None else ()
            inner = (replace(p, above=prefix + p.above) for p in (*table.parents, *below))
            found += [own, *inner]
        return tuple(found)

    @property
    def digest(self) -> str:
        """A hash of what it is made of."""
        made = [
            (
                table.path[1:],
                table.unit,
                [(parent.above, parent.join, parent.on_way) for parent in table.parents],
                [origin.digest for origin in origins(table)],
            )
            for table in self.sources
        ]
        equal = sorted(sorted(pair) for pair in self.equal)
        return hashlib.sha256(repr((made, equal)).encode()).hexdigest()

    def table(self, unit: ResolvedUnit, origin: Origin) -> Table:
        """Return it as a table, whose rows come from there."""
        columns: dict[str, Domain] = {}
        undeclared: dict[str, str] = {}
        bounds: dict[str, NumberBounds] = {}
        enforced, filled = set[str](), set[str]()
        for prefix, of in zip(self.prefixes, self.sources, strict=True):
            columns |= {prefix + name: domain for name, domain in of.columns.items()}
            undeclared |= {prefix + name: type_ for name, type_ in of.undeclared.items()}
            bounds |= {prefix + name: each for name, each in of.bounds.items()}
            enforced |= {prefix + name for name in of.enforced}
            filled |= {prefix + name for name in of.filled}
        (database, schema, *_) = self.sources[0].path
        return Table(
            self.name,
            columns,
            undeclared,
            (database, schema, f"{self.name} {self.digest[:16]}"),
            unit,
            frozenset(enforced),
            bounds=bounds,
            filled=frozenset(filled),
            origin=origin,
            file=self.sources[0].file,
        )

    def base(self, unit: ResolvedUnit) -> Table:
        """Return what is charged for: whatever is equal besides the units."""
        (database, schema, *_) = self.sources[0].path
        own = replace(unit, column=unit.name)
        return Table(self.name, {}, path=(database, schema, self.name), unit=own)


def made_of(table: Table) -> tuple[Table, ...]:
    """Return the tables that a table is made of, with what their rows refer to.

    They are those of a combination, the table whose rows are chosen, or the table itself.
    """
    whole = table.whole
    tables = whole.origin.tables if whole.origin is not None else ()
    return tuple(one for each in tables for one in made_of(each)) or (whole,)


def ids_of_units(table: Table) -> tuple[str, ...]:
    """Return the columns that tell units apart, and only units: see `grain.unit_columns`.

    Where rows meet, they are those of each table: the rows that meet are of one unit, which each of
    them has, so these columns are as different as the units are.
    """
    units: object = getattr(getattr(table.origin, "related", None), "units", None)
    if isinstance(units, tuple):
        return units
    combination = combination_of(table)
    if combination is None:
        return unit_columns(table)
    made = zip(combination.prefixes, combination.sources, strict=True)
    return tuple(prefix + name for prefix, one in made for name in ids_of_units(one))


def columns_of(table: Table) -> tuple[str, ...]:
    """Return the names of all columns of a table, with those of rows that its rows refer to."""
    return (*table.columns, *table.undeclared)


def bound_of(
    catalog: Catalog,
    combination: RowCombination,
    schema: Schema | None,
    unit: Unit | EachRow | None,
) -> int | None:
    """Return how many rows of a unit count in a combination; None if nothing says so.

    Raises:
        SchemaError: several bounds are declared.
    """
    made = [one for each in combination.sources for one in made_of(each)]
    wanted = Counter(table.path for table in made)
    noted = (from_comment(*each) for each in _comments(catalog, made))
    declared = schema.units.values() if schema is not None else ()
    for units in ([unit], declared, noted):  # each goes before the next
        given = [(n, rows) for one in units for n, rows in _bounds(one).items()]
        own = [
            each for each in given if Counter(_of_tables(catalog, each[0], list(wanted))) == wanted
        ]
        if len({rows for _, rows in own}) > 1:
            raise SchemaError(
                f"Several bounds are declared where rows of {printable(combination.name)} meet.",
                hint="declare one of them, or the same for all tables.",
            )
        if own:
            return own[0][1]
    return None


def unbounded_pairs(
    catalog: Catalog,
    combination: RowCombination,
    schema: Schema | None,
    unit: Unit | EachRow | None,
) -> UnboundedError:
    """Say that nothing bounds the rows of a unit where rows meet, and how a bound is given.

    As many as all rows of a unit make that count in the tables are a bound by which none is left
    out: it is proposed where these bounds are known.
    """
    made = [one for each in combination.sources for one in made_of(each)]
    noted = (from_comment(*each) for each in _comments(catalog, made))
    declared = schema.units.values() if schema is not None else ()
    known: dict[str, int] = {}
    for one in (*noted, *declared, unit):
        known |= _bounds(one)
    most, why = _EXAMPLE, "as many as you expect: fewer add less noise, and more are left out"
    if all(table.is_bounded for table in made):
        each = [table.contributions for table in made]
        most = math.prod(each)
        why = f"by {' × '.join(map(str, each))} none is left out, and fewer add less noise"
        if most > MAX_ROWS:
            most, why = MAX_ROWS, f"the most is {MAX_ROWS:,}, and fewer add less noise"
    return UnboundedError(
        f"Nothing says how many rows of a unit count where rows of {printable(combination.name)} "
        "meet.",
        hint=f"say how many of these count, {why}: "
        + option("max_rows", {combination.name: most, **known})
        + ".",
    )


def _bounds(unit: Unit | EachRow | None) -> Mapping[str, int]:
    """Return what a unit says of several tables."""
    rows = unit.max_rows if isinstance(unit, Unit) else None
    return rows if isinstance(rows, Mapping) else {}


def _comments(catalog: Catalog, tables: Sequence[Table]) -> Iterator[tuple[str, str]]:
    """Yield the tables of some that have a comment for dpsql, each with it."""
    paths = {table.path for table in tables}
    for path, comment in comments(catalog):
        if path in paths:
            yield path[-1], comment


def _of_tables(
    catalog: Catalog, declared: str, paths: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return which of some tables a name means that lists several: "orders, visits".

    A folder is also known without its kind, as it is called where it is shown. What means none of
    them is returned as it is written.
    """
    found = list[tuple[str, ...]]()
    for part in map(str.strip, declared.split(",")):
        found.append(next((path for path in paths if _is(catalog, part, path)), (part,)))
    return found


def _is(catalog: Catalog, part: str, path: tuple[str, ...]) -> bool:
    return means(catalog, part, path) or ("/" in part and part == path[-1])


@dataclass(frozen=True)
class OfCombination:
    """The facts about the rows of a combination, wherever they come from.

    Args:
        combination: which rows meet.
        base: what is charged for.
    """

    combination: RowCombination
    base: Table

    @property
    def digest(self) -> str:
        """A hash of what is scanned."""
        return self.combination.digest

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private tables that it is made of."""
        return self.combination.sources

    @property
    def sides(self) -> tuple[Parent, ...]:
        """The sides that its columns are from."""
        return self.combination.sides


class _NotAtHand:
    """The origin of rows in a saved release, which has none."""

    roots: tuple[Path, ...] = ()
    state: str = ""

    @property
    def sql(self) -> str:
        """There is no database."""
        raise InternalError("what was saved has no rows")

    def check_unchanged(self) -> None:
        """There are no files."""


@dataclass(frozen=True)
class KnownPairs(_NotAtHand, OfCombination):
    """A combination, as a saved release has it."""


@dataclass(frozen=True)
class KnownRows(_NotAtHand):
    """The origin of the rows of a view, as a saved release has it."""

    base: Table
    digest: str

    @property
    def tables(self) -> tuple[Table, ...]:
        """It is made of one table, `base`."""
        return ()

    @property
    def sides(self) -> tuple[Parent, ...]:
        """Its columns are of no other."""
        return ()


def combination_of(table: Table) -> RowCombination | None:
    """Return which rows meet in a table; None if it is no combination."""
    found = getattr(table.origin, "combination", None)
    return found if isinstance(found, RowCombination) else None


def known_pairs(table: Table, combination: RowCombination) -> Table:
    """Say what a table is made of that was read.

    Raises:
        ValueError: it has other columns than that, or no units.
    """
    places = {number for pair in combination.equal for number, _ in pair}
    if table.unit is None or not places <= set(range(len(combination.sources))):
        raise ValueError
    origin = KnownPairs(combination, combination.base(table.unit))
    made, own = combination.table(table.unit, origin), table.alone
    if (made.columns, made.undeclared, made.bounds) != (own.columns, own.undeclared, own.bounds):
        raise ValueError
    return replace(table, origin=origin)
