"""Releases of several tables with rows of the same units: one plan, one charge, one snapshot."""

from __future__ import annotations

import random
import shutil
from fractions import Fraction
from types import SimpleNamespace

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.engines.duckdb.bounded import CROWDED
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.several import CountedTable, count_several
from dpsql.errors import ExecutionError, InternalError, StaleSchemaError
from dpsql.privacy import Ledger
from dpsql.release import folder
from dpsql.release.measurements import decode, encode
from dpsql.workload.workload import UnitTable
from tests.helpers.counting import counted
from tests.helpers.interrupted import interrupted
from tests.release.saved import replace_file, reseal
from tests.release.test_private_joins import TABLES, filled, shop
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

HUGE = dpsql.Budget(rho=Fraction(10**13))
BUDGET = dpsql.Budget(rho=Fraction(1, 2))
SCRIPT = {
    "regions": "SELECT region, COUNT(*) AS n FROM customers GROUP BY region",
    "status": "SELECT status, COUNT(*) AS n FROM orders GROUP BY status",
    "spent": "SELECT region, SUM(price) AS s, COUNT(*) AS n FROM orders GROUP BY region",
    "north": """SELECT status, COUNT(*) AS n FROM orders JOIN customers c ON customer_id = c.id
        WHERE c.region = 'n' GROUP BY status""",
    "total": "SELECT COUNT(*) AS n FROM customers",
}
COUNTS = {name: SCRIPT[name] for name in ("regions", "status", "total")}


def units(orders=20, items=50):
    """Declare the same unit for tables that are asked together."""
    given = {"customers": 1, "orders": orders, "items": items, "addresses": 9}
    named = {"items": "orders.customer_id", "orders": "customer_id"}
    unit = {name: dpsql.Unit(named.get(name, "customers"), k) for name, k in given.items()}
    return dpsql.Schema({}, units=unit)


@pytest.fixture
def con():
    return filled()


@pytest.fixture
def session(con):
    return dpsql.Session(con, schema=units())


# ── answers ────────────────────────────────────────────────────────────────────────────────


def test_answers_are_those_of_the_database(con, session):
    """Of rows that have a unit; at a huge budget, and with bounds that leave no row out."""
    script = SCRIPT | {"items": "SELECT qty, COUNT(*) AS n FROM items GROUP BY qty"}
    release = session.release(script, budget=HUGE)
    for name, sql in script.items():
        values = 2 if name == "spent" else 1
        exact = by_key(owned(con, sql), values)
        found = by_key(plain(release[name]), values)
        assert exact.items() <= found.items()
        assert all(found[key][-1] == 0 for key in found.keys() - exact.keys())


def owned(con, sql):
    """Rows that have a unit, as the database counts them."""
    own = "WITH orders AS (SELECT * FROM main.orders WHERE customer_id IS NOT NULL), items AS "
    own += "(SELECT i.* FROM main.items i JOIN orders o ON o.id = i.order_id) "
    return con.execute(own + sql).fetchall()


def by_key(rows, values):
    """Group → its values; without NULLs, and values outside of domains."""
    found = {tuple(row[:-values]): tuple(row[-values:]) for row in rows}
    return {key: of for key, of in found.items() if None not in key}


def plain(frame):
    """Rows without variances, as whole numbers."""
    kept = frame.select(c for c in frame.columns if not c.endswith("_variance"))
    return [tuple(round(v) if isinstance(v, float) else v for v in row) for row in kept.rows()]


def test_at_most_so_many_rows_of_a_unit_count_in_each_table(con):
    script = {
        "customers": "SELECT COUNT(*) AS n FROM customers",
        "orders": "SELECT COUNT(*) AS n FROM orders",
    }
    release = dpsql.Session(con, schema=units(orders=2)).release(script, budget=HUGE)
    kept = "SELECT SUM(LEAST(n, 2)) FROM (SELECT COUNT(*) AS n FROM orders "
    kept += "WHERE customer_id IS NOT NULL GROUP BY customer_id)"
    assert round(release["orders"]["n"][0]) == con.execute(kept).fetchone()[0]
    assert round(release["customers"]["n"][0]) == 30


