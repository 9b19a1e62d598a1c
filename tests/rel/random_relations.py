"""Random databases of five private tables, and random relations over them.

Ids are numbers, or texts that differ in their bytes alone where a collation is set. Rows may be
nobody's, two rows may be the same in all columns, references may lead nowhere, and rows of `notes`
refer by a key that nothing enforces, so that they may be of several units.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb

from dpsql.rel.facts import UNIT, Known
from dpsql.rel.nodes import (
    ONLY,
    Agg,
    Bound,
    CellLimit,
    CellsOf,
    Filter,
    Group,
    GroupJoin,
    Ids,
    Join,
    Project,
    Public,
    Relation,
    Scan,
    StoredRows,
    Union,
    Window,
)
from dpsql.rows.expression import (
    RowCall,
    RowColumn,
    RowConstant,
    RowExpression,
    all_of,
)
from dpsql.rows.windows import CHOSEN, WindowCall, WindowFrame, WindowOrder
from dpsql.schema.domain import Domain
from dpsql.schema.grain import stored_type
from dpsql.schema.table import Table
from dpsql.schema.units import KeyStep as Step
from dpsql.schema.units import ResolvedUnit

Values = dict[str, Any]
LETTERS = ("a", "A", "á", "b", "", "ab")
NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
KEYS = (*NUMBERS, "VARCHAR", "BOOLEAN", "DECIMAL(6,2)")
"""Types of what rows are grouped by."""
DOMAINS = {
    "TINYINT": range(3), "SMALLINT": range(2), "INTEGER": range(1, 3), "VARCHAR": ("a", "b"),
}  # fmt: skip
"""Values with a cell of their own."""
_IDS: Ids = ("customers", ("id",))
NOTHING, ZERO = RowConstant("NULL", ""), RowConstant("INTEGER", "0")


def _path(name: str) -> tuple[str, ...]:
    return ("memory", "main", name)


@dataclass(frozen=True)
class Shop:
    """The sources, by the type of the ids of units.

    Args:
        id_type: that.
        enforced: whether the database sees to it that keys are unique.
    """

    id_type: str
    enforced: bool = True

    def source(self, name: str) -> StoredRows:
        """Return one of the five tables."""
        found: StoredRows = getattr(self, f"_{name}")()
        return found if self.enforced else _without_keys(found)

    def _table(self, name: str, columns: Mapping[str, str], unit: ResolvedUnit) -> Table:
        domains = {own: DECLARED[name, own] for own in columns if (name, own) in DECLARED}
        rest = {own: type_ for own, type_ in columns.items() if own not in domains}
        return Table(name, domains, rest, _path(name), unit, order=tuple(columns))

    def _unit(self, column: str, *steps: Step) -> ResolvedUnit:
        return ResolvedUnit("customers", column, self.id_type, steps, None)

    def _customers(self) -> StoredRows:
        columns = {"id": self.id_type, "region": "VARCHAR", "born": "INTEGER"}
        table = self._table("customers", columns, self._unit("id"))
        return StoredRows(table, _IDS, frozenset({frozenset({"id"})}), {"id": UNIT})

    def _orders(self) -> StoredRows:
        columns = {
            "id": "INTEGER", "customer_id": self.id_type, "price": "INTEGER", "kind": "VARCHAR",
            "nr": "INTEGER", "mark": "UUID",
        }  # fmt: skip
        table = self._table("orders", columns, self._unit("customer_id"))
        keys = {"customer_id": UNIT, "id": (_path("orders"), "id")}
        return StoredRows(table, _IDS, frozenset({frozenset({"id"})}), keys)

    def _items(self) -> StoredRows:
        columns = {"order_id": "INTEGER", "qty": "SMALLINT", "txt": "VARCHAR"}
        step = Step("order_id", _path("orders"), "id", "INTEGER")
        table = self._table("items", columns, self._unit("customer_id", step))
        return StoredRows(table, _IDS, frozenset(), {"order_id": (_path("orders"), "id")})

    def _visits(self) -> StoredRows:
        columns = {
            "customer_id": self.id_type,
            "day": "INTEGER",
            "x": "DECIMAL(6,2)",
            "ok": "BOOLEAN",
            "w": "DOUBLE",
            "mark": "UUID",
        }
        table = self._table("visits", columns, self._unit("customer_id"))
        return StoredRows(table, _IDS, frozenset(), {"customer_id": UNIT})

    def _notes(self) -> StoredRows:
        columns = {"order_nr": "INTEGER", "mark": "TINYINT"}
        step = Step("order_nr", _path("orders"), "nr", "INTEGER", enforced=False)
        table = self._table("notes", columns, self._unit("customer_id", step))
        return StoredRows(table, _IDS)


def _without_keys(source: StoredRows) -> StoredRows:
    unit = source.table.unit
    steps = (replace(step, enforced=False) for step in unit.joins) if unit else ()
    table = replace(source.table, unit=unit and replace(unit, joins=tuple(steps)))
    return replace(source, table=table, unique=frozenset())


TABLES = ("customers", "orders", "items", "visits", "notes")
DECLARED = {
    ("customers", "born"): Domain("INTEGER", range(3)),
    ("items", "qty"): Domain("SMALLINT", range(3)),
    ("notes", "mark"): Domain("TINYINT", range(2)),
}
"""Columns with a domain: rows stand in line by these alone, where nothing else is read of them."""
MARKS = (None, *(uuid.UUID(int=number) for number in range(3)))
"""Values that no expression reads."""
PUBLIC = (("1", "a"), ("1", "A"), ("2", None), ("3", "b"))


@dataclass
class Database:
    """Rows of five tables.

    Args:
        rng: decides.
        texts: whether ids are texts.
    """

    rng: random.Random
    texts: bool
    rows: dict[str, list[Values]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pick = self.rng.choice
        self.units = list(LETTERS[:4]) if self.texts else [1, 2, 3, 4]
        known = [*self.units, self.units[0], None]
        number = partial(pick, [None, 0, 1, 1, 2, 3])
        text = partial(pick, [None, *LETTERS])
        self.rows["customers"] = [
            {"id": unit, "region": text(), "born": number()} for unit in self.units
        ]
        self.rows["orders"] = [
            {
                "id": i, "customer_id": pick(known), "price": number(), "kind": text(),
                "nr": pick([None, 1, 2, 3, 4]), "mark": pick(MARKS),
            }
            for i in range(12)
        ]  # fmt: skip
        self.rows["items"] = [
            {"order_id": pick([None, *range(12)]), "qty": number(), "txt": text()}
            for _ in range(16)
        ]
        self.rows["visits"] = [
            {
                "customer_id": pick(known), "day": number(),
                "x": pick([None, Decimal("0.50"), Decimal("1.00"), Decimal("-2.25")]),
                "ok": pick([None, True, False]), "w": pick([None, 0.0, 0.0, 1.5, float("inf")]),
                "mark": pick(MARKS),
            }
            for _ in range(14)
        ]  # fmt: skip
        self.rows["notes"] = [
            {"order_nr": pick([None, 1, 2, 3, 5]), "mark": number()} for _ in range(6)
        ]
        for name in ("visits", "items", "notes"):  # the same in all columns
            self.rows[name] += map(dict, self.rng.sample(self.rows[name], 3))
        for row in self.rng.sample(self.rows["visits"], 4):  # the same but for the sign of zero
            self.rows["visits"].append({**row, "w": None if row["w"] is None else -row["w"]})

    def without(self, unit: object) -> Database:
        """Return the database without a unit and all of its rows.

        A row of `notes` is no row of a unit alone: it stays, and meets fewer orders.
        """
        gone = {id(row) for name in TABLES[:4] for row in self.of(unit)[name]}
        left = object.__new__(Database)
        left.rng, left.texts = self.rng, self.texts
        left.units = [other for other in self.units if other != unit]
        left.rows = {n: [r for r in rows if id(r) not in gone] for n, rows in self.rows.items()}
        return left

    def of(self, unit: object) -> dict[str, list[Values]]:
        """Return the rows of a unit: those whose way leads to it."""
        rows = self.rows
        own = [row for row in rows["orders"] if row["customer_id"] == unit]
        ids, numbers = {row["id"] for row in own}, {row["nr"] for row in own} - {None}
        return {
            "customers": [row for row in rows["customers"] if row["id"] == unit],
            "orders": own,
            "items": [row for row in rows["items"] if row["order_id"] in ids],
            "visits": [row for row in rows["visits"] if row["customer_id"] == unit],
            "notes": [row for row in rows["notes"] if row["order_nr"] in numbers],
        }

    def connection(self, shop: Shop) -> duckdb.DuckDBPyConnection:
        """Store the rows, in any order, under a collation that takes ids for the same."""
        con = duckdb.connect(config={"threads": self.rng.randint(1, 4)})
        con.execute("SET default_collation = 'NOCASE.NOACCENT'")
        for name in TABLES:
            table = shop.source(name).table
            columns = {column: stored_type(table, column) for column in table.listed}
            types = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
            con.execute(f"CREATE TABLE {name} ({types})")
            places = ", ".join("?" for _ in columns)
            for row in self.rng.sample(self.rows[name], len(self.rows[name])):
                con.execute(f"INSERT INTO {name} VALUES ({places})", [*row.values()])
        return con


class Relations:
    """Random relations.

    Args:
        rng: decides.
        shop: the tables.
    """

    def __init__(self, rng: random.Random, shop: Shop) -> None:
        self._rng, self._shop, self._count = rng, shop, 0
        self._known = Known()

    def tree(self, depth: int) -> Relation:
        """Return a relation of so many levels, at most."""
        kinds: dict[str, Callable[[Relation, int], Relation]] = {
            "filter": self._filter, "project": self._project, "join": self._join,
            "group_join": self._group_join, "window": self._window, "group": self._group,
            "union": self._union, "bound": self._bound,
        }  # fmt: skip
        if not depth:
            return self._scan()
        kind = self._rng.choice([*kinds, "window", "window", "group_join", "join"])
        return kinds[kind](self.tree(depth - 1), depth)

    def _scan(self) -> Relation:
        name = self._rng.choice([*TABLES, "visits", "orders", "visits"])
        source, prefix, along = self._shop.source(name), f"{self._fresh()}.", ()
        if name == "items" and self._shop.enforced and self._rng.random() < 0.6:
            along = ((self._shop.source("orders"), f"{prefix}order_id."),)
        return Scan(source, prefix, along)

    def _filter(self, of: Relation, _: int) -> Relation:
        return Filter(of, self._truth(of))

    def _project(self, of: Relation, _: int) -> Relation:
        names = [*self._types(of)]
        kept = self._rng.sample(names, min(len(names), self._rng.randint(0, 4)))
        columns = [(self._fresh(), self._value(of, name)) for name in kept]
        return Project(of, tuple(columns))

    def _join(self, of: Relation, depth: int) -> Relation:
        right = self._right(depth)
        on = None if self._rng.random() < 0.1 else self._on(of, right)
        return Join(of, right, on, self._rng.choice(["inner", "left"]))

    def _group_join(self, of: Relation, depth: int) -> Relation:
        right = self._right(depth)
        adds = [(self._fresh(), self._agg(right, of)) for _ in range(self._rng.randint(1, 2))]
        return GroupJoin(of, right, self._on(of, right), tuple(adds))

    def _window(self, of: Relation, _: int) -> Relation:
        adds = [(self._fresh(), self._call(of)) for _ in range(self._rng.randint(1, 2))]
        return Window(of, tuple(adds))

    def _group(self, of: Relation, _: int) -> Relation:
        names = [self._named(of, *KEYS, "UUID") for _ in range(self._rng.randint(0, 2))]
        keys = [(self._fresh(), RowColumn(name)) for name in names if name]
        adds = [(self._fresh(), self._agg(of)) for _ in range(self._rng.randint(0, 2))]
        if self._rng.random() < 0.3 and (only := self._named(of, *self._types(of).values())):
            adds.append((self._fresh(), Agg(ONLY, RowColumn(only))))
        return Group(of, tuple(keys), tuple(adds)) if keys or adds else of

    def _union(self, of: Relation, depth: int) -> Relation:
        other = self.tree(self._rng.randint(0, max(0, depth - 2)))
        left, right = self._types(of), self._types(other)
        pairs = [(a, b) for a in left for b in right if left[a] == right[b]]
        pairs = self._rng.sample(pairs, min(len(pairs), 3))
        if not pairs:
            return of
        parts = [
            Project(side, tuple((self._fresh(), RowColumn(pair[i])) for pair in pairs))
            for i, side in enumerate((of, other))
        ]
        return Union(tuple(parts), tuple(self._fresh() for _ in pairs))

    def _bound(self, of: Relation, _: int) -> Relation:
        limits = [self._limit(of) for _ in range(self._rng.choice([0, 0, 1, 2]))]
        return Bound(of, self._rng.randint(1, 3), tuple(one for one in limits if one.cells))

    def _limit(self, of: Relation) -> CellLimit:
        """Limit rows in the same cells: those of the domain, and one of all else."""
        names = {self._named(of, *DOMAINS) for _ in range(self._rng.randint(1, 2))} - {None}
        cells = []
        for name in sorted(filter(None, names)):
            type_ = self._types(of)[name]
            nullable = len(name) % 2 == 1  # a column has cells of one kind
            domain = Domain(type_, DOMAINS[type_], nullable=nullable)
            cells.append(CellsOf(name, domain, not nullable))
        return CellLimit(tuple(cells), self._rng.randint(1, 2))

    def _right(self, depth: int) -> Relation:
        if self._rng.random() < 0.15:
            columns = (self._fresh(), "INTEGER"), (self._fresh(), "VARCHAR")
            rows = [
                (
                    RowConstant("INTEGER", number),
                    NOTHING if text is None else RowConstant("VARCHAR", text),
                )
                for number, text in self._rng.sample(PUBLIC, self._rng.randint(0, 4))
            ]
            return Public(columns, tuple(rows))
        return self.tree(self._rng.randint(0, max(0, depth - 2)))

    def _fresh(self) -> str:
        self._count += 1
        return f"c{self._count}" if self._count % 5 else f'C"{self._count - 1}'

    def _types(self, of: Relation) -> Mapping[str, str]:
        return self._known.of(of).types

    def _named(self, of: Relation, *types: str) -> str | None:
        """Choose a column of one of some types, or of any that expressions read."""
        known = self._types(of).items()
        found = [n for n, type_ in known if (type_ in types if types else type_ != "UUID")]
        return self._rng.choice(found) if found else None

    def _value(self, of: Relation, name: str) -> RowExpression:
        column = RowColumn(name)
        if self._types(of)[name] in NUMBERS[:-1] and self._rng.random() < 0.3:
            function = self._rng.choice(["+", "//"])
            other = self._named(of, "TINYINT", "SMALLINT", "INTEGER")
            by = RowColumn(other) if other else RowConstant("INTEGER", "1")
            return RowCall(function, (column, by))
        return column

    def _truth(self, of: Relation) -> RowExpression:
        """Return a condition on a row."""
        rng, number = self._rng, self._named(of, *NUMBERS)
        text = self._named(of, "VARCHAR")
        found = list[RowExpression]()
        if number:
            sign = rng.choice(["<", "=", "<>", ">="])
            constant = RowConstant("INTEGER", str(rng.randint(0, 3)))
            found.append(RowCall(sign, (RowColumn(number), constant)))
            found.append(RowCall("is_null", (RowColumn(number),)))
            found.append(RowCall("not", (RowCall("is_null", (RowColumn(number),)),)))
        if text:
            constant = RowConstant("VARCHAR", rng.choice(LETTERS))
            found.append(RowCall("=", (RowColumn(text), constant)))
        if not found:
            return RowConstant("BOOLEAN", "true")
        function = rng.choice(["and", "or"])
        return (
            RowCall(function, tuple(rng.sample(found, 2)))
            if rng.random() < 0.3 and found[1:]
            else rng.choice(found)
        )

    def _on(self, left: Relation, right: Relation) -> RowExpression:
        """Return a condition on two rows."""
        ours, theirs = self._types(left), self._types(right)
        pairs = [(a, b) for a in ours for b in theirs if _comparable(ours[a], theirs[b])]
        parts = list[RowExpression]()
        for a, b in self._rng.sample(pairs, min(len(pairs), self._rng.randint(1, 2))):
            opaque = ours[a] == "UUID"
            sign = "=" if opaque else self._rng.choice(["=", "=", "=", "<>", "<"])
            sides = RowColumn(a), RowColumn(b)
            parts.append(RowCall(sign, sides if self._rng.random() < 0.5 else sides[::-1]))
        parts += [self._truth(right)] if self._rng.random() < 0.3 else []
        parts += [self._truth(left)] if self._rng.random() < 0.15 else []
        return all_of(parts or [RowConstant("BOOLEAN", "true")])

    def _agg(self, of: Relation, around: Relation | None = None) -> Agg:
        functions = [
            "exists",
            "count",
            "count",
            "count_distinct",
            "sum",
            "avg",
            "min",
            "max",
            "bool_or",
        ]
        function = self._rng.choice(functions)
        types = {
            "sum": NUMBERS[:-1], "avg": NUMBERS[:-1], "bool_or": ("BOOLEAN",),
            "min": (*NUMBERS, "VARCHAR"), "max": (*NUMBERS, "VARCHAR"), "count_distinct": KEYS,
        }.get(function, ())  # fmt: skip
        name = self._named(of, *types)
        where = self._truth(of) if self._rng.random() < 0.3 else None
        if function == "exists" or name is None:
            return Agg("exists", None, where)
        if around is not None and function == "sum" and self._rng.random() < 0.3:
            other = self._named(around, *NUMBERS[:3])
            both = (RowColumn(name), RowColumn(other)) if other else ()
            if both and self._types(of)[name] in NUMBERS[:3]:
                return Agg("sum", RowCall("+", both), where)
        return Agg(function, RowColumn(name), where)

    def _call(self, of: Relation) -> WindowCall:
        rng = self._rng
        order = tuple(self._order(of) for _ in range(rng.randint(0, 2)))
        part = self._named(of, *KEYS) if rng.random() < 0.4 else None
        parts = () if part is None else (RowColumn(part),)
        holds = self._truth(of) if rng.random() < 0.25 else None
        function = rng.choice(
            ["row_number", "row_number", "rank", "dense_rank", "cume_dist", "lag", "lead",
             "first_value", "last_value", "sum", "count", "max"]
        )  # fmt: skip
        types = {"sum": NUMBERS[:-1], "max": NUMBERS}.get(function, ())
        name = self._named(of, *types)
        if function in {"row_number", "rank", "dense_rank", "cume_dist"} or name is None:
            function = function if name is not None else "rank"
            return WindowCall(function, (), (), parts, (), order, None, holds)
        numbers = (rng.randint(1, 2),) if function in {"lag", "lead"} else ()
        frame = None if numbers else self._frame(function, bool(order))
        return WindowCall(function, (RowColumn(name),), numbers, parts, (), order, frame, holds)

    def _frame(self, function: str, ordered: bool) -> WindowFrame | None:
        """Return which rows a function looks at: single ones, if it chooses one of them."""
        rng = self._rng
        if function in CHOSEN or rng.random() < 0.5:
            start, end = sorted(rng.sample(range(-2, 3), 2))
            return WindowFrame(True, rng.choice([None, start]), rng.choice([None, end]))
        if not ordered and rng.random() < 0.3:
            return None
        ends = [None, 0] if ordered else [None]
        return WindowFrame(False, rng.choice(ends), rng.choice(ends))

    def _order(self, of: Relation) -> WindowOrder:
        rng, name = self._rng, self._named(of)
        return WindowOrder(
            RowColumn(name) if name else ZERO, rng.random() < 0.5, rng.random() < 0.5
        )


def _comparable(a: str, b: str) -> bool:
    return a == b or {a, b} <= {*NUMBERS}
