"""Random databases of several private tables, and random questions about their rows.

`t0` has the units; every other table refers to one before it, by which its rows are somebody's, and
perhaps to others, whose rows may be somebody else's. So there are chains, stars, and several ways
from a table to the units. A table may refer to itself. Whatever refers may be NULL, so rows may be
nobody's. Ids may be texts that differ in their bytes alone where a collation is set.

The keys of some databases are FOREIGN KEYs. Those of others only the owner knows, and nothing
enforces them: ids that several rows have, also of different units, references to no row, and
tables that refer to each other in circles.

In some, tables and columns are called as the library calls what it computes, or the like.

Questions are about rows with what they refer to and what refers to them, about pairs of rows of
the same unit, and about how many units there are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from types import MappingProxyType

import duckdb

from dpsql import Domain, Schema, Unit
from dpsql.schema.names import quoted_name
from tests.helpers.inserted import insert

Row = tuple[object, ...]
COLLATIONS = ("", " COLLATE NOCASE", " COLLATE NOACCENT", " COLLATE NOCASE.NOACCENT")
_LETTERS = "aAáÁbBeEéÉ"
_COLUMNS = ("id", "r0", "r1", "g", "n", "x", "s", "w")
_ODD_COLUMNS = (
    "u_", "u_unit", "u_unit_row", "U_id", "uu_n", "unit", "kept", "crowded", "numbered", "block",
    "key", "m0", "k0", "k1", "v", "V1", "s0", "t", "t0", "t1", "p0", "w0", "i", "c", "c0", "b0",
    "g", "u", "u0", "n", "r", "r0.g", "t0.id", "a", "id", "count", "row_number", "encode", "found",
)  # fmt: skip
_ODD_TABLES = (
    "kept", "crowded", "numbered", "t", "t0", "s0", "i", "w0", "p0", "unit", "u_unit", "c", "b0",
    "t0 2", "t0.t1", "range", "listed", "groups",
)  # fmt: skip
"""What the library calls tables and columns in its own SQL, and what is made of such names."""


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
    name: str
    names: Mapping[str, str]
    """What its columns are called."""

    @property
    def sql(self) -> str:
        """Its name in a statement."""
        return quoted_name(self.name)

    def of(self, alias: str, column: str) -> str:
        """Return one of its columns in a statement."""
        return f"{alias}.{quoted_name(self.names[column])}"

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
        column = at.names[at.links[0].column if at.links else "id"]
        return Unit(column if at is self else f"{at.name}.{column}", self.max_rows)


class RandomDatabase:
    """Three to five tables, with rows of up to eight units.

    Args:
        rng: decides.
    """

    further: Mapping[str, str] = MappingProxyType({})
    """Columns that each table has besides, with their types."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._collated, self._enforced, self._tables, self._odd = self.traits(rng)
        self._table_names = (
            rng.sample(_ODD_TABLES, self._tables)
            if self._odd
            else [f"t{number}" for number in range(self._tables)]
        )
        self.kinds = [self._kind(number) for number in range(self._tables)]
        self.units = rng.randint(2, 8)
        self.apart = rng.randrange(self.units)
        """The unit to whose rows no others refer. As long as there are such, the database doesn't
        let a unit's rows go."""
        self._owners: list[list[int | None]] = [[] for _ in self.kinds]
        made = self._made if self._enforced else self._loose
        self._rows = [list(made(kind)) for kind in self.kinds]
        names = [kind.name for kind in self.kinds]
        self._pairs = {
            ", ".join(pair): rng.choice([1, 3, 8])
            for pair in combinations_with_replacement(names, 2)
        }
        """How many pairs of rows of a unit count."""

    @staticmethod
    def traits(rng: random.Random) -> tuple[bool, bool, int, bool]:
        """Decide whether texts are collated, keys enforced, how many tables, whether names odd."""
        return rng.random() < 0.1, rng.random() < 0.6, rng.randint(3, 5), rng.random() < 0.3

    def _kind(self, number: int) -> Kind:
        rng = self._rng
        parents = [rng.randrange(number)] if number else []
        if number and rng.random() < 0.2:
            # It may be its own; in a circle, if nothing has to be there before.
            parents.append(rng.randrange(number + 1 if self._enforced else self._tables))
        links = tuple(Link(f"r{i}", parent) for i, parent in enumerate(parents))
        texts = rng.random() < 0.5
        collation = rng.choice(COLLATIONS) if texts else ""
        names = dict(zip(_COLUMNS, _COLUMNS, strict=True))
        if self._odd:
            names = dict(zip(_COLUMNS, self._odd_names(), strict=True))
        name = self._table_names[number]
        return Kind(number, texts, collation, links, rng.choice([1, 1, 2, 3, 5]), name, names)

    def _odd_names(self) -> list[str]:
        found = dict[str, str]()
        for name in self._rng.sample(_ODD_COLUMNS, len(_ODD_COLUMNS)):
            found.setdefault(name.lower(), name)
        return list(found.values())[: len(_COLUMNS)]

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
        return self._declared({}, {} if self._enforced else self._references)

    @property
    def bare_schema(self) -> Schema:
        """What is to be declared of tables of which nothing else tells anything."""
        domains = {
            "g": Domain.labels(["a", "b"], nullable=True),
            "n": Domain.integers(0, 5, nullable=True),
        }
        return self._declared(domains, self._references)

    @property
    def _references(self) -> dict[str, str]:
        return {
            f"{kind.name}.{kind.names[link.column]}": f"{of.name}.{of.names['id']}"
            for kind in self.kinds
            for link in kind.links
            for of in [self.kinds[link.parent]]
        }

    def _declared(self, domains: Mapping[str, Domain], references: Mapping[str, str]) -> Schema:
        units = {kind.name: kind.unit(self.kinds) for kind in self.kinds}
        (first, own), *_ = units.items()
        units[first] = Unit(own.key, {first: own.max_rows, **self._pairs})
        declared = {"w": Domain.number(-10, 10), **domains}
        return Schema(
            {
                kind.name: {kind.names[name]: of for name, of in declared.items()}
                for kind in self.kinds
            },
            units=units,
            references=references,
        )

    def connect(self, *, without: int | None = None) -> duckdb.DuckDBPyConnection:
        """Make the database, with all rows or without those of a unit.

        Where keys aren't enforced, those are the rows that have its id.
        """
        con = duckdb.connect(config={"threads": 2})
        text = "VARCHAR COLLATE NOCASE" if self._collated else "VARCHAR"
        more = "".join(f", {name} {type_}" for name, type_ in self.further.items())
        for kind, rows in zip(self.kinds, self._rows, strict=True):
            named = {column: quoted_name(name) for column, name in kind.names.items()}
            links = ""
            for link in kind.links:
                of = self.kinds[link.parent]
                links += f"{named[link.column]} {of.id_type}"
                refers = f" REFERENCES {of.sql} ({quoted_name(of.names['id'])})"
                links += f"{refers if self._enforced else ''}, "
            key = " PRIMARY KEY" if self._enforced else ""
            con.execute(
                f"CREATE TABLE {kind.sql} ({named['id']} {kind.id_type}{key}, {links}"
                f"{named['g']} VARCHAR CHECK ({named['g']} IN ('a', 'b')), "
                f"{named['n']} INTEGER CHECK ({named['n']} BETWEEN 0 AND 5), "
                f"{named['x']} INTEGER, {named['s']} {text}, {named['w']} DECIMAL(6, 2){more})"
            ).fetchall()
            for owner, row in rows:
                if without is None or owner != without:
                    marks = ", ".join("?" * len(row))
                    con.execute(f"INSERT INTO {kind.sql} VALUES ({marks})", row).fetchall()
        return con

    def bare(
        self,
        con: duckdb.DuckDBPyConnection,
        *,
        without: int | None = None,
        alone: int | None = None,
    ) -> None:
        """Make the tables as files would have them: without keys, constraints and collations.

        Args:
            con: has them in its current schema.
            without: the unit whose rows are left out.
            alone: the unit of which there are rows, and of no others.
        """
        for kind, rows in zip(self.kinds, self._rows, strict=True):
            keys = [("id", kind.texts)]
            keys += [(link.column, self.kinds[link.parent].texts) for link in kind.links]
            types = {name: "VARCHAR" if texts else "INTEGER" for name, texts in keys}
            types |= {"g": "VARCHAR", "n": "INTEGER", "x": "INTEGER", "s": "VARCHAR"}
            types["w"] = "DECIMAL(6, 2)"
            listed = ", ".join(f"{quoted_name(kind.names[c])} {t}" for c, t in types.items())
            con.execute(f"CREATE TABLE {kind.sql} ({listed})").fetchall()
            left = [
                row
                for owner, row in rows
                if owner is None or (owner != without and alone in {None, owner})
            ]
            insert(con, kind.sql, left)


