"""20,000 units with 30 rows each, two threads, one large unit: without it no other one changes.

Of all that may be computed of rows of a unit, of windows over them, of pairs of them and of units
that are counted, whatever rule says which rows are kept. Rows of a unit often tie in what they are
sorted by; and the large one decides where a scan is cut into pieces.
"""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.engines.others import stored_columns
from dpsql.rel.related import related_rows
from dpsql.request import Request, named
from dpsql.schema.names import quoted_name
from dpsql.schema.units import RowLimit
from dpsql.workload.unit_groups import groups_of

UNITS, ROWS, LARGE = 20_000, 30, 5_000
TABLES = """
    CREATE TABLE p (id BIGINT PRIMARY KEY);
    CREATE TABLE g (id VARCHAR PRIMARY KEY, p BIGINT REFERENCES p (id), n INTEGER);
    CREATE TABLE t (g VARCHAR REFERENCES g (id), n INTEGER CHECK (n BETWEEN 0 AND 2),
        d DECIMAL(9, 2), t TIMESTAMP, s VARCHAR, x DOUBLE, c BOOLEAN);
    INSERT INTO p SELECT i FROM range(-1, {units}) AS r(i);
    INSERT INTO g SELECT i || k, i, hash(k) % 2
        FROM range(-1, {units}) AS r(i), (VALUES ('a'), ('A')) AS v(k);
    INSERT INTO t SELECT u || 'aA'[1 + i % 2], hash(i) % 3, hash(i + 1) % 7 / 2,
        TIMESTAMP '2020-01-01' + INTERVAL (hash(i + 2) % 9) DAY,
        ['a', 'A', 'b', 'é', NULL][1 + (hash(i + 3) % 5)::BIGINT],
        ['0.0', '-0.0', '1.5', 'nan'][1 + (hash(i + 4) % 4)::BIGINT],
        [true, false, NULL][1 + (hash(i + 5) % 3)::BIGINT]
        FROM ({rows}) ORDER BY {order};
"""
OTHERS = f"SELECT i // {ROWS} AS u, i FROM range({UNITS * ROWS}) AS r(i)"
WHOLE = f"SELECT -1 AS u, i FROM range({LARGE}) AS r(i) UNION ALL {OTHERS}"
BOUNDS = {"p": 1, "g": 2, "t": 7, "g, t": 5, "t, t": 5}


@pytest.fixture(scope="module")
def databases():
    """The same rows, with and without those of the large unit, and stored otherwise."""
    found = []
    for rows, order in ((WHOLE, "u, i"), (OTHERS, "hash(i + 11)")):
        con = duckdb.connect(config={"threads": 2})
        con.execute(TABLES.format(units=UNITS, rows=rows, order=order)).fetchall()
        found.append(con)
    yield found
    for con in found:
        con.close()


def session(con):
    return dpsql.Session(con, unit=dpsql.Unit("p", BOUNDS))


def counted(con, sql):
    """Return the table whose rows a statement counts."""
    return session(con)._data.declared.compile(Request(named(sql), dpsql.Budget(rho=1))).table


def kept(con, table, names, unit):
    """Return of each unit how many rows are kept, and a sum of hashes of what they have."""
    shown = ", '|', ".join(f"coalesce({quoted_name(name)}::VARCHAR, '-')" for name in names)
    parameters = Parameters()
    rows = kept_rows(table, names, parameters)
    found = con.execute(
        f"SELECT regexp_extract({quoted_name(unit)}::VARCHAR, '^-?[0-9]+') AS u, count(*), "
        f"sum(hash(concat({shown}))::HUGEINT) FROM ({rows}) GROUP BY u",
        parameters.values,
    )
    return {u: rest for u, *rest in found.fetchall()}


def check(databases, table, names, unit="g"):
    whole, fewer = databases
    before = kept(whole, table, names, unit)
    assert before.pop("-1")[0] == table.contributions
    assert len(before) == UNITS
    assert kept(fewer, table, names, unit) == before
    fewer.execute("SET threads = 1").fetchall()
    try:
        assert kept(fewer, table, names, unit) == before
    finally:
        fewer.execute("SET threads = 2").fetchall()


