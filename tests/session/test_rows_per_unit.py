"""How many rows units have, how many rows have no unit, and how many units were cut."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.engines.duckdb.columns import source_of
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.errors import ArgumentError, DpsqlError, ExecutionError, LedgerError, SchemaError
from dpsql.measurement import measure as measuring
from dpsql.session import planning
from dpsql.session.data import bounds
from dpsql.workload import Identity, Workload
from tests.helpers.inserted import insert
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.helpers.seeded import SeededBits
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

HUGE = dpsql.Budget(rho=10**12)
SMALL = dpsql.Budget(rho=1)
PAID = "SELECT paid, COUNT(*) AS n FROM orders GROUP BY paid"
ITEMS = "SELECT COUNT(*) AS n FROM items"


def shop():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE orders (
            id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
            paid BOOLEAN NOT NULL
        );
        CREATE TABLE items (order_id INTEGER REFERENCES orders (id), gift BOOLEAN NOT NULL);
    """)
    insert(con, "customers", [(i,) for i in range(50)])
    orders = [(i, i * i // 3200 if i % 7 else None, i % 4 == 0) for i in range(400)]
    insert(con, "orders", orders)
    insert(con, "items", [(i % 399 if i % 9 else None, i % 5 == 0) for i in range(900)])
    return con


def orders_of_units(con):
    sql = "SELECT COUNT(*) FROM orders WHERE customer_id IS NOT NULL GROUP BY customer_id"
    return np.array([n for (n,) in con.execute(sql).fetchall()])


@pytest.fixture
def con():
    return shop()


@pytest.fixture
def session(con):
    return dpsql.Session(con, unit="customers")


def bounded(session, **rows):
    return session.redeclared(unit="customers", max_rows=rows or {"orders": 4, "items": 6})


class TestRowsPerUnit:
    def test_bounds_are_half_an_octave_apart(self):
        assert bounds(20) == (1, 2, 3, 4, 6, 8, 11, 16, 20)
        assert bounds(1) == (1,)
        assert bounds(16) == (1, 2, 3, 4, 6, 8, 11, 16)
        assert bounds(10_000)[-2:] == (8192, 10_000)

    def test_it_is_what_the_rows_say(self, con, session):
        frame = session.rows_per_unit("orders", budget=HUGE, up_to=20)
        true = orders_of_units(con)
        assert frame["max_rows"].to_list() == [*bounds(20), None]
        before = 0
        for row in frame.filter(pl.col("max_rows").is_not_null()).rows(named=True):
            k = row["max_rows"]
            assert round(row["units"]) == ((true > before) & (true <= k)).sum()
            assert round(row["units_cut"]) == (true > k).sum()
            assert row["units_cut_share"] == pytest.approx((true > k).mean(), abs=1e-4)
            before = k
        assert round(frame["units"][-1]) == (true > 20).sum() > 0
        assert frame["units_cut"][-1] is None

    @pytest.mark.parametrize("names", ["orders, items", "Items,orders", "orders, orders"])
    def test_of_rows_that_meet_all_are_counted(self, con, session, names):
        first, second = (name.strip().lower() for name in names.split(","))
        (true,) = con.sql(
            f"""
            WITH orders AS (SELECT customer_id AS c FROM orders), items AS (
                SELECT customer_id AS c FROM items JOIN orders o ON order_id = o.id)
            SELECT COUNT(*) FROM (SELECT c FROM {first} a JOIN {second} b USING (c) GROUP BY c
                HAVING COUNT(*) > 32)
        """.replace("JOIN orders o", "JOIN main.orders o")
        ).fetchall()[0]
        frame = session.rows_per_unit(names, budget=HUGE, up_to=100)
        assert 0 < true < 50
        assert round(frame.filter(max_rows=32)["units_cut"][0]) == true
        again = session.rows_per_unit(names, budget=0, up_to=100)
        assert_frame_equal(again, frame)

    def test_what_meets_must_be_of_the_same_units(self, con, session):
        con.execute("CREATE TABLE stores (id INTEGER)").fetchall()
        for names in ("orders, nowhere", "orders, stores", "orders,", ", "):
            with pytest.raises(SchemaError) as refused:
                session.rows_per_unit(names, budget=SMALL)
            assert refused.value.hint
        assert session.history.is_empty()

    def test_rows_cut_are_exact_where_bounds_are_next_to_each_other(self):
        con = duckdb.connect()
        con.execute("CREATE TABLE t (who INTEGER)")
        insert(con, "t", [(who,) for who in range(5) for _ in range(who)])
        session = dpsql.Session(con, unit="who")
        frame = session.rows_per_unit("t", budget=HUGE, up_to=4)
        assert [round(n) for n in frame["rows_cut"][:4]] == [6, 3, 1, 0]
        assert frame["rows_cut_share"].round(3).to_list()[:4] == [0.6, 0.3, 0.1, 0]

    def test_along_the_way_to_the_unit(self, con, session):
        frame = session.rows_per_unit("items", budget=HUGE)
        joined = "items JOIN orders o ON order_id = o.id WHERE customer_id IS NOT NULL"
        ((n,),) = con.execute(f"SELECT COUNT(DISTINCT customer_id) FROM {joined}").fetchall()
        assert round(frame["units"].sum()) == n

    def test_a_bound_makes_no_difference(self, session):
        first = session.rows_per_unit("orders", budget=SMALL)
        for of in (bounded(session), bounded(session, orders=1)):
            assert_frame_equal(of.rows_per_unit("orders", budget=0), first)
            of.rows_without_unit("orders", budget=SMALL)
        for of in (bounded(session), session):
            of.rows_per_unit("orders", budget=SMALL)

    def test_asked_again_it_is_free(self, session):
        with pytest.raises(dpsql.DpsqlError):
            session.rows_per_unit("orders", budget=0)
        first = session.rows_per_unit("orders", budget=SMALL)
        assert_frame_equal(session.rows_per_unit("orders", budget=0), first)
        assert session.history["rho"].to_list() == [1.0]

    def test_then_rows_can_be_counted(self, session):
        session.rows_per_unit("orders", budget=SMALL)
        bounded(session).query(PAID, budget=SMALL)
        assert session.ledger.protected.rows == 0
        other = session.redeclared(unit="orders.id", max_rows={"items": 3})
        with pytest.raises(LedgerError, match="Another unit"):
            other.rows_per_unit("orders", budget=SMALL)

    def test_noise_is_that_for_one_unit(self):
        con = duckdb.connect()
        con.execute("CREATE TABLE t AS SELECT i % 300 AS who FROM range(3000) AS t(i)")
        session = dpsql.Session(con, unit="who", max_rows=40)
        frame = session.rows_per_unit("t", budget=dpsql.Budget(mu=0.1))
        # All in all units there are 300, and the noise of one bucket is at most that of a total.
        assert frame["units_cut_variance"][:-1].max() <= 10 * (1 / 0.1**2)

    @pytest.mark.parametrize("up_to", [0, -1, 1.5, True, "9", 10_001, None])
    def test_the_largest_bound_is_a_number(self, session, up_to):
        with pytest.raises(ArgumentError, match="up_to is a whole number from 1 to 10,000"):
            session.rows_per_unit("orders", budget=SMALL, up_to=up_to)
        assert session.history.is_empty()

    def test_what_has_no_units(self, con, session):
        with pytest.raises(SchemaError, match="did you mean orders"):
            session.rows_per_unit("order", budget=SMALL)
        with pytest.raises(SchemaError, match="Each row of orders is protected by itself"):
            dpsql.Session(con).rows_per_unit("orders", budget=SMALL)
        with pytest.raises(SchemaError, match="public"):
            session.redeclared(public=["orders"], unit="customers").rows_per_unit(
                "orders", budget=SMALL
            )
        with pytest.raises(ArgumentError, match=r"\('orders',\) is no table's name"):
            session.rows_per_unit(("orders",), budget=SMALL)
        with pytest.raises(dpsql.BudgetError):
            session.rows_per_unit("orders")

    def test_a_table_that_is_called_like_it(self, con, session):
        con.execute('CREATE TABLE "units of orders" (id INTEGER)')
        assert round(session.rows_per_unit("orders", budget=HUGE)["units"].sum()) > 40
        with pytest.raises(SchemaError):
            session.query('SELECT COUNT(*) FROM "units of orders"', budget=SMALL)


class TestRowsWithoutUnit:
    def test_they_are_counted(self, con, session):
        for table, joined, key in (
            ("customers", "customers", "id"),
            ("orders", "orders", "customer_id"),
            ("items", "items LEFT JOIN orders o ON order_id = o.id", "customer_id"),
        ):
            sql = f"SELECT COUNT(*) FROM {joined} WHERE {key} IS NULL"
            ((true,),) = con.execute(sql).fetchall()
            frame = session.rows_without_unit(table, budget=HUGE)
            assert frame.columns == ["rows", "rows_variance"]
            assert round(frame["rows"][0]) == true
        assert true > 100

    def test_together_with_others_they_are_all(self, con, session):
        kept = bounded(session, orders=400).query("SELECT COUNT(*) AS n FROM orders", budget=HUGE)
        none = session.rows_without_unit("orders", budget=HUGE)
        assert round(kept["n"][0] + none["rows"][0]) == 400

    def test_each_is_protected_by_itself(self, session):
        frame = session.rows_without_unit("orders", budget=dpsql.Budget(mu=1))
        assert frame["rows_variance"][0] == pytest.approx(1, rel=0.1)
        assert session.ledger.protected.rows == 1
        assert session.ledger.protected.units == 1, "the table whose rows they are"
        again = session.rows_without_unit("orders", budget=0)
        assert_frame_equal(again, frame)

    def test_after_units_were_charged_for(self, session):
        bounded(session).query(PAID, budget=SMALL)
        session.rows_without_unit("orders", budget=SMALL)
        bounded(session).query(PAID, budget=SMALL, reuse=False)

    def test_rows_that_may_stay_behind_are_refused(self):
        con = duckdb.connect()
        con.execute("CREATE TABLE orders (id INTEGER, customer INTEGER)")
        con.execute("CREATE TABLE items (order_id INTEGER)")
        unit = dpsql.Unit("orders.customer", references={"items.order_id": "orders.id"})
        session = dpsql.Session(con, schema=dpsql.Schema({}, units={"items": unit}))
        with pytest.raises(SchemaError, match="rows could stay"):
            session.rows_without_unit("items", budget=SMALL)
        assert session.history.is_empty()
        assert session.rows_per_unit("items", budget=SMALL).height


CODES = [7 * i * i for i in range(90)]
"""So many that they are looked up."""


def trips():
    """Trips of 40 persons and of nobody: of texts, NULLs, a long list, values without a cell."""
    con = duckdb.connect()
    con.execute(f"""
        CREATE TABLE trips (
            person INTEGER, month INTEGER NOT NULL CHECK (month BETWEEN 1 AND 12),
            city VARCHAR CHECK (city IN ('a', 'it''s \\x', 'é')),
            code INTEGER CHECK (code IN ({", ".join(map(str, CODES))})), day DATE, u_k0 INTEGER);
        INSERT INTO trips SELECT nullif(hash(i) % 41, 40), 1 + hash(i, 1) % 12,
            ['a', 'it''s \\x', 'é', NULL][(1 + hash(i, 2) % 4)::INTEGER], 7 * (hash(i, 3) % 7) ** 2,
            DATE '2024-01-01' + (hash(i, 4) % 300)::INTEGER, 1 FROM range(180) AS t(i)
    """)
    return con


DAYS = dpsql.Schema({"trips": {"day": dpsql.Domain.dates("2024-01-01", "2024-06-01", "month")}})


class TestReportCut:
    def test_it_is_one_more_answer(self, con, session):
        release = bounded(session).release(PAID, budget=HUGE, report_cut=True)
        assert list(release) == ["query", "units_cut"]
        true = orders_of_units(con)
        (row,) = release["units_cut"].rows(named=True)
        assert round(row["units_cut"]) == (true > 4).sum()
        assert round(row["units"]) == len(true)
        assert round(release["query"]["n"].sum()) == np.minimum(true, 4).sum()

    def test_of_several_tables_each_is_told(self, con, session):
        asked = {"a": PAID, "units_cut of orders": ITEMS}
        release = bounded(session).release(asked, budget=HUGE, report_cut=True)
        assert list(release) == [*asked, "units_cut of orders_", "units_cut of items"]
        cut = release["units_cut of orders_"]["units_cut"][0]
        assert round(cut) == (orders_of_units(con) > 4).sum()
        assert session.history.height == 1

    def test_of_rows_that_meet_too(self, con):
        rows = {"orders": 4, "orders, orders": 9}
        unit = dpsql.Unit("customer_id", rows)
        session = dpsql.Session(con, schema=dpsql.Schema({}, units={"orders": unit}))
        sql = "SELECT COUNT(*) AS n FROM orders a JOIN orders b ON a.customer_id = b.customer_id"
        release = session.release(sql, budget=HUGE, report_cut=True)
        true = orders_of_units(con) ** 2
        assert round(release["query"]["n"][0]) == np.minimum(true, 9).sum()
        assert round(release["units_cut"]["units_cut"][0]) == (true > 9).sum()

    @pytest.mark.parametrize(
        "limits", [["month"], ["city"], ["code"], ["city, month"], ["code", "month"], ["day"]]
    )
    def test_those_are_cut_too_whom_limits_cut(self, limits):
        con = trips()
        per = dict.fromkeys(limits, 2)
        session = dpsql.Session(con, schema=DAYS, unit=dpsql.Unit("person", 9, max_rows_per=per))
        release = session.release("SELECT COUNT(*) AS n FROM trips", budget=HUGE, report_cut=True)
        cells = {"day": "CASE WHEN day < '2024-07-01' THEN date_trunc('month', day) END"}
        groups = [[cells.get(c, c) for c in limit.split(", ")] for limit in limits]
        crowded = [
            f"SELECT person FROM trips GROUP BY person, {', '.join(each)} HAVING COUNT(*) > 2"
            for each in groups
        ]
        crowded.append("SELECT person FROM trips GROUP BY person HAVING COUNT(*) > 9")
        (true,) = con.sql(f"SELECT COUNT(person) FROM ({' UNION '.join(crowded)})").fetchall()[0]
        (row,) = release["units_cut"].rows(named=True)
        assert 3 < true < 40
        assert (round(row["units_cut"]), round(row["units"])) == (true, 40)

    def test_with_limits_it_is_measured_by_itself(self):
        """What was measured with others answers nothing of it: it is another table."""
        source = DuckDBSource(trips())
        paths = set()
        for per, k in (({}, 9), ({"month": 2}, 9), ({"month": 3}, 9), ({"month": 2}, 8)):
            table = source.describe(("trips",), None, dpsql.Unit("person", 9, max_rows_per=per))
            made = source.unit_counts(table, "trips.person", k, k + 1, table.unit.limits)
            paths.add(made.path)
        assert len(paths) == 4

    def test_a_unit_moves_it_by_one(self, monkeypatch):
        """Whichever it is, it has one row in what is counted, and changes no other one."""
        unit = dpsql.Unit("person", 12, max_rows_per={"city, month": 2, "code": 3})
        counts = []
        for without in (None, 1, 2, 39):
            con = trips()
            con.execute("DELETE FROM trips WHERE person = ?", [without]).fetchall()
            source = DuckDBSource(con)
            table = source.describe(("trips",), None, unit)
            made = source.unit_counts(table, "trips.person", 12, 13, table.unit.limits)
            rows = con.execute(f"SELECT * FROM {source_of(made)}").fetchall()
            counts.append(dict(rows))
            assert len(rows) == len(counts[-1]) == 40 - (without is not None)
        whole, *fewer = counts
        assert set(whole.values()) == {12, 13}
        assert all(own.items() <= whole.items() for own in fewer)

    def test_little_of_the_budget_is_for_it(self, session):
        session, budget = bounded(session), dpsql.Budget(mu=0.1)
        alone = session.plan(PAID, budget=budget)
        both = session.plan(PAID, budget=budget, report_cut=True)
        found = both.expected_error().rows(named=True)
        assert [row["statement"] for row in found] == ["query", "units_cut"]
        assert found[0]["rmse"] < 1.15 * alone.rmse
        assert found[1]["rmse"] < alone.rmse  # four rows of a unit count, and one unit

    def test_its_weight_can_be_given(self, session):
        plans = [
            bounded(session).plan(PAID, budget=SMALL, report_cut=True, weights=weights)
            for weights in (None, {"units_cut": 100})
        ]
        errors = [plan.expected_error()["rmse"].to_list() for plan in plans]
        assert errors[1][1] < errors[0][1]
        assert errors[1][0] > errors[0][0]

    def test_targets(self, session):
        release = bounded(session).release(
            PAID, targets={"query": 40}, at_most=SMALL, report_cut=True
        )
        assert release["query"]["n_variance"].max() <= 40**2
        assert "units_cut" in release

    @pytest.mark.parametrize(
        "mechanism", ["residualplanner", "residualplanner+", "fourier", "hdmm", "gaussian"]
    )
    def test_other_mechanisms(self, con, session, mechanism):
        release = bounded(session).release(PAID, budget=HUGE, report_cut=True, mechanism=mechanism)
        assert round(release["units_cut"]["units_cut"][0]) == (orders_of_units(con) > 4).sum()

    def test_pure(self, session):
        budget = dpsql.Budget(epsilon=1000, delta=0)
        release = bounded(session).release(
            PAID, budget=budget, report_cut=True, mechanism="laplace"
        )
        assert "units_cut" in release

    def test_adjusted(self, session):
        release = bounded(session).release(PAID, budget=SMALL, report_cut=True, integers=True)
        assert release["query"]["n_adjusted"].min() >= 0
        assert release["units_cut"]["units_cut_adjusted"].min() >= 0

    def test_it_is_no_group_that_may_be_left_out(self, con, session):
        release = bounded(session).release(PAID, budget=SMALL, report_cut=True, groups_above=3)
        (row,) = release["units_cut"].rows(named=True)
        assert row["units_cut_variance"] > 0
        assert row["units"] == pytest.approx(len(orders_of_units(con)), abs=100)

    def test_what_fits_a_model_to_each_table(self, con, session, tmp_path):
        session = bounded(session)
        how = {"report_cut": True, "mechanism": "aim"}
        release = session.release(PAID, budget=HUGE, out=tmp_path / "r", **how)
        assert round(release["units_cut"]["units_cut"][0]) == (orders_of_units(con) > 4).sum()
        assert round(release["units_cut"]["units"][0]) == len(orders_of_units(con))
        loaded = dpsql.Release.load(tmp_path / "r")
        assert_frame_equal(loaded["units_cut"], release["units_cut"])
        assert session.release(PAID, budget=SMALL, **how)["units_cut"]["units_cut"][0] >= 0

    def test_asked_again_it_is_free(self, session):
        session = bounded(session)
        first = session.release(PAID, budget=SMALL, report_cut=True)
        again = session.release(PAID, budget=0, report_cut=True)
        assert_frame_equal(again["units_cut"], first["units_cut"])
        assert_frame_equal(session.query(PAID, budget=0), first["query"])

    def test_saved(self, session, tmp_path):
        first = bounded(session).release(PAID, budget=SMALL, report_cut=True, out=tmp_path / "r")
        read = dpsql.Release.load(tmp_path / "r")
        assert_frame_equal(read["units_cut"], first["units_cut"])
        assert round(read.query("SELECT COUNT(*) AS n FROM orders")["n"][0]) == round(
            first["query"]["n"].sum()
        )
        assert "units of orders" in read.neighbours

    def test_where_nothing_is_left_out(self, con, session):
        with pytest.raises(SchemaError, match="No rows are left out here") as refused:
            dpsql.Session(con).release(PAID, budget=SMALL, report_cut=True)
        assert refused.value.hint == "leave report_cut= out."
        units = "SELECT COUNT(DISTINCT customer_id) AS n FROM orders"
        with pytest.raises(SchemaError, match="No rows are left out here"):
            session.release(units, budget=SMALL, report_cut=True)
        with pytest.raises(dpsql.DpsqlError, match="A workload doesn't say which rows"):
            dpsql.plan(Workload({"a": 2}).add(["a"], Identity()), budget=SMALL, report_cut=True)
        with pytest.raises(ArgumentError, match="report_cut is a int"):
            bounded(session).release(PAID, budget=SMALL, report_cut=1)

    def test_employees(self):
        """Rows of the units' own table may refer to each other, as nothing is joined."""
        con = duckdb.connect()
        con.execute("""
            CREATE TABLE people (id INTEGER PRIMARY KEY, boss INTEGER REFERENCES people (id));
            CREATE TABLE visits (who INTEGER REFERENCES people (id));
            INSERT INTO people VALUES (1, NULL);
            INSERT INTO people VALUES (2, 1);
            INSERT INTO visits VALUES (1), (1), (1), (2);
        """)
        session = dpsql.Session(con, unit="who", max_rows=2)
        release = session.release("SELECT COUNT(*) AS n FROM visits", budget=HUGE, report_cut=True)
        assert round(release["query"]["n"][0]) == 3
        assert release["units_cut"].select("units_cut", "units").row(0) == pytest.approx(
            (1, 2), abs=1e-3
        )

    def test_an_interrupted_release_is_handed_out_again(self, session):
        session = bounded(session)
        requests = [dpsql.request.Request((("q", PAID),), SMALL, report_cut=c) for c in (0, 1)]
        assert requests[0].digest != requests[1].digest


def counts_of(con, monkeypatch, ask):
    """Return what a call counts exactly, and what one record may change by its plan."""
    found, measure = {}, planning.measure

    def look(charged, counted):
        found["counts"] = {name: np.array(counted[name]) for name in sorted(counted)}
        found["records"] = charged.certified.contributions
        return measure(charged, counted)

    with monkeypatch.context() as patched:
        patched.setattr(planning, "measure", look)
        ask(dpsql.Session(con, unit="customers"))
    return found


@pytest.mark.parametrize("table", ["orders", "items"])
def test_a_unit_is_one_record_and_rows_of_nobody_are_one_each(monkeypatch, table):
    def units(session):
        session.rows_per_unit(table, budget=SMALL)

    def nobodys(session):
        session.rows_without_unit(table, budget=SMALL)

    def pairs(session):
        session.rows_per_unit(f"{table}, orders", budget=SMALL)

    whole, fewer, more = shop(), shop(), shop()
    fewer.execute("""
        DELETE FROM items WHERE order_id IN (SELECT id FROM orders WHERE customer_id = 3)
    """)
    fewer.execute("DELETE FROM orders WHERE customer_id = 3")
    fewer.execute("DELETE FROM customers WHERE id = 3")
    insert(more, table, [(1000, None, True) if table == "orders" else (None, True)])
    for ask, changed in ((units, (1, 0)), (nobodys, (0, 1)), (pairs, (1, 0))):
        before, *others = (counts_of(con, monkeypatch, ask) for con in (whole, fewer, more))
        for after, by in zip(others, changed, strict=True):
            assert before["records"] == after["records"] == 1
            assert before["counts"].keys() == after["counts"].keys()
            for name, counts in before["counts"].items():
                assert np.abs(counts - after["counts"][name]).sum() == by


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(120))
def test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged(seed):
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    asked = {
        "script": RandomQuestions(rng, database.kinds).script(),
        "schema": database.schema,
    }
    how = {"budget": dpsql.Budget(rho=1), "report_cut": True}
    try:
        whole = recorded(database.connect(), asked, **how)
    except ExecutionError:
        raise
    except DpsqlError:  # before the charge
        return
    fewer = recorded(database.connect(without=database.apart), asked, **how)
    check_alike(whole, fewer)
    assert spent(whole, fewer) <= charged(whole)


@pytest.mark.parametrize("draws", [16, pytest.param(150, marks=pytest.mark.long)])
def test_answers_are_unbiased_and_have_the_variances_that_are_stated(con, monkeypatch, draws):
    """Within five standard errors: a false alarm once in a million."""
    bits = SeededBits(5)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    session = bounded(dpsql.Session(con))
    asked = {"budget": dpsql.Budget(mu=1), "report_cut": True, "reuse": False}
    found = [session.release(PAID, **asked)["units_cut"].row(0, named=True) for _ in range(draws)]
    true = orders_of_units(con)
    for name, exact in (("units_cut", (true > 4).sum()), ("units", len(true))):
        values, variance = [row[name] for row in found], found[0][f"{name}_variance"]
        assert abs(np.mean(values) - exact) < 5 * np.sqrt(variance / draws)
        assert np.var(values, ddof=1) == pytest.approx(variance, rel=5 * np.sqrt(2 / draws))
