"""Rows with what they have of other rows of their units, and which of them count: as in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from types import SimpleNamespace

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.relations import kept_rows as kept_in_duckdb
from dpsql.engines.others import stored_columns
from dpsql.engines.spark.made import MadeTables
from dpsql.engines.spark.relations import kept_rows, rows_of_units
from dpsql.errors import DpsqlError
from dpsql.request import Request, named
from dpsql.rows.types import is_readable
from dpsql.schema.names import quoted_name
from tests.engines.spark.conftest import ManyFiles
from tests.helpers.inserted import insert
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.release.test_sums_of_doubles import visits

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]
BUDGET = dpsql.Budget(rho=1)


def loose(seed):
    """Return a random database without FOREIGN KEYs, as Spark has none, and a script about it."""
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    return rng, database, RandomQuestions(rng, database.kinds).script()


def paired(seed):
    """Return a random database, and statements about rows of it that meet within their unit."""
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    questions, found = RandomQuestions(rng, database.kinds), []
    for kind in database.kinds:
        seen, source = [("a", kind)], f"{kind.sql} AS a"
        source += questions._met(kind, seen)
        if len(seen) > 1:
            keys = ", ".join(of.of(alias, "g") for alias, of in seen)
            found.append(f"SELECT {keys}, COUNT(*) AS v FROM {source} GROUP BY ALL")
            found.append(questions._joined(seen, source))
    return rng, database, found


def pairs_of(con, database, statements):
    """Return the tables of pairs that statements count."""
    found = {}
    for sql in statements:
        with suppress(DpsqlError):
            found |= {t.path: t for t in tables_of(con, database, {"q": sql}) if t.origin}
    return list(found.values())


def tables_of(con, database, script):
    session = dpsql.Session(con, schema=database.schema)
    return session._data.declared.compile(Request(named(script), BUDGET)).tables


def read_of(rng, table):
    names = stored_columns(table)
    if table.origin is not None:  # which has what can be read, and no more
        own = table.alone
        names = [*own.columns, *(n for n, t in own.undeclared.items() if is_readable(t))]
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


SEEDS = [n for n in range(600) if not RandomDatabase.traits(random.Random(n))[1]]  # noqa: S311
looked = Counter()
"""How many tables were looked at, by what they have of others."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_rows_are_those_of_duckdb(spark, tmp_path, seed):
    rng, database, script = loose(seed)
    con = database.connect()
    try:
        found = tables_of(con, database, script)
    except DpsqlError:
        return
    tables = MadeTables(ManyFiles(spark, con, tmp_path))
    for table in found:
        names = read_of(rng, table)
        assert kept_here(tables, table, names) == kept_there(con, table, names), script
        windows = [one for one in table.added if one.is_window]
        met = [one for one in table.added if not one.is_window]
        of = {"parents": table.parents, "windows": windows, "met": met, "made": table.origin}
        looked.update(what for what, one in of.items() if one)


@pytest.mark.sampled(3)
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
    tables = [MadeTables(ManyFiles(spark, *of)) for of in zip((whole, fewer), places, strict=True)]
    for table in found:
        names = read_of(rng, table)
        before, after = (kept_here(one, table, names) for one in tables)
        assert after <= before, script
        assert (before - after).total() <= table.contributions, script