def test_the_plan_is_the_best_stitched_of_plans_for_each_table(con, session):
    """(Σ_r √T_r / k_r)², with T_r the total of the plan for one table alone."""
    plan = session.plan(COUNTS, budget=BUDGET)
    roots = 0.0
    for names, k in ((("regions", "total"), 1), (("status",), 20)):
        alone = session.plan({n: COUNTS[n] for n in names}, budget=BUDGET)
        roots += np.sqrt(alone.rmse**2 * alone.workload.count) / k
    # Weights are scaled, so that those of all counts add up to their number.
    asked = sum(f.weight * f.count for f in plan.workload.families)
    assert asked == pytest.approx(plan.workload.count)
    own = 4 + 4 / 20**2
    scale = plan.workload.count / own
    assert plan.workload.count == 8
    assert plan.rmse**2 * 8 + plan.saved == pytest.approx(roots**2 * scale, rel=1e-6)
    assert plan.saved > 0
    assert float(plan.privacy_cost) == pytest.approx(1.0, rel=1e-6)
    assert plan.contributions == 1
    assert "of which at most 1 of customers and 20 of orders are kept" in plan.neighbours
    assert "rows of orders" in plan.explain()


@pytest.mark.parametrize("mechanism", ["querysmasher", "gaussian"])
def test_variances_of_a_table_are_those_of_its_share(session, mechanism):
    """Or less, where totals are compared."""
    plan = session.plan(COUNTS, budget=BUDGET, mechanism=mechanism)
    share = dpsql.Budget(rho=plan.parts["orders"].privacy_cost / 2)
    alone = session.plan({"status": COUNTS["status"]}, budget=share, mechanism=mechanism)
    joint = plan.expected_error().row(by_predicate=pl.col("statement") == "status", named=True)
    other = alone.expected_error()["rmse"][0]
    if plan.saved:
        assert 0.8 * other < joint["rmse"] < 0.99 * other
    else:
        assert joint["rmse"] == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("mechanism", ["residualplanner", "hdmm", "gaussian", "laplace"])
def test_other_mechanisms_plan_several_tables_too(session, mechanism):
    budget = dpsql.Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    release = session.release(COUNTS, budget=budget, mechanism=mechanism)
    assert release.plan.parts.keys() == {"customers", "orders"}
    assert release.receipt.mu_squared >= release.facts.privacy_cost


def test_adjusted_columns_fit_each_table(session):
    release = session.release(COUNTS, budget=BUDGET, nonnegative=True, integers=True)
    regions, total = release["regions"]["n_adjusted"], release["total"]["n_adjusted"]
    assert regions.min() >= 0
    assert regions.sum() == total[0]
    assert (release["status"]["n_adjusted"] % 1 == 0).all()


def test_sums_row_by_row_have_no_adjusted_columns(con):
    con.execute("""
        CREATE TABLE visits (customer_id INTEGER REFERENCES customers (id),
            cost DECIMAL(7, 2) CHECK (cost BETWEEN 0 AND 99999));
        INSERT INTO visits SELECT i % 30, i FROM range(90) AS t(i);
    """)
    unit = dpsql.Unit("customers", max_rows={"visits": 3})
    session = dpsql.Session(con, unit=unit)
    script = {"c": SCRIPT["regions"], "v": "SELECT SUM(cost) AS s, COUNT(*) AS n FROM visits"}
    with pytest.raises(dpsql.SqlError, match="adds up values row by row"):
        session.release(script, budget=BUDGET, nonnegative=True)
    release = session.release(script, budget=HUGE)
    assert round(release["v"]["s"][0]) == sum(range(90))
    plan = session.plan(script, budget=BUDGET, reuse=False)
    assert {"customers", "visits", "c", "v"} >= {n for n in plan.parts if "." not in n}
    assert plan.parts.keys() > {"customers", "visits"}


