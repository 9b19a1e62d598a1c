"""Totals of several tables are compared: what is released, kept, and asked again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.answers.sources import lifted
from dpsql.errors import LedgerError, ReleaseFormatError
from dpsql.measurement.distributions import Gaussian
from dpsql.release.assembly import from_plan
from dpsql.release.measurements import decode, encode
from dpsql.release.release import Release
from dpsql.session import planning
from dpsql.sql.computing.postprocess import Postprocessing
from tests.session.test_one_statement import moved

BUDGET = dpsql.Budget(rho=Fraction(1, 2))
ROWS = {"customers": 1, "orders": 10, "visits": 5}
TOTALS = {name: f"SELECT COUNT(*) AS n FROM {name}" for name in ROWS}
MORE = {
    "difference": "SELECT (SELECT COUNT(*) FROM orders) - (SELECT COUNT(*) FROM visits) AS n",
    "all": """SELECT COUNT(*) AS n FROM (SELECT id FROM customers
        UNION ALL SELECT id FROM orders UNION ALL SELECT id FROM visits)""",
    "each": "SELECT (SELECT COUNT(*) FROM orders) / (SELECT COUNT(*) FROM customers) AS n",
    "status": "SELECT status, COUNT(*) AS n FROM orders GROUP BY status",
    "without": """WITH o AS (SELECT status, COUNT(*) AS m FROM orders GROUP BY status)
        SELECT status, m - (SELECT COUNT(*) FROM visits) AS n FROM o ORDER BY status""",
}

LINEAR = ["difference", "all", "status", "without"]
HUGE = dpsql.Budget(rho=10**9)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
            status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2));
        CREATE TABLE visits (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id));
        INSERT INTO customers SELECT i FROM range(300) AS t(i);
        INSERT INTO orders SELECT i, i * 7 % 300, i % 3 FROM range(1500) AS t(i);
        INSERT INTO visits SELECT i, i * 11 % 300 FROM range(900) AS t(i);
    """)
    return con


@pytest.fixture
def session(con):
    return dpsql.Session(con, unit=dpsql.Unit("customers", max_rows=ROWS))


def variances(release):
    return {name: float(release[name]["n_variance"][0]) for name in TOTALS}


def test_totals_cost_what_the_formula_says_less(session):
    """9/5 in place of 3, in units of k²/μ²."""
    release = session.release(TOTALS, budget=BUDGET)
    for name, found in variances(release).items():
        assert found / ROWS[name] ** 2 == pytest.approx(9 / 5, rel=1e-6)
    assert release.receipt.mu_squared == BUDGET.mu_squared
    assert release.facts.privacy_cost <= BUDGET.mu_squared
    assert "totals of tables are compared" in release.plan.explain()


def test_answers_are_those_of_the_database(session):
    release = session.release(TOTALS | MORE, budget=HUGE)
    exact = {"difference": 600, "all": 2700, "orders": 1500, "visits": 900, "customers": 300}
    for name, truth in exact.items():
        assert release[name]["n"][0] == pytest.approx(truth, abs=0.1)
    assert release["each"]["n"][0] == pytest.approx(5, abs=0.01)
    assert release["status"]["n"].to_list() == pytest.approx([500] * 3, abs=0.1)
    assert release["without"]["n"].to_list() == pytest.approx([-400] * 3, abs=0.1)


@pytest.mark.parametrize(("names", "budget"), [(LINEAR, BUDGET), (["each"], HUGE)])
def test_what_is_computed_of_several_totals_varies_as_stated(session, names, budget):
    """Differences, sums over UNION ALL, groups beside totals; quotients to first order.

    A value moves by d_i if the i-th noisy integer does by its standard deviation: Σ d_i² is the
    variance.
    """
    script = TOTALS | {name: MORE[name] for name in names}
    release, found = moved(session, script, budget)
    assert len(release.plan.certified.differences) == 3
    for name in script:
        moves = [other[name]["n"].to_numpy() - base[name]["n"].to_numpy() for base, other in found]
        claimed = release[name]["n_variance"].to_numpy()
        np.testing.assert_allclose(claimed, sum(d**2 for d in moves), rtol=1e-3, err_msg=name)


def test_no_answer_varies_more_than_without(session):
    script = TOTALS | MORE
    of = session.plan(script, budget=BUDGET).reconstruction
    for family in session.plan(script, budget=BUDGET).workload.families:
        assert (of.variances(family) < of.by_table.variances(family)).all()


