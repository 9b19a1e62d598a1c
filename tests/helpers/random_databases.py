"""Random databases of several private tables, and random questions about their rows.

`t0` has the units; every other table refers to one before it, by which its rows are somebody's, and
perhaps to others, whose rows may be somebody else's. So there are chains, stars, and several ways
from a table to the units. A table may refer to itself. Whatever refers may be NULL, so rows may be
nobody's. Ids may be texts that differ in their bytes alone where a collation is set.

The keys of some databases are FOREIGN KEYs. Those of others only the owner knows, and nothing
enforces them: ids that several rows have, also of different units, references to no row, and
tables that refer to each other in circles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from dpsql import Domain, Schema, Unit

Row = tuple[object, ...]
COLLATIONS = ("", " COLLATE NOCASE", " COLLATE NOACCENT", " COLLATE NOCASE.NOACCENT")
_LETTERS = "aAáÁbBeEéÉ"


@dataclass(frozen=True, slots=True)
class Link:
    """A column that refers to a row."""

    column: str
    parent: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One table: what its ids are, and to what its rows refer; the first is whose they are."""

    number: int
    texts: bool
    collation: str
    links: tuple[Link, ...]
    max_rows: int

    @property
    def name(self) -> str:
        return f"t{self.number}"

    @property
    def id_type(self) -> str:
        return f"VARCHAR{self.collation}" if self.texts else "INTEGER"

    def key(self, number: int) -> object:
        """Return the id of the row with a number: texts that collations take for the same."""
        return _LETTERS[number % 10] * (1 + number // 10) if self.texts else number

    def unit(self, kinds: list[Kind]) -> Unit:
        """Name the column that has the ids of units, by the way that is meant."""
        at = self
        while at.links and at.links[0].parent != 0:
            at = kinds[at.links[0].parent]
        column = at.links[0].column if at.links else "id"
        return Unit(column if at is self else f"{at.name}.{column}", self.max_rows)


class RandomDatabase:
    """Three to five tables, with rows of up to eight units.

    Args:
        rng: decides.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._default_collation = rng.random() < 0.1
        self._enforced = rng.random() < 0.6
        self._tables = rng.randint(3, 5)
        self.kinds = [self._kind(number) for number in range(self._tables)]
        self.units = rng.randint(2, 8)
        self.apart = rng.randrange(self.units)
        """The unit to whose rows no others refer. As long as there are such, the database doesn't
        let a unit's rows go."""
        self._owners: list[list[int | None]] = [[] for _ in self.kinds]
        made = self._made if self._enforced else self._loose
        self._rows = [list(made(kind)) for kind in self.kinds]

    def _kind(self, number: int) -> Kind:
        rng = self._rng
        parents = [rng.randrange(number)] if number else []
        if number and rng.random() < 0.2:
            # It may be its own; in a circle, if nothing has to be there before.
            parents.append(rng.randrange(number + 1 if self._enforced else self._tables))
        links = tuple(Link(f"r{i}", parent) for i, parent in enumerate(parents))
        texts = rng.random() < 0.5
        collation = rng.choice(COLLATIONS) if texts else ""
        return Kind(number, texts, collation, links, rng.choice([1, 1, 2, 3, 5]))

    def _made(self, kind: Kind) -> Iterator[tuple[int | None, Row]]:
        """Yield rows, each with its unit."""
        owners, rng = self._owners[kind.number], self._rng
        count = self.units if not kind.links else rng.randint(0, 4 * self.units)
        for number in range(count):
            referred = [self._referred(kind, link, owners) for link in kind.links]
            if not kind.links:
                owner: int | None = number
            elif referred[0] is None:
                owner = None
            else:
                owner = self._owners[kind.links[0].parent][referred[0]]
            further = zip(kind.links[1:], referred[1:], strict=True)
            for i, (link, row) in enumerate(further, start=1):
                if row is not None and self._owners[link.parent][row] == self.apart != owner:
                    referred[i] = None
            owners.append(owner)
            yield owner, self._row(kind, number, referred)

    def _loose(self, kind: Kind) -> Iterator[tuple[int | None, Row]]:
        """Yield rows whose keys nothing enforces, each with the unit whose id it has."""
        rng = self._rng
        count = self.units + 1 if not kind.links else rng.randint(0, 4 * self.units)
        for each in range(count):
            number = each if rng.random() < 0.8 else rng.randrange(count)
            most = [self.units if link.parent == 0 else 3 * self.units for link in kind.links]
            referred = [None if rng.random() < 0.1 else rng.randrange(n + 2) for n in most]
            owner = number if not kind.links else None
            if kind.links and kind.links[0].parent == 0:
                owner = referred[0]
            yield owner, self._row(kind, number, referred)

    def _referred(self, kind: Kind, link: Link, owners: list[int | None]) -> int | None:
        rows = len(owners if link.parent == kind.number else self._owners[link.parent])
        return None if not rows or self._rng.random() < 0.1 else self._rng.randrange(rows)

    def _row(self, kind: Kind, number: int, referred: list[int | None]) -> Row:
        rng = self._rng
        keys = [
            None if row is None else self.kinds[link.parent].key(row)
            for link, row in zip(kind.links, referred, strict=True)
        ]
        return (
            kind.key(number),
            *keys,
            rng.choice(["a", "b", None]),
            rng.choice([0, 1, 2, 5, None]),
            rng.choice([-3, 0, 0, 7, None]),
            rng.choice(["a", "A", "á", "", None]),
            rng.choice(["0.00", "0.25", "-9.75", None]),
        )

    @property
    def schema(self) -> Schema:
        """The unit of each table, and its bound."""
        columns = {"w": Domain.number(-10, 10)}
        units = {kind.name: kind.unit(self.kinds) for kind in self.kinds}
        references = {
            f"{kind.name}.{link.column}": f"t{link.parent}.id"
            for kind in self.kinds
            for link in kind.links
        }
        return Schema(
            {kind.name: columns for kind in self.kinds},
            units=units,
            references={} if self._enforced else references,
        )

    def connect(self, *, without: int | None = None) -> duckdb.DuckDBPyConnection:
        """Make the database, with all rows or without those of a unit.

        Where keys aren't enforced, those are the rows that have its id.
        """
        con = duckdb.connect(config={"threads": 2})
        if self._default_collation:
            con.execute("SET default_collation = 'NOCASE'").fetchall()
        for kind, rows in zip(self.kinds, self._rows, strict=True):
            links = "".join(
                f"{link.column} {self.kinds[link.parent].id_type}"
                + (f" REFERENCES t{link.parent} (id), " if self._enforced else ", ")
                for link in kind.links
            )
            key = " PRIMARY KEY" if self._enforced else ""
            con.execute(
                f"CREATE TABLE {kind.name} (id {kind.id_type}{key}, {links}"
                "g VARCHAR CHECK (g IN ('a', 'b')), n INTEGER CHECK (n BETWEEN 0 AND 5), "
                f"x INTEGER, s VARCHAR, w DECIMAL(6, 2))"
            ).fetchall()
            for owner, row in rows:
                if without is None or owner != without:
                    marks = ", ".join("?" * len(row))
                    con.execute(f"INSERT INTO {kind.name} VALUES ({marks})", row).fetchall()
        return con


class RandomQuestions:
    """Random statements over a random database.

    Args:
        rng: decides.
        kinds: its tables.
    """

    def __init__(self, rng: random.Random, kinds: list[Kind]) -> None:
        self._rng = rng
        self._kinds = kinds
        self._used = 0

    def script(self) -> dict[str, str]:
        """Write one to three statements, perhaps over several tables."""
        return {f"s{i}": self.statement() for i in range(self._rng.choice([1, 1, 2, 3]))}

    def statement(self) -> str:
        """Write one statement."""
        kind = self._rng.choice(self._kinds)
        children = self._children(kind)
        if self._rng.random() < 0.1:
            other = self._rng.choice(self._kinds)
            return (
                f"SELECT (SELECT {self._value([('a', kind)])} FROM {kind.name} AS a) "
                f"- (SELECT {self._value([('a', other)])} FROM {other.name} AS a) AS v"
            )
        if children and self._rng.random() < 0.15:
            return self._grouped_by_row(kind, *self._rng.choice(children))
        return self._joined(kind)

    def _joined(self, kind: Kind) -> str:
        """Write a statement about rows with what they refer to."""
        rng, seen = self._rng, [("a", kind)]
        source = f"{kind.name} AS a"
        taken = set[tuple[str, str]]()
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            alias, above = rng.choice(seen)
            links = [link for link in above.links if (alias, link.column) not in taken]
            if not links:
                continue
            link, how = rng.choice(links), rng.choice(["JOIN", "JOIN", "LEFT JOIN", "SEMI", "ANTI"])
            parent, name = self._kinds[link.parent], self._alias()
            taken.add((alias, link.column))
            join = f"{how} JOIN" if how in {"SEMI", "ANTI"} else how
            source += f" {join} {parent.name} AS {name} ON {alias}.{link.column} = {name}.id"
            if how in {"JOIN", "LEFT JOIN"}:
                seen.append((name, parent))
        keys = [self._key(seen) for _ in range(rng.choice([0, 1, 1, 2]))]
        values = [self._value(seen) for _ in range(rng.randint(1, 2))]
        listed = ", ".join(
            [f"{key} AS k{i}" for i, key in enumerate(keys)]
            + [f"{value} AS v{i}" for i, value in enumerate(values)]
        )
        where = f" WHERE {self._condition(seen)}" if rng.random() < 0.5 else ""
        by = f" GROUP BY {', '.join(f'k{i}' for i in range(len(keys)))}" if keys else ""
        return f"SELECT {listed} FROM {source}{where}{by}"

    def _grouped_by_row(self, kind: Kind, child: Kind, link: Link) -> str:
        """Write a statement about what rows have of those that refer to them."""
        how = self._rng.choice(["JOIN", "LEFT JOIN"])
        number = self._rng.choice(["COUNT(i.id)", "COUNT(i.n)", "SUM(i.n)", "MAX(i.x)"])
        inner = (
            f"SELECT a.id, {number} AS v FROM {kind.name} AS a {how} {child.name} AS i "
            f"ON i.{link.column} = a.id GROUP BY a.id"
        )
        return (
            f"SELECT GREATEST(LEAST(v, 3), 0) AS v, COUNT(*) AS n FROM ({inner}) AS q GROUP BY ALL"
        )

    def _alias(self) -> str:
        self._used += 1
        return f"b{self._used}"

    def _children(self, kind: Kind) -> list[tuple[Kind, Link]]:
        return [
            (other, link)
            for other in self._kinds
            for link in other.links
            if link.parent == kind.number
        ]

    def _key(self, seen: list[tuple[str, Kind]]) -> str:
        alias, kind = self._rng.choice(seen)
        subquery = self._subquery(alias, kind, self._rng.choice(["COUNT(*)", "COUNT({}.x)"]))
        return self._rng.choice([
            f"{alias}.g",
            f"{alias}.n",
            f"({self._condition(seen)})",
            f"LEAST({subquery}, 3)" if subquery else f"{alias}.g",
        ])  # fmt: skip

    def _value(self, seen: list[tuple[str, Kind]]) -> str:
        alias, kind = self._rng.choice(seen)
        subquery = self._subquery(alias, kind, self._rng.choice(["SUM({}.n)", "SUM({}.w)"]))
        return self._rng.choice([
            "COUNT(*)",
            f"COUNT({alias}.x)",
            f"SUM({alias}.w)",
            f"SUM({alias}.n)",
            f"AVG({alias}.w)",
            f"COUNT(*) FILTER (WHERE {self._condition(seen)})",
            f"SUM(GREATEST(LEAST({subquery}, 20), -4))" if subquery else "COUNT(*)",
        ])  # fmt: skip

    def _condition(self, seen: list[tuple[str, Kind]]) -> str:
        rng = self._rng
        (alias, kind), (other, _) = rng.choice(seen), rng.choice(seen)
        if rng.random() < 0.5 and (self._children(kind) or kind.links):
            found = self._of_rows(alias, kind)
            if found:
                return found
        return rng.choice([
            f"{alias}.g = 'a'",
            f"{alias}.n > 1",
            f"{alias}.x > 0",
            f"{alias}.x IS NULL",
            f"{alias}.s = 'a'",
            f"{alias}.n <= {other}.x",
            f"({alias}.x = 7 OR {other}.g IS NULL)",
        ])  # fmt: skip

    def _of_rows(self, alias: str, kind: Kind) -> str:
        """Write a condition on rows that refer to a row."""
        rng, name = self._rng, self._alias()
        if rng.random() < 0.4:
            function = rng.choice(["COUNT(*)", "SUM({}.n)", "MIN({}.x)", "MAX({}.w)"])
            subquery = self._subquery(alias, kind, function)
            return f"{subquery} > 1" if subquery else ""
        source = self._referring(alias, kind, name)
        return f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 {source})" if source else ""

    def _subquery(self, alias: str, kind: Kind, function: str) -> str:
        name = self._alias()
        source = self._referring(alias, kind, name)
        return f"(SELECT {function.format(name)} {source})" if source else ""

    def _referring(self, alias: str, kind: Kind, name: str, *, deep: bool = True) -> str:
        """Write the rows that refer to a row, or to the same one as it does."""
        met = [
            (child, f"{name}.{link.column} = {alias}.id") for child, link in self._children(kind)
        ]
        met += [(kind, f"{name}.{link.column} = {alias}.{link.column}") for link in kind.links]
        if not met:
            return ""
        child, condition = self._rng.choice(met)
        more = self._rng.choice([
            "",
            f" AND {name}.x > 0",
            f" AND {name}.g = 'b'",
            f" AND {name}.x >= {alias}.n",
            f" AND {name}.n <> {alias}.n",
        ])  # fmt: skip
        if deep and self._rng.random() < 0.3:
            inner = self._referring(name, child, self._alias(), deep=False)
            more += f" AND EXISTS (SELECT 1 {inner})" if inner else ""
        return f"FROM {child.name} AS {name} WHERE {condition}{more}"
