"""Described relations: a relation, and what is public of each of its columns.

A relation under translation is a table of which the columns are called by their ids. So what
statements say of it is bound and read as of any table, and grows no other forms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError
from dpsql.rel.facts import UNIT, Known, RelationFacts, columns_of_rows, is_scanned
from dpsql.rel.keys import same_rows
from dpsql.rel.nodes import SAME_IDS, Id, Key, Relation, Scan, StoredRows
from dpsql.rel.related import RelatedRows
from dpsql.rows.expression import RowCall, RowConstant, RowExpression
from dpsql.rows.known import Interval
from dpsql.rows.types import DOUBLE
from dpsql.rows.write import RowWriter
from dpsql.schema import Domain, Table
from dpsql.schema.domain import INTEGER_TYPES, NumberBounds, Value, is_number
from dpsql.schema.grain import declared_type
from dpsql.schema.sequences import DecimalRange, decimal_text, grid
from dpsql.schema.table import Parent
from dpsql.schema.units import ResolvedUnit, RowLimit
from dpsql.sql.binding.canonical import id_of
from dpsql.sql.binding.expressions import BoundExpr
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.text.spans import SourceText

MOST_VALUES = 10_000
"""Values of a computed column, up to which it has a domain."""
_DIGITS = 10**6
_ORDERS = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_DAY = re.compile(r"(?!0000)\d{4}-\d\d-\d\d")
"""A date that is neither infinite nor of a year that Python doesn't have."""
_NO_CELL = frozenset({"drop", "null"})
"""Rules by which values outside of a domain have no cell of it."""
_LISTED = frozenset({*INTEGER_TYPES, "VARCHAR", "BOOLEAN", "DATE", "DOUBLE"})
"""Types of which domains may list any values."""
NO_TYPE = "NULL"
"""The type of what is NULL whatever a row holds."""
Tells = Mapping[Id, frozenset[Key]]