def test_targets_weights_and_assumed_rows(session):
    plan = session.plan(COUNTS, targets={"regions": 3, "status": 30})
    errors = dict(plan.expected_error().select("statement", "worst_standard_error").iter_rows())
    assert errors["regions"] <= 3 * (1 + 1e-9)
    assert errors["status"] <= 30 * (1 + 1e-9)
    heavy = session.plan(COUNTS, budget=BUDGET, weights={"status": 100})
    usual = session.plan(COUNTS, budget=BUDGET)
    assert heavy.parts["orders"].privacy_cost > usual.parts["orders"].privacy_cost
    averages = {"a": SCRIPT["regions"], "m": "SELECT region, AVG(price) FROM orders GROUP BY 1"}
    expected = session.plan(averages, budget=BUDGET, assume={"rows": 1000}).expected_answers
    assert expected["standard_error"].null_count() == 0


# ── the charge ─────────────────────────────────────────────────────────────────────────────


def test_one_charge_is_for_all_tables(session):
    release = session.release(COUNTS, budget=BUDGET)
    (entry,) = session.ledger.entries()
    assert session.ledger.spent == BUDGET.mu_squared == release.receipt.mu_squared
    assert len(entry.purpose.tables) == 2
    assert session.history.height == 1
    assert session.ledger.audit()
    assert session.ledger.protected.units == 2


def test_each_table_is_bound_as_if_it_were_asked_alone(con):
    """To its unit and schema: by either order of questions."""
    together, alone = dpsql.Session(con, schema=units()), dpsql.Session(con, schema=units())
    together.release(COUNTS, budget=BUDGET)
    together.release(SCRIPT["regions"], budget=BUDGET)
    alone.release(SCRIPT["status"], budget=BUDGET)
    alone.release(COUNTS, budget=BUDGET)
    for session in (together, alone):
        assert session.ledger.protected == (2, 0)
        assert session.ledger.spent == 2 * BUDGET.mu_squared
    other = dpsql.Schema({}, units={"customers": dpsql.Unit("customers", 1)})
    changed = together.redeclared(schema=other, unit=dpsql.Unit("id", 5))
    with pytest.raises(dpsql.LedgerError, match="Another unit"):
        changed.release(SCRIPT["status"], budget=BUDGET)


def test_a_changed_description_is_accepted_for_each_table(con, session):
    session.release(COUNTS, budget=BUDGET)
    changed = session.redeclared(schema=units(orders=7))
    with pytest.raises(StaleSchemaError, match="whose rows count"):
        changed.release(COUNTS, budget=BUDGET)
    assert session.ledger.spent == BUDGET.mu_squared
    accepting = session.redeclared(schema=units(orders=7), accept_schema=True)
    accepting.release(COUNTS, budget=BUDGET)
    assert session.ledger.spent == 2 * BUDGET.mu_squared


def test_the_total_is_not_passed(con):
    session = dpsql.Session(con, schema=units(), budget=BUDGET)
    session.release(COUNTS, budget=BUDGET)
    with pytest.raises(dpsql.BudgetError):
        session.release(COUNTS, budget=dpsql.Budget(rho=Fraction(1, 10**6)))


# ── interruptions ──────────────────────────────────────────────────────────────────────────


def test_what_was_measured_and_not_handed_out_is_had_again(session):
    with interrupted() as made:
        session.release(SCRIPT, budget=BUDGET)
    (entry,) = session.ledger.entries()
    assert entry.state == "released"
    release = session.release(SCRIPT, budget=BUDGET)
    assert session.ledger.spent == BUDGET.mu_squared
    assert release.receipt.request == entry.request
    kept = session.ledger.content(entry)
    assert encode(release.sources) == kept
    assert release.facts.privacy_cost <= BUDGET.mu_squared
    assert float(release.facts.privacy_cost) == pytest.approx(1.0, rel=1e-6)
    for name in SCRIPT:
        assert_frame_equal(release[name], made[0][name], rel_tol=1e-9)
    assert session.release(SCRIPT, budget=BUDGET).receipt.request != entry.request


