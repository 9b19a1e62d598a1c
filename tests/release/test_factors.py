"""Sums of what rows say times what public tables say of them, as DuckDB computes them."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import SqlError
from tests.helpers.inserted import insert
from tests.helpers.redrawn import Redrawn
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

HUGE = dpsql.Budget(rho=10**12)
TABLES = """
    CREATE TABLE lines (
        part INTEGER NOT NULL CHECK (part BETWEEN 0 AND 9),
        seller INTEGER CHECK (seller BETWEEN 0 AND 2),
        year INTEGER NOT NULL CHECK (year BETWEEN 2020 AND 2021),
        price DECIMAL(8, 2) CHECK (price BETWEEN 0 AND 200),
        discount DECIMAL(3, 2) CHECK (discount BETWEEN 0 AND 1),
        quantity INTEGER, length DOUBLE
    );
    COMMENT ON COLUMN lines.quantity IS 'dpsql: {"number": [0, 50]}';
    COMMENT ON COLUMN lines.length IS 'dpsql: {"number": [-10, 10]}';
    COMMENT ON COLUMN lines.price IS 'dpsql: {"number": [0, 200]}';
    COMMENT ON COLUMN lines.discount IS 'dpsql: {"number": [0, 1]}';
"""
COSTS = [
    (p, s, None if p == s else 13 * p % 7 + s / 4 - 1, "ab"[p % 2])
    for p in range(9)
    for s in range(3)
]
SUPPLIES = ", ".join(f"({p}, {s}, {'NULL' if c is None else c}, '{n}')" for p, s, c, n in COSTS)
VALUES = f"(VALUES {SUPPLIES}) AS s (part, seller, cost, note)"
JOINED = f"FROM lines l JOIN {VALUES} ON s.part = l.part AND s.seller = l.seller"
STATEMENTS = [
    f"SELECT year, SUM(price * (1 - discount) - cost * quantity) AS n {JOINED} GROUP BY year",
    f"SELECT year, SUM(cost * quantity) AS n {JOINED} GROUP BY year",
    f"SELECT note, SUM(price - cost) AS n {JOINED} GROUP BY note",
    f"SELECT note, SUM(cost - price) AS n, COUNT(*) AS c, SUM(price) AS p {JOINED} GROUP BY note",
    f"SELECT note, year, SUM(-(cost * quantity) * (cost - 2) + price - 3) AS n {JOINED} WHERE "
    "quantity > 3 GROUP BY ALL",
    f"SELECT SUM(amount) AS n FROM (SELECT price * (1 - discount) - cost * quantity AS amount "
    f"{JOINED} WHERE note = 'a')",
    f"SELECT year, SUM(CASE WHEN quantity > 3 THEN cost * price ELSE 0 END) AS n {JOINED} "
    "GROUP BY year",
    f"SELECT year, SUM(length * cost) FILTER (WHERE price > 50) AS n {JOINED} GROUP BY year",
    f"SELECT year, SUM(price * cost) / SUM(price) AS n {JOINED} GROUP BY year",
    f"SELECT year, SUM(cost * price * l.part * 2) AS n {JOINED} GROUP BY year",
    f"SELECT SUM(length * cost) AS n, SUM(length) AS m, SUM(cost) AS c {JOINED}",
    f"SELECT year, SUM(price * cost) AS n FROM lines l LEFT JOIN {VALUES} ON s.part = l.part AND "
    "s.seller = l.seller GROUP BY ROLLUP (year)",
    f"SELECT year, SUM(price * (SELECT MAX(cost) FROM {VALUES} WHERE s.part = l.part)) AS n "
    "FROM lines l GROUP BY year",
    # A row meets several.
    f"SELECT year, SUM(price * cost - quantity) AS n FROM lines l JOIN {VALUES} USING (part) "
    "GROUP BY year",
]


def filled(rows):
    con = duckdb.connect()
    con.execute(TABLES).fetchall()
    insert(con, "lines", rows)
    return con


def made(seed, count=200):
    rng = random.Random(seed)  # noqa: S311

    def maybe(value):
        return rng.choice([value, value, value, None])

    return [
        (rng.randrange(10), maybe(rng.randrange(3)), rng.choice([2020, 2021]),
         maybe(rng.randrange(20_000) / 100), maybe(rng.randrange(100) / 100),
         maybe(rng.randrange(51)), maybe(rng.uniform(-10, 10)))
        for _ in range(count)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def con():
    return filled(made(1))


@pytest.mark.parametrize("sql", STATEMENTS)
def test_it_is_what_duckdb_says(con, sql):
    frame = dpsql.query(con, sql, budget=HUGE)
    names = [name for name in frame.columns if f"{name}_variance" in frame.columns]
    keys = [name for name in frame.columns if name in {"year", "note"}]
    found = {row[: len(keys)]: row[len(keys) :] for row in frame.select(keys + names).rows()}
    true = con.execute(sql).fetchall()
    assert len(found) == len(true) > len(keys) / 2
    for row in true:
        wanted = [0.0 if value is None else float(value) for value in row[len(keys) :]]
        assert found[row[: len(keys)]] == pytest.approx(wanted, rel=1e-4, abs=0.05), row


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sql", [STATEMENTS[0], STATEMENTS[2], STATEMENTS[10], STATEMENTS[13]])
def test_variances_are_those_of_the_noise(con, sql):
    """Of 300 draws, the mean square is within 50 % of what is said: more is one in 10^8."""
    redrawn = Redrawn.of(con, {"q": sql}, budget=dpsql.Budget(rho=100))
    draws = [release["q"] for release in redrawn.draws(300)]
    exact = dpsql.query(con, sql, budget=HUGE)
    for name in [name for name in exact.columns if f"{name}_variance" in exact.columns]:
        errors = np.array([frame[name].to_numpy() for frame in draws]) - exact[name].to_numpy()
        said = draws[0][f"{name}_variance"].to_numpy()
        assert np.abs((errors**2).mean(0) / said - 1).max() < 0.5
        assert np.abs(errors.mean(0)).max() < 6 * np.sqrt(said.max() / len(draws))


@pytest.mark.parametrize(
    "value",
    ["price * (quantity + cost)", "price / cost", "greatest(price, cost)", "price ^ cost",
     "CASE WHEN cost > 3 THEN price END * price", "abs(price - cost)"],
)  # fmt: skip
def test_others_are_refused(con, value):
    with pytest.raises(SqlError):
        dpsql.query(con, f"SELECT SUM({value}) AS n {JOINED}", budget=HUGE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(60))
def test_neighbors_differ_by_what_is_charged(seed):
    rows, rng = made(seed, 40), random.Random(seed)  # noqa: S311
    names = rng.sample(range(len(STATEMENTS)), 2)
    asked = {"script": {f"q{i}": STATEMENTS[i] for i in names}, "schema": None}
    budget = dpsql.Budget(rho=Fraction(1, 2))
    whole = recorded(filled(rows), asked, budget=budget)
    for gone in rng.sample(range(len(rows)), 3):
        fewer = recorded(filled(rows[:gone] + rows[gone + 1 :]), asked, budget=budget)
        check_alike(whole, fewer)
        assert spent(whole, fewer) <= charged(whole)
