"""Rows with what they have of other rows of their units, and which of them count: as in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import pytest

import dpsql
from dpsql.engines.duckdb.bounded import kept_rows as kept_in_duckdb
from dpsql.engines.others import stored_columns
from dpsql.engines.spark.bounded import kept_rows
from dpsql.errors import DpsqlError
from dpsql.request import Request, named
from dpsql.schema.names import quoted_name
from tests.engines.spark.conftest import ManyFiles
from tests.helpers.random_databases import RandomDatabase, RandomQuestions

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]
BUDGET = dpsql.Budget(rho=1)


def loose(seed):
    """Return a random database without FOREIGN KEYs, as Spark has none, and a script about it."""
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    return rng, database, RandomQuestions(rng, database.kinds).script()


def tables_of(con, database, script):
    session = dpsql.Session(con, schema=database.schema)
    found = session._data.declared.compile(Request(named(script), BUDGET)).tables
    return [t for t in found if all(one.origin is None for one in t.read)]


def read_of(rng, table):
    names = stored_columns(table)
    for parent in table.parents:
        names += [parent.matched, *parent.names.values()]
    return [name for name in [*names, *table.computed] if rng.random() < 0.7]


def shown(value):
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return repr(float(value))
    return value.encode() if isinstance(value, str) else value


def multiset(rows):
    return Counter(tuple(map(shown, row)) for row in rows)


def kept_there(con, table, names):
    listed = ", ".join(map(quoted_name, names)) or "1"
    return multiset(
        con.execute(f"SELECT {listed} FROM ({kept_in_duckdb(table, names)})").fetchall()
    )


def kept_here(tables, table, names):
    rows = kept_rows(tables, table, names)
    if not names:
        return Counter({(shown(1),): rows.count()})
    found = rows.selectExpr(*(f"`{n.replace('`', '``')}` AS c{i}" for i, n in enumerate(names)))
    columns = [column.to_pylist() for column in found.toArrow().columns]
    return multiset(zip(*columns, strict=True))


SEEDS = [seed for seed in range(600) if not RandomDatabase(random.Random(seed))._enforced]  # noqa: S311
looked = Counter()
"""How many tables were looked at, by what they have of others."""


@pytest.mark.sampled(16)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_those_of_duckdb(spark, tmp_path, seed):
    rng, database, script = loose(seed)
    con = database.connect()
    try:
        found = tables_of(con, database, script)
    except DpsqlError:
        return
    tables = ManyFiles(spark, con, tmp_path)
    for table in found:
        names = read_of(rng, table)
        assert kept_here(tables, table, names) == kept_there(con, table, names), script
        outside = [one for one in table.within if one.outside]
        of = {"parents": table.parents, "within": table.within, "outside": outside}
        of |= {"windows": table.windows, "chosen": table.chosen}
        looked.update(what for what, one in of.items() if one)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_unit_takes_its_own_rows_with_it_and_changes_no_others(spark, tmp_path, seed):
    rng, database, script = loose(seed)
    whole, fewer = database.connect(), database.connect(without=database.apart)
    try:
        found = tables_of(whole, database, script)
    except DpsqlError:
        return
    places = tmp_path / "whole", tmp_path / "fewer"
    for place in places:
        place.mkdir()
    tables = [ManyFiles(spark, *of) for of in zip((whole, fewer), places, strict=True)]
    for table in found:
        names = read_of(rng, table)
        before, after = (kept_here(one, table, names) for one in tables)
        assert after <= before, script
        assert (before - after).total() <= table.contributions, script
