"""Releases of several tables rest on what was measured of each of them, alone or with others."""

from __future__ import annotations

import numpy as np
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.planner.reconstruction import sources
from dpsql.release.measurements import encode
from dpsql.workload.workload import UnitTable
from tests.helpers.interrupted import interrupted
from tests.session import test_several_tables
from tests.session.test_several_tables import BUDGET, COUNTS, HUGE, SCRIPT, units

ORDERS = {name: SCRIPT[name] for name in ("status", "spent")}


con, session = test_several_tables.con, test_several_tables.session


def errors(plan):
    return dict(plan.expected_error().select("statement", "rmse").iter_rows())


def test_the_same_again_has_half_of_the_variance(session, tmp_path):
    first = session.release(COUNTS, budget=BUDGET)
    second = session.release(COUNTS, budget=BUDGET, out=tmp_path / "r")
    for name, before in errors(first.plan).items():
        assert errors(second.plan)[name] == pytest.approx(before / np.sqrt(2), rel=1e-3)
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    assert {place.seq for place in loaded.facts.earlier} == {first.receipt.seq}
    assert len(loaded.sources) == 4
    for name in COUNTS:
        assert_frame_equal(loaded[name], second[name])
    again = session.plan(COUNTS, budget=BUDGET, reuse=False)
    assert errors(again) == pytest.approx(errors(first.plan), rel=1e-9)


@pytest.mark.parametrize("script", [COUNTS, SCRIPT])
def test_what_was_measured_is_had_again_for_free(session, tmp_path, script):
    first = session.release(script, budget=BUDGET)
    free = session.release(script, budget=0, out=tmp_path / "r")
    assert free.receipt is None
    assert session.ledger.spent == BUDGET.mu_squared
    for name in script:
        assert_frame_equal(free[name], first[name], rel_tol=1e-6)
    dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    with pytest.raises(dpsql.UndeterminedError):
        session.release({**script, "x": "SELECT vip, COUNT(*) AS n FROM customers GROUP BY vip"},
            budget=0)  # fmt: skip


def test_measurements_of_tables_alone_are_used_together(session, tmp_path):
    session.release({"regions": SCRIPT["regions"]}, budget=BUDGET)
    session.release(ORDERS, budget=BUDGET)
    free = session.release({"regions": SCRIPT["regions"]} | ORDERS, budget=0, out=tmp_path / "f")
    assert free["regions"].height == 3
    more = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "m")
    fresh = session.plan(SCRIPT, budget=BUDGET, reuse=False)
    assert more.plan.rmse < fresh.rmse
    for name, count in (("f", 2), ("m", 2)):
        loaded = dpsql.Release.load(tmp_path / name, ledger=session.ledger)
        assert len(loaded.facts.earlier) == count


def test_a_forged_measurement_of_a_table_alone_is_noticed(session, tmp_path):
    from tests.release.test_forged_releases import forge_measurements

    session.release({"regions": SCRIPT["regions"]}, budget=BUDGET)
    session.release(COUNTS, budget=BUDGET, out=tmp_path / "r")
    for which in range(3):
        session.release(COUNTS, budget=BUDGET, out=tmp_path / f"r{which}", reuse=which >= 0)
        forge_measurements(tmp_path / f"r{which}", which)
        with pytest.raises(dpsql.LedgerError, match="was changed"):
            dpsql.Release.load(tmp_path / f"r{which}", ledger=session.ledger)


def test_a_table_of_which_nothing_was_measured_is_planned_afresh(session):
    session.release(ORDERS, budget=BUDGET)
    plan = session.plan(SCRIPT, budget=BUDGET)
    fresh = session.plan(SCRIPT, budget=BUDGET, reuse=False)
    # But for its total, which is compared with another that is known better.
    assert 0.97 * errors(fresh)["regions"] < errors(plan)["regions"] <= errors(fresh)["regions"]
    assert errors(plan)["status"] < 0.9 * errors(fresh)["status"]


def test_lines_that_are_cut_elsewhere_are_put_together(session):
    """Conditions on columns without domains, cut at other places in each release."""

    def asked(at):
        return {
            "regions": SCRIPT["regions"],
            "o": f"SELECT COUNT(*) FILTER (WHERE id > {at}) AS m, COUNT(*) AS n FROM orders",
            "c": f"SELECT COUNT(*) FILTER (WHERE id > {at}) AS m FROM customers",
        }

    first = session.release(asked(7), budget=HUGE)
    second = session.release(asked(12), budget=HUGE)
    free = session.release(asked(7), budget=0)
    for name, column in (("o", "m"), ("o", "n"), ("c", "m")):
        assert free[name][column][0] == pytest.approx(first[name][column][0], abs=0.01)
    assert second["c"]["m"][0] == pytest.approx(17, abs=0.01)


