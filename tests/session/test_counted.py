"""Expected errors and targets in the units of what is selected, from noisy counts of the past."""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.errors import WorkloadError
from dpsql.measurement import measure as measuring
from tests.helpers.redrawn import Redrawn
from tests.helpers.seeded import SeededBits

ROWS = [6000, 5000, 4000, 30]
COUNTS = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
CELLS = "SELECT g, v, COUNT(*) AS n FROM t GROUP BY g, v"
LARGE = "FROM t WHERE g < 3 GROUP BY g"
MEANS = f"SELECT g, AVG(v) AS x {LARGE}"
SCRIPT = {
    "means": MEANS,
    "deviations": f"SELECT g, STDDEV(v) AS x {LARGE}",
    "medians": f"SELECT g, QUANTILE_CONT(v, 0.5) AS x {LARGE}",
    "shares": f"SELECT g, COUNT(*) FILTER (v > 15) / COUNT(*) AS x {LARGE}",
}
PILOT, BUDGET = dpsql.Budget(rho=0.004), dpsql.Budget(rho=0.2)


@pytest.fixture(scope="module")
def con():
    """Groups of known sizes, with values that are anything but even; a fifth group is empty."""
    generator = np.random.default_rng(14)
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 4),
            v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 39))
    """)
    for g, rows in enumerate(ROWS):
        v = np.clip(generator.normal(12 + 2 * g, 4, rows).round(), 0, 39).astype(int)
        con.execute("INSERT INTO t SELECT ?, unnest(?::INTEGER[])", [g, v.tolist()]).fetchall()
    return con


@pytest.fixture
def session(con, monkeypatch):
    bits = SeededBits(14)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    return dpsql.Session(con)


def by_statement(plan: dpsql.Plan, column: str) -> dict:
    return dict(plan.expected_answers.select("statement", column).rows())


@pytest.mark.statistical
def test_errors_come_out_as_the_past_lets_expect(con, session):
    """Over 30 releases; counts of the past are noisy, so that what is expected is, a little."""
    session.query(CELLS, budget=PILOT)
    plan = session.plan(SCRIPT, budget=BUDGET)
    errors, widths = by_statement(plan, "standard_error"), by_statement(plan, "interval")
    assert set(by_statement(plan, "left_out").values()) == {0}
    truth = {
        name: np.array([x for _, x in sorted(con.execute(sql).fetchall())], dtype=float)
        for name, sql in SCRIPT.items()
    }
    redrawn = Redrawn.of(con, SCRIPT, budget=BUDGET)
    found, wide = {name: [] for name in SCRIPT}, []
    for release in redrawn.draws(30):
        for name in SCRIPT:
            frame = release[name].sort("g")
            found[name].append(frame["x"].to_numpy() - truth[name])
        wide.append((release["medians"]["x_upper"] - release["medians"]["x_lower"]).mean())
    for name in ("means", "deviations", "shares"):
        realized = math.sqrt(np.mean(np.square(found[name])))
        # 90 values: their root mean square has a standard error of 7.5 %.
        assert realized == pytest.approx(errors[name], rel=0.25), name
    assert np.mean(wide) == pytest.approx(widths["medians"], abs=0.5)


def test_counts_of_groups_alone_let_expect_averages(session):
    """What isn't known of the values is taken to be spread evenly, and that is said."""
    assert "noisy" not in "".join(session.plan(SCRIPT, budget=BUDGET).expected_answers["rows_from"])
    session.query(COUNTS, budget=BUDGET)
    spent = session.ledger.spent
    plan = session.plan(SCRIPT, budget=BUDGET)
    said, errors = by_statement(plan, "rows_from"), by_statement(plan, "standard_error")
    for name in ("means", "deviations", "medians"):
        assert said[name].startswith("noisy counts of ledger entry ")
        assert said[name].endswith("; v spread evenly")
    each = session.plan(SCRIPT, budget=BUDGET, assume={"rows": 15_000 * 5 / 3})
    assert errors["means"] == pytest.approx(by_statement(each, "standard_error")["means"], rel=0.1)
    assert said["shares"].startswith("a group of ")  # how many are above 15 was not counted
    assert by_statement(plan, "typical")["means"] == pytest.approx(19.5)
    assert session.ledger.spent == spent