def test_a_failure_while_counting_costs_the_charge_and_says_nothing(session):
    def fail(*_):
        raise RuntimeError("17 rows of Alice")

    with counted(fail), pytest.raises(ExecutionError) as caught:
        session.release(COUNTS, budget=BUDGET)
    assert "Alice" not in str(caught.value)
    assert caught.value.__context__ is None
    assert session.ledger.spent == BUDGET.mu_squared


# ── what is kept ───────────────────────────────────────────────────────────────────────────


def test_a_release_is_saved_and_loaded(session, tmp_path):
    release = session.release(SCRIPT, budget=HUGE, out=tmp_path / "r")
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    assert loaded.neighbours == release.neighbours
    assert [table.name for table in loaded.facts.tables] == ["customers", "orders"]
    assert "customers, orders" in loaded.summary()
    assert "20 rows that count of orders" in " ".join(loaded.summary().split())
    for name in SCRIPT:
        assert_frame_equal(loaded[name], release[name])
    assert encode(decode(encode(loaded.sources))) == encode(release.sources)


def test_what_one_table_was_asked_is_answered_from_the_release(session, tmp_path):
    release = session.release(SCRIPT, budget=HUGE, out=tmp_path / "r")
    loaded = dpsql.Release.load(tmp_path / "r")
    for found in (release, loaded):
        assert round(found.query("SELECT COUNT(*) AS n FROM customers")["n"][0]) == 30
        status = found.query(SCRIPT["status"])
        assert_frame_equal(status, release["status"], rel_tol=1e-6)
        north = found.query(SCRIPT["north"])
        np.testing.assert_allclose(north["n"], release["north"]["n"], atol=1e-3)
    with pytest.raises(dpsql.SchemaError, match="no table items") as caught:
        loaded.query("SELECT COUNT(*) AS n FROM items")
    assert caught.value.hint
    with pytest.raises(dpsql.UndeterminedError):
        loaded.query("SELECT vip, COUNT(*) AS n FROM customers GROUP BY vip")
    both = "SELECT COUNT(*) AS n FROM customers UNION ALL SELECT COUNT(*) FROM orders"
    assert [round(n) for n in loaded.query(both)["n"]] == [30, 85]


def test_later_releases_of_one_table_rest_on_it(session, tmp_path):
    session.release(SCRIPT, budget=BUDGET)
    free = session.release({"s": SCRIPT["status"]}, budget=0, out=tmp_path / "free")
    assert free.charged is None
    more = session.release({"s": SCRIPT["status"]}, budget=BUDGET, out=tmp_path / "more")
    alone = session.plan({"s": SCRIPT["status"]}, budget=BUDGET, reuse=False)
    assert more.plan.rmse < alone.rmse
    for name in ("free", "more"):
        loaded = dpsql.Release.load(tmp_path / name, ledger=session.ledger)
        # Also for what the free one knows of other tables, by which its total is more exact.
        assert {place.seq for place in loaded.facts.earlier} == {session.ledger.entries()[0].seq}
    assert session.query("SELECT COUNT(*) AS n FROM customers", budget=0).height == 1


def test_a_release_of_one_table_is_written_as_before(session, tmp_path):
    session.release(SCRIPT["regions"], budget=BUDGET, out=tmp_path / "r")
    text = (tmp_path / "r" / "release.json").read_text()
    assert '"format": 4' in text
    assert "other" not in text.replace('"other": null', "")
    session.release(COUNTS, budget=BUDGET, out=tmp_path / "s")
    assert '"format": 5' in (tmp_path / "s" / "release.json").read_text()


# ── forgery ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A ledger, and a folder of which tests change copies."""
    session, out = dpsql.Session(filled(), schema=units()), tmp_path_factory.mktemp("made") / "r"
    session.release(COUNTS, budget=BUDGET, out=out)
    return session.ledger, out


