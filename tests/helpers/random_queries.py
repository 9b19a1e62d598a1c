"""Random queries of rows of units, put together of all that a relation can be made of.

Each is a SELECT with a column `u`, the unit's id, and others of a few kinds. What orders rows is
never the same in two rows of a unit, so that an answer is what SQL says and nothing else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import duckdb

DAYS = "DATE '2024-01-01' AND DATE '2024-03-30'"
TABLES = f"""
CREATE TYPE letter AS ENUM ('A', 'B', 'C');
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, region letter NOT NULL, birth INTEGER NOT NULL
    CHECK (birth BETWEEN 1950 AND 1969)
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers(id),
    status letter NOT NULL, price INTEGER CHECK (price BETWEEN 0 AND 20),
    day DATE NOT NULL CHECK (day BETWEEN {DAYS})
);
CREATE TABLE items (
    id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL REFERENCES orders(id), kind letter NOT NULL,
    n INTEGER NOT NULL CHECK (n BETWEEN 1 AND 9)
);
CREATE TABLE visits (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers(id),
    shop INTEGER CHECK (shop BETWEEN 1 AND 4), day DATE CHECK (day BETWEEN {DAYS})
);
CREATE TABLE shops (shop INTEGER PRIMARY KEY, city VARCHAR);
CREATE TABLE cities (city VARCHAR, size INTEGER);
INSERT INTO shops VALUES (1, 'x'), (2, 'y'), (3, 'x');
INSERT INTO cities VALUES ('x', 1), ('x', 2), ('y', 5), (NULL, 7);
"""
PUBLIC = ["shops", "cities"]
ROWS = {"customers": 1, "orders": 6, "items": 20, "visits": 5}
BOUNDS = ROWS | {
    ", ".join(sorted(names)): min(5_000, 4 * math.prod(ROWS[name] for name in names))
    for most in (2, 3)
    for names in combinations_with_replacement(ROWS, most)
}
"""How many rows of a unit count at most, of each table and where rows of some meet, also twice."""


def seeded(seed: int) -> random.Random:
    """Return a source of random choices that are the same each time."""
    return random.Random(seed)  # noqa: S311


def filled(rng: random.Random, units: int = 12, tables: str = TABLES) -> duckdb.DuckDBPyConnection:
    """Return a database with rows of some units."""
    con = duckdb.connect()
    con.execute(tables).fetchall()

    def day() -> str:
        return f"DATE '2024-01-01' + {rng.randrange(90)}"

    def or_null(text: object) -> object:
        return "NULL" if rng.random() < 0.15 else text

    rows: dict[str, list[str]] = {name: [] for name in ROWS}
    for u in range(units):
        rows["customers"].append(f"({u}, '{rng.choice('ABC')}', {rng.randrange(1950, 1970)})")
        for _ in range(rng.randrange(6)):
            order = len(rows["orders"])
            price = or_null(rng.randrange(21))
            rows["orders"].append(f"({order}, {u}, '{rng.choice('ABC')}', {price}, {day()})")
            for _ in range(rng.randrange(4)):
                kind, n = rng.choice("ABC"), rng.randrange(1, 10)
                rows["items"].append(f"({len(rows['items'])}, {order}, '{kind}', {n})")
        for _ in range(rng.randrange(5)):
            shop, at = or_null(rng.randrange(1, 5)), or_null(day())
            rows["visits"].append(f"({len(rows['visits'])}, {u}, {shop}, {at})")
    for name, listed in rows.items():
        if listed:
            con.execute(f"INSERT INTO {name} VALUES {', '.join(listed)}").fetchall()
    return con


@dataclass(frozen=True, slots=True)
class Query:
    """A query of rows: its text, and what its columns are besides `u`."""

    sql: str
    columns: tuple[tuple[str, str], ...]

    def of(self, kind: str) -> list[str]:
        """Return the columns of a kind: number, label, day or key."""
        return [name for name, own in self.columns if own == kind]


class RandomQueries:
    """Makes queries, each of a few others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._names = rng, 0

    def statement(self) -> str:
        """Return a statement that counts rows of a query, or units, or adds something up."""
        query = self.rows(self._rng.randrange(1, 4))
        keys = self._chosen([*query.of("label"), *query.of("small")], 2)
        numbers = [*query.of("number"), *query.of("small")]
        asked = ["COUNT(*) AS n", "COUNT(DISTINCT u) AS n"]
        asked += [f"SUM({name}) AS n" for name in numbers[:1]]
        asked += [f"COUNT({name}) AS n" for name, _ in query.columns[:1]]
        where = f" WHERE {self._condition(query)}" if self._rng.random() < 0.4 else ""
        shown = ", ".join([*keys, self._rng.choice(asked)])
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        if self._rng.random() < 0.4:
            return f"WITH q AS ({query.sql}) SELECT {shown} FROM q{where}{grouped}"
        return f"SELECT {shown} FROM ({query.sql}) q{where}{grouped}"

    def rows(self, depth: int) -> Query:
        """Return a query of rows that is made of others, so many times."""
        if depth == 0:
            return self._stored()
        made = [
            self._filtered, self._joined, self._grouped, self._distinct, self._windowed,
            self._asked, self._united, self._looked_up, self._first, self._outer, self._set,
            self._kept,
        ]  # fmt: skip
        return self._rng.choice(made)(depth - 1)

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def _chosen(self, of: Sequence[str], most: int) -> list[str]:
        return self._rng.sample(list(of), min(len(of), self._rng.randrange(most + 1)))

    def _stored(self) -> Query:
        def listed(table: str, u: str, *columns: tuple[str, str]) -> Query:
            named = [(self._name(), text, kind) for text, kind in columns]
            shown = ", ".join([f"{u} AS u", *(f"{text} AS {name}" for name, text, _ in named)])
            return Query(f"SELECT {shown} FROM {table}", tuple((n, kind) for n, _, kind in named))

        orders = ("status", "label"), ("price", "number"), ("day", "day"), ("id", "key")
        visits = ("shop", "small"), ("day", "day"), ("id", "key")
        items = ("kind", "label"), ("n", "small"), ("i.id", "key")
        return self._rng.choice([
            listed("customers", "id", ("region", "label"), ("birth", "number"), ("id", "key")),
            listed("orders", "customer_id", *orders),
            listed("visits", "customer_id", *visits),
            listed("items i JOIN orders o ON i.order_id = o.id", "o.customer_id", *items),
            listed("orders", "customer_id", ("month(day)", "small"), ("price // 5", "small")),
        ])  # fmt: skip

    def _condition(self, query: Query, alias: str = "") -> str:
        rng = self._rng
        found = [f"{alias}{name} > {rng.randrange(10)}" for name in query.of("number")]
        found += [f"{alias}{name} <= {rng.randrange(1, 9)}" for name in query.of("small")]
        found += [f"{alias}{name} = '{rng.choice('ABC')}'" for name in query.of("label")]
        found += [
            f"{alias}{name} >= DATE '2024-02-0{rng.randrange(1, 9)}'" for name in query.of("day")
        ]
        found += [f"{alias}{name} IS NOT NULL" for name, _ in query.columns]
        one, other = rng.choice(found or ["true"]), rng.choice(found or ["true"])
        return rng.choice([one, f"({one} OR {other})", f"{one} AND {other}", f"NOT ({one})"])

    def _filtered(self, depth: int) -> Query:
        query = self.rows(depth)
        return Query(f"SELECT * FROM ({query.sql}) f WHERE {self._condition(query)}", query.columns)

    def _joined(self, depth: int) -> Query:
        a, b = self.rows(depth), self.rows(0)
        if self._rng.random() < 0.5:
            b = self._grouped(0)
        further = self._rng.choice([*self._compared(a, b), ""])
        columns = (*a.columns, *b.columns)
        shown = ", ".join(["a.u", *(name for name, _ in columns)])
        sql = f"SELECT {shown} FROM ({a.sql}) a JOIN ({b.sql}) b ON a.u = b.u{further}"
        return Query(sql, tuple((n, "number" if k == "key" else k) for n, k in columns))

    def _outer(self, depth: int) -> Query:
        a = self.rows(depth)
        b = self._grouped(0)
        columns = (*a.columns, *b.columns)
        shown = ", ".join(["a.u", *(name for name, _ in columns)])
        met = self._compared(a, b)[:1]
        further = self._rng.choice(["", f" AND {self._condition(b, 'b.')}", *met])
        sql = f"SELECT {shown} FROM ({a.sql}) a LEFT JOIN ({b.sql}) b ON b.u = a.u{further}"
        return Query(sql, columns)

    def _kept(self, depth: int) -> Query:
        """Return the rows of two queries, with those of the second, or of both, that meet none."""
        a, b = self.rows(depth), self.rows(0) if self._rng.random() < 0.5 else self._grouped(0)
        kind = self._rng.choice(["RIGHT", "FULL"])
        conditions = [f" AND {self._condition(*of)}" for of in ((a, "a."), (b, "b."))]
        further = self._rng.choice(["", "", *self._compared(a, b), *conditions])
        on, u = f"ON a.u = b.u{further}", "COALESCE(a.u, b.u)" if kind == "FULL" else "b.u"
        if not further and self._rng.random() < 0.5:
            on, u = "USING (u)", "u"
        columns = (*a.columns, *b.columns)
        alike = [(x, y, k) for x, k in a.columns for y, of in b.columns if k == of != "key"]
        if on == "USING (u)" and alike and self._rng.random() < 0.7:
            (x, y, k), m = self._rng.choice(alike), self._name()
            a, b = self._with(a, x, m), self._with(b, y, m)
            on, columns = f"USING (u, {m})", (*columns, (m, k))
        shown = ", ".join([f"{u} AS u", *(name for name, _ in columns)])
        sql = f"SELECT {shown} FROM ({a.sql}) a {kind} JOIN ({b.sql}) b {on}"
        return Query(sql, tuple((n, "number" if k == "key" else k) for n, k in columns))

    def _compared(self, a: Query, b: Query) -> list[str]:
        """Return conditions on two rows that meet, in an order by chance."""
        found = [f" AND a.{x} <= b.{y}" for x in a.of("day") for y in b.of("day")]
        for kind in ("day", "label", "small", "number"):
            found += [f" AND a.{x} = b.{y}" for x in a.of(kind) for y in b.of(kind)]
        return self._rng.sample(found, len(found))

    def _with(self, query: Query, name: str, as_: str) -> Query:
        return Query(f"SELECT *, {name} AS {as_} FROM ({query.sql}) m", query.columns)

    def _grouped(self, depth: int) -> Query:
        query = self.rows(depth)
        keys = self._chosen([*query.of("label"), *query.of("small")], 1)
        kinds = dict(query.columns)
        adds = [("COUNT(*)", "small")]
        adds += [(f"MIN({name})", "day") for name in query.of("day")]
        adds += [(f"MAX({name})", "number") for name in query.of("number")]
        adds += [(f"SUM({name})", "number") for name in query.of("small")]
        adds += [(f"COUNT(DISTINCT {name})", "small") for name in query.of("label")]
        firsts = [(name, kind) for kind in ("label", "small", "day") for name in query.of(kind)]
        for key in query.of("key"):
            function = self._rng.choice(["arg_min", "arg_max"])
            adds += [(f"{function}({name}, {key})", kind) for name, kind in firsts]
            adds += [(f"FIRST({name} ORDER BY {key} DESC)", kind) for name, kind in firsts]
        chosen = [(self._name(), *one) for one in self._rng.sample(adds, min(len(adds), 2))]
        shown = ", ".join(["u", *keys, *(f"{text} AS {name}" for name, text, _ in chosen)])
        having = self._rng.choice(["", "", " HAVING COUNT(*) > 1"])
        sql = f"SELECT {shown} FROM ({query.sql}) g GROUP BY {', '.join(['u', *keys])}{having}"
        return Query(sql, (*((k, kinds[k]) for k in keys), *((n, kind) for n, _, kind in chosen)))

    def _distinct(self, depth: int) -> Query:
        query = self.rows(depth)
        columns = tuple((n, k) for n, k in query.columns if self._rng.random() < 0.6 and k != "key")
        shown = ", ".join(["u", *(name for name, _ in columns)])
        return Query(f"SELECT DISTINCT {shown} FROM ({query.sql}) d", columns)

    def _windowed(self, depth: int) -> Query:
        query, name = self.rows(depth), self._name()
        parts = ", ".join(["u", *self._chosen(query.of("label"), 1)])
        calls = [(f"COUNT(*) OVER (PARTITION BY {parts})", "small")]
        for key in query.of("key"):
            over = f"OVER (PARTITION BY {parts} ORDER BY {key})"
            calls += [(f"row_number() {over}", "small")]
            calls += [(f"lag({one}) {over}", "day") for one in query.of("day")]
            calls += [(f"SUM({one}) {over}", "number") for one in query.of("number")]
        for one in query.of("number"):
            calls.append((f"rank() OVER (PARTITION BY {parts} ORDER BY {one} NULLS LAST)", "small"))
            calls.append((f"MAX({one}) OVER (PARTITION BY {parts})", "number"))
        call, kind = self._rng.choice(calls)
        where = f" WHERE {self._condition(query)}" if self._rng.random() < 0.3 else ""
        sql = f"SELECT *, {call} AS {name} FROM ({query.sql}) w{where}"
        return Query(sql, (*query.columns, (name, kind)))

    def _first(self, depth: int) -> Query:
        query = self.rows(depth)
        if not query.of("key"):
            return query
        order = query.of("key")[0]
        over = f"OVER (PARTITION BY u ORDER BY {order} DESC)"
        sql = f"SELECT * FROM ({query.sql}) r QUALIFY row_number() {over} <= 2"
        return Query(sql, query.columns)

    def _asked(self, depth: int) -> Query:
        query, other, name = self.rows(depth), self.rows(0), self._name()
        condition = self._condition(other, "o.")
        met = f"FROM ({other.sql}) o WHERE o.u = s.u AND {condition}"
        days = [f" AND s.{x} > o.{y}" for x in query.of("day") for y in other.of("day")]
        for kind in ("label", "small"):
            days += [f" AND s.{x} = o.{y}" for x in query.of(kind) for y in other.of(kind)]
        met += self._rng.choice([*days, ""])
        asked = self._rng.choice([
            f"EXISTS (SELECT 1 {met})",
            f"NOT EXISTS (SELECT 1 {met})",
            f"s.u IN (SELECT u FROM ({other.sql}) o WHERE {condition})",
            f"s.u NOT IN (SELECT u FROM ({other.sql}) o WHERE {condition})",
            f"(SELECT COUNT(*) {met}) > 1",
        ])  # fmt: skip
        if self._rng.random() < 0.5:
            return Query(f"SELECT * FROM ({query.sql}) s WHERE {asked}", query.columns)
        sql = f"SELECT *, CASE WHEN {asked} THEN 1 ELSE 2 END AS {name} FROM ({query.sql}) s"
        return Query(sql, (*query.columns, (name, "small")))

    def _united(self, depth: int) -> Query:
        parts = [self.rows(depth), self.rows(0)]
        kinds = [kind for kind in ("small", "day", "label") if all(p.of(kind) for p in parts)]
        columns = tuple((self._name(), kind) for kind in kinds)
        sql = []
        for part in parts:
            shown = [f"{part.of(kind)[0]} AS {name}" for name, kind in columns]
            sql.append(f"SELECT {', '.join(['u', *shown])} FROM ({part.sql}) p")
        operations = ("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT")
        return Query(f" {self._rng.choice(operations)} ".join(sql), columns)

    def _set(self, depth: int) -> Query:
        """Return units that are in a set operation of others, with rows that they have."""
        a, b, rows = self.rows(depth), self.rows(0), self.rows(0)
        where = [f" WHERE {self._condition(q)}" if self._rng.random() < 0.5 else "" for q in (a, b)]
        operation = self._rng.choice(["INTERSECT", "EXCEPT", "UNION"])
        units = (
            f"SELECT u FROM ({a.sql}) e{where[0]} {operation} SELECT u FROM ({b.sql}) e{where[1]}"
        )
        if self._rng.random() < 0.4:
            return Query(f"SELECT * FROM ({rows.sql}) t WHERE t.u IN ({units})", rows.columns)
        if self._rng.random() < 0.4:
            return Query(units, ())
        shown = ", ".join(f"t.{name}" for name in ("u", *(name for name, _ in rows.columns)))
        return Query(
            f"SELECT {shown} FROM ({rows.sql}) t JOIN ({units}) s ON s.u = t.u", rows.columns
        )

    def _looked_up(self, depth: int) -> Query:
        query, name = self.rows(depth), self._name()
        if not query.of("small"):
            return query
        kind = self._rng.choice(["JOIN", "LEFT JOIN"])
        shops = self._rng.choice(["shops", "(SELECT shop, city FROM shops WHERE shop < 3)"])
        sql = f"SELECT l.*, s.city AS {name} FROM ({query.sql}) l {kind} {shops} s"
        return Query(
            f"{sql} ON s.shop = l.{query.of('small')[0]}", (*query.columns, (name, "label"))
        )