def test_what_was_measured_is_had_again_for_free(session, tmp_path):
    first = session.release(TOTALS | MORE, budget=BUDGET, out=tmp_path / "r")
    free = session.release(TOTALS | MORE, budget=0)
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    for name in (*TOTALS, *MORE):
        assert_frame_equal(free[name], first[name], rel_tol=1e-9)
        assert_frame_equal(loaded[name], first[name], rel_tol=1e-9)
    assert session.ledger.spent == BUDGET.mu_squared
    asked = "SELECT COUNT(*) AS n FROM customers UNION ALL SELECT COUNT(*) FROM orders"
    asked += " UNION ALL SELECT COUNT(*) FROM visits"
    again = loaded.query(asked)
    assert again["n"].to_list() == pytest.approx([first[name]["n"][0] for name in TOTALS])
    assert again["n_variance"].to_list() == pytest.approx(list(variances(first).values()))


SUMS = {
    "sums": "SELECT SUM(status) AS n, AVG(status) AS a, COUNT(*) AS c FROM orders",
    "shares": """SELECT status, COUNT(*) / (SELECT COUNT(*) FROM orders) AS n FROM orders
        GROUP BY status""",
    "units": "SELECT COUNT(DISTINCT customer_id) AS n FROM visits",
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("tables", [("customers", "orders"), tuple(ROWS)])
def test_of_one_table_alone_the_same_is_known(session, tables, tmp_path):
    """What the others say of its total is used, whether they are asked or not."""
    missing = [name for name in ROWS if name not in tables]
    own = {n: q for n, q in (TOTALS | MORE | SUMS).items() if not any(m in q for m in missing)}
    first = session.release(own, budget=BUDGET, out=tmp_path / "r")
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    for name, sql in own.items():
        free = session.release({name: sql}, budget=0, out=tmp_path / name)
        again = dpsql.Release.load(tmp_path / name, ledger=session.ledger)
        for known in (
            first.query(sql),
            loaded.query(sql),
            session.query(sql, budget=0),
            free[name],
            free.query(sql),
            again[name],
            again.query(sql),
        ):
            assert_frame_equal(known, first[name], rel_tol=1e-9)
    assert session.ledger.spent == BUDGET.mu_squared


def test_of_two_tables_of_three_the_same_is_known(session, tmp_path):
    first = session.release(TOTALS | MORE, budget=BUDGET)
    for names in (("customers", "visits"), ("visits", "status"), ("orders", "difference")):
        script = {name: (TOTALS | MORE)[name] for name in names}
        free = session.release(script, budget=0, out=tmp_path / names[0])
        loaded = dpsql.Release.load(tmp_path / names[0], ledger=session.ledger)
        for name, sql in script.items():
            for known in (free[name], loaded[name], free.query(sql), loaded.query(sql)):
                assert_frame_equal(known, first[name], rel_tol=1e-9)


def test_what_others_say_is_of_their_rows_then(con, session):
    """Of a table that has other rows now, and was released since."""
    first = session.release(TOTALS, budget=BUDGET)
    con.execute("DELETE FROM visits WHERE id >= 100")
    later = session.redeclared(unit=dpsql.Unit("customers", max_rows=ROWS), vintage="later")
    later.release(TOTALS, budget=BUDGET)
    for name, sql in TOTALS.items():
        assert_frame_equal(session.query(sql, budget=0), first[name], rel_tol=1e-9)
        assert_frame_equal(first.query(sql), first[name], rel_tol=1e-9)


def test_what_is_measured_of_others_later_says_more(session):
    """As if all were asked together."""
    first = session.release(TOTALS, budget=BUDGET)
    session.release(MORE["status"], budget=BUDGET)
    session.release({n: TOTALS[n] for n in ("orders", "visits")}, budget=BUDGET)
    free = session.release(TOTALS, budget=0)
    for name, sql in TOTALS.items():
        assert_frame_equal(session.query(sql, budget=0), free[name], rel_tol=1e-9)
        assert free[name]["n_variance"][0] < first[name]["n_variance"][0]
        assert_frame_equal(first.query(sql), first[name], rel_tol=1e-9)


def test_measurements_of_others_are_those_of_the_ledger(session, tmp_path):
    session.release(TOTALS, budget=BUDGET)
    free = session.release(TOTALS["orders"], budget=0)
    own, other, *more = free.sources
    moved = {names: y + 1 for names, y in other.values.items()}
    forged = Release(free.facts, free._frames, encode([own, replace(other, values=moved), *more]))
    forged.save(tmp_path / "forged")
    with pytest.raises(LedgerError, match="the release was changed"):
        dpsql.Release.load(tmp_path / "forged", ledger=session.ledger)


def test_a_second_release_has_half_of_the_variance(session):
    first = session.release(TOTALS, budget=BUDGET)
    second = session.release(TOTALS, budget=BUDGET)
    assert len(second.plan.certified.differences) == 3
    for name, found in variances(second).items():
        assert found == pytest.approx(variances(first)[name] / 2, rel=1e-6)
    free = session.release(TOTALS, budget=0)
    for name in TOTALS:
        assert_frame_equal(free[name], second[name], rel_tol=1e-9)


def test_tables_with_other_bounds_are_not_compared_with_what_was(con, session):
    session.release(TOTALS, budget=BUDGET)
    others = dpsql.Unit("customers", max_rows=ROWS | {"orders": 7})
    changed = session.redeclared(unit=others, accept_schema=True)
    plan = changed.plan(TOTALS, budget=BUDGET)
    used = plan.reconstruction.differences
    assert len(used) == 3 + 1  # its own, and what was known of customers and visits
    assert {one.rows for one in used if "orders" in one.tables} <= {(1, 7), (7, 5), (10, 7)}


def test_halves_that_do_not_fit_are_left_out(session):
    release = session.release(TOTALS, budget=BUDGET)
    sources = tuple(release.sources)
    assert all(len(source.differences) == 2 for source in sources)
    (first, *others) = sources
    (one, *rest) = first.differences
    moved = {**first.values, one.space: first.values[one.space] + 1}
    forged = replace(first, values=moved)
    asked = asked_of(session, TOTALS)
    for kept, count in (
        (sources, 3),
        ([forged, *others], 2),
        ([replace(first, differences=(*rest,)), *others], 2),
        (others, 1),
    ):
        found = lifted(asked, kept)
        assert sum(len(source.differences) for source in found) == count


def asked_of(session, script):
    """Compile a script."""
    found = []

    def keep(*given, content=None):
        found.append(given[0])
        return from_plan(*given)

    with patch.object(planning, "from_plan", keep):
        session.release(script, budget=BUDGET)
    return found[0]


@pytest.mark.parametrize(
    "forge",
    [
        lambda d: replace(d, tables=("x" * 64, d.tables[1])),
        lambda d: replace(d, tables=("0" * 64, "1" * 64)),
    ],
)
def test_forged_differences_are_refused(session, forge):
    release = session.release(TOTALS, budget=BUDGET)
    (source, *_) = release.sources
    (one, *rest) = source.differences
    own = forge(one)
    values = {**source.values, own.space: source.values[one.space]}
    with pytest.raises(ReleaseFormatError):
        decode(encode([replace(source, differences=(own, *rest), values=values)]))


def test_differences_are_read_as_they_were_written(session):
    release = session.release(TOTALS, budget=BUDGET)
    for own, read in zip(release.sources, decode(encode(release.sources)), strict=True):
        assert own.differences == read.differences
        for one in own.differences:
            assert isinstance(one.law, Gaussian)
            assert (own.values[one.space] == read.values[one.space]).all()


def test_an_interrupted_release_is_made_again_with_them(con, session, monkeypatch):
    def end(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(planning.MeasuredPlan, "release", end)
        with pytest.raises(KeyboardInterrupt):
            session.release(TOTALS, budget=BUDGET)
    release = session.release(TOTALS, budget=BUDGET)
    assert session.ledger.spent == BUDGET.mu_squared
    assert release.facts.privacy_cost <= BUDGET.mu_squared
    for name, found in variances(release).items():
        assert found / ROWS[name] ** 2 == pytest.approx(9 / 5, rel=1e-6)


# ── Rows under conditions: what is compared is what is measured of ──────────────────────────────

SOME = {
    "open": "SELECT COUNT(*) AS n FROM orders WHERE status > 0",
    "visited": "SELECT COUNT(*) AS n FROM visits",
    "customers": "SELECT COUNT(*) AS n FROM customers",
}


def test_rows_under_conditions_are_compared(session):
    """As exact as totals, where nothing is measured of other rows."""
    release = session.release(SOME, budget=BUDGET)
    assert release.facts.privacy_cost <= BUDGET.mu_squared
    for name, rows in (("open", 10), ("visited", 5), ("customers", 1)):
        found = float(release[name]["n_variance"][0])
        assert found / rows**2 == pytest.approx(9 / 5, rel=1e-6)
    exact = session.release(SOME, budget=HUGE)
    for name, truth in (("open", 1000), ("visited", 900), ("customers", 300)):
        assert exact[name]["n"][0] == pytest.approx(truth, abs=0.1)
    conditions = [of for one in release.plan.certified.differences for of in one.conditions]
    assert [of.counted.tolist() for of in conditions if of is not None] == [[False, True]] * 2


def test_rows_under_conditions_vary_as_stated(session):
    script = SOME | {
        "both": """SELECT (SELECT COUNT(*) FROM orders WHERE status > 0)
            - (SELECT COUNT(*) FROM visits) AS n""",
    }
    release, found = moved(session, script, BUDGET)
    assert any(any(one.conditions) for one in release.plan.certified.differences)
    for name in script:
        moves = [other[name]["n"].to_numpy() - base[name]["n"].to_numpy() for base, other in found]
        claimed = release[name]["n_variance"].to_numpy()
        np.testing.assert_allclose(claimed, sum(d**2 for d in moves), rtol=1e-3, err_msg=name)


def test_rows_under_conditions_are_had_again_for_free(session, tmp_path):
    first = session.release(SOME, budget=BUDGET, out=tmp_path / "r")
    free = session.release(SOME, budget=0)
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    for name, sql in SOME.items():
        alone = session.query(sql, budget=0)
        for known in (free[name], loaded[name], loaded.query(sql), first.query(sql), alone):
            assert_frame_equal(known, first[name], rel_tol=1e-9)
    for own, read in zip(first.sources, decode(encode(first.sources)), strict=True):
        assert own.differences == read.differences
        for one in own.differences:
            assert (own.values[one.space] == read.values[one.space]).all()
    assert session.ledger.spent == BUDGET.mu_squared


def test_what_is_asked_later_of_finer_cells_goes_together_with_conditions(session):
    first = session.release(SOME, budget=BUDGET)
    finer = SOME | {"status": "SELECT status, COUNT(*) AS n FROM orders GROUP BY status"}
    second = session.release(finer, budget=BUDGET)
    free = session.release(finer, budget=0)
    for name in finer:
        assert_frame_equal(free[name], second[name], rel_tol=1e-9)
    for name in SOME:
        assert second[name]["n_variance"][0] < first[name]["n_variance"][0]


@pytest.mark.parametrize(
    "forge",
    [
        lambda of: replace(of, attributes=("other",)),
        lambda of: replace(of, shape=(3,), cells=bytes([0, 1, 1])),
    ],
)
def test_forged_conditions_are_refused(session, forge):
    release = session.release(SOME, budget=BUDGET)
    source = next(s for s in release.sources if any(dict(d.sides)[s.table] for d in s.differences))
    (one, *rest) = source.differences
    conditions = tuple(of and forge(of) for of in one.conditions)
    own = replace(one, conditions=conditions)
    with pytest.raises(ReleaseFormatError):
        decode(encode([replace(source, differences=(own, *rest))]))


BY_STATUS = {
    "two": ["SELECT status FROM orders", "SELECT stage FROM visits"],
    "three": ["SELECT status FROM orders", "SELECT stage FROM visits", "SELECT 1 FROM customers"],
    "conditions": [
        "SELECT status FROM orders WHERE status > 0",
        "SELECT stage FROM visits WHERE stage < 2",
    ],
    "one twice": ["SELECT status FROM orders", "SELECT stage FROM visits", "SELECT 2 FROM orders"],
}


def errors_that_decide(session, sql):
    """Return group → the standard error by which it is left out where that is asked for.

    Counts in the tables of answers are replaced, until the group is just left out.
    """
    seen = []

    def run(post, frames):
        seen.append((post, frames))
        return plainly(post, frames)

    plainly = Postprocessing.run
    with patch.object(Postprocessing, "run", run):
        session.release(sql, budget=0, groups_above=1)["query"]  # which is computed when asked for
    post, frames = seen[-1]
    tables = Counter(g for frame in frames for g in frame["__k0"])
    least, most = dict.fromkeys(range(3), 0.0), dict.fromkeys(range(3), 1e4)
    for _ in range(40):
        middle = {g: (least[g] + most[g]) / 2 for g in least}
        own = pl.col("__k0").replace_strict({g: n / tables[g] for g, n in middle.items()})
        kept = set(plainly(post, [frame.with_columns(__s0=own) for frame in frames])["g"])
        for g, value in middle.items():
            (most if g in kept else least)[g] = value
    return most


@pytest.mark.parametrize("name", BY_STATUS)
@pytest.mark.parametrize("others", [{}, TOTALS])
def test_groups_are_left_out_by_all_that_sums_of_tables_have_in_common(name, others):
    """By standard errors that are never less than those of the sums, whose covariances are known.

    They are the same where no more than two tables are compared.
    """
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE customers (id INTEGER PRIMARY KEY);
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
            status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2));
        CREATE TABLE visits (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers (id),
            stage INTEGER NOT NULL CHECK (stage BETWEEN 0 AND 2));
    """)
    session = dpsql.Session(con, unit=dpsql.Unit("customers", max_rows=ROWS))
    rows = " UNION ALL ".join(f"({part})" for part in BY_STATUS[name])
    sql = f"SELECT status AS g, COUNT(*) AS n FROM ({rows}) AS r (status) GROUP BY status"
    release = session.release({"sum": sql, **others}, budget=BUDGET)
    stated = {g: v**0.5 for g, _, v in release["sum"].rows()}
    found = {g: error / stated[g] for g, error in errors_that_decide(session, sql).items()}
    most = {1: 1.0, 3: 1.15}[len(release.plan.certified.differences)]
    assert all(1 - 1e-6 < share < most + 1e-6 for share in found.values()), found