def test_other_cells_of_one_table_are_told_apart(session):
    """Each release merges the cells that its statements don't tell apart."""
    bands = "SELECT price // 100 AS band, COUNT(*) AS n FROM orders GROUP BY ALL"
    fine = "SELECT price // 50 AS band, COUNT(*) AS n FROM orders GROUP BY ALL"
    session.release({"a": SCRIPT["regions"], "b": bands}, budget=HUGE)
    more = session.release({"a": SCRIPT["regions"], "b": fine}, budget=HUGE)
    free = session.release({"a": SCRIPT["regions"], "b": bands}, budget=0)
    coarse = more["b"].group_by(more["b"]["band"] // 2, maintain_order=True).sum()
    np.testing.assert_allclose(free["b"]["n"], coarse["n"], atol=0.1)


def test_marginals_answer_by_themselves(session):
    session.release(COUNTS, budget=HUGE, mechanism="hdmm")
    free = session.release(COUNTS, budget=0)
    assert free["total"]["n"][0] == pytest.approx(30, abs=0.01)
    session.release(COUNTS, budget=BUDGET)
    assert session.release(COUNTS, budget=0)["regions"].height == 3


def test_targets_rest_on_it_too(session):
    targets = {"regions": 2, "status": 40}
    fresh = session.plan(COUNTS, targets=targets)
    session.release(COUNTS, budget=BUDGET)
    plan = session.plan(COUNTS, targets=targets)
    assert plan.privacy_cost < fresh.privacy_cost


def test_targets_that_are_met_already_cost_nothing(session):
    session.release(COUNTS, budget=BUDGET)
    found = session.release(COUNTS, targets={"regions": 50, "status": 900}, at_most=BUDGET)
    assert found.receipt is None
    assert session.ledger.spent == BUDGET.mu_squared


def test_other_rows_are_not_put_together(con, session):
    session.release(COUNTS, budget=BUDGET)
    fresh = session.plan(COUNTS, budget=BUDGET, reuse=False)
    later = session.redeclared(schema=units(), vintage="later")
    assert errors(later.plan(COUNTS, budget=BUDGET)) == pytest.approx(errors(fresh), rel=1e-9)
    changed = session.redeclared(schema=units(orders=7), accept_schema=True)
    plan, alone = (changed.plan(COUNTS, budget=BUDGET, reuse=r) for r in (True, False))
    assert 0.97 * errors(alone)["status"] < errors(plan)["status"] <= errors(alone)["status"]
    assert errors(plan)["regions"] < 0.9 * errors(alone)["regions"]


def test_an_interrupted_release_has_what_it_rests_on(session):
    session.release(SCRIPT, budget=BUDGET)
    with interrupted() as made:
        session.release(SCRIPT, budget=BUDGET)
    again = session.release(SCRIPT, budget=BUDGET)
    assert session.ledger.spent == 2 * BUDGET.mu_squared
    for name in SCRIPT:
        assert_frame_equal(again[name], made[0][name], rel_tol=1e-6)
    assert encode(again.sources) == encode(made[0].sources)


def test_adjusted_columns_fit_all_measurements(session):
    session.release(COUNTS, budget=HUGE)
    release = session.release(COUNTS, budget=BUDGET, nonnegative=True, integers=True)
    assert release["total"]["n_adjusted"][0] == 30


def test_measurements_are_the_same_by_themselves_and_among_several(session):
    release = session.release(SCRIPT, budget=BUDGET)
    several = [UnitTable("customers", 1), UnitTable("orders", 20)]
    together = sources.tables_together(list(zip(several, release.sources, strict=True)))
    assert encode(sources.tables_apart(together, several)) == encode(release.sources)
    assert set(together.measures) >= {"customers", "orders"}
    assert together.cost == 0
    assert len(together.measured) == sum(len(s.measured) for s in release.sources)


def test_errors_of_averages_and_quotients_are_for_the_rows_that_were_counted(con):
    con.execute("""
        CREATE TABLE visits (customer_id INTEGER REFERENCES customers (id),
            cost DECIMAL(7, 2) CHECK (cost BETWEEN 0 AND 99999));
        INSERT INTO visits SELECT i % 30, 100 FROM range(900) AS t(i);
    """)
    schema = dpsql.Schema({}, units={**units().units, "visits": dpsql.Unit("customer_id", 30)})
    session = dpsql.Session(con, schema=schema)
    script = {
        "mean": "SELECT region, AVG(balance) AS x FROM customers GROUP BY 1",
        "sum": "SELECT SUM(cost) AS x FROM visits",
        "per": "SELECT (SELECT COUNT(*) FROM visits) / (SELECT COUNT(*) FROM customers) AS x",
    }

    def expected():
        found = session.plan(script, budget=BUDGET).expected_answers
        return {row["statement"]: row for row in found.iter_rows(named=True)}

    assert not any("noisy" in row["rows_from"] for row in expected().values())
    assert session.release("SELECT COUNT(*) AS n FROM visits", budget=HUGE).receipt
    session.release({"regions": SCRIPT["regions"]}, budget=HUGE)
    counted = expected()
    assert counted["per"]["typical"] == pytest.approx(30, rel=1e-3)
    assert counted["sum"]["typical"] == pytest.approx(900 * 99_999 / 2, rel=1e-3)
    assert counted["mean"]["left_out"] == 0
    assert counted["mean"]["rows_from"].startswith("noisy counts of ledger entries")
    assert counted["mean"]["rows_from"].endswith("customers.balance spread evenly")
    assumed = session.plan(script, budget=BUDGET, assume={"mean": 10}).expected_answers
    errors = dict(assumed.select("statement", "standard_error").rows())
    assert counted["mean"]["standard_error"] == pytest.approx(errors["mean"], rel=0.1)
    session.release(script, budget=HUGE)
    assert expected()["sum"]["typical"] == pytest.approx(90_000, rel=1e-3)
    plan = session.plan({"m": script["mean"], "n": SCRIPT["status"]}, targets={"m": 9, "n": 30})
    assert plan.held_for["m"].startswith("noisy counts")