OF_ROWS = "(SELECT {} FROM t x WHERE x.g = t.g)"
MET = "x.g = t.g AND (x.d > t.d OR x.t < t.t)"
COMPUTED = [
    OF_ROWS.format("COUNT(x.s)"),
    OF_ROWS.format("COUNT(DISTINCT x.s)"),
    OF_ROWS.format("COUNT(DISTINCT x.x)"),
    OF_ROWS.format("COUNT(*) FILTER (WHERE x.d > 1)"),
    OF_ROWS.format("SUM(x.n)"),
    OF_ROWS.format("SUM(x.d)"),
    OF_ROWS.format("AVG(x.d)"),
    OF_ROWS.format("MIN(x.t)"),
    OF_ROWS.format("MAX(x.d)"),
    OF_ROWS.format("MIN(x.s)"),
    OF_ROWS.format("MAX(x.s)"),
    OF_ROWS.format("BOOL_AND(x.c)"),
    OF_ROWS.format("BOOL_OR(x.d > 2)"),
    f"(SELECT SUM(x.d) FROM t x WHERE {MET})",
    f"EXISTS (SELECT 1 FROM t x WHERE {MET} AND x.x > t.x)",
    f"EXISTS (SELECT 1 FROM t x WHERE {MET} AND NOT EXISTS "
    "(SELECT 1 FROM t y WHERE y.g = x.g AND y.n > x.n AND y.d < x.d))",
    "row_number() OVER (PARTITION BY g.p ORDER BY t.n)",
    "ntile(3) OVER (PARTITION BY g.p ORDER BY d)",
    "rank() OVER (PARTITION BY g.p ORDER BY t.n)",
    "dense_rank() OVER (PARTITION BY g.p ORDER BY s)",
    "percent_rank() OVER (PARTITION BY g.p ORDER BY s)",
    "cume_dist() OVER (PARTITION BY t.g ORDER BY t.n DESC)",
    "lag(s) OVER (PARTITION BY g.p ORDER BY t.n)",
    "lead(d, 2) OVER (PARTITION BY g.p, t.n ORDER BY s)",
    "first_value(s) OVER (PARTITION BY g.p ORDER BY t.n, d)",
    "last_value(d) OVER (PARTITION BY g.p ORDER BY t.n ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)",
    "nth_value(t, 2) OVER (PARTITION BY g.p ORDER BY t.n ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING)",
    "SUM(d) OVER (PARTITION BY g.p ORDER BY t.n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "AVG(d) OVER (PARTITION BY g.p ORDER BY t.n)",
    "COUNT(DISTINCT s) OVER (PARTITION BY g.p)",
    "MAX(s) OVER (PARTITION BY t.g)",
    "BOOL_AND(c) OVER (PARTITION BY g.p ORDER BY t.t)",
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("item", COMPUTED)
def test_what_is_computed_of_rows_of_a_unit_depends_on_no_other_one(databases, item):
    rows = f"SELECT {item} AS v FROM t JOIN g ON t.g = g.id"
    table = counted(databases[0], f"SELECT COUNT(*) FROM ({rows}) WHERE v IS NULL")
    made = [one.name for one in table.added]
    assert made
    check(databases, table, ["g", "n", *made])


LIMITS = {
    "": (),
    "few": (RowLimit(("n",), 2),),
    "two": (RowLimit(("n",), 4), RowLimit(("n", "c"), 1)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("k", [1, 7, 29])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("item", ["s", "row_number() OVER (PARTITION BY g.p ORDER BY t.n)"])
def test_which_rows_are_kept_of_a_unit_depends_on_no_other_one(databases, k, limits, item):
    rows = f"SELECT {item} AS v FROM t JOIN g ON t.g = g.id"
    table = counted(databases[0], f"SELECT COUNT(*) FROM ({rows}) WHERE v IS NULL")
    found = replace(table, unit=replace(table.unit, max_rows=k, limits=LIMITS[limits]))
    whole, fewer = databases
    names = [*stored_columns(table), *(one.name for one in table.added)]
    before = kept(whole, found, names, "g")
    assert 1 <= before.pop("-1")[0] <= k
    assert kept(fewer, found, names, "g") == before


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "source",
    [
        "t JOIN g ON t.g = g.id JOIN g h ON h.p = g.p AND h.n <> t.n",
        "t JOIN g ON t.g = g.id JOIN p ON g.p = p.id JOIN g h ON h.p = p.id AND h.n = t.n",
    ],
)
def test_which_pairs_are_kept_of_a_unit_depends_on_no_other_one(databases, source):
    table = counted(databases[0], f"SELECT COUNT(*) FROM {source}")
    check(databases, table, stored_columns(table), "t.g")


CHOSEN = [
    (1, "SELECT t.n, t.d FROM {} QUALIFY row_number() OVER (PARTITION BY g.p ORDER BY t.n) = 1"),
    (3, "SELECT t.n, t.d FROM {} WHERE d > 1 QUALIFY row_number() OVER (PARTITION BY g.p ORDER BY "
        "s DESC, t.n) <= 3"),
    (3, "SELECT t.n FROM {} QUALIFY row_number() OVER (PARTITION BY g.p, t.c ORDER BY t.d) = 2"),
    (2, "SELECT * FROM (SELECT t.n, t.d, SUM(t.n) OVER (PARTITION BY g.p ORDER BY t.d) AS w, "
        "row_number() OVER (PARTITION BY g.p ORDER BY t.t) AS k FROM {}) WHERE k IN (8, 9) AND "
        "w > 1"),
]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bound", [1, 7])
@pytest.mark.parametrize(("k", "source"), CHOSEN)
def test_which_rows_are_chosen_of_a_unit_depends_on_no_other_one(databases, k, source, bound):
    """Of the many that tie for a place, and of those that are chosen where fewer count."""
    rows = source.format("t JOIN g ON t.g = g.id")
    table = counted(databases[0], f"SELECT COUNT(*) FROM ({rows})")
    assert related_rows(table) is not None
    assert table.contributions == k
    table = replace(table, unit=replace(table.unit, max_rows=min(k, bound)))
    check(databases, table, stored_columns(table), "t.g")


@pytest.mark.parametrize("most", [1, 2])
def test_in_which_groups_a_unit_counts_depends_on_no_other_one(databases, most):
    sql = "SELECT t.n, t.c, COUNT(DISTINCT g.p) FROM t JOIN g ON t.g = g.id GROUP BY ALL"
    unit = dpsql.Unit("p", BOUNDS, max_groups=most)
    found = []
    for con in databases:
        asked = dpsql.Session(con, unit=unit)._data.declared
        script = asked.compile(Request(named(sql), dpsql.Budget(rho=1)))
        wanted = [(groups_of(name), name) for name in script.units]
        engine = DuckDBEngine(con)
        found.append(engine.prepared(script.table, wanted, script.merged, units=script.units).run())
    for marginal in found[0]:
        change = found[0][marginal] - found[1][marginal]
        assert change.sum() == most
        assert set(change.ravel().tolist()) == {0, 1}
        assert found[1][marginal].sum() == most * UNITS