Seen = tuple[str, Kind]
"""An item after FROM: its alias, and which table it is."""


def _teller(kind: Kind) -> str:
    """Name a column that tells whose a row is."""
    return kind.of("a", "r0" if kind.links else "id")


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
                f"SELECT (SELECT {self._value([('a', kind)])} FROM {kind.sql} AS a) "
                f"- (SELECT {self._value([('a', other)])} FROM {other.sql} AS a) AS v"
            )
        if children and self._rng.random() < 0.15:
            return self._grouped_by_row(kind, *self._rng.choice(children))
        seen, source = [("a", kind)], f"{kind.sql} AS a"
        if self._rng.random() < 0.2:
            source += self._met(kind, seen)
        elif self._rng.random() < 0.15:
            source += self._units(kind, seen)
            return self._joined(seen, source, self._units_counted(seen))
        elif self._rng.random() < 0.2:
            return self._windowed(kind)
        elif self._rng.random() < 0.15:
            return self._put_together()
        return self._joined(seen, source)

    def _put_together(self) -> str:
        """Write a statement about rows of several tables, one below the other."""
        rng, parts = self._rng, list[str]()
        for number in range(rng.choice([2, 2, 3])):
            kind = rng.choice(self._kinds)
            columns = ", ".join(f"{kind.of('a', name)} AS c_{name}" for name in "gnxw")
            where = f" WHERE {self._condition([('a', kind)])}" if rng.random() < 0.5 else ""
            parts.append(f"SELECT {number % 2} AS f, {columns} FROM {kind.sql} AS a{where}")
        keys = [rng.choice(["f", "c_g", "c_n", "c_x > 0", "c_n + f"]) for _ in range(2)]
        listed = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        value = rng.choice(["COUNT(*)", "SUM(c_w)", "AVG(c_n)", "COUNT(*) FILTER (WHERE f = 1)"])
        chosen = rng.choice(["", " WHERE f = 0", " WHERE c_n > f", " WHERE c_x IS NOT NULL"])
        rows = " UNION ALL ".join(parts)
        return f"SELECT {listed}, {value} AS v FROM ({rows}) AS q{chosen} GROUP BY ALL"

    def _windowed(self, kind: Kind) -> str:
        """Write a statement about what rows are among those of their unit, with many ties."""
        rng = self._rng
        windows = [self._window(kind) for _ in range(rng.choice([1, 1, 2]))]
        shown = ", ".join(f"{window} AS f{i}" for i, (window, _) in enumerate(windows))
        where = f" WHERE {self._condition([('a', kind)])}" if rng.random() < 0.4 else ""
        chosen = rng.choice(["", "", " QUALIFY row_number() OVER o <= 2"])
        order = f"{kind.of('a', 'n')}, {kind.of('a', 'g')}"
        named = f" WINDOW o AS (PARTITION BY {_teller(kind)} ORDER BY {order})" if chosen else ""
        columns = ", ".join(f"{kind.of('a', name)} AS c_{name}" for name in "gnxw")
        inner = f"SELECT {columns}, {shown} FROM {kind.sql} AS a{where}{named}{chosen}"
        keys = [key.format(f"f{i}") for i, (_, key) in enumerate(windows)]
        keys += [rng.choice(["c_g", "c_n", "c_x > 0"])] if rng.random() < 0.5 else []
        listed = ", ".join(f"{key} AS k{i}" for i, key in enumerate(keys))
        value = rng.choice(["COUNT(*)", "SUM(c_w)", "SUM(c_n)"])
        return f"SELECT {listed}, {value} AS v FROM ({inner}) AS q GROUP BY ALL"

    def _window(self, kind: Kind) -> tuple[str, str]:
        """Write a window, and a key that is made of it."""
        rng, of = self._rng, partial(kind.of, "a")
        function, key, framed = rng.choice([
            ("row_number()", "LEAST({}, 3)", False),
            ("rank()", "LEAST({}, 3)", False),
            ("dense_rank()", "{} > 1", False),
            ("ntile(2)", "LEAST({}, 2)", False),
            ("cume_dist()", "{} > 0.5", False),
            (f"lag({of('x')})", "{} > 0", False),
            (f"lead({of('g')}, 2, 'b')", "{} = 'b'", False),
            (f"first_value({of('s')})", "{} = 'a'", True),
            (f"nth_value({of('w')}, 2)", "{} > 0", True),
            ("COUNT(*)", "LEAST({}, 4)", True),
            (f"SUM({of('n')})", "{} > 3", True),
            (f"MAX({of('w')})", "{} > 0", True),
            (f"AVG({of('x')}) FILTER (WHERE {of('g')} = 'a')", "{} > 1", True),
        ])  # fmt: skip
        parts = [_teller(kind), *([of("g")] if rng.random() < 0.3 else [])]
        order = rng.choice([
            "",
            f" ORDER BY {of('n')}",
            f" ORDER BY {of('x')} DESC, {of('s')}",
            f" ORDER BY {of('w')} NULLS FIRST",
        ])  # fmt: skip
        frame = ""
        if framed:
            frame = " ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING"
            frame = rng.choice(["", frame]) if "value" not in function else frame
        return f"{function} OVER (PARTITION BY {', '.join(parts)}{order}{frame})", key

    def _met(self, kind: Kind, seen: list[Seen]) -> str:
        """Write a join with rows of the same unit to which none of these refer."""
        other = self._rng.choice(self._kinds)
        met = [(("id", 0), ("id", 0))] if kind.number == other.number == 0 else []
        met += [
            ((own.column, own.parent), (link.column, link.parent))
            for own in kind.links
            for link in other.links
        ]
        met = [pair for pair in met if pair[0][1] == pair[1][1]]
        if not met:
            return ""
        ((own, _), (theirs, _)), name = self._rng.choice(met), self._alias()
        seen.append((name, other))
        more = self._rng.choice([
            "",
            "",
            f" AND {kind.of('a', 'n')} = {other.of(name, 'n')}",
            f" AND {kind.of('a', 's')} = {other.of(name, 's')}",
            f" AND {kind.of('a', 'x')} < {other.of(name, 'x')}",
        ])  # fmt: skip
        on = f"{kind.of('a', own)} = {other.of(name, theirs)}{more}"
        return f" JOIN {other.sql} AS {name} ON {on}"

    def _units(self, kind: Kind, seen: list[Seen]) -> str:
        """Write the joins on the way from rows to their units."""
        source = ""
        while seen[-1][1].links and seen[-1][1].links[0].parent != 0:
            alias, above = seen[-1]
            parent, name = self._kinds[above.links[0].parent], self._alias()
            on = f"{above.of(alias, above.links[0].column)} = {parent.of(name, 'id')}"
            source += f" JOIN {parent.sql} AS {name} ON {on}"
            seen.append((name, parent))
        return source

    def _units_counted(self, seen: list[Seen]) -> str:
        alias, kind = seen[-1]
        number = f"COUNT(DISTINCT {kind.of(alias, kind.links[0].column if kind.links else 'id')})"
        if self._rng.random() < 0.3:
            number += f" FILTER (WHERE {self._condition(seen)})"
        return number

    def _joined(self, seen: list[Seen], source: str, *values: str) -> str:
        """Write a statement about rows with what they refer to."""
        rng = self._rng
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
            on = f"{above.of(alias, link.column)} = {parent.of(name, 'id')}"
            source += f" {join} {parent.sql} AS {name} ON {on}"
            if how in {"JOIN", "LEFT JOIN"}:
                seen.append((name, parent))
        keys = [self._key(seen) for _ in range(rng.choice([0, 1, 1, 2]))]
        found = values or tuple(self._value(seen) for _ in range(rng.randint(1, 2)))
        listed = ", ".join(
            [f"{key} AS key{i}" for i, key in enumerate(keys)]
            + [f"{value} AS value{i}" for i, value in enumerate(found)]
        )
        where = f" WHERE {self._condition(seen)}" if rng.random() < 0.5 else ""
        by = f" GROUP BY {', '.join(f'key{i}' for i in range(len(keys)))}" if keys else ""
        return f"SELECT {listed} FROM {source}{where}{by}"

    def _grouped_by_row(self, kind: Kind, child: Kind, link: Link) -> str:
        """Write a statement about what rows have of those that refer to them."""
        how = self._rng.choice(["JOIN", "LEFT JOIN"])
        function, of = self._rng.choice(
            [("COUNT", "id"), ("COUNT", "n"), ("SUM", "n"), ("MAX", "x")]
        )
        inner = (
            f"SELECT {kind.of('a', 'id')} AS one, {function}({child.of('i', of)}) AS value "
            f"FROM {kind.sql} AS a {how} {child.sql} AS i "
            f"ON {child.of('i', link.column)} = {kind.of('a', 'id')} "
            f"GROUP BY {kind.of('a', 'id')}"
        )
        return (
            "SELECT GREATEST(LEAST(value, 3), 0) AS few, COUNT(*) AS number "
            f"FROM ({inner}) AS q GROUP BY ALL"
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

    def _key(self, seen: list[Seen]) -> str:
        alias, kind = self._rng.choice(seen)
        subquery = self._subquery(alias, kind, self._rng.choice(["COUNT(*)", "COUNT x"]))
        return self._rng.choice([
            kind.of(alias, "g"),
            kind.of(alias, "n"),
            f"({self._condition(seen)})",
            f"LEAST({subquery}, 3)" if subquery else kind.of(alias, "g"),
        ])  # fmt: skip

    def _value(self, seen: list[Seen]) -> str:
        alias, kind = self._rng.choice(seen)
        subquery = self._subquery(alias, kind, self._rng.choice(["SUM n", "SUM w"]))
        return self._rng.choice([
            "COUNT(*)",
            f"COUNT({kind.of(alias, 'x')})",
            f"SUM({kind.of(alias, 'w')})",
            f"SUM({kind.of(alias, 'n')})",
            f"AVG({kind.of(alias, 'w')})",
            f"COUNT(*) FILTER (WHERE {self._condition(seen)})",
            f"SUM(GREATEST(LEAST({subquery}, 20), -4))" if subquery else "COUNT(*)",
        ])  # fmt: skip

    def _condition(self, seen: list[Seen]) -> str:
        rng = self._rng
        (alias, kind), (second, other) = rng.choice(seen), rng.choice(seen)
        g, n, x, s = (kind.of(alias, name) for name in "gnxs")
        if rng.random() < 0.5 and (self._children(kind) or kind.links):
            found = self._of_rows(alias, kind)
            if found:
                return found
        return rng.choice([
            f"{g} = 'a'",
            f"{n} > 1",
            f"{x} > 0",
            f"{x} IS NULL",
            f"{s} = 'a'",
            f"{n} <= {other.of(second, 'x')}",
            f"({x} = 7 OR {other.of(second, 'g')} IS NULL)",
        ])  # fmt: skip

    def _of_rows(self, alias: str, kind: Kind) -> str:
        """Write a condition on rows that refer to a row."""
        rng, name = self._rng, self._alias()
        if rng.random() < 0.4:
            function = rng.choice(["COUNT(*)", "SUM n", "MIN x", "MAX w"])
            subquery = self._subquery(alias, kind, function)
            return f"{subquery} > 1" if subquery else ""
        _, source = self._referring(alias, kind, name)
        return f"{rng.choice(['', 'NOT '])}EXISTS (SELECT 1 {source})" if source else ""

    def _subquery(self, alias: str, kind: Kind, function: str) -> str:
        name = self._alias()
        child, source = self._referring(alias, kind, name)
        if not function.endswith(")"):
            function, of = function.split()
            function = f"{function}({child.of(name, of)})"
        return f"(SELECT {function} {source})" if source else ""

    def _referring(
        self, alias: str, kind: Kind, name: str, *, deep: bool = True
    ) -> tuple[Kind, str]:
        """Write the rows that refer to a row, or to the same one as it does; and whose they are."""
        met = [
            (child, f"{child.of(name, link.column)} = {kind.of(alias, 'id')}")
            for child, link in self._children(kind)
        ]
        met += [
            (kind, f"{kind.of(name, link.column)} = {kind.of(alias, link.column)}")
            for link in kind.links
        ]
        if not met:
            return kind, ""
        child, condition = self._rng.choice(met)
        n, x = child.of(name, "n"), child.of(name, "x")
        more = self._rng.choice([
            "",
            f" AND {x} > 0",
            f" AND {child.of(name, 'g')} = 'b'",
            f" AND {x} >= {kind.of(alias, 'n')}",
            f" AND {n} <> {kind.of(alias, 'n')}",
        ])  # fmt: skip
        if deep and self._rng.random() < 0.3:
            _, inner = self._referring(name, child, self._alias(), deep=False)
            more += f" AND EXISTS (SELECT 1 {inner})" if inner else ""
        return child, f"FROM {child.sql} AS {name} WHERE {condition}{more}"
