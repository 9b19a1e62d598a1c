"""One statement over several tables with rows of the same units: answers of each, put together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.planner.reconstruction.measured import Space
from dpsql.release import from_plan
from dpsql.session import planning
from tests.helpers.interrupted import interrupted
from tests.release.test_private_joins import check_without_one, owned
from tests.session import test_several_tables
from tests.session.test_several_tables import BUDGET, HUGE, units

SCRIPT = {
    "per": "SELECT (SELECT COUNT(*) FROM orders) / (SELECT COUNT(*) FROM customers) AS per",
    "joined": """
        WITH o AS (SELECT c.region, COUNT(*) AS n, SUM(price) AS p
                FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY 1),
            c AS (SELECT region, COUNT(*) AS m, AVG(balance) AS b FROM customers GROUP BY 1)
        SELECT region, n, m, n - 2 * m AS d, n / m AS per, p / m AS spent, b
        FROM o JOIN c USING (region) ORDER BY region""",
    "having": """
        SELECT status, COUNT(*) AS n FROM orders GROUP BY status
        HAVING COUNT(*) > (SELECT COUNT(*) / 10 FROM customers) ORDER BY status""",
    "shares": """
        SELECT status, COUNT(*) / (SELECT COUNT(*) FROM customers) AS share
        FROM orders GROUP BY status ORDER BY status""",
    "beside": "SELECT COUNT(*) AS n, (SELECT COUNT(*) FROM customers WHERE vip) AS v FROM orders",
    "where": """
        SELECT region, n FROM (SELECT region, COUNT(*) AS n FROM customers GROUP BY 1)
        WHERE n * 8.9 < (SELECT COUNT(*) FROM orders) ORDER BY 1""",
    "union": """
        SELECT 'orders' AS kind, COUNT(*) AS n FROM orders UNION ALL
        SELECT 'customers', COUNT(*) FROM customers UNION ALL
        SELECT 'items', SUM(qty) FROM items ORDER BY kind""",
    "summed": """
        SELECT region, SUM(n) AS n FROM (
            SELECT region, COUNT(*) AS n FROM customers GROUP BY 1 UNION ALL
            SELECT region, COUNT(*) FROM orders WHERE region = 'n' GROUP BY 1)
        WHERE region IS NOT NULL GROUP BY 1 ORDER BY 1""",
    "crossed": """
        WITH o AS (SELECT status, COUNT(*) AS n FROM orders GROUP BY 1),
            c AS (SELECT region, COUNT(*) AS m FROM customers GROUP BY 1)
        SELECT status, region, n - m AS d FROM o, c ORDER BY ALL""",
    "within": """
        SELECT (SELECT COUNT(*) FROM customers c WHERE EXISTS
            (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.price > 7)) AS buy,
            (SELECT COUNT(*) FROM orders WHERE price > 7) AS bought""",
}
LINEAR = {"of": """
    WITH o AS (SELECT c.region, COUNT(*) AS n, SUM(price) AS p
            FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY 1),
        c AS (SELECT region, COUNT(*) AS m FROM customers GROUP BY 1)
    SELECT region, n - 2 * m AS d, p - 30 * m + n AS e, SUM(n - m) OVER () AS s,
        n + (SELECT COUNT(*) FROM customers) AS t
    FROM o JOIN c USING (region) ORDER BY region""", "total": "SELECT COUNT(*) AS n FROM customers",
    "union": SCRIPT["union"], "summed": SCRIPT["summed"],
    "all": "SELECT COUNT(*) - (SELECT COUNT(*) FROM customers) AS n FROM orders"}  # fmt: skip


con, session = test_several_tables.con, test_several_tables.session


def plain(frame):
    return frame.select(c for c in frame.columns if not c.endswith("_variance"))


def test_answers_are_those_of_the_database(con, session):
    release, exact = session.release(SCRIPT, budget=HUGE), owned(con)
    for name, sql in SCRIPT.items():
        found, true = plain(release[name]), exact.sql(sql).pl()
        assert found.columns == true.columns
        assert found.height == true.height > 0, name
        for column in true.columns:
            if true[column].dtype.is_numeric() or true[column].dtype.is_decimal():
                ours, theirs = found[column].to_numpy(), true[column].cast(float).to_numpy()
                np.testing.assert_allclose(ours, theirs, atol=1e-2, err_msg=name)
            else:
                assert found[column].to_list() == true[column].to_list()


def moved(session, script, budget):
    """Release, and say how far each answer moves if one noisy integer moves by its deviation."""
    found = []

    def look(self, receipt):
        plan, script = self.task.plan, self.task.asked.script
        facts = replace(self.task.facts, receipt=receipt)
        given = self.measured.values

        def frames(values):
            measured = NoisyMeasurements(plan.certified, values)
            release = from_plan(script, plan, facts, measured, self.own)
            return {name: plain(release[name]) for name in names}

        names = [statement.name for statement in script.statements]
        steps = {
            frozenset(space): Space.of_block(space, block).noise ** 0.5
            for block in plan.certified.blocks
            for space in block.spaces
        }
        steps |= {d.space: d.law.variance**0.5 for d in plan.certified.differences}
        base = frames(given)
        for key, step in steps.items():
            for place in np.ndindex(given[key].shape):
                values = {k: v.astype(np.float64) for k, v in given.items()}
                values[key][place] += step
                found.append((base, frames(values)))
        return release(self, receipt)

    release = planning.MeasuredPlan.release
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.MeasuredPlan, "release", look)
        made = session.release(script, budget=budget)
    return made, found


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("script", "budget"), [(LINEAR, BUDGET), (SCRIPT, HUGE)])
def test_variances_are_those_of_the_noise(session, script, budget):
    """Of linear values exactly; of quotients to first order, where noise is small.

    A value moves by d_i with the i-th noisy integer, whose noise has the standard deviation 1 then:
    the variance is Σ d_i².
    """
    release, found = moved(session, script, budget)
    for name in script:
        for column in plain(release[name]).columns:
            if f"{column}_variance" not in release[name].columns:
                continue
            moves = [
                other[name][column].to_numpy() - base[name][column].to_numpy()
                for base, other in found
            ]
            claimed = release[name][f"{column}_variance"].to_numpy()
            np.testing.assert_allclose(claimed, sum(d**2 for d in moves), rtol=1e-3, err_msg=name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_neighbors_differ_by_what_is_charged(seed):
    names = list(SCRIPT)
    asked = [names[seed % len(names)], names[(3 * seed + 1) % len(names)]]
    check_without_one(seed, {name: SCRIPT[name] for name in asked})


def test_it_is_released_as_statements_over_one_table_are(session, tmp_path):
    release = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "r", confidence=0.9)
    (entry,) = session.ledger.entries()
    assert len(entry.purpose.tables) == 3
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    again = session.release(SCRIPT, budget=0, confidence=0.9)
    assert session.ledger.spent == BUDGET.mu_squared
    for name in SCRIPT:
        assert_frame_equal(loaded[name], release[name])
        assert_frame_equal(again[name], release[name], rel_tol=1e-6)
    for sql in (SCRIPT["joined"], SCRIPT["union"], "SELECT COUNT(*) AS n FROM orders"):
        asked = loaded.query(sql, confidence=0.9)
        assert_frame_equal(asked, session.query(sql, budget=0, confidence=0.9), rel_tol=1e-6)
    with pytest.raises(dpsql.UndeterminedError):
        loaded.query("SELECT COUNT(*) FROM items WHERE qty > 3 UNION ALL SELECT 1")
    with pytest.raises(dpsql.SchemaError, match="no table addresses"):
        loaded.query("SELECT COUNT(*) FROM items UNION ALL SELECT COUNT(*) FROM addresses")


def test_what_was_measured_of_tables_alone_answers_it(session):
    session.release({"m": "SELECT region, COUNT(*) AS n FROM customers GROUP BY 1"}, budget=BUDGET)
    alone = session.release({"n": "SELECT COUNT(*) AS n FROM orders"}, budget=BUDGET)
    sql = "SELECT (SELECT COUNT(*) FROM orders) - (SELECT COUNT(*) FROM customers) AS d"
    free = session.query(sql, budget=0)
    assert free["d_variance"][0] > alone["n"]["n_variance"][0]
    plan = session.plan({"d": sql}, budget=BUDGET)
    assert plan.rmse < session.plan({"d": sql}, budget=BUDGET, reuse=False).rmse


def test_what_was_measured_and_not_handed_out_is_had_again(session):
    with interrupted() as made:
        session.release(SCRIPT, budget=BUDGET)
    again = session.release(SCRIPT, budget=BUDGET)
    assert session.ledger.spent == BUDGET.mu_squared
    for name in SCRIPT:
        assert_frame_equal(again[name], made[0][name], rel_tol=1e-9)


def test_targets_and_weights_are_for_all_that_it_counts(session):
    plan = session.plan({"union": SCRIPT["beside"]}, targets={"union": 4})
    assert plan.expected_error()["worst_standard_error"].max() <= 4 * (1 + 1e-9)
    script = {name: SCRIPT[name] for name in ("beside", "having")}
    usual, heavy = (session.plan(script, budget=BUDGET, weights=w) for w in (None, {"beside": 99}))
    rmse = [dict(p.expected_error().select("statement", "rmse").rows()) for p in (usual, heavy)]
    assert rmse[1]["beside"] < rmse[0]["beside"]
    expected = session.plan({"p": SCRIPT["per"]}, budget=BUDGET, assume={"rows": 1000})
    assert expected.expected_answers["standard_error"].null_count() == 0
    compared = session.compare({"u": SCRIPT["union"]}, budget=BUDGET).frame
    assert compared["rmse"].drop_nulls().len() >= 4


@pytest.mark.parametrize("mechanism", ["residualplanner", "hdmm", "gaussian", "laplace"])
def test_other_mechanisms_answer_it_too(session, mechanism):
    budget = dpsql.Budget(epsilon=1, delta=0) if mechanism == "laplace" else BUDGET
    release = session.release(
        {"b": SCRIPT["beside"].replace("WHERE vip", ""), "s": SCRIPT["shares"]},
        budget=budget,
        mechanism=mechanism,
    )
    assert release["b"]["n_variance"].min() > 0
    free = release.query(SCRIPT["shares"])
    assert_frame_equal(free, release["s"], rel_tol=1e-6)


def test_adjusted_columns_fit_each_table(session):
    script = {name: SCRIPT[name] for name in ("beside", "crossed")}
    release = session.release(script, budget=BUDGET, nonnegative=True, integers=True)
    assert (release["beside"]["n_adjusted"] % 1 == 0).all()
    assert (release["crossed"]["d_adjusted"] % 1 == 0).all()


# ── what is refused ────────────────────────────────────────────────────────────────────────


def refusal(session, sql):
    with pytest.raises(dpsql.SqlError) as caught:
        session.release({"a": "SELECT COUNT(*) AS n FROM customers", "b": sql}, budget=BUDGET)
    assert session.ledger.spent == 0
    assert caught.value.hint
    return caught.value


def test_errors_are_placed_in_the_statement(con, session):
    con.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY, x BOOLEAN)")
    schema = dpsql.Schema({}, units={**units().units, "shops": dpsql.Unit("id", 1)})
    other = session.redeclared(schema=schema)
    error = refusal(other, "SELECT COUNT(*) FROM orders UNION ALL SELECT COUNT(*) FROM shops")
    assert "orders.customer_id" in str(error) or "shops.id" in str(error)
    assert error.sql[error.span.start : error.span.end] == "shops"
    assert error.statement == "b"
    error = refusal(
        session, "SELECT COUNT(*) AS n, (SELECT COUNT(*) AS m FROM customers) AS N FROM orders"
    )
    assert "Two columns" in str(error)
    assert error.statement == "b"
    error = refusal(
        session, "SELECT (SELECT COUNT(*) FROM customers) + MEDIAN(nothing) FROM orders"
    )
    assert error.sql[error.span.start : error.span.end] == "nothing"


def test_rows_are_not_compared_with_answers_that_have_several_rows(session):
    sql = "SELECT COUNT(*) FROM orders WHERE price > ALL (SELECT balance FROM customers)"
    assert refusal(session, sql)
