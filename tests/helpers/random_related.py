"""Random statements that are answered as relations: queries of rows in queries of rows.

A *query of rows* returns the rows of units, each with a column `o` that tells whose it is, and with
`c_g`, `c_n`, `c_x`, `c_s`, `c_w` and `c_d`: those of a table, groups of these, pairs, what they are
among others, some of them, and the rows of several queries. Each is made of others, as deep as
chance has it; a statement counts the rows of one, or of several that meet.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from types import MappingProxyType

import duckdb

from tests.helpers.random_databases import Kind, Link, RandomDatabase, RandomQuestions, Row, _teller

PUBLIC = ("pub", "odd_pub")
"""Public tables that stand beside the private ones."""
_COLUMNS = "gnxswd"


class RelatedDatabase(RandomDatabase):
    """A random database with columns of type DOUBLE, public tables, and bounds where three meet.

    Args:
        rng: decides.
    """

    further = MappingProxyType({"d_": "DOUBLE"})

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        names = [kind.name for kind in self.kinds]
        self._pairs |= {
            ", ".join(three): rng.choice([2, 5, 9])
            for three in combinations_with_replacement(names, 3)
        }

    def _row(self, kind: Kind, number: int, referred: list[int | None]) -> tuple[object, ...]:
        row = super()._row(kind, number, referred)
        return (*row, self._rng.choice([0.0, -0.0, 0.5, float("nan"), float("-inf"), None]))

    def questions(self) -> RelatedQuestions:
        """Return random statements over it."""
        return RelatedQuestions(self._rng, self.kinds, enforced=self._enforced)

    def connect(self, *, without: int | None = None) -> duckdb.DuckDBPyConnection:
        """Make the database, with public tables; see there."""
        con = super().connect(without=without)
        con.execute("CREATE TABLE pub (n INTEGER PRIMARY KEY, label VARCHAR, f DOUBLE)").fetchall()
        con.execute("INSERT INTO pub VALUES (0, 'a', 0.0), (1, 'b', '-0'), (5, NULL, 'nan')")
        con.execute("CREATE TABLE odd_pub (n INTEGER, g VARCHAR, big HUGEINT, since TIMESTAMP)")
        con.execute(
            "INSERT INTO odd_pub VALUES (0, 'a', 99999999999999999999999999999999999999, 'epoch'),"
            " (0, 'A', NULL, 'infinity'), (NULL, '', -1, NULL), (2, 'it''s', 0, '2024-01-01')"
        )
        return con


class PlainDatabase(RelatedDatabase):
    """One of which DuckDB gives the same answers: each row is somebody's, and all rows count.

    Args:
        rng: decides.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._collated, self._enforced = False, True
        self.kinds = [replace(kind, collation="", max_rows=99) for kind in self.kinds]
        self._owners = [[] for _ in self.kinds]
        self._rows = [list(self._made(kind)) for kind in self.kinds]
        self._pairs = dict.fromkeys(self._pairs, 9_999)

    def _kind(self, number: int) -> Kind:
        kind = super()._kind(number)
        return replace(kind, links=kind.links[:1])

    def _made(self, kind: Kind) -> Iterator[tuple[int | None, Row]]:
        if all(self._owners[link.parent] for link in kind.links):  # else they would be nobody's
            yield from super()._made(kind)

    def _referred(self, kind: Kind, link: Link, owners: list[int | None]) -> int | None:
        rows = len(owners if link.parent == kind.number else self._owners[link.parent])
        return self._rng.randrange(rows) if rows else None

    def questions(self) -> RelatedQuestions:
        """Return statements that have one answer."""
        return RelatedQuestions(self._rng, self.kinds, enforced=True, tied=False)


