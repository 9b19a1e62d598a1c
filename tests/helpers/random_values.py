"""Random statements that compute everything of which there are intervals, over one table.

`t` has rows of persons: two columns of keys, values that are counted by their cells (`age`, `half`)
and values that are added up row by row (`x`, `y`), of which some are missing. Bounds hold, and no
row is left out, so that DuckDB's answer is what dpsql measures.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal

import duckdb

from dpsql import Domain, Schema, Unit
from tests.helpers.inserted import insert

CREATE = """
    CREATE TABLE t (
        person INTEGER NOT NULL,
        g VARCHAR NOT NULL CHECK (g IN ('a', 'b', 'c')),
        h INTEGER CHECK (h BETWEEN 0 AND 3),
        age INTEGER CHECK (age BETWEEN 10 AND 50),
        half DECIMAL(4, 1) NOT NULL CHECK (half BETWEEN -3 AND 4),
        x DOUBLE,
        y INTEGER
    )
"""
DEEP = 2
"""How many functions of others may stand around a statistic."""
_CELLS, _MEASURES = ("age", "half"), ("x", "y")
_CONDITIONS = (
    "g = 'a'", "g <> 'b'", "h >= 1", "h IN (0, 2)", "age < 30", "age BETWEEN 20 AND 44", "half > 0",
    "x > 12.5", "x BETWEEN 0 AND 60", "y <= 3", "y IS NOT NULL", "x >= y", "age > 15 OR y > 2",
    "NOT (h = 1)", "h IS NULL",
)  # fmt: skip
_COUNTS = ("COUNT(*)", "COUNT(*)", "COUNT(x)", "COUNT(age)", "COUNT(h)", "COUNT(y)")
_SAMPLES = ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", "VARIANCE", "STDDEV")
_PAIRS = ("COVAR_POP", "COVAR_SAMP", "CORR", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_AVGX",
          "REGR_SXX", "REGR_SXY")  # fmt: skip
_QUANTILES = ("MEDIAN({})", "QUANTILE_DISC({}, 0.25)", "QUANTILE_CONT({}, 0.9)")


class RandomValues:
    """A database, and a statement about it.

    Args:
        rng: decides.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._by_units = rng.random() < 0.5
        self._rows = list(self._made())
        self._most = max(Counter(person for person, *_ in self._rows).values())
        self._most_alike = max(Counter((person, g) for person, g, *_ in self._rows).values())

    def _made(self) -> list[tuple[object, ...]]:
        rng = self._rng
        persons = rng.choice([3, 40, 120])
        count = persons * rng.choice([2, 5])
        missing = rng.choice([0.0, 0.2])

        def some(value: object) -> object:
            return None if rng.random() < missing else value

        return [
            (
                rng.randrange(persons),
                rng.choice("aabbbc"),
                some(rng.randrange(4)),
                some(rng.randint(10, 50)),
                Decimal(rng.randint(-6, 8)) / 2,
                some(float(rng.randint(-20, 80))),
                some(rng.randint(0, 9)),
            )
            for _ in range(count)
        ]

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Make the database."""
        con = duckdb.connect()
        con.execute(CREATE).fetchall()
        insert(con, "t", self._rows)
        return con

    @property
    def schema(self) -> Schema:
        """The bounds of what is added up, and the unit, if rows are of one."""
        units = {}
        if self._by_units:
            apart = self._most_alike < self._most and self._rng.random() < 0.5
            per = {"g": self._most_alike} if apart else {}
            units = {"t": Unit("person", self._most + self._rng.choice([0, 3]), max_rows_per=per)}
        bounds = {"x": Domain.number(-20, 80), "y": Domain.number(0, 9)}
        return Schema({"t": bounds}, units=units)

    def statement(self) -> str:
        """Write a statement; its keys are called k0, …, its values v0, …"""
        rng = self._rng
        keys = rng.sample(["g", "h", "age >= 30"], rng.choice([0, 1, 1, 1, 2]))
        self._grouped, inside = bool(keys), rng.random() < 0.15
        where = f" WHERE {rng.choice(_CONDITIONS)}" if rng.random() < 0.4 else ""
        items = [f"{key} AS k{i}" for i, key in enumerate(keys)]
        items += [f"{self._value(DEEP)} AS v{i}" for i in range(rng.choice([1, 2, 4]))]
        by = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
        found = f"SELECT {', '.join(items)} FROM t{where}{by}"
        values = [f"{self._again(f'v{i}')} AS v{i}" for i in range(len(items) - len(keys))]
        listed = ", ".join([*(f"k{i}" for i in range(len(keys))), *values])
        return f"WITH w AS ({found}) SELECT {listed} FROM w" if inside else found

    # ── values ─────────────────────────────────────────────────────────────────────────────

    def _value(self, depth: int) -> str:
        """Write what may stand in a SELECT: statistics, and what is computed of them."""
        if not depth or self._rng.random() < 0.35:
            return self._statistic()
        return self._rng.choice(self._computed())(depth - 1)

    def _computed(self) -> list[Callable[[int], str]]:
        found = [self._quotient, self._quotient, self._sum, self._root, self._rounded, self._cut]
        return [*found, self._window] if self._grouped else found

    def _quotient(self, depth: int) -> str:
        top = self._linear() if self._rng.random() < 0.7 else self._value(depth)
        bottom = self._count() if self._rng.random() < 0.9 else f"round({self._count()}, -1)"
        return f"{self._factor()}({top}) / ({bottom})"

    def _sum(self, depth: int) -> str:
        return f"({self._value(depth)}) {self._rng.choice('+-')} ({self._value(depth)})"

    def _root(self, depth: int) -> str:
        inner = self._rng.choice([self._count(), f"{self._linear()} / {self._count()}"])
        forms = ["sqrt(1000 + {})", "ln(1e6 + {})", "exp(({}) / 1e5)"]
        form = self._rng.choice(forms)
        return form.format(f"round({inner}, 1)" if self._rng.random() < 0.2 else inner)

    def _rounded(self, depth: int) -> str:
        """Write what is rounded, last or on the way."""
        forms = ["round({}, 2)", "floor({})", "ceil({})", "round({}, -1)"]
        form = self._rng.choice([*forms, "CAST({} AS DECIMAL(18, 1))"])
        return form.format(self._linear() if "CAST" in form else self._value(depth))

    def _again(self, name: str) -> str:
        """Write what may be computed of a value once more."""
        forms = ["{0}", "{0}", "round({0}, 1)", "{0} - floor({0})", "2 * {0} + 1"]
        return self._rng.choice(forms).format(name)

    def _cut(self, depth: int) -> str:
        """Write what cuts values off; but a sum of no rows, which is 0 here, is NULL in SQL."""
        if self._rng.random() < 0.5:
            form = self._rng.choice(["greatest({}, 2)", "least({}, 10.5)"])
            return form.format(self._filtered(self._rng.choice(_COUNTS)))
        form = self._rng.choice(["abs({})", "2 * {} - 3", "{} / NULLIF(7, 0)"])
        return form.format(f"({self._value(depth)})")

    def _window(self, depth: int) -> str:
        own = self._filtered(f"SUM({self._weight()})")
        forms = [
            "SUM({0}) OVER ()", "SUM({0}) OVER (ORDER BY k0)", "{0} / SUM({1}) OVER ()",
            "100.0 * ({0}) / NULLIF(SUM({1}) OVER (), 0)", "SUM({0}) OVER () / SUM({1}) OVER ()",
        ]  # fmt: skip
        return self._rng.choice(forms).format(own, self._filtered(self._rng.choice(_COUNTS)))

    # ── statistics ─────────────────────────────────────────────────────────────────────────

    def _statistic(self) -> str:
        rng = self._rng
        of_one = [f"AVG({self._weight()})", f"{rng.choice(_SAMPLES)}({self._weight()})"]
        pair = ", ".join(rng.sample(rng.choice([_CELLS, _MEASURES]), 2))
        kinds = [self._count(), self._linear(), *(self._filtered(of) for of in of_one * 2)]
        kinds += [f"{rng.choice(_PAIRS)}({pair})", rng.choice(_QUANTILES).format("age")]
        kinds += [f"{rng.choice(['MIN', 'MAX'])}(age)"] if rng.random() < 0.3 else []
        return rng.choice(kinds)

    def _linear(self) -> str:
        if self._rng.random() < 0.4:
            return self._count()
        return self._filtered(f"SUM({self._weight()})")

    def _count(self) -> str:
        rng = self._rng
        if self._by_units and rng.random() < 0.3:
            return self._filtered("COUNT(DISTINCT person)")
        counts = [*_COUNTS, f"COUNT_IF({rng.choice(_CONDITIONS)})"]
        counts += [f"SUM(CASE WHEN {self._condition()} THEN 1 ELSE 0 END)"]
        return self._filtered(rng.choice(counts))

    def _weight(self) -> str:
        forms = ["{}", "{}", "{} - 20", "2 * {}", "least({}, 25)", "CASE WHEN {} > 15 THEN {} END"]
        column = self._rng.choice([*_CELLS, *_MEASURES, *_MEASURES])
        return self._rng.choice(forms).replace("{}", column)

    def _filtered(self, aggregate: str) -> str:
        if self._rng.random() < 0.7:
            return aggregate
        return f"{aggregate} FILTER (WHERE {self._condition()})"

    def _condition(self) -> str:
        parts = self._rng.sample(_CONDITIONS, self._rng.choice([1, 1, 2]))
        return " AND ".join(f"({part})" for part in parts)

    def _factor(self) -> str:
        return self._rng.choice(["", "100.0 * ", "1.0 * "])
