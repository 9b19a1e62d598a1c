"""Relations of random databases, each with all rows and without those of one unit.

Every statement is compiled as a relation, also where another way would answer it.
"""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.engines.table_relations import rows_of_units
from dpsql.errors import DpsqlError, ExecutionError, InternalError
from dpsql.rel.nodes import Group, GroupJoin, Join, Public, Union, Window, walk
from dpsql.rel.related import related_rows
from dpsql.request import Request, named
from tests.helpers.random_related import PUBLIC, PlainDatabase, RelatedDatabase, differences
from tests.release.test_random_databases import check_within_charge, kept, read_of
from tests.release.test_sums_of_neighbors import recorded_in

BUDGET = dpsql.Budget(rho=Fraction(1, 2))
PURE = dpsql.Budget(epsilon=1, delta=0)
CASES = 900


def session(con, database):
    return dpsql.Session(con, schema=database.schema, public=list(PUBLIC))


def tables_of(con, database, script):
    """Return the tables whose rows a script counts; None if it is refused."""
    try:
        declared = session(con, database)._data.declared
        return declared.compile(Request(named(script), BUDGET)).tables
    except InternalError:
        raise
    except DpsqlError:
        return None


def drawn(seed):
    rng = random.Random(seed)  # noqa: S311
    database = RelatedDatabase(rng)
    return rng, database, database.questions().script()


checked, answered, kinds = [], [], Counter()
"""Which cases were not refused, and which nodes their relations have."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(CASES))
def test_a_unit_takes_its_own_rows_with_it_and_changes_no_others(seed):
    """Of all that a statement counts, also of rows that no marginal has a place for."""
    rng, database, script = drawn(seed)
    con = database.connect()
    tables = tables_of(con, database, script)
    checked.append(tables is not None)
    fewer = None if tables is None else database.connect(without=database.apart)
    for table in tables or ():
        related = related_rows(table)
        names = read_of(rng, table)
        kinds.update(type(node) for node in walk(rows_of_units(table, names).relation))
        kinds["rows of a table"] += related is None
        before, after = kept(con, table, names), kept(fewer, table, names)
        assert after <= before, script
        most = table.unit_rows
        assert most is None or (before - after).total() <= most, script


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(CASES))
def test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged(seed):
    rng, database, script = drawn(seed)
    mechanism = rng.choice(["querysmasher", "querysmasher", "residualplanner", "hdmm", "laplace"])
    how = {"budget": PURE if mechanism == "laplace" else BUDGET, "mechanism": mechanism}
    try:
        whole = recorded_in(session(database.connect(), database), script, **how)
    except (ExecutionError, InternalError):
        raise
    except DpsqlError:  # before the charge
        answered.append(False)
        return
    answered.append(True)
    fewer = database.connect(without=database.apart)
    fewer = recorded_in(session(fewer, database), script, **how)
    check_within_charge(whole, fewer)


def test_a_branch_that_no_query_is_of_has_a_plan_with_laplace_noise():
    """Its conditions meet no row, whatever there is, so that nothing is asked of its table."""
    _, database, script = drawn(73)
    con = database.connect()
    plan = session(con, database).plan(script, budget=PURE, mechanism="laplace")
    assert any(not family.count for family in plan.workload.families)


def test_many_random_statements_are_answered():
    """Of a few that were asked in this process, less can be said."""
    for found in (checked, answered, compared):
        assert len(found) < 30 or sum(found) >= len(found) / 3


def test_all_kinds_of_nodes_are_among_them():
    wanted = {Group, GroupJoin, Join, Public, Union, Window, "rows of a table"}
    assert len(checked) < 100 or kinds.keys() >= wanted


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────

compared = []
"""Which statements were answered."""


def differing(seed):
    """Ask a random statement of which DuckDB gives the same answer; None if it is refused."""
    rng = random.Random(seed)  # noqa: S311
    database = PlainDatabase(rng)
    sql, con = database.questions().statement(), database.connect()
    names = [column[0] for column in con.execute(sql).description]
    try:
        found = session(con, database).query(sql, budget=dpsql.Budget(rho=10**14))
    except InternalError:
        raise
    except DpsqlError:
        return None
    return differences(con, sql, found.select(names).rows())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(CASES))
def test_answers_are_those_of_the_database(seed):
    found = differing(seed)
    compared.append(found is not None)
    assert not found


ROWS = """
CREATE TABLE c (id INTEGER PRIMARY KEY, b VARCHAR NOT NULL CHECK (b IN ('p', 'q')));
CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
  a VARCHAR NOT NULL CHECK (a IN ('p', 'q')), b VARCHAR NOT NULL CHECK (b IN ('p', 'q')),
  n INTEGER NOT NULL CHECK (n BETWEEN 0 AND 9));
INSERT INTO c SELECT i, CASE WHEN i % 2 = 0 THEN 'p' ELSE 'q' END FROM range(50) t (i);
INSERT INTO o SELECT i, i % 37, CASE WHEN i % 5 = 0 THEN 'p' ELSE 'q' END,
  CASE WHEN i % 2 = 0 THEN 'p' ELSE 'q' END, i % 10 FROM range(200) t (i);
CREATE TABLE "o 2" (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
  n INTEGER NOT NULL CHECK (n BETWEEN 0 AND 9));