@dataclass(frozen=True, eq=False, slots=True)
class DescribedRelation:
    """A relation under translation.

    Args:
        relation: its rows.
        table: its columns, by their ids, with their domains, bounds and types.
        most: how many rows of a unit count at most; None if nothing says so.
        tells: column → the keys whose value it has, each of a row of the same unit.
        counted: the stored tables whose rows are put together in each of its rows.
        read: all stored tables that are read; none for public rows.
        ids_of: where a column is of a stored table: that, and its name there.
        limits: how many rows of a unit that agree in some columns count at most.
        ids: the columns with the ids of the unit, where these are several.
        sure: how many rows of a unit there are at most, by what a statement says alone.
        equal: as `tells`, of columns that may be NULL: an equality of such a column meets no row
            there, but rows of all units agree in it.
        left: the rows on the left, if it was last joined with others by a LEFT JOIN.
    """

    relation: Relation
    table: Table
    most: int | None
    tells: Tells
    counted: tuple[Table, ...]
    read: tuple[Table, ...]
    ids_of: Mapping[Id, tuple[Table, str]] = field(default_factory=dict)
    limits: tuple[RowLimit, ...] = ()
    sure: int | None = None
    ids: tuple[Id, ...] = ()
    equal: Tells = field(default_factory=dict)
    left: DescribedRelation | None = None

    @property
    def private(self) -> bool:
        """Whether its rows are of units."""
        return bool(self.read)

    @property
    def columns(self) -> tuple[Id, ...]:
        """All columns."""
        return (*self.table.columns, *self.table.undeclared)

    def over(self, relation: Relation, *, most: int | None = None) -> DescribedRelation:
        """Return a relation with the same columns."""
        return replace(self, relation=relation, most=self.most if most is None else most)

    def ids_at(self, places: Mapping[Id, Id]) -> tuple[Id, ...]:
        """Return where the columns with the ids of the unit are; nothing if one isn't there."""
        there = places.keys() >= {*self.ids}
        return tuple(places[id_] for id_ in self.ids) if there else ()

    def telling(self, a: Id, b: Id, other: DescribedRelation) -> bool:
        """Whether rows in which two columns are equal are of one unit."""
        return not self.keys_of(a).isdisjoint(other.keys_of(b))

    def keys_of(self, column: Id) -> frozenset[Key]:
        """Return the keys whose value a column has, wherever it isn't NULL."""
        return self.tells.get(column, self.equal.get(column, frozenset()))

    def is_key(self, column: Id) -> bool:
        """Whether a column says which row is meant, and is no value of it."""
        return bool(self.keys_of(column)) or column in self.ids

    def are_told(self, columns: Iterable[Id | None]) -> bool:
        """Whether some columns are all of those with the ids of the unit, which are several."""
        return bool(self.ids) and {*self.ids} <= {*columns}

    def are_equal(self, other: DescribedRelation, pairs: Iterable[tuple[Id, Id] | None]) -> bool:
        """Whether equalities of columns say that all ids of the unit are the same."""
        same = {*zip(self.ids, other.ids, strict=False)}
        return len(self.ids) == len(other.ids) > 0 and same <= {*pairs}

    def related(self, units: Sequence[Id], notes: Sequence[str] = ()) -> RelatedRows:
        """Return it as rows that can be counted."""
        table = self.table
        counted = tuple(sorted(self.counted, key=lambda one: one.path))
        read = {one.path: one for one in (*counted, *self.read)}
        return RelatedRows(
            self.relation,
            table.columns,
            {name: type_ for name, type_ in table.undeclared.items() if is_scanned(type_)},
            self.most,
            counted,
            tuple(read.values()),
            tuple(units),
            table.bounds,
            table.enforced,
            table.filled,
            tuple(notes),
            self.ids_of,
            self.limits,
            self.sure,
        )


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column that is added to a relation.

    Args:
        id: its id.
        type: its type.
        nullable: whether it may be NULL.
        domain: its values, if they are known.
        between: between which numbers it lies, as far as that is known.
        expected: between which it lies where units keep to `max_rows`, and stored values to
            declared bounds; None if that says no more.
        tells: the keys whose value it has.
        listed: whether all values are of the domain, as those of a column may not be.
        learned: whether the domain was found in the rows, for some statement, or is to be: others
            have the same answers with it and without.
    """

    id: Id
    type: str
    nullable: bool = True
    domain: Domain | None = None
    between: Interval = (None, None)
    expected: Interval | None = None
    tells: frozenset[Key] = frozenset()
    listed: bool = True
    learned: bool = False

    def column(self, id_: Id, type_: str, nullable: bool) -> NewColumn:
        """Return it with an id and a type."""
        domain = self.domain or integers_between(self.between, type_)
        if domain is not None and domain.nullable and not nullable:
            outside = "drop" if domain.outside == "null" else domain.outside
            domain = replace(domain, nullable=False, outside=outside)
        return replace(self, id=id_, type=type_, nullable=nullable, domain=domain)


def scanned(
    table: Table,
    prefix: str,
    unique: Iterable[frozenset[str]],
    tells: Mapping[str, frozenset[Key]],
    referring: Iterable[str] = (),
) -> DescribedRelation:
    """Describe the rows of a stored table: of which each is one by itself, if it has no units.

    Args:
        table: the table.
        prefix: what stands before the names of its columns in their ids.
        unique: sets of columns in which no two rows agree.
        tells: column → the keys whose value it has.
        referring: columns that tell the unit although they may be NULL, of which it is noted.
    """
    own, unit = table.alone, table.unit
    ids = _ids_in(unit)
    of_unit = {name: UNIT for name in ids if len(ids) == 1}
    source = StoredRows(own, SAME_IDS, frozenset(unique), of_unit)
    relation = Scan(source, prefix)
    names = {name: id_ for id_, name in columns_of_rows(source, prefix).items()}
    facts = Known().of(relation)
    described = _with_ids(table, names, prefix, facts)
    sure = described.filled | {*_named(referring, names)}
    keys = {names[n]: of for n, of in tells.items() if n in names and of}
    there = {id_: of for id_, of in keys.items() if UNIT in of or id_ in sure}
    return DescribedRelation(
        relation,
        described,
        _most_rows(unit, facts),
        there,
        (table,),
        (table,),
        {id_: (own, name) for name, id_ in names.items()},
        () if unit is None else _limits_of(unit, names),
        ids=_named(ids, names) if len(ids) > 1 else (),
        equal={id_: of for id_, of in keys.items() if id_ not in there},
    )


def _ids_in(unit: ResolvedUnit | None) -> tuple[str, ...]:
    """Return the columns of a table that have the ids of its units, if these are in it."""
    return () if unit is None or unit.joins else tuple(name for name, _ in unit.columns)


def _most_rows(unit: ResolvedUnit | None, facts: RelationFacts) -> int | None:
    """Return how many stored rows of a unit count at most, by keys or as it is declared."""
    if unit is None:
        return 1
    return unit.max_rows if facts.most is None else facts.most


def _limits_of(unit: ResolvedUnit, names: Mapping[str, Id]) -> tuple[RowLimit, ...]:
    return tuple(
        RowLimit(tuple(names[name] for name in limit.columns), limit.rows) for limit in unit.limits
    )


def _named(columns: Iterable[str], names: Mapping[str, Id]) -> tuple[Id, ...]:
    """Return the ids of those columns that are read."""
    return tuple(names[name] for name in columns if name in names)


def _with_ids(table: Table, names: Mapping[str, Id], prefix: str, facts: RelationFacts) -> Table:
    """Return a table whose columns are called by their ids; those that nothing reads are, too."""
    own = table.alone
    return Table(
        table.name,
        {names[n]: domain for n, domain in own.columns.items()},
        {prefix + n: type_ for n, type_ in own.undeclared.items()},
        table.path,
        table.unit,
        frozenset(names[n] for n in own.enforced if n in names),
        bounds={names[n]: bounds for n, bounds in own.bounds.items() if n in names},
        filled=frozenset(n for n, c in facts.columns.items() if not c.nullable),
        file=table.file,
        learned=frozenset(names[n] for n in own.learned if n in names),
    )


def merged(left: DescribedRelation, right: DescribedRelation, *, lost: bool = False) -> Table:
    """Return the columns of two relations; those on the right may be missing if `lost`."""
    a, b = left.table, right.table
    columns = {
        name: replace(domain, nullable=True) if lost else domain
        for name, domain in b.columns.items()
    }
    return replace(
        a,
        columns={**a.columns, **columns},
        undeclared={**a.undeclared, **b.undeclared},
        bounds={**a.bounds, **b.bounds},
        enforced=a.enforced | b.enforced,
        filled=a.filled if lost else a.filled | b.filled,
        learned=a.learned | b.learned,
    )


def joined(
    relation: Relation,
    left: DescribedRelation,
    right: DescribedRelation,
    most: int | None,
    counted: tuple[Table, ...],
    *,
    lost: bool = False,
    once: bool = False,
) -> DescribedRelation:
    """Describe rows that two relations make.

    Args:
        relation: these rows.
        left: the rows on the left.
        right: those on the right.
        most: how many rows of a unit count at most; None if nothing says so.
        counted: the stored tables whose rows are put together in each.
        lost: whether a row on the left may meet none.
        once: whether it meets one at most.
    """
    return DescribedRelation(
        relation,
        merged(left, right, lost=lost),
        most,
        {**left.tells, **({} if lost else right.tells)},
        counted,
        (*left.read, *right.read),
        {**left.ids_of, **right.ids_of},
        left.limits if once else (),
        left.sure if once else None,
        left.ids,
        {**left.equal, **right.equal, **(right.tells if lost else {})},
        left if lost else None,
    )


def with_columns(
    of: DescribedRelation, relation: Relation, added: Iterable[NewColumn]
) -> DescribedRelation:
    """Describe a relation with further columns, behind those that there are."""
    table, tells = of.table, dict(of.tells)
    columns, undeclared, bounds = dict(table.columns), dict(table.undeclared), dict(table.bounds)
    enforced, filled, learned = set(table.enforced), set(table.filled), set(table.learned)
    for one in added:
        learned |= {one.id} if one.learned else set()
        if one.domain is not None:
            columns[one.id] = _of_column(one.domain, one.type)
            enforced |= {one.id} if one.listed else set()
        else:
            undeclared[one.id] = one.type
            low, high = one.between if one.expected is None else one.expected
            if low is not None and high is not None and low < high and is_number(one.type):
                bounds[one.id] = _written_out(low, high)
                enforced |= {one.id} if one.between == (low, high) else set()
        if not one.nullable:
            filled.add(one.id)
        if one.tells:
            tells[one.id] = one.tells
    described = replace(
        table,
        columns=columns,
        undeclared=undeclared,
        bounds=bounds,
        enforced=frozenset(enforced),
        filled=frozenset(filled),
        learned=frozenset(learned),
    )
    return replace(of, relation=relation, table=described, tells=tells)


def only(
    of: DescribedRelation, relation: Relation, columns: Iterable[NewColumn]
) -> DescribedRelation:
    """Describe a relation with other columns in place of its own."""
    bare = replace(
        of.table,
        columns={},
        undeclared={},
        bounds={},
        enforced=frozenset(),
        filled=frozenset(),
        learned=frozenset(),
    )
    bare_of = replace(of, table=bare, tells={}, ids_of={}, limits=(), ids=(), equal={})
    return with_columns(bare_of, relation, columns)


def _written_out(low: Fraction, high: Fraction) -> NumberBounds:
    """Return bounds that hold all numbers between two, and have few digits."""
    least, most = math.floor(low * _DIGITS), math.ceil(high * _DIGITS)
    return NumberBounds(Fraction(least, _DIGITS), Fraction(most, _DIGITS))


def known_column(table: Table, id_: Id, tells: Tells) -> NewColumn:
    """Return the public facts of a column of a table.

    Args:
        table: the columns.
        id_: the column.
        tells: column → the keys whose value it has.
    """
    bounds = table.bounds.get(id_)
    ends: Interval = (None, None) if bounds is None else (bounds.low, bounds.high)
    return NewColumn(
        id_,
        declared_type(table, id_),
        id_ not in table.filled,
        table.columns.get(id_),
        ends if id_ in table.enforced else (None, None),
        ends,
        tells.get(id_, frozenset()),
        id_ in table.enforced,
        id_ in table.learned,
    )


def _of_column(domain: Domain, type_: str) -> Domain:
    """Return a domain for a column of a type, which texts and truth values have none beside."""
    if domain.type in {"VARCHAR", "ENUM", "BOOLEAN"}:
        plain = domain.type if not type_ or type_.startswith(domain.type) else "VARCHAR"
        return domain if plain == domain.type else domain.as_type(plain)
    return domain.of_column(type_) if type_ else domain


def units_of(of: DescribedRelation) -> list[Id]:
    """Return the columns that have the id of the unit in each row."""
    return [id_ for id_ in of.columns if UNIT in of.tells.get(id_, ()) and id_ in of.table.filled]


def equated_columns(
    bound: BoundExpr, table: Table, left: DescribedRelation, right: DescribedRelation
) -> tuple[Id, Id] | None:
    """Return the columns of two relations that a condition equates; None if it isn't of that kind.

    Args:
        bound: the condition.
        table: the columns that it is over: those of both.
        left: the relation whose column comes first.
        right: the other one.
    """
    node = bound.node.unnest()
    if not isinstance(node, exp.EQ):
        return None
    sides = (side.unnest() for side in (node.this, node.expression))
    a, b = (id_of(replace(bound, node=side), table) for side in sides)
    if a in right.columns:
        a, b = b, a
    if a is None or b is None or a not in left.columns or b not in right.columns:
        return None
    return a, b


def check_read(bound: BoundExpr, table: Table, source: SourceText) -> None:
    """Refuse to look at columns of which relations read nothing.

    Raises:
        UnsupportedSqlError: an expression is of one.
    """
    for type_ in [table.undeclared[name] for name in bound.by_row if name in table.undeclared]:
        if not is_scanned(type_):
            raise source.unsupported(
                bound.span,
                f"A column of the type {type_} can't be read here.",
                "leave it out, or cast it to a text, a number or a date in a view.",
            )
    for node in bound.node.find_all(*_ORDERS):
        sides = [replace(bound, node=side) for side in node.iter_expressions()]
        ids = [id_ for side in sides if (id_ := id_of(side, table)) is not None]
        if len(ids) > 1 and any(declared_type(table, id_).startswith("ENUM") for id_ in ids):
            raise source.unsupported(
                bound.span,
                "Values of an ENUM are compared by their order, and here they would be by letters.",
                "compare columns of numbers; or write the condition after WHERE.",
            )


def values_of(bound: BoundExpr, reader: RowReader) -> tuple[Domain | None, Interval, str]:
    """Return the values of an expression of a row, as far as they are known, and its type.

    Raises:
        SqlError: it can't be evaluated row by row.
    """
    type_ = reader.type_of(bound).sql
    key = reader.key(bound)
    if key is not None and key.domain.uppers is None and key.domain.size <= MOST_VALUES:
        return key.domain, (None, None), type_
    try:
        tree, between = reader.known(bound)
    except SqlError:
        return None, (None, None), type_
    parts = _parts_of_wholes(tree, between, reader) if type_ == DOUBLE.name else None
    return parts or integers_between(between, type_), between, type_


def _parts_of_wholes(tree: RowExpression, between: Interval, reader: RowReader) -> Domain | None:
    """Return the tenths and the like between two numbers, if a whole number is divided by ten."""
    match tree, between:
        case RowCall("/", (whole, RowConstant("INTEGER", "2" | "5" | "10" | "100" as by))), (
            Fraction() as low,
            Fraction() as high,
        ) if RowWriter(reader.types).write(whole).type.is_integer and low < high:
            step = Fraction(1, int(by))
            first, last = math.floor(low / step), math.ceil(high / step)
            if last - first < MOST_VALUES:
                least, most, width = (
                    decimal_text(end) for end in (first * step, last * step, step)
                )
                return Domain.decimals(least, most, width, nullable=True)
    return None


def integers_between(between: Interval, type_: str) -> Domain | None:
    """Return the whole numbers between two, if they are few."""
    low, high = between
    if low is None or high is None or type_ not in INTEGER_TYPES or not low <= high:
        return None
    first, last = -(-low.numerator // low.denominator), high.numerator // high.denominator
    if not 0 <= last - first < MOST_VALUES or not -(2**62) < first <= last < 2**62:
        return None
    return Domain.integers(first, last, nullable=True, outside="clamp")


def domain_of_texts(texts: Sequence[str | None], type_: str) -> Domain | None:
    """Return the domain of listed values of one type, if they are few and it has one.

    Args:
        texts: the values as DuckDB writes them: dates and times may be infinite.
        type_: their type.
    """
    given, nullable = {text for text in texts if text is not None}, None in texts
    if not given or len(given) > MOST_VALUES:
        return None
    if type_ == "BOOLEAN":
        return Domain.boolean(nullable=nullable)
    if type_ == "VARCHAR":
        return Domain.labels(sorted(given), nullable=nullable)
    if type_ in INTEGER_TYPES:
        numbers = sorted(map(int, given))
        small = numbers[0] > -(2**62) and numbers[-1] < 2**62
        return Domain("BIGINT", tuple(numbers), nullable) if small else None
    if type_ == "DATE" and all(map(_DAY.fullmatch, given)):
        return Domain("DATE", tuple(sorted(map(date.fromisoformat, given))), nullable)
    return None


def united(domains: Sequence[Domain | None]) -> Domain | None:
    """Return the domain of what has one of several domains; None if nothing is known of it."""
    given = [domain for domain in domains if domain is not None]
    if len(given) < len(domains):
        return None
    nullable = any(domain.nullable for domain in given)
    first, *others = (replace(domain, nullable=nullable) for domain in given)
    if all(domain == first for domain in others):
        return first
    if any(one.uppers is not None or one.zone or one.outside not in _NO_CELL for one in given):
        return None
    grids = [one.values for one in given if isinstance(one.values, DecimalRange)]
    if len(grids) == len(given):
        covering = _covering_grid(grids)
        return None if covering is None else Domain(covering.type, covering, nullable)
    return _listed_together(given, nullable=nullable)


def _listed_together(given: Sequence[Domain], *, nullable: bool) -> Domain | None:
    """Return the domain of all values of several, if they are of one type and few."""
    types, many = {one.type for one in given}, sum(len(one.values) for one in given)
    type_ = "VARCHAR" if types == {"ENUM"} else given[0].type
    if len(types) > 1 or type_ not in _LISTED or many > MOST_VALUES:
        return None
    found = list(dict.fromkeys(value for one in given for value in one.values))
    return Domain(type_, tuple(found if type_ == "VARCHAR" else sorted(found, key=_key)), nullable)


def _key(value: Value) -> tuple[object]:
    return (value,)


def _covering_grid(grids: Sequence[DecimalRange]) -> DecimalRange | None:
    """Return the numbers between the ends of several grids; None if these have not one step."""
    lows, highs = [Fraction(one[0]) for one in grids], [Fraction(one[-1]) for one in grids]
    step = Fraction(grids[0].spacing)
    if any(
        Fraction(one.spacing) != step or (low - lows[0]) % step
        for one, low in zip(grids, lows, strict=True)
    ):
        return None
    with suppress(SchemaError):  # too many
        return grid(min(lows), max(highs), step)
    return None


def covering(each: Sequence[Interval]) -> Interval:
    """Return between which numbers those of several columns lie."""
    least, most = zip(*each, strict=True)
    lows, highs = [n for n in least if n is not None], [n for n in most if n is not None]
    whole = len(each)
    return min(lows) if len(lows) == whole else None, max(highs) if len(highs) == whole else None


class EqualIds:
    """Columns that are equal in the rows of inner joins, where equal values are the same."""

    def __init__(self) -> None:
        self._classes = dict[Id, frozenset[Id]]()

    def add(self, a: Id, b: Id) -> bool:
        """Note that two columns are equal; return whether it didn't follow from others."""
        one, other = (self._classes.get(id_, frozenset({id_})) for id_ in (a, b))
        both = one | other
        self._classes |= dict.fromkeys(both, both)
        return one != other

    def pairs(self) -> Iterator[tuple[Id, Id]]:
        """Yield all pairs of columns that are equal."""
        for ids in dict.fromkeys(self._classes.values()):
            yield from combinations(sorted(ids), 2)


