"""`mechanism="pairs"`: a fixed plan of pairs of columns, answers of largest entropy."""

from __future__ import annotations

import itertools
import math

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.answers.adjusted import AGREE
from dpsql.errors import MechanismError, UndeterminedError
from dpsql.measurement import measure as measuring
from dpsql.planner.mechanisms import pairs
from dpsql.planner.registry import reason_unsupported
from dpsql.workload import Identity, Measure, Prefix, Workload
from tests.helpers.inserted import insert
from tests.helpers.seeded import SeededBits

BUDGET, HUGE = dpsql.Budget(rho=0.05), dpsql.Budget(rho=10**8)
SIZES = {"a": 6, "b": 5, "c": 4, "d": 7}
ABC = "SELECT a, b, c, COUNT(*) AS n FROM t GROUP BY a, b, c"
D = "SELECT d, COUNT(*) AS n FROM t GROUP BY d"
SCRIPT = {
    "abc": ABC,
    "bcd": "SELECT b, c, d, COUNT(*) AS n FROM t GROUP BY b, c, d",
    "d": D,
    "running": "SELECT d, SUM(COUNT(*)) OVER (ORDER BY d) AS up_to FROM t GROUP BY d",
    "share": "SELECT b, AVG(d) AS mean, MEDIAN(d) AS middle FROM t GROUP BY b",
    "large": "SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > 100 ORDER BY n DESC",
    "total": "SELECT COUNT(*) AS n FROM t",
}


def rows(count: int = 2000) -> np.ndarray:
    rng = np.random.default_rng(4)
    first = rng.gamma(1.0, 1.5, count)
    return np.stack([np.minimum(first * rng.uniform(0.4, 2, count), n - 1) for n in SIZES.values()],
                    axis=1).astype(int)  # fmt: skip


@pytest.fixture
def session(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(3))
    con = duckdb.connect()
    columns = (f"{a} INT NOT NULL CHECK ({a} BETWEEN 0 AND {n - 1})" for a, n in SIZES.items())
    con.execute(f"CREATE TABLE t ({', '.join(columns)})").fetchall()
    insert(con, "t", rows().tolist())
    yield dpsql.Session(con)
    con.close()


def table(frame: pl.DataFrame, *names: str, value: str = "n") -> np.ndarray:
    """Return the answers by the codes of some columns."""
    found = np.zeros([SIZES[a] for a in names])
    np.add.at(found, tuple(frame[a].to_numpy() for a in names), frame[value].to_numpy())
    return found


def truth(*names: str) -> np.ndarray:
    codes = rows()[:, [list(SIZES).index(a) for a in names]]
    found = np.zeros([SIZES[a] for a in names])
    np.add.at(found, tuple(codes.T), 1)
    return found


def test_what_is_measured_are_the_pairs_of_each_marginal(session):
    plan = session.plan(SCRIPT, budget=BUDGET, mechanism="pairs")
    measured = {frozenset(f.attributes) for f in plan.workload.families}
    asked = ["ab", "ac", "bc", "bd", "cd", "a", "b", "c", "d", ""]
    assert measured == {frozenset(names) for names in asked}
    assert plan.mechanism == "pairs"
    assert plan.explain().startswith("Pairs of columns plan:")
    assert plan.gap < 1e-6
    assert 0.999 * BUDGET.mu_squared <= plan.privacy_cost <= BUDGET.mu_squared
    errors = plan.expected_error()
    assert set(errors["statement"]) >= {"a x b", "c x d", "d", "total"}
    release = session.release(SCRIPT, budget=BUDGET, mechanism="pairs")
    assert release.plan.certified.digest == plan.certified.digest
    assert session.ledger.spent == BUDGET.mu_squared


def test_answers_are_of_largest_entropy_with_the_pairs(session):
    release = session.release({"abc": ABC}, budget=HUGE, mechanism="pairs")
    oracle = np.ones([6, 5, 4])
    exact = [truth(*names) for names in (("b", "c"), ("a", "c"), ("a", "b"))]
    for _ in range(5000):  # proportional fitting to the exact pairs
        for i, pair in enumerate(exact):
            now = oracle.sum(axis=i, keepdims=True)
            wanted = pair.reshape(now.shape)
            oracle *= np.divide(wanted, now, out=np.zeros_like(now), where=now > 0)
    found = table(release["abc"], "a", "b", "c")
    assert np.abs(found - oracle).sum() < 0.01 * oracle.sum()
    assert np.abs(found - truth("a", "b", "c")).sum() > 0.03 * oracle.sum()
    for i, pair in enumerate(exact):
        assert np.abs(found.sum(axis=i) - pair).sum() < 0.003 * oracle.sum()