@pytest.fixture
def saved(released, tmp_path):
    return shutil.copytree(released[1], tmp_path / "r")


@pytest.fixture
def ledger(released):
    return released[0]


def forged(saved, change):
    name = "release.measurements.parquet"
    replace_file(saved, name, encode(change(decode((saved / name).read_bytes()))))


def swapped(sources):
    one, other = sources
    from dataclasses import replace

    return replace(one, table=other.table), replace(other, table=one.table)


@pytest.mark.parametrize(
    "change",
    [
        lambda sources: sources[::-1],
        lambda sources: sources[:1],
        lambda sources: (*sources, sources[-1]),
        swapped,
    ],
)
def test_measurements_of_other_tables_are_noticed(ledger, saved, change):
    forged(saved, change)
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(saved, ledger=ledger)


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.update(format=4),
        lambda said: said.update(other_tables=[]),
        lambda said: said.pop("other_tables"),
        lambda said: said["other_tables"].append(said["table"]),
        lambda said: said["other_tables"][0].update(unit=None),
        lambda said: said["ledger"]["purpose"].update(others=[]),
        lambda said: said["ledger"]["purpose"]["others"].append(["ab"] * 4),
        lambda said: said["ledger"]["purpose"]["others"].append(["ab"] * 3),
        lambda said: said["ledger"]["purpose"]["others"][0].__setitem__(0, "SELECT"),
    ],
)
def test_documents_that_say_something_impossible_are_refused(saved, change):
    reseal(saved, change)
    with pytest.raises(dpsql.DpsqlError) as caught:
        dpsql.Release.load(saved)
    assert isinstance(caught.value, (dpsql.ReleaseFormatError, dpsql.LedgerError))
    assert caught.value.hint


def test_tables_that_were_not_charged_are_noticed(ledger, saved):
    reseal(saved, lambda said: said["other_tables"][0].update(path=["memory", "main", "items"]))
    with pytest.raises(dpsql.DpsqlError):
        dpsql.Release.load(saved, ledger=ledger)


# ── what is refused ────────────────────────────────────────────────────────────────────────


def refusal(session, *statements):
    with pytest.raises(dpsql.DpsqlError) as caught:
        session.release(list(statements), budget=BUDGET)
    assert session.ledger.spent == 0
    assert caught.value.hint
    return str(caught.value)


def test_tables_without_a_common_unit_are_refused(con):
    plain = dpsql.Session(con)
    pair = SCRIPT["regions"], SCRIPT["status"]
    assert "one script releases from one table" in refusal(plain, *pair)
    each = dpsql.Session(con, unit=dpsql.EACH_ROW)
    assert "rows of the same units" in refusal(each, *pair)
    mixed = dpsql.Schema({}, units={"orders": dpsql.Unit("customer_id", 3)})
    assert "rows of the same units" in refusal(dpsql.Session(con, schema=mixed), *pair)
    own = dpsql.Schema(
        {}, units={"orders": dpsql.Unit("id", 3), "customers": dpsql.Unit("customers", 1)}
    )
    said = refusal(dpsql.Session(con, schema=own), *pair)
    assert "orders.id and customers.id" in said
    assert "FOREIGN KEYs" in said


def test_a_table_on_the_way_with_other_units_is_refused(con):
    other = {"items": dpsql.Unit("orders.customer_id", 3), "orders": dpsql.Unit("id", 3)}
    schema = dpsql.Schema({}, units=other | {"customers": dpsql.Unit("customers", 1)})
    said = refusal(
        dpsql.Session(con, schema=schema), SCRIPT["regions"], "SELECT COUNT(*) FROM items"
    )
    assert "a table on the way to customers.id has other units" in said


