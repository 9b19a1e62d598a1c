"""A small table of people: every kind of column, and NULL in most of them."""

import random
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

import duckdb
import polars as pl

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sql"
CREATE = '''
    CREATE TYPE size AS ENUM ('small', 'big', 'medium');
    CREATE TABLE people (
        age INTEGER CHECK (age BETWEEN 17 AND 40),
        hours SMALLINT NOT NULL CHECK (hours >= 0 AND hours <= 12),
        years TINYINT CHECK (years IN (1, 2, 4, 8)),
        sex ENUM ('Male', 'Female') NOT NULL,
        size size,
        edu VARCHAR CHECK (edu IN ('hs', 'ba', 'ma', 'phd''s', 'medium')),
        rich BOOLEAN,
        member BOOLEAN NOT NULL,
        "Odd ""Name""" INTEGER CHECK ("Odd ""Name""" BETWEEN -2 AND 2),
        name VARCHAR,
        income DOUBLE,
        born DATE,
        joined DATE CHECK (joined BETWEEN DATE '2020-01-30' AND DATE '2020-03-02'),
        wage DECIMAL(4, 1) NOT NULL CHECK (wage BETWEEN 0.5 AND 4.5)
    );
'''


PUBLIC = ("bands", "regions", "marks")
CREATE_PUBLIC = """
    CREATE TABLE bands AS SELECT lo, lo + width AS hi, 'w' || width AS width
        FROM range(17, 40) r(lo), (VALUES (0), (4), (9)) w(width) WHERE lo + width <= 40;
    CREATE TABLE regions (edu VARCHAR, level VARCHAR, cost DOUBLE);
    INSERT INTO regions VALUES ('hs', 'low', 1.5), ('ba', 'high', 2), ('ma', 'high', 4);
    CREATE TABLE marks AS SELECT range AS mark FROM range(0, 13, 3);
"""


def rows(count=4000, seed=1):
    rng = random.Random(seed)  # noqa: S311

    def maybe(value):
        return None if rng.random() < 0.1 else value

    return [
        (
            maybe(rng.randint(17, 40)),
            rng.randint(0, 12),
            maybe(rng.choice([1, 2, 4, 8])),
            rng.choice(["Male", "Female"]),
            maybe(rng.choice(["small", "big"])),
            maybe(rng.choice(["hs", "ba", "ma", "phd's", "medium"])),
            maybe(rng.random() < 0.4),
            rng.random() < 0.5,
            maybe(rng.randint(-2, 2)),
            "Alice",
            1.5,
            "2000-01-01",
            maybe(date(2020, 1, 30) + timedelta(days=rng.randint(0, 32))),
            Decimal(rng.randint(5, 45)) / 10,
        )
        for _ in range(count)
    ]


@cache
def people():
    """Make them once in a process: that takes longer than to insert them."""
    return pl.DataFrame(rows(), orient="row")


def connect():
    con = duckdb.connect()
    con.execute(CREATE).fetchall()
    con.execute(CREATE_PUBLIC).fetchall()
    insert(con, "people", people())
    return con


def fill(con, table, values):
    """Insert rows at once, which takes a hundredth of the time of doing it one by one."""
    insert(con, table, pl.DataFrame(values, orient="row"))


def insert(con, table, frame):
    con.register("given", frame)
    con.execute(f"INSERT INTO {table} SELECT * FROM given").fetchall()
    con.unregister("given")