def test_answers_are_not_negative_and_agree_in_single_columns(session):
    release = session.release(SCRIPT, budget=BUDGET, mechanism="pairs")
    for name in ("abc", "bcd", "d", "total"):
        assert release[name]["n"].min() >= 0
        assert release[name]["n"].sum() == pytest.approx(release["total"]["n"][0])
    d = table(release["d"], "d")
    assert table(release["bcd"], "d") == pytest.approx(d)
    assert table(release["abc"], "b") == pytest.approx(table(release["bcd"], "b"))
    assert release["running"].sort("d")["up_to"].to_list() == pytest.approx(np.cumsum(d).tolist())
    large = release["large"]
    assert large["n"].to_list() == pytest.approx(table(release["abc"], "a")[large["a"]].tolist())
    assert release["share"]["mean"].is_between(0, 6).all()
    bc = table(release["abc"], "b", "c"), table(release["bcd"], "b", "c")
    assert np.abs(bc[0] - bc[1]).sum() < 0.02 * bc[0].sum()
    for name in release:
        described = release.columns(name).filter(pl.col("role") == "value")
        assert described["variance"].unique().to_list() == ["none"]
        assert all(AGREE in reason for reason in described["reason"])
    assert "Pairs of columns over" in release.summary()
    assert "biased" in release.summary()
    assert release.facts.rmse is None


def test_it_is_better_than_noise_on_large_marginals(session):
    script = {"abcd": "SELECT a, b, c, d, COUNT(*) AS n FROM t GROUP BY ALL"}
    budget = dpsql.Budget(rho=0.002)
    ours = session.release(script, budget=budget, mechanism="pairs")
    unbiased = session.release(script, budget=budget, reuse=False)
    true = truth(*SIZES)
    off = [np.abs(table(r["abcd"], *SIZES) - true).sum() for r in (ours, unbiased)]
    assert off[0] < off[1] / 6


def test_measurements_answer_further_questions_without_bias(session, tmp_path):
    release = session.release({"abc": ABC}, budget=BUDGET, mechanism="pairs", out=tmp_path / "r")
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    assert loaded["abc"].equals(release["abc"])
    assert loaded.summary() == release.summary()
    assert loaded.columns("abc").equals(release.columns("abc"))
    ask = "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b"
    for found in (release.query(ask), loaded.query(ask), session.query(ask, budget=0)):
        errors = (table(found, "a", "b") - truth("a", "b")).ravel()
        spread = math.sqrt(found["n_variance"].mean())
        assert 0.6 * spread < np.sqrt(np.mean(errors**2)) < 1.4 * spread
    with pytest.raises(UndeterminedError):
        loaded.query(ABC)
    # Later plans build on them; this one does not, and plans as if nothing were known.
    alone = session.plan(ask, budget=BUDGET, reuse=False).rmse
    assert session.plan(ask, budget=BUDGET).rmse < alone
    again = session.plan({"abc": ABC}, budget=BUDGET, mechanism="pairs")
    assert again.certified.digest == release.plan.certified.digest


def test_adjusted_columns_follow_from_pairs_too(session):
    session.release({"abc": ABC}, budget=BUDGET, mechanism="pairs")
    ask = {"ab": "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b"}
    found = session.release(ask, budget=0, nonnegative=True)
    assert found["ab"]["n_adjusted"].min() >= 0


@pytest.mark.parametrize("weights", [None, "marginal", {"abc": 4}])
def test_weights_say_what_pairs_are_worth(session, weights):
    script = {"abc": ABC, "cd": "SELECT c, d, COUNT(*) AS n FROM t GROUP BY c, d"}
    plan = session.plan(script, budget=BUDGET, mechanism="pairs", weights=weights)
    worth = {f.attributes: f.weight * f.count for f in plan.workload.families}
    abc, cd = worth[frozenset("ab")], worth[frozenset("cd")]
    assert worth[frozenset("bc")] == pytest.approx(abc)
    expected = {None: 120 / 28, "marginal": 1}.get(weights if isinstance(weights, str) else None)
    if isinstance(weights, dict):
        expected = 4 * 120 / 28
    assert abc / cd == pytest.approx(expected if weights != "marginal" else 1)
    for name, pairs_of in {"a": [abc], "b": [abc], "c": [abc, abc, cd], "d": [cd]}.items():
        expected = pairs.OF_SINGLES * np.mean(pairs_of)
        assert worth[frozenset(name)] == pytest.approx(expected)
    assert sum(worth.values()) == pytest.approx(plan.workload.count)