def test_a_unit_that_its_own_table_does_not_know_is_named_by_that_table():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE p (id INTEGER PRIMARY KEY);
        CREATE TABLE a (pid INTEGER REFERENCES p (id));
        CREATE TABLE b (pid INTEGER REFERENCES p (id));
    """)
    both = ["SELECT COUNT(*) AS n FROM a", "SELECT COUNT(*) AS n FROM b"]
    with pytest.raises(dpsql.SchemaError, match=r"on the way to p\.id") as caught:
        dpsql.Session(con, unit=dpsql.Unit("pid", 2)).release(both, budget=BUDGET)
    unit = dpsql.Unit("p", max_rows={"a": 2, "b": 2})
    assert caught.value.hint.endswith("dpsql.Unit('p', max_rows={'a': 2, 'b': 2}).")
    assert dpsql.Session(con, unit=unit).release(both, budget=BUDGET).receipt


def test_units_that_refer_to_each_other_are_refused(con):
    con.execute("""
        CREATE TABLE staff (id INTEGER PRIMARY KEY, boss INTEGER REFERENCES staff (id),
            grade INTEGER NOT NULL CHECK (grade BETWEEN 1 AND 3));
        CREATE TABLE tasks (staff_id INTEGER REFERENCES staff (id),
            kind INTEGER NOT NULL CHECK (kind BETWEEN 1 AND 3));
    """)
    session = dpsql.Session(con, unit=dpsql.Unit("staff", max_rows={"staff": 1, "tasks": 4}))
    said = refusal(session, "SELECT COUNT(*) FROM staff", "SELECT COUNT(*) FROM tasks")
    assert "FOREIGN KEYs lead from rows of staff" in said


def test_views_and_other_schemas_are_refused(con):
    con.execute("CREATE VIEW paid AS SELECT * FROM orders WHERE status = 'p'")
    con.execute("CREATE SCHEMA s; CREATE TABLE s.t (customer_id INTEGER, x BOOLEAN)")
    known = {"customers": dpsql.Unit("customers", 1), "paid": dpsql.Unit("customer_id", 3)}
    schema = dpsql.Schema({}, units=known | {"s.t": dpsql.Unit("customer_id", 3)})
    session = dpsql.Session(con, schema=schema)
    assert "no FOREIGN KEYs say" in refusal(session, SCRIPT["regions"], "SELECT COUNT(*) FROM paid")
    assert "same units" in refusal(session, SCRIPT["regions"], "SELECT COUNT(*) FROM s.t")


# ── counting ───────────────────────────────────────────────────────────────────────────────


def test_all_tables_are_counted_as_they_were_at_one_moment(tmp_path):
    """Rows that come while one table has been counted, and the other hasn't, are in neither."""
    con = duckdb.connect(tmp_path / "shop.duckdb")
    con.execute(TABLES)
    shop(con)
    known = con.execute("SELECT COUNT(*) FROM orders WHERE customer_id IS NOT NULL").fetchone()[0]
    other = con.cursor()

    def watch(stage, done, total):
        if stage == "counting" and done == 1:
            other.execute("INSERT INTO customers SELECT 1000 + i, 'n', 0, true, '' "
                "FROM range(50) AS t(i)")  # fmt: skip
            other.execute("INSERT INTO orders SELECT 10000 + i, 1000 + i, NULL, 'o', 7, 'n' "
                "FROM range(50) AS t(i)")  # fmt: skip

    script = {"c": "SELECT COUNT(*) AS n FROM customers", "o": "SELECT COUNT(*) AS n FROM orders"}
    session = dpsql.Session(con, schema=units())
    release = session.release(script, budget=HUGE, progress=watch)
    assert round(release["c"]["n"][0]) == 30
    assert round(release["o"]["n"][0]) == known
    after = session.release(script, budget=HUGE, reuse=False)
    assert round(after["c"]["n"][0]) == 80
    assert round(after["o"]["n"][0]) == known + 50


def test_a_table_that_is_altered_in_between_is_noticed_before_the_charge(con, session, monkeypatch):
    from dpsql.session import answer

    prepared = answer._planned

    def alter(*given):
        found = prepared(*given)
        con.execute("ALTER TABLE orders ADD COLUMN extra INTEGER")
        return found

    monkeypatch.setattr(answer, "_planned", alter)
    with pytest.raises(StaleSchemaError, match="orders"):
        session.release(COUNTS, budget=BUDGET)
    assert session.ledger.spent == 0