INSERT INTO "o 2" SELECT i, i % 9, i % 4 FROM range(30) t (i);
"""
UNIT = dpsql.Unit("c", max_rows={"c": 1, "o": 20, "o 2": 20, "o, o": 400, "o, o, o 2": 4000})
LARGE = dpsql.Budget(rho=10**10)


@pytest.fixture
def shop():
    con = duckdb.connect()
    con.execute(ROWS)
    return con


def check_answers(con, script, asked):
    release = asked.release(script, budget=LARGE)
    for name, sql in script.items():
        wanted = con.execute(sql)
        found = release[name].select(column[0] for column in wanted.description).rows()
        rounded = [tuple(round(v) if isinstance(v, float) else v for v in row) for row in found]
        assert Counter(rounded) == Counter(wanted.fetchall()), sql


@pytest.mark.parametrize(
    "sql",
    [
        # Conditions that are bound before others add columns.
        "SELECT COUNT(*) AS n FROM o AS a WHERE EXISTS (SELECT 1 FROM o AS b WHERE b.cid = a.cid "
        "AND b.n < a.n AND EXISTS (SELECT 1 FROM c WHERE c.id = b.cid AND c.b = 'p'))",
        "SELECT COUNT(*) AS n FROM o AS a WHERE (SELECT MAX(b.n) FILTER (WHERE EXISTS (SELECT 1 "
        "FROM c WHERE c.id = b.cid AND c.b = 'p')) FROM o AS b WHERE b.cid = a.cid AND b.n < a.n) "
        "> 3",
        # Two that count the same rows with subqueries.
        "SELECT (SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id)) AS m, "
        "(SELECT COUNT(*) FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.cid = c.id)) AS n",
        # Constants.
        "SELECT COUNT(*) AS n FROM (SELECT DISTINCT cid, 7 AS seven, a FROM o) AS t",
        "SELECT COUNT(*) AS n FROM (SELECT DISTINCT cid, 0.5 AS half, 'x' AS text FROM o) AS t",
        "SELECT SUM(k) AS n FROM (SELECT DISTINCT cid, 3 AS k FROM o) AS t",
        # Names that are like those of the library's own.
        'SELECT "o.n", COUNT(*) AS n FROM (SELECT DISTINCT cid, a AS "o.n", n FROM o) AS t '
        'WHERE "o.n" = \'p\' GROUP BY "o.n"',
        'SELECT COUNT(*) AS n FROM o AS a JOIN o AS b ON a.cid = b.cid JOIN "o 2" AS d '
        "ON d.cid = a.cid",
    ],
)
def test_answers_that_were_other_ones(shop, sql):
    check_answers(shop, {"s": sql}, dpsql.Session(shop, unit=UNIT))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "SELECT x, COUNT(*) AS n FROM (SELECT DISTINCT cid, a AS x, b AS y FROM o) GROUP BY x",
            "SELECT x, COUNT(*) AS n FROM (SELECT DISTINCT cid, a AS y, b AS x FROM o) GROUP BY x",
        ),
        (
            "SELECT COUNT(*) AS n FROM c WHERE (SELECT MAX(x.n) FROM o AS x WHERE x.cid = c.id AND "
            "x.a = 'p') > 2 AND (SELECT MAX(y.n) FROM o AS y WHERE y.cid = c.id AND y.a = 'q') > 8",
            "SELECT COUNT(*) AS n FROM c WHERE (SELECT MAX(y.n) FROM o AS y WHERE y.cid = c.id AND "
            "y.a = 'p') > 2 AND (SELECT MAX(x.n) FROM o AS x WHERE x.cid = c.id AND x.a = 'q') > 8",
        ),
    ],
)
def test_columns_that_change_names_are_told_apart(shop, one, other, together):
    """Relations of two statements are the same, but what is called x in one is y in the other."""
    asked = dpsql.Session(shop, unit=UNIT)
    for script in [{"a": one, "b": other}] if together else [{"s": one}, {"s": other}]:
        check_answers(shop, script, asked)


def test_public_values_that_no_constant_is_leave_their_column_out(shop):
    """Infinite times, dates before the year 1, and numbers that are too large."""
    shop.execute(
        "CREATE TABLE days (n INTEGER, t TIMESTAMP, d DATE, h HUGEINT, f FLOAT, b VARCHAR)"
    )
    shop.execute(
        "INSERT INTO days VALUES (1, 'infinity', '-infinity', 99999999999999999999999999999999999,"
        " 'nan', 'p'), (2, '0001-01-01 (BC)', '0044-03-15 (BC)', -1, '-0', 'q'), "
        "(3, NULL, '290000-01-01', NULL, 'inf', NULL)"
    )
    sql = (
        "SELECT x, COUNT(*) AS n FROM (SELECT DISTINCT o.cid, p.b AS x FROM o LEFT JOIN days AS p "
        "ON p.n = o.n) GROUP BY x"
    )
    asked = dpsql.Session(shop, unit=UNIT, public=["days"])
    check_answers(shop, {"s": sql}, asked)


def test_which_of_equal_keys_is_shown_depends_on_no_order(shop):
    """Zeros and NaNs have signs, which are seen in texts; and rows of others come in between."""
    sql = "SELECT COUNT(*) AS n FROM (SELECT DISTINCT cid, d * 1 AS x FROM f) AS t WHERE x > -1"
    seen = []
    for order in ("ASC", "DESC"):
        shop.execute(
            "CREATE OR REPLACE TABLE f (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c "
            "(id), d DOUBLE)"
        )
        shop.execute(
            "INSERT INTO f SELECT i, i % 9, CASE i % 4 WHEN 0 THEN 'nan' WHEN 1 THEN '-nan' "
            f"WHEN 2 THEN '-0' ELSE '0' END FROM range(40) t (i) ORDER BY i {order}"
        )
        asked = dpsql.Session(shop, unit=dpsql.Unit("c", max_rows={"c": 1, "f": 9}))
        (table,) = asked._data.declared.compile(Request(named(sql), BUDGET)).tables
        seen.append(kept(shop, table, table.alone.undeclared))
    assert seen[0] == seen[1]
    assert len({text for _, text in seen[0]}) == 2