def test_units_of_several_tables(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(7))
    con = duckdb.connect()
    con.execute("CREATE TABLE people (id INT PRIMARY KEY, sex BOOLEAN NOT NULL)").fetchall()
    columns = ", ".join(f"{a} INT NOT NULL CHECK ({a} BETWEEN 0 AND 5)" for a in "xyz")
    con.execute(f"CREATE TABLE visits (person INT REFERENCES people(id), {columns})").fetchall()
    insert(con, "people", [(i, i % 3 == 0) for i in range(800)])
    rng = np.random.default_rng(1)
    insert(con, "visits", [(i % 800, *np.minimum(rng.geometric(0.4, 3), 5).tolist())
                           for i in range(1600)])  # fmt: skip
    session = dpsql.Session(con, unit="people.id", max_rows={"people": 1, "visits": 2})
    script = {
        "sexes": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
        "xyz": "SELECT x, y, z, COUNT(*) AS n FROM visits GROUP BY x, y, z",
        "x": "SELECT x, COUNT(*) AS n FROM visits GROUP BY x",
    }
    release = session.release(script, budget=dpsql.Budget(rho=1), mechanism="pairs")
    xyz = release["xyz"].group_by("x").agg(pl.col("n").sum()).sort("x")["n"].to_list()
    assert xyz == pytest.approx(release["x"].sort("x")["n"].to_list())
    assert release["sexes"]["n"].sum() == pytest.approx(800, abs=30)
    assert release["xyz"]["n"].sum() == pytest.approx(1600, abs=60)
    assert release["xyz"]["n"].min() >= 0
    free = session.query("SELECT x, y, COUNT(*) AS n FROM visits GROUP BY x, y", budget=0)
    assert "n_variance" in free.columns
    con.close()


def test_comparisons_show_it(session):
    found = session.compare({"abc": ABC}, budget=BUDGET).frame.filter(
        pl.col("mechanism") == "pairs"
    )
    plan = session.plan({"abc": ABC}, budget=BUDGET, mechanism="pairs")
    assert found["rmse"].to_list() == [None]
    assert (
        f"measures 89 cells of pairs and single columns, expected RMSE {plan.rmse:.4g}"
        in found["note"][0]
    )
    assert "answers are biased" in found["note"][0]


# ── what is refused ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "more",
    [
        {"confidence": 0.9}, {"nonnegative": True}, {"integers": True}, {"objective": "largest"},
        {"groups_above": 2}, {"budget": dpsql.Budget(epsilon=1, delta=0)},
        {"targets": {"abc": 20}, "budget": None, "at_most": BUDGET}, {"budget": 0},
    ],
)  # fmt: skip
def test_wishes_that_it_cant_fulfil(session, more):
    with pytest.raises(MechanismError, match="Pairs of columns") as error:
        session.release({"abc": ABC}, **{"budget": BUDGET, "mechanism": "pairs", **more})
    assert error.value.hint
    assert not session.ledger.entries()


def test_what_no_table_of_rows_answers_is_refused(session):
    workload = Workload({"a": 4, "m": 1}).add(["a", "m"], [Identity(), Measure(5)])
    assert "neither sums" in str(reason_unsupported("pairs", workload, BUDGET))


@pytest.mark.parametrize(
    ("limit", "most", "reason"),
    [
        ("MAX_COLUMNS", 2, "3 columns and 120 cells"),
        ("MAX_CELLS", 119, "at most 12 columns and 119 cells"),
        ("MAX_PAIRS", 2, "at most 2 pairs of columns, and there are 3"),
        ("MAX_PAIR_CELLS", 73, "74 cells in all, above the limit of 73"),
    ],
)
def test_limits_are_told_before_the_charge(session, monkeypatch, limit, most, reason):
    monkeypatch.setattr(pairs, limit, most)
    with pytest.raises(MechanismError, match=reason) as error:
        session.release({"abc": ABC}, budget=BUDGET, mechanism="pairs")
    assert "querysmasher" in error.value.hint
    assert not session.ledger.entries()


def test_workloads_of_other_queries_are_planned_by_their_attributes():
    workload = Workload({"a": 6, "b": 5, "one": 1, "unused": 3})
    workload.add(["a", "b"], [Prefix(), Identity()]).add(["one"], [Identity()])
    plan = dpsql.plan(workload, budget=BUDGET, mechanism="pairs")
    measured = {f.attributes for f in plan.workload.families}
    assert measured == {frozenset("ab"), frozenset("a"), frozenset("b"), frozenset()}
    nothing = itertools.chain.from_iterable(b.spaces for b in plan.certified.blocks)
    assert not any({"one", "unused"} & set(space) for space in nothing)