@pytest.mark.parametrize(
    "wanted",
    [
        [("orders.status",)],
        [("orders.status", "customers")],
        [("orders.status", "customers.region", "orders")],
        [("orders", "customers")],
        [("status", "orders")],
        [("other.x", "other")],
        [("orders", "orders.price")],
        [()],
    ],
)
def test_what_is_of_two_tables_or_of_none_is_not_counted(con, session, wanted):
    tables = [
        CountedTable(UnitTable(name, 1), session._data.declared.private((name,)), {}, {}, {})
        for name in ("customers", "orders")
    ]
    tables[1] = CountedTable(
        tables[1].unit_table, tables[1].table, {}, {"price": SimpleNamespace(bound=1)}, {}
    )
    with pytest.raises(InternalError):
        count_several(DuckDBEngine(con), tables, wanted, lambda *_: None)


def test_the_bound_of_a_unit_is_that_of_what_was_counted(con, session):
    """Whatever a plan says: k of the table, and k times the largest value of a row."""
    table = session._data.declared.private(("orders",))
    of = CountedTable(UnitTable("orders", 1), table, {}, {}, {})
    found = count_several(DuckDBEngine(con), [of], [("orders.status", "orders")], lambda *_: None)
    counted = found.run()
    assert (counted.contributions, dict(counted.bounds)) == (1, {"orders": 20})
    assert counted["orders.status", "orders"].shape == (4, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_neighbors_differ_by_what_is_charged(seed):
    """Without one customer, with all of its rows in all tables: the same statements, and exact
    answers that differ by what was charged at most."""
    rng = random.Random(seed)  # noqa: S311
    k, items = rng.choice([1, 2, 5]), rng.choice([1, 4])
    script = SCRIPT | {"items": "SELECT qty, COUNT(*) AS n FROM items GROUP BY qty"}
    asked = {"schema": units(k, items), "script": script}
    budget = dpsql.Budget(epsilon=1, delta=0) if seed % 3 == 2 else BUDGET
    how = {"budget": budget} | ({"mechanism": "laplace"} if budget.pure else {})
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con, seed=seed, customers=8, apart=3)
    whole = recorded(con, asked, **how)
    assert all(f"WITH {CROWDED} AS" in sql for sql, _ in whole.statements)
    shop(con, seed=seed, customers=8, apart=3, without=3)
    fewer = recorded(con, asked, **how)
    check_alike(whole, fewer)
    assert 0 < spent(whole, fewer) <= charged(whole)


def test_ledgers_of_several_tables_are_refused_by_versions_that_knew_none(session):
    """They refuse charges with several rows by name; this one still refuses bindings with them."""
    from dpsql.privacy.event import Event, Line, TableRows
    from dpsql.privacy.history import History

    rows = tuple(TableRows(d, d, (d,), "") for d in ("aa", "bb"))
    line = Line(1, Event("bound", "ab", rows=rows, time="now").text, "")
    with pytest.raises(dpsql.LedgerError, match="several tables"):
        History(3, "x", "y").add(line._replace(hash=line.linked(History(3, "x", "y").hash)))


def test_a_ledger_on_disk_is_read_again(tmp_path):
    con = duckdb.connect(tmp_path / "shop.duckdb")
    con.execute(TABLES)
    shop(con)
    dpsql.Session(con, schema=units()).release(COUNTS, budget=BUDGET)
    ledger = Ledger.existing(tmp_path / "shop.duckdb.ledger")
    (entry,) = ledger.entries()
    assert len(entry.purpose.tables) == 2
    assert ledger.audit()
    again = dpsql.Session(con, schema=units())
    assert again.query(SCRIPT["status"], budget=0).height == 4
    assert folder.SEVERAL in folder.READ