# ── References between rows that meet: equalities by which one row refers to another ─────────────


_Stored: TypeAlias = tuple[Table, str]
"""A column of a stored table."""


class RowReferences:
    """The references that equalities of columns follow.

    Args:
        tables: what names of tables mean, and what their rows refer to.
        known: the facts about relations.
    """

    def __init__(self, tables: NamedTables, known: Known) -> None:
        self._tables, self._known = tables, known

    def step(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Iterable[tuple[Id, Id]]
    ) -> Parent | None:
        """Return by which columns one row refers to another, if these are several and all equal."""
        found: dict[tuple[str, str], list[tuple[_Stored, _Stored]]] = {}
        for a, b in pairs:
            if a in of.ids_of and b in other.ids_of:
                one, to = of.ids_of[a], other.ids_of[b]
                scans = a.removesuffix(one[1]), b.removesuffix(to[1])  # rows may be there twice
                found.setdefault(scans, []).append((one, to))
        ways = (way for said in found.values() for way in (said, [(to, one) for one, to in said]))
        return next((step for way in ways for step in self._steps(way)), None)

    def equalities(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Sequence[tuple[Id, Id]]
    ) -> list[tuple[Id, Id]]:
        """Return the equalities by which rows refer to those of a table, if there are such."""
        for table in {
            of.ids_of[a][0].path: of.ids_of[a][0] for a, _ in pairs if a in of.ids_of
        }.values():
            for parent in self._tables.grain(table).parents:
                keys = {(pair.column, pair.key) for pair in parent.join.pairs}
                found = [
                    (a, b)
                    for a, b in pairs
                    if a in of.ids_of
                    and b in other.ids_of
                    and of.ids_of[a][0].path == table.path
                    and other.ids_of[b][0].path == parent.table.path
                    and (of.ids_of[a][1], other.ids_of[b][1]) in keys
                ]
                if not parent.above and len(found) == len(keys):
                    return found
        return []

    def is_one(
        self, of: DescribedRelation, other: DescribedRelation, pairs: Iterable[tuple[Id, Id]]
    ) -> bool:
        """Whether rows refer to those of a table by equal columns, as somebody declares.

        It is one row if each of the table is on the right once at most.
        """
        stored = [
            (of.ids_of[a], other.ids_of[b])
            for a, b in pairs
            if a in of.ids_of and b in other.ids_of
        ]
        below = same_rows(other.relation, self._known)
        once = {node.source.table.path for node in below if isinstance(node, Scan)}
        equal = {(child.path, column, key) for (child, column), (_, key) in stored}
        children = {child.path: child for (child, _), _ in stored}
        return any(
            {(child.path, pair.column, pair.key) for pair in parent.join.pairs} <= equal
            for child in children.values()
            for parent in self._tables.grain(child).parents
            if not parent.above and parent.table.path in once
        )

    def _steps(self, said: Sequence[tuple[_Stored, _Stored]]) -> Iterator[Parent]:
        """Yield the references of several columns that equal columns of two rows are."""
        (child, _), (to, _) = said[0]
        equal = {(column, key) for (_, column), (_, key) in said}
        for parent in self._tables.grain(child).parents if len(equal) > 1 else ():
            own = {(pair.column, pair.key) for pair in parent.join.pairs}
            if not parent.above and parent.table.path == to.path and own <= equal:
                yield parent
