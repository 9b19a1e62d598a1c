"""Random statements that add expressions of rows up, over a table of all types with odd rows."""

from __future__ import annotations

import random

import duckdb

from dpsql import Domain, Schema, Unit
from tests.rows.tools import HOSTILE, TYPES, Random, benign, sql_of

KNOWN = {
    "i": (-1000, 1000), "b": (-1000, 10**6), "u": (0, 10**6), "h": (-1000, 1000),
    "p": (-1000, 10**5), "q": (0, 10), "w": (-1000, 1000), "f": (-125, 125), "x": (-15625, 15625),
}  # fmt: skip
"""The bounds of `benign` rows; others go beyond them."""
PLAIN = (
    ("p", 1e5), ("q", 10), ("x", 15625), ("w", 1000), ("i", 1000), ("f", 125), ("i * q", 1e4),
    ("p * (1 - q)", 1e6), ("x * x", 15625**2), ("abs(f)", 125), ("h + b", 1.1e6),
)  # fmt: skip
MECHANISMS = ("querysmasher", "querysmasher", "residualplanner+", "hdmm", "gaussian", "laplace")


def schema(max_rows: int | None) -> Schema:
    """Declare bounds, one column of keys, and the unit if it has several rows."""
    columns = {name: Domain.number(*ends) for name, ends in KNOWN.items()}
    units = {} if max_rows is None else {"r": Unit("person", max_rows)}
    return Schema({"r": {"a": Domain.integers(-2, 2, nullable=True), **columns}}, units=units)


def connect() -> duckdb.DuckDBPyConnection:
    """Make the table, without a row."""
    con = duckdb.connect()
    con.execute("SET threads = 1").fetchall()
    listed = ", ".join(f'"{column}" {type_}' for column, type_ in TYPES.items())
    con.execute(f"CREATE TABLE r (person INTEGER, {listed})").fetchall()
    return con


def fill(con: duckdb.DuckDBPyConnection, rows: list[tuple[int, dict]]) -> None:
    """Put these rows of persons in the place of all others."""
    con.execute("DELETE FROM r").fetchall()
    for start in range(0, len(rows), 100):
        values = ", ".join(
            f"({person}, "
            + ", ".join(f"{sql_of(row.get(column))}::{TYPES[column]}" for column in TYPES)
            + ")"
            for person, row in rows[start : start + 100]
        )
        con.execute(f"INSERT INTO r VALUES {values}").fetchall()


def odd_rows(rng: random.Random, count: int) -> list[dict]:
    """Make rows of which half of the values are at the ends of their types, or beyond bounds."""
    usual = benign(count, rng.randrange(10**6))
    for row in usual:
        for column in TYPES:
            if rng.random() < 0.5:
                row[column] = rng.choice([None, *HOSTILE[column]])
    return usual


class RandomSums:
    """Random statements."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311
        self._random = Random(seed)

    def script(self) -> dict[str, str]:
        """Write one or two statements."""
        return {f"s{n}": self.statement() for n in range(self.rng.randint(1, 2))}

    def statement(self) -> str:
        """Write one statement over the table `r`, with one to three values."""
        stored = [[], [], ["e"], ["a"], ["o"], ["e", "a"]]
        keys = self.rng.choice([*stored, [self.key()], [self.key()], ["a", self.key()]])
        values = [f"{self.value()[0]} AS v{n}" for n in range(self.rng.randint(1, 3))]
        listed = ", ".join([*(f"{key} AS k{n}" for n, key in enumerate(keys)), *values])
        where = f" WHERE {self._condition()}" if self.rng.random() < 0.4 else ""
        by = f" GROUP BY {', '.join(f'k{n}' for n in range(len(keys)))}" if keys else ""
        return f"SELECT {listed} FROM r{where}{by}"

    def key(self) -> str:
        """Write an expression that is computed of each row, and has known values."""
        part = self.rng.choice(["hour(t)", "month(d)", "dayname(t)", "length(left(s, 2))"])
        number = self._random.number(self.rng.randint(0, 3))
        return self.rng.choice([
            part,
            self._condition(),
            f"CASE WHEN {self._condition()} THEN 'x' WHEN {self._condition()} THEN 'y' END",
            f"CASE WHEN {self._condition()} THEN DATE '2020-01-01' END",
            f"least(greatest(floor({number}), -3), 3)",
        ])  # fmt: skip

    def number(self) -> tuple[str, float]:
        """Write a number that has bounds, by its columns or because they are written.

        Returns:
            The text, and the largest magnitude.
        """
        if self.rng.random() < 0.3:
            return self.rng.choice(PLAIN)
        low, high = self.rng.choice([(-10, 1000), (0, 1), (-7.5, 0.25), (3, 10**6)])
        inner = self._random.number(self.rng.randint(1, 3))
        return f"least(greatest({inner}, {low}), {high})", max(-low, high)

    def value(self) -> tuple[str, float]:
        """Write an aggregate, and say how much a row may move it, or more."""
        kind = self.rng.random()
        if kind < 0.15:
            return "COUNT(*)", 1
        if kind < 0.3:
            return f"COUNT_IF({self._condition()})", 1
        number, largest = self.number()
        if kind < 0.4:
            return f"COUNT({number})", 1
        name = self.rng.choice(["SUM", "SUM", "AVG", "VAR_POP"])
        kept = f" FILTER (WHERE {self._condition()})" if self.rng.random() < 0.3 else ""
        return f"{name}({number}){kept}", 4 * largest**2 if name == "VAR_POP" else largest

    def _condition(self) -> str:
        return self._random.condition(self.rng.randint(0, 3))