PAIRED = [seed for seed in SEEDS if paired(seed)[2]]
met = Counter()
"""How many tables of pairs had rows, and how many fewer than there are."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", PAIRED)
def test_pairs_are_those_of_duckdb(spark, tmp_path, seed):
    rng, database, statements = paired(seed)
    con = database.connect()
    tables = MadeTables(ManyFiles(spark, con, tmp_path))
    for table in pairs_of(con, database, statements):
        names = read_of(rng, table)
        kept = kept_here(tables, table, names)
        assert kept == kept_there(con, table, names), statements
        met["some"] += kept.total() > 0
        rows = rows_of_units(tables, table, [], "unit")
        met["fewer"] += kept.total() < rows.count()
        types = {"IntegerType()", "LongType()", "BinaryType()"}
        assert str(rows.schema["unit"].dataType) in types


def test_there_were_pairs_and_not_all_were_kept():
    assert not met or min(met["some"], met["fewer"]) > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", PAIRED)
def test_a_unit_takes_its_own_pairs_with_it(spark, tmp_path, seed):
    rng, database, statements = paired(seed)
    whole, fewer = database.connect(), database.connect(without=database.apart)
    places = tmp_path / "whole", tmp_path / "fewer"
    for place in places:
        place.mkdir()
    tables = [MadeTables(ManyFiles(spark, *of)) for of in zip((whole, fewer), places, strict=True)]
    for table in pairs_of(whole, database, statements):
        names = read_of(rng, table)
        before, after = (kept_here(one, table, names) for one in tables)
        assert after <= before, statements
        assert (before - after).total() <= table.contributions, statements


def test_ids_of_several_columns_are_told_apart_in_pairs(spark, tmp_path):
    """Pairs of pairs, too: whatever is made of them, an id is the same bytes as before."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE c AS SELECT range // 3 AS x, 'aA'[1 + range % 2] AS y FROM range(9);"
        "CREATE TABLE o AS SELECT hash(range) % 3 AS x, 'aAb'[1 + range % 3] AS y, "
        "range % 5 AS n, 3 AS u_id0, 'i' AS unit FROM range(60)"
    ).fetchall()
    con.execute("ALTER TABLE o ALTER x TYPE BIGINT").fetchall()
    keys = {"o.x, o.y": "c.x, c.y"}
    unit = dpsql.Unit("c", {"c": 1, "o": 4, "o, o": 7, "o, o, o": 9}, references=keys)
    schema = dpsql.Schema({"o": {"n": dpsql.Domain.integers(0, 4)}}, units={"c": unit, "o": unit})
    session, on = dpsql.Session(con, schema=schema), "a.x = {0}.x AND a.y = {0}.y"
    twice = f"SELECT a.n, COUNT(*) AS v FROM o a JOIN o b ON {on.format('b')}"
    tables = MadeTables(ManyFiles(spark, con, tmp_path))
    for sql in (twice, f"{twice} JOIN o d ON {on.format('d')}"):
        request = Request(named(f"{sql} GROUP BY 1"), BUDGET)
        (table,) = session._data.declared.compile(request).tables
        names = [name for name in table.columns if name.endswith(".n")]
        kept = kept_here(tables, table, names)
        assert kept == kept_there(con, table, names)
        assert table.unit.type == "STRUCT"
        assert kept.total() == table.contributions * 9


def units_of(con, database):
    """Return the tables of units with the number of their rows, of each table of a database."""
    declared = dpsql.Session(con, schema=database.schema)._data.declared
    found = []
    for kind in database.kinds:
        with suppress(DpsqlError):
            table = declared.related(kind.name)
            limits = () if table.unit is None else table.unit.limits
            found += [declared.unit_counts(table, 1, 4), declared.unit_counts(table, 2, 3, limits)]
    return found


def counted_here(tables, made):
    rows = tables.rows(made).collect()
    return Counter((repr(value_of(row["unit"])), row["rows"]) for row in rows)


def value_of(id_):
    if isinstance(id_, bytearray | bytes):
        return bytes(id_)
    return tuple(map(value_of, id_)) if isinstance(id_, tuple) else id_


def counted_there(con, made):
    rows = con.sql(f"SELECT unit, rows FROM {made.origin.sql}").fetchall()
    whole = (tuple(id_.values()) if isinstance(id_, dict) else id_ for id_, _ in rows)
    return Counter((repr(value_of(id_)), n) for id_, (_, n) in zip(whole, rows, strict=True))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_of_rows_of_units_are_those_of_duckdb(spark, tmp_path, seed):
    """And a unit that goes takes its own with it, and changes no other's."""
    _, database, _ = loose(seed)
    whole, fewer = database.connect(), database.connect(without=database.apart)
    found = []
    for name, con in (("whole", whole), ("fewer", fewer)):
        (tmp_path / name).mkdir()
        tables = MadeTables(ManyFiles(spark, con, tmp_path / name))
        found.append([counted_here(tables, made) for made in units_of(whole, database)])
        assert found[-1] == [counted_there(con, made) for made in units_of(whole, database)]
    assert found[0]
    for before, after in zip(*found, strict=True):
        assert after <= before
        assert (before - after).total() <= 1


@pytest.mark.parametrize("seed", [1, 2])
def test_sums_and_extremes_of_doubles_are_those_of_duckdb(spark, tmp_path, seed):
    """Of each unit the same steps, whatever order they are read in."""
    con = duckdb.connect()
    con.execute("CREATE TABLE people (id INTEGER); INSERT INTO people FROM range(6)").fetchall()
    con.execute("CREATE TABLE visits (person INTEGER, x DOUBLE)").fetchall()
    insert(con, "visits", visits(seed))
    unit = dpsql.Unit(
        "people", {"people": 1, "visits": 400}, references={"visits.person": "people.id"}
    )
    bounds = {"visits": {"x": dpsql.Domain.number(-100, 100)}}
    schema = dpsql.Schema(bounds, units={"people": unit, "visits": unit})
    database = SimpleNamespace(schema=schema)
    tables = MadeTables(ManyFiles(spark, con, tmp_path))
    for computed in ("SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)", "SUM(x * x)", "SUM(x / 7)"):
        sql = f"SELECT COUNT(*) FROM people p WHERE (SELECT {computed} FROM visits v WHERE "
        (table,) = tables_of(con, database, {"q": f"{sql} v.person = p.id) > 1"})
        assert kept_here(tables, table, table.computed) == kept_there(con, table, table.computed)
        assert table.computed