def test_what_is_assumed_goes_first(session):
    session.query(COUNTS, budget=BUDGET)
    plan = session.plan(SCRIPT, budget=BUDGET, assume={"means": 40})
    said = by_statement(plan, "rows_from")
    assert said["means"] == "assumed: 40 rows in each group, spread evenly over all values"
    assert said["medians"].startswith("noisy counts")
    alone = session.plan(SCRIPT, budget=BUDGET, reuse=False)
    assert not any("noisy" in said for said in alone.expected_answers["rows_from"])


def test_groups_with_too_few_rows_are_left_out_and_counted(session):
    """The last group is empty: nothing can be said of its average."""
    session.query(CELLS, budget=PILOT)
    plan = session.plan({"all": "SELECT g, AVG(v) AS x FROM t GROUP BY g"}, budget=BUDGET)
    left_out, largest = plan.expected_answers.select("left_out", "largest_standard_error").row(0)
    assert 1 <= left_out <= 2
    assert largest < 5
    with pytest.raises(WorkloadError, match=r"in \d of 5 groups too few rows were") as error:
        session.plan({"all": "SELECT g, AVG(v) AS x FROM t GROUP BY g"}, targets={"all": 0.5})
    assert error.value.hint.startswith('add assume={"all": 1000}')
    told = session.plan(
        {"all": "SELECT g, AVG(v) AS x FROM t GROUP BY g"},
        targets={"all": 0.5},
        assume={"all": 1000},
    )
    assert told.expected_answers["largest_standard_error"].item() <= 0.5


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "target", "column"),
    [
        ("means", 0.05, "largest_standard_error"),
        ("deviations", 0.05, "largest_standard_error"),
        ("medians", 1.5, "interval"),
        ("shares", 0.004, "largest_standard_error"),
    ],
)
def test_targets_are_for_the_rows_that_were_counted(session, name, target, column):
    session.query(CELLS, budget=PILOT)
    plan = session.plan({name: SCRIPT[name]}, targets={name: target})
    assert plan.held_for[name].startswith("noisy counts of ledger entry ")
    assert f"target of {name}: for noisy counts" in plan.explain()
    reached = by_statement(plan, column)[name]
    assert reached <= target
    if name != "medians":  # its intervals are as wide as that already
        less = dpsql.Budget(rho=plan.budget.rho / 25)
        other = session.plan({name: SCRIPT[name]}, budget=less)
        assert by_statement(other, column)[name] > 2 * reached
    assert plan.binding == (name,)
    release = session.release(
        {name: SCRIPT[name]}, targets={name: target}, at_most=dpsql.Budget(rho=plan.budget.rho)
    )
    frame = release[name]
    if name == "medians":
        assert release.charged is None
        assert (frame["x_upper"] - frame["x_lower"]).max() <= 2 * target
    else:
        assert f"{name}: its target holds for noisy counts of ledger entry" in release.summary()
        assert math.sqrt(frame["x_variance"].max()) <= 1.1 * target


def test_medians_and_deviations_have_targets_for_rows_that_are_assumed(session):
    for name, target in (("deviations", 0.2), ("medians", 1.0)):
        plan = session.plan({name: SCRIPT[name]}, targets={name: target}, assume={name: 5000})
        row = plan.expected_answers.row(0, named=True)
        assert target / 2 < (row["interval"] or row["largest_standard_error"]) <= target
        assert row["rows_from"].endswith("spread evenly over all values")
        assert plan.held_for == {name: row["rows_from"]}


def test_a_width_that_no_noise_reaches_is_refused(session):
    sql = "SELECT QUANTILE_DISC(v, 0.5) AS x FROM t"
    assert session.plan({"q": sql}, targets={"q": 1}, assume={"rows": 5000}).budget.mu > 0
    with pytest.raises(WorkloadError, match="no amount of noise is known with which q meets"):
        session.plan({"q": f"SELECT MEDIAN(v) AS x {LARGE}"}, targets={"q": 1e-6}, assume={"q": 10})