class RelatedQuestions(RandomQuestions):
    """Random statements over queries of rows of a random database.

    Args:
        rng: decides.
        kinds: its tables.
        enforced: whether their keys are enforced; else the ids of units alone tell of a unit.
        tied: whether rows that are not the same may tie in the order of a window.
    """

    def __init__(
        self, rng: random.Random, kinds: list[Kind], *, enforced: bool, tied: bool = True
    ) -> None:
        super().__init__(rng, kinds)
        self._tied = tied
        self._telling = [kind for kind in kinds if enforced or not _told(kind)]

    def statement(self) -> str:
        """Write one statement."""
        rng = self._rng
        kind = rng.choice(self._telling)
        if rng.random() < 0.15:
            a, b = self._alias(), self._alias()
            return (
                f"SELECT (SELECT COUNT({a}.c_x) FROM {self._item(kind, a)}) - "
                f"(SELECT COUNT(*) FROM {self._item(kind, b)}) AS v"
            )
        ctes, alias = "", self._alias()
        if rng.random() < 0.3:
            ctes = f"WITH q AS ({self.rows(kind, 2)}) "
            source = f"q AS {alias}"
        else:
            source = self._item(kind, alias)
        seen = [alias]
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            source += self._join(kind, seen, "q" if ctes and rng.random() < 0.5 else "")
        keys = [self._key_of(rng.choice(seen)) for _ in range(rng.choice([0, 1, 1, 2]))]
        values = [self._of_rows_of(rng.choice(seen)) for _ in range(rng.choice([1, 1, 2]))]
        if _told(kind):  # no units are told by that
            values = [re.sub(r"DISTINCT .*", "*)", value) for value in values]
        listed = ", ".join(
            [f"{key} AS key{i}" for i, key in enumerate(keys)]
            + [f"{value} AS value{i}" for i, value in enumerate(values)]
        )
        where = f" WHERE {self._true_of(rng.choice(seen), kind)}" if rng.random() < 0.6 else ""
        return f"{ctes}SELECT {listed} FROM {source}{where}{' GROUP BY ALL' if keys else ''}"

    # ── Queries of rows ─────────────────────────────────────────────────────────────────────────

    def rows(self, kind: Kind, depth: int) -> str:
        """Write a query of rows, whose column `o` is like that of a table's."""
        makers = [
            self._plain, self._plain, self._apart, self._groups, self._places, self._first,
            self._met_rows, self._several, self._looked_up, self._with_values,
        ]  # fmt: skip
        return self._rng.choice(makers if depth > 0 else makers[:1])(kind, depth - 1)

    def _item(self, kind: Kind, alias: str) -> str:
        return f"({self.rows(kind, 2)}) AS {alias}"

    def _from(self, kind: Kind, depth: int, alias: str) -> str:
        return f"({self.rows(kind, depth)}) AS {alias}"

    def _plain(self, kind: Kind, depth: int) -> str:
        columns = ", ".join(f"{kind.of('a', name)} AS c_{name}" for name in _COLUMNS[:-1])
        where = f" WHERE {self._condition([('a', kind)])}" if self._rng.random() < 0.4 else ""
        return f"SELECT {_teller(kind)} AS o, {columns}, a.d_ AS c_d FROM {kind.sql} AS a{where}"

    def _apart(self, kind: Kind, depth: int) -> str:
        a = self._alias()
        given = {
            "g": f"{a}.c_g",
            "n": self._rng.choice([f"{a}.c_n", f"{a}.c_n + 1", "2", f"LEAST({a}.c_n, 1)"]),
            "x": self._rng.choice([f"{a}.c_x", f"abs({a}.c_x)", "NULL::INTEGER"]),
            "s": self._rng.choice([f"{a}.c_s", f"upper({a}.c_s)", "'a'"]),
            "w": self._rng.choice([f"{a}.c_w", f"round({a}.c_w)", "0.5"]),
            "d": self._rng.choice([f"{a}.c_x / 2", f"-{a}.c_d", f"{a}.c_d * 0", "0.5::DOUBLE"]),
        }
        columns = ", ".join(f"{value} AS c_{name}" for name, value in given.items())
        where = f" WHERE {self._true_of(a, kind, depth)}" if self._rng.random() < 0.3 else ""
        return f"SELECT DISTINCT {a}.o AS o, {columns} FROM {self._from(kind, depth, a)}{where}"

    def _groups(self, kind: Kind, depth: int) -> str:
        a, rng = self._alias(), self._rng
        g = rng.choice([f"{a}.c_g", f"{a}.c_g", "'b'", f"CASE WHEN {a}.c_n > 1 THEN 'a' END"])
        columns = ", ".join([
            rng.choice(["COUNT(*)", f"COUNT({a}.c_x)", f"MAX({a}.c_n)"]) + " AS c_n",
            rng.choice([f"CAST(SUM({a}.c_n) AS INTEGER)", f"MIN({a}.c_x)"]) + " AS c_x",
            f"{rng.choice(['MIN', 'MAX'])}({a}.c_s) AS c_s",
            f"MAX({a}.c_w) AS c_w",
            rng.choice([f"AVG({a}.c_n::INTEGER)", f"AVG({a}.c_x::INTEGER)"]) + " AS c_d",
        ])  # fmt: skip
        having = rng.choice(["", "", " HAVING COUNT(*) > 1", f" HAVING MAX({a}.c_n) > 0"])
        by = f"{a}.o" if g == "'b'" else f"{a}.o, {g}"
        return (
            f"SELECT {a}.o AS o, {g} AS c_g, {columns} FROM {self._from(kind, depth, a)} "
            f"GROUP BY {by}{having}"
        )

    def _places(self, kind: Kind, depth: int) -> str:
        a, rng = self._alias(), self._rng
        by = f"PARTITION BY {a}.o" + rng.choice(["", f", {a}.c_g", f", {a}.c_n > 1"])
        order = rng.choice([f"{a}.c_n", f"{a}.c_w DESC, {a}.c_s", f"{a}.c_d", f"{a}.c_x, {a}.c_g"])
        over = f"OVER ({by} ORDER BY {order}{self._rest(a)})"
        n = rng.choice([f"row_number() {over}", f"lag({a}.c_n) {over}", f"rank() {over}"])
        x = rng.choice([f"lead({a}.c_x) {over}", f"SUM({a}.c_n) OVER ({by})", f"COUNT(*) {over}"])
        where = f" WHERE {self._true_of(a, kind, depth)}" if rng.random() < 0.3 else ""
        chosen = rng.choice(["", f" QUALIFY row_number() {over} <= 2", " QUALIFY c_n = 1"])
        return (
            f"SELECT {a}.o AS o, {a}.c_g AS c_g, {n} AS c_n, {x} AS c_x, {a}.c_s AS c_s, "
            f"{a}.c_w AS c_w, {a}.c_d AS c_d FROM {self._from(kind, depth, a)}{where}{chosen}"
        )

    def _first(self, kind: Kind, depth: int) -> str:
        a = self._alias()
        on = self._rng.choice([f"{a}.o", f"{a}.o, {a}.c_g"])
        return (
            f"SELECT DISTINCT ON ({on}) {self._all_of(a)} FROM {self._from(kind, depth, a)} "
            f"ORDER BY {self._rng.choice([f'{a}.c_n', f'{a}.c_d DESC', f'{a}.c_s, {a}.c_x'])}"
            f"{self._rest(a)}"
        )

    def _met_rows(self, kind: Kind, depth: int) -> str:
        seen = [self._alias()]
        source = self._from(kind, depth, seen[0])
        for _ in range(self._rng.choice([1, 1, 2])):
            source += self._join(kind, seen, "", depth)
        one, other = self._rng.choice(seen), self._rng.choice(seen)
        where = f" WHERE {self._true_of(one, kind, depth)}" if self._rng.random() < 0.3 else ""
        return (
            f"SELECT {seen[0]}.o AS o, {one}.c_g AS c_g, {other}.c_n AS c_n, {one}.c_x AS c_x, "
            f"{other}.c_s AS c_s, {one}.c_w AS c_w, {other}.c_d AS c_d FROM {source}{where}"
        )

    def _several(self, kind: Kind, depth: int) -> str:
        others = [self._rng.choice(self._alike(kind)) for _ in range(2)]
        return " UNION ALL ".join(
            f"SELECT {self._all_of(a)} FROM {self._from(of, depth, a)}"
            for of in others
            for a in [self._alias()]
        )

    def _looked_up(self, kind: Kind, depth: int) -> str:
        a, rng = self._alias(), self._rng
        how = rng.choice(["JOIN", "LEFT JOIN"])
        table, on, g = rng.choice([
            ("pub", f"p.n = {a}.c_n", "p.label"),
            ("pub", f"p.f = {a}.c_d", "p.label"),
            ("odd_pub", f"p.n = {a}.c_n", "p.g"),
            ("odd_pub", f"p.g = {a}.c_s AND p.big > {a}.c_x", "p.g"),
            ("(SELECT n, MAX(label) AS label FROM pub GROUP BY n)", f"p.n >= {a}.c_n", "p.label"),
            ("(VALUES (0, 'a'), (1, NULL), (1, 'b')) ", f"p.col0 = {a}.c_n", "p.col1"),
        ])  # fmt: skip
        return (
            f"SELECT {a}.o AS o, {g} AS c_g, {a}.c_n AS c_n, {a}.c_x AS c_x, {a}.c_s AS c_s, "
            f"{a}.c_w AS c_w, {a}.c_d AS c_d FROM {self._from(kind, depth, a)} {how} {table} AS p "
            f"ON {on}"
        )

    def _with_values(self, kind: Kind, depth: int) -> str:
        a = self._alias()
        exists = self._true_of(a, kind, depth)
        return (
            f"SELECT {a}.o AS o, CASE WHEN {exists} THEN 'a' ELSE {a}.c_g END AS c_g, "
            f"{self._value_of(a, kind, depth, 'COUNT', '*')} AS c_n, "
            f"{self._value_of(a, kind, depth, 'MAX', 'c_x')} AS c_x, {a}.c_s AS c_s, "
            f"{a}.c_w AS c_w, {a}.c_d AS c_d FROM {self._from(kind, depth, a)}"
        )

    # ── Parts of them ───────────────────────────────────────────────────────────────────────────

    def _all_of(self, alias: str) -> str:
        return ", ".join(f"{alias}.{name} AS {name}" for name in ("o", *self._names()))

    def _rest(self, alias: str) -> str:
        """Return further columns to sort by, if only equal rows may tie."""
        return "" if self._tied else "".join(f", {alias}.{name}" for name in self._names())

    def _names(self) -> Iterator[str]:
        yield from (f"c_{name}" for name in _COLUMNS)

    def _alike(self, kind: Kind) -> list[Kind]:
        """Return the tables whose rows tell the same as those of one: it, or others."""
        told = _told(kind)
        return [other for other in self._telling if _told(other) == told]

    def _join(self, kind: Kind, seen: list[str], named: str, depth: int = 1) -> str:
        rng, alias, other = self._rng, self._alias(), self._rng.choice(self._alike(kind))
        item = f"{named} AS {alias}" if named else self._from(other, depth, alias)
        how = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN"])
        before = seen[0] if rng.random() < 0.85 else rng.choice(seen)
        more = rng.choice([
            "", "", f" AND {before}.c_g = {alias}.c_g", f" AND {before}.c_n <= {alias}.c_n",
            f" AND {alias}.c_x IS NOT NULL", f" AND {before}.c_d = {alias}.c_d",
        ])  # fmt: skip
        if "SEMI" not in how and "ANTI" not in how:
            seen.append(alias)
        told = f"{before}.o = {alias}.o"
        if rng.random() < 0.04:  # which is refused
            told = f"{before}.c_n = {alias}.c_n"
        return f" {how} {item} ON {told}{more}"

    def _true_of(self, alias: str, kind: Kind, depth: int = 1) -> str:
        """Write a condition on a row of a query of rows."""
        rng, i = self._rng, self._alias()
        inner = self._from(rng.choice(self._alike(kind)), depth, i)
        if rng.random() < 0.5:
            j = self._alias()
            deeper = self._from(rng.choice(self._alike(kind)), 0, j)
            more = rng.choice([
                "", f" AND {i}.c_g = 'a'", f" AND {i}.c_n > {alias}.c_n",
                f" AND {i}.c_n >= {alias}.c_n AND EXISTS (SELECT 1 FROM {deeper} WHERE {j}.o = "
                f"{i}.o AND {j}.c_x > {i}.c_n)",
            ])  # fmt: skip
            return rng.choice([
                f"EXISTS (SELECT 1 FROM {inner} WHERE {i}.o = {alias}.o{more})",
                f"NOT EXISTS (SELECT 1 FROM {inner} WHERE {i}.o = {alias}.o{more})",
                f"{alias}.o IN (SELECT {i}.o FROM {inner})",
                f"{alias}.o NOT IN (SELECT {i}.o FROM {inner} WHERE {i}.o IS NOT NULL)",
                f"({alias}.c_n IN (SELECT {i}.c_n FROM {inner} WHERE {i}.o = {alias}.o)) IS TRUE",
                f"{self._value_of(alias, kind, depth, 'COUNT', '*')} > 1",
            ])  # fmt: skip
        return rng.choice([
            f"{alias}.c_g = 'a'", f"{alias}.c_n > 1", f"{alias}.c_x IS NULL", f"{alias}.c_d = 0",
            f"{alias}.c_n <= {alias}.c_x", f"({alias}.c_w > 0 OR {alias}.c_s = 'a')",
        ])  # fmt: skip

    def _value_of(self, alias: str, kind: Kind, depth: int, function: str, of: str) -> str:
        i = self._alias()
        inner = self._from(self._rng.choice(self._alike(kind)), depth, i)
        named = of if of == "*" else f"{i}.{of}"
        return f"(SELECT {function}({named}) FROM {inner} WHERE {i}.o = {alias}.o)"

    def _key_of(self, alias: str) -> str:
        return self._rng.choice([
            f"{alias}.c_g", f"{alias}.c_g", f"LEAST(GREATEST({alias}.c_n, 0), 3)",
            f"{alias}.c_x > 0", f"{alias}.c_d = 0", f"{alias}.c_s = 'a'",
        ])  # fmt: skip

    def _of_rows_of(self, alias: str) -> str:
        return self._rng.choice([
            "COUNT(*)", "COUNT(*)", f"COUNT({alias}.c_x)", f"COUNT(DISTINCT {alias}.o)",
            f"COUNT(DISTINCT CASE WHEN {alias}.c_n > 0 THEN {alias}.o END)",
            f"SUM(LEAST(GREATEST({alias}.c_n, 0), 4))", f"SUM(LEAST(GREATEST({alias}.c_w, -9), 9))",
            f"COUNT(*) FILTER (WHERE {alias}.c_g = 'a')",
            f"AVG(LEAST(GREATEST({alias}.c_x, -1), 5))" if self._tied else "COUNT(*)",
        ])  # fmt: skip


def differences(
    con: duckdb.DuckDBPyConnection, sql: str, found: Sequence[tuple[object, ...]]
) -> list[tuple[object, ...]]:
    """Return rows of a database's answer that were not found, and others that are not its own.

    Of groups without rows there are noisy counts, near zero, which it doesn't list.
    """
    wanted = con.execute(sql)
    keys = [place for place, column in enumerate(wanted.description) if column[0][:3] == "key"]
    rows = wanted.fetchall()

    def alike(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
        pairs = enumerate(zip(one, other, strict=True))
        return all(a == b if i in keys else abs(_of(a) - _of(b)) < 0.1 for i, (a, b) in pairs)

    def empty(row: tuple[object, ...]) -> bool:
        return all(abs(_of(value)) < 0.1 for i, value in enumerate(row) if i not in keys)

    lost = [row for row in rows if not any(alike(row, one) for one in found)]
    more = [one for one in found if not empty(one) and not any(alike(row, one) for row in rows)]
    return lost + more


def _of(value: object) -> float:
    return 0.0 if value is None else float(value)  # type: ignore[arg-type]


def _told(kind: Kind) -> int:
    """Return the number of the table of whose rows the column `o` has the keys."""
    return kind.links[0].parent if kind.links else 0
