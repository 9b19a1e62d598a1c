"""Counts of found keys take the scores along by which they were found, without bias."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.stats import truncnorm

import dpsql
from dpsql.answers.scored import REMARK, CellScores
from dpsql.measurement import keys as finding
from dpsql.measurement import measure as measuring
from dpsql.privacy.keys import SCALE, KeyRule
from dpsql.release.found_keys import FoundKeys, KeptKeys, decode_keys
from tests.helpers.seeded import SeededBits
from tests.release.saved import reseal

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
ALL = 5.5
"""The standard error of counts for all of that budget."""
KEYS = dpsql.Keys()
BY_CITY = "SELECT city, COUNT(*) AS n FROM t GROUP BY city"
PLAIN = "SELECT city, COUNT(*) AS n FROM t GROUP BY ROLLUP (city)"
"""Asks for the same counts, and for another one: so they are what was measured."""
DRAWS = 100_000


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    bits = SeededBits(11)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    monkeypatch.setattr(finding, "fresh_bits", lambda: bits)


# ── What is computed ─────────────────────────────────────────────────────────────────────────────


def drawn(share, away, seed=1):
    """Draw scores of a key that was told, which is some σ₁ away from T, and later counts of it.

    Returns:
        The truth, the later counts, their variance, and both put together.
    """
    at, own, later = 51.0, ALL**2 / share, ALL**2 / (1 - share)
    truth, rng = at + away * own**0.5, np.random.default_rng(seed)
    above = truncnorm(-away, np.inf, truth, own**0.5)
    scores = above.rvs(DRAWS, random_state=rng)
    measured = rng.normal(truth, later**0.5, DRAWS)
    spread = np.full(DRAWS, later)
    return (
        truth,
        measured,
        later,
        CellScores(scores, own, at).combined(measured, spread, slice(None)),
    )


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("away", [-4, -2, -1, 0, 1, 2, 4])
def test_it_has_no_bias_and_tells_its_variance(share, away):
    truth, measured, later, found = drawn(share, away)
    errors = found.values - truth
    assert abs(errors.mean()) < 5 * errors.std() / DRAWS**0.5
    assert np.mean(errors**2) <= np.mean((measured - truth) ** 2)
    least = ALL**2  # of X and Y without the threshold
    stated = found.slopes * later
    assert np.all((least * (1 - 1e-12) <= stated) & (stated <= later))
    noise = np.std(errors**2) + np.std(stated)
    assert abs(stated.mean() - np.mean(errors**2)) < 5 * noise / DRAWS**0.5
    assert np.all(found.slopes <= found.reaches + 1e-12)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
def test_intervals_hold_as_often_as_they_should_near_the_threshold(share):
    for away in (-4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4):
        truth, _, later, found = drawn(share, away)
        for confidence in (0.5, 0.9, 0.95, 0.99):
            reach = NormalDist().inv_cdf((1 + confidence) / 2)
            held = np.abs(found.values - truth) <= reach * np.sqrt(found.reaches * later)
            assert held.mean() > confidence - 0.01 - 0.0025, (away, confidence)


def test_frequent_keys_are_counted_as_well_as_the_whole_budget_would():
    errors = {}
    for away in (2, 4):
        truth, measured, _, found = drawn(0.5, away)
        errors[away] = np.std(found.values - truth)
        assert np.std(measured - truth) > 7.7
    assert 5.6 < errors[2] < 5.75
    assert 5.45 < errors[4] < 5.55


def test_the_mean_of_what_is_cut_off_is_right_however_unlikely_it_is():
    """Of the same event, as another implementation of the cut-off normal distribution has it."""
    at, own, later = 50.0, 61.0, 60.0
    measured = np.array([-900.0, -60.0, 0.0, 30.0, 49.0, 50.0, 51.0, 80.0, 500.0])
    scores = np.array([50.0, 50.0, 51.0, 53.0, 50.5, 60.0, 51.0, 90.0, 480.0])
    found = CellScores(scores, own, at).combined(measured, np.full(9, later), slice(None))
    mean = (own * measured + later * scores) / (own + later)
    s, most = later / (own + later) ** 0.5, mean + (mean - at) * later / own
    exact = [truncnorm.mean(-np.inf, (b - m) / s, m, s) for m, b in zip(mean, most, strict=True)]
    np.testing.assert_allclose(found.values, exact, rtol=1e-6)
    spread = [truncnorm.var(-np.inf, (b - m) / s) for m, b in zip(mean, most, strict=True)]
    np.testing.assert_allclose(found.slopes * later, later - s**2 * np.array(spread), rtol=1e-6)
    np.testing.assert_allclose(
        found.values[[0, -1]], [-900, mean[-1]], atol=0.1
    )  # a score that says nothing but that it was told, and one of which that was clear


def test_extreme_noise_gives_numbers():
    """Of a variance of scores near that of none, and of counts that are far below the threshold."""
    for own in (2.0**-40, 1.0, 1e9):
        for later in (0.0, 1e-9, 1.0, 1e12):
            scores = CellScores(np.array([50.0, 60.0]), own, 50.0)
            measured = np.array([-1e9, 60.0])
            found = scores.combined(measured, np.full(2, later), slice(None))
            assert np.all(np.isfinite(found.values))
            assert np.all((found.slopes >= own / (own + later) * (1 - 1e-9)) & (found.slopes <= 1))
            if later == 0:
                np.testing.assert_allclose(found.values, measured)


def test_cells_without_a_score_stay_as_they_were_measured():
    scores = CellScores(np.array([60.0, np.nan, 70.0]), 61.0, 50.0)
    found = scores.combined(np.array([3.0, 4.0]), np.array([60.0, 60.0]), slice(1, 3))
    assert (found.values[0], found.slopes[0], found.reaches[0]) == (3.0, 1.0, 1.0)
    assert 4 < found.values[1] < 70


# ── What releases do with it ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def con():
    """Return rows of 20 frequent towns, of one near the threshold, of rare ones and of none."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t AS SELECT i AS id, i % 2 = 0 AS even, CASE
            WHEN i < 2000 THEN 'town ' || (i % 20) WHEN i < 2055 THEN 'near'
            WHEN i < 2100 THEN 'rare ' || i END AS city FROM range(2130) r(i)
    """)
    return con


def plain(release):
    """Return the counts as they were measured."""
    again = release.query(PLAIN).filter(pl.col("city").is_not_null())
    return dict(again.select("city", "n").iter_rows())


def of_keys(frame):
    return dict(frame.filter(pl.col("city").is_not_null()).select("city", "n").iter_rows())


def takes_along(release):
    return any(one.scores for one in release.facts.found)


def test_scores_are_taken_along_and_told_of(con, tmp_path):
    session = dpsql.Session(con, ledger=tmp_path / "ledger", vintage="1")
    release = session.release([BY_CITY], budget=BUDGET, keys=KEYS, out=tmp_path / "out")
    (frame,) = release.values()
    assert takes_along(release)
    measured, shown = plain(release), of_keys(frame)
    assert shown["(other)"] == pytest.approx(measured["(other)"])
    assert all(shown[key] != pytest.approx(measured[key]) for key in shown if key != "(other)")
    spread = dict(frame.select("city", "n_variance").iter_rows())
    assert spread["town 3"] == pytest.approx(1 / float(BUDGET.setting_aside(Fraction(1, 10**10))
                                                       .mu_squared), rel=0.01)  # fmt: skip
    assert spread["(other)"] == pytest.approx(spread[None]) == pytest.approx(60.8, rel=0.01)
    (described,) = release.columns("query_1").filter(pl.col("column") == "n").to_dicts()
    assert described["variance"] == "approximate"
    assert described["reason"].endswith(REMARK)
    assert "follow from the noisy numbers" in release.summary()
    # The same by whoever reads it again, from the folder and from the ledger.
    loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    assert loaded["query_1"].equals(frame)
    assert loaded.query(BY_CITY).equals(frame)
    assert loaded.facts.found == release.facts.found
    assert loaded.suppressed(10)["query_1"].height == frame.height
    assert session.query(BY_CITY, budget=0).equals(frame)
    other = dpsql.Session(con, ledger=tmp_path / "ledger", vintage="1")
    assert other.query(BY_CITY, budget=0, keys=KEYS).equals(frame)
    assert_frame_equal(pl.concat(list(release.batches("query_1", 5))), frame)


def test_what_was_measured_is_kept_without_scores(con):
    """Asked for more, a release builds on what was measured, and takes scores along anew."""
    session = dpsql.Session(con)
    first = session.release([BY_CITY], budget=BUDGET, keys=KEYS)
    second = session.release([BY_CITY], budget=BUDGET)
    assert takes_along(second)
    spread = dict(second["query_1"].select("city", "n_variance").iter_rows())
    later = 1 / spread["(other)"]
    own = 1 / first["query_1"].filter(city="town 1")["n_variance"][0] - 1 / 60.78
    assert spread["town 1"] == pytest.approx(1 / (own + later), rel=0.01)


def test_conditions_order_and_limits_see_them(con):
    session = dpsql.Session(con)
    frame = session.query(BY_CITY, budget=BUDGET, keys=KEYS, confidence=0.9)
    best = session.query(BY_CITY + " ORDER BY n DESC LIMIT 3", budget=0, confidence=0.9)
    assert_frame_equal(best, frame.sort("n", descending=True).head(3))
    some = session.query(BY_CITY + " HAVING n > 90", budget=0, confidence=0.9)
    assert_frame_equal(some.sort("city"), frame.filter(pl.col("n") > 90).sort("city"))
    width = (frame["n_upper"] - frame["n_lower"]).to_numpy() / 2 / NormalDist().inv_cdf(0.95)
    assert np.all(width**2 >= frame["n_variance"].to_numpy() - 1e-9)
    surely = session.query(BY_CITY, budget=0, groups_above=2)
    error = frame["n_variance"].sqrt()
    assert surely["city"].to_list() == frame.filter(frame["n"] >= 2 * error)["city"].to_list()


def test_sums_of_several_have_the_variances_of_independent_ones(con):
    session = dpsql.Session(con)
    frame = session.query(BY_CITY, budget=BUDGET, keys=KEYS)
    found = session.query(f"SELECT SUM(n) AS n, AVG(n) AS a FROM ({BY_CITY})", budget=0)
    assert found["n"][0] == pytest.approx(frame["n"].sum())
    assert found["n_variance"][0] == pytest.approx(frame["n_variance"].sum(), rel=1e-6)
    assert found["a_variance"][0] == pytest.approx(found["n_variance"][0] / frame.height**2)
    share = session.query(f"SELECT city, n / SUM(n) OVER () AS s FROM ({BY_CITY})", budget=0)
    total, of = found["n"][0], found["n_variance"][0]
    n, own = frame["n"], frame["n_variance"]
    expected = own * (1 - 2 * n / total) / total**2 + n**2 * of / total**4
    assert np.allclose(share["s_variance"].drop_nulls(), expected)


DAYS = (
    "DATE '2024-01-01' + (id % 3)::INTEGER",
    "TIMESTAMP '2024-01-01' + to_days((id % 3)::INTEGER)",
)


@pytest.mark.parametrize("key", ["id % 3", *DAYS])
def test_keys_of_all_types(key):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS SELECT {key} AS city FROM range(3000) r(id)")
    by = "city::DATE" if key.startswith("TIME") else "city"
    sql = f"SELECT {by} AS city, COUNT(*) AS n FROM t GROUP BY 1"
    release = dpsql.query(con, [sql], budget=BUDGET, keys=KEYS)
    assert takes_along(release)
    frame = release["query_1"].drop_nulls("city")
    assert np.allclose(frame["n_variance"], 30.4, rtol=0.01)
    assert np.allclose(frame["n"], 1000, atol=6 * 5.5)


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ({"n": BY_CITY, "m": "SELECT COUNT(*) AS n FROM t"}, {}),
        ({"n": BY_CITY, "m": BY_CITY + " ORDER BY n"}, {}),
        ({"n": PLAIN}, {}),
        ({"n": "SELECT city, COUNT(*) AS n FROM t WHERE even GROUP BY city"}, {}),
        ({"n": "SELECT city, COUNT(*) AS n FROM t WHERE city <> 'near' GROUP BY city"}, {}),
        ({"n": "SELECT city, even, COUNT(*) AS n FROM t GROUP BY city, even"}, {}),
        ({"n": "SELECT city, COUNT(*) FILTER (even) AS n FROM t GROUP BY city"}, {}),
        ({"n": "SELECT city, COUNT(*) AS n, COUNT(id) AS m FROM t GROUP BY city"}, {}),
        ({"n": BY_CITY}, {"nonnegative": True}),
        ({"n": BY_CITY}, {"keys": dpsql.Keys(max_keys=5)}),
        ({"n": BY_CITY}, {"reuse": False}),
    ],
)
def test_all_else_stays_as_it_was_measured(con, script, given):
    release = dpsql.Session(con).release(script, budget=BUDGET, **{"keys": KEYS, **given})
    assert not takes_along(release)
    assert "follow from the noisy numbers" not in release.summary()
    frame = release["n"]
    spread = frame["n_variance"].to_numpy()
    assert frame.height > 5
    assert not release.columns("n")["reason"].str.contains("found").any()
    assert np.all(spread > 1.05 / float(BUDGET.mu_squared)) or len(script) > 1
    sql = release.facts.statements["n"]
    again = release.query(sql)
    assert again["n"].to_numpy() == pytest.approx(frame["n"].to_numpy())
    if sql == BY_CITY:
        measured = plain(release)
        assert of_keys(frame) == pytest.approx({key: measured[key] for key in of_keys(frame)})


@pytest.mark.parametrize("most", [1, 3])
def test_rows_of_units_stay_as_they_were_measured(con, most):
    """A key is one of those of a unit's rows, and not that of the row that counts."""
    session = dpsql.Session(con, unit="id", max_rows=most)
    release = session.release([BY_CITY], budget=BUDGET, keys=KEYS)
    assert not takes_along(release)
    assert of_keys(release["query_1"]) == pytest.approx(plain(release))


def test_a_domain_that_is_declared_has_no_scores(con):
    found = dpsql.Session(con).find_keys("t", "city", budget=BUDGET)
    schema = dpsql.Schema({"t": {"city": found.domain}})
    assert not takes_along(dpsql.query(con, [BY_CITY], budget=BUDGET, schema=schema))


def test_a_rule_of_least_units_has_a_threshold_of_its_own(con):
    keys = dpsql.Keys(pre_threshold=30)
    release = dpsql.query(con, [BY_CITY], budget=BUDGET, keys=keys)
    (found,) = release.facts.found
    least = 29 * SCALE + dpsql.Keys(0.5).rule(BUDGET).rounds[0].threshold
    assert found.rule.rounds[0].threshold == pytest.approx(least, rel=1e-6)
    of = CellScores.of(release.facts.table, found)
    assert of.threshold == (found.rule.rounds[0].threshold - 0.5) / SCALE


def test_scores_are_of_one_round_and_of_all_that_were_told():
    kept = KeptKeys("t", "c", "VARCHAR", True, KeyRule.of(Fraction(1), Fraction(1, 10**9), 1),
                    (("b", 0, 9), ("a", 0, 8), ("(other)", 0, 7)), {}, True)  # fmt: skip
    assert decode_keys(kept.encode()) == kept
    assert FoundKeys.of(kept, "r", "(other)").scores == (8, 9)
    assert FoundKeys.of(replace(kept, complete=False), "r", "(other)").scores == ()
    two = KeyRule.of(Fraction(1), Fraction(1, 10**9), 2)
    assert FoundKeys.of(replace(kept, rule=two), "r", "(other)").scores == ()
    numbers = replace(kept, type="INTEGER", told=(("10", 0, 9), ("9", 0, 8)))
    assert FoundKeys.of(numbers, "r", "(other)").scores == (8, 9)


@pytest.mark.parametrize("most", [20, 21])
def test_as_many_as_may_be_told_are_no_sample_of_those_above_the_threshold(most):
    """Of 20 keys that are clearly above it: none of them is known to be the last one."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 'town ' || (i % 20) AS city FROM range(4000) r(i)")
    release = dpsql.query(con, [BY_CITY], budget=BUDGET, keys=dpsql.Keys(max_keys=most))
    assert len(release.found_keys("t", "city")) == 20
    assert takes_along(release) == (most > 20)


def forged(said):
    said["found_keys"][0]["scores"][3] += 20 * SCALE


def test_scores_in_a_folder_are_those_of_the_ledger(con, tmp_path):
    session = dpsql.Session(con)
    session.release([BY_CITY], budget=BUDGET, keys=KEYS, out=tmp_path / "out")
    dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    reseal(tmp_path / "out", forged)
    loaded = dpsql.Release.load(tmp_path / "out")
    with pytest.raises(dpsql.UndeterminedError):
        loaded.suppressed(10)["query_1"]
    with pytest.raises(dpsql.LedgerError):
        dpsql.Release.load(tmp_path / "out", ledger=session.ledger)


@pytest.mark.parametrize("scores", [[1], [2**62 + 1] * 21, [10**40] * 20, [0] * 21, ["x"]])
def test_scores_that_cannot_be_are_refused(con, tmp_path, scores):
    dpsql.Session(con).release([BY_CITY], budget=BUDGET, keys=KEYS, out=tmp_path / "out")
    reseal(tmp_path / "out", lambda said: said["found_keys"][0].update(scores=scores))
    with pytest.raises(dpsql.ReleaseFormatError):
        dpsql.Release.load(tmp_path / "out")


def test_plans_say_what_counts_gain(con):
    schema = {"t": {"city": dpsql.Domain.keys()}}
    assumed = {"schema": schema, "assume": {"t.city": 20}}
    found = dpsql.plan(con, BY_CITY, budget=BUDGET, **assumed).notes
    assert "about 5.51 for frequent ones, if fewer than 10,000 are found" in found[-1]
    session = dpsql.Session(con, schema=schema)
    assert session.plan(BY_CITY, budget=BUDGET, assume=assumed["assume"]).notes == found
    for sql in (PLAIN, "SELECT city, even, COUNT(*) AS n FROM t GROUP BY city, even"):
        assert not any("frequent" in of for of in dpsql.plan(con, sql, budget=BUDGET,
                                                             **assumed).notes)  # fmt: skip
    of_units = dpsql.plan(con, BY_CITY, budget=BUDGET, unit="id", max_rows=1, **assumed)
    assert not any("frequent" in note for note in of_units.notes)


# ── The truth, from the whole way ────────────────────────────────────────────────────────────────


def test_released_numbers_are_what_they_are_said_to_be():
    """Of 600 keys near the threshold and 600 of four σ₁ above it, each is a draw of its own."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t AS SELECT 'near ' || (i % 600) AS city FROM range(600 * 51) r(i)
        UNION ALL SELECT 'above ' || (i % 600) FROM range(600 * 82) r(i)
    """)
    near, above = [], []
    for _ in range(4):
        release = dpsql.query(con, [BY_CITY], budget=BUDGET, keys=KEYS, confidence=0.95)
        measured = plain(release)
        frame = release["query_1"].filter(pl.col("city").str.contains(" "))
        frame = frame.with_columns(
            truth=pl.when(pl.col("city").str.starts_with("near")).then(51).otherwise(82),
            measured=pl.col("city").replace_strict(measured),
        )
        near.append(frame.filter(pl.col("truth") == 51))
        above.append(frame.filter(pl.col("truth") == 82))
    for found, error in ((pl.concat(near), 6.7), (pl.concat(above), 5.5)):
        off = (found["n"] - found["truth"]).to_numpy()
        assert abs(off.mean()) < 4 * off.std() / len(off) ** 0.5
        assert np.sqrt(np.mean(off**2)) == pytest.approx(error, rel=0.1)
        plainly = (found["measured"] - found["truth"]).to_numpy()
        assert np.sqrt(np.mean(plainly**2)) == pytest.approx(7.8, rel=0.1)
        assert np.mean(off**2 / found["n_variance"].to_numpy()) == pytest.approx(1, abs=0.2)
        assert found["n_variance"].mean() == pytest.approx(np.mean(off**2), rel=0.2)
        held = (found["n_lower"] <= found["truth"]) & (found["truth"] <= found["n_upper"])
        assert held.mean() > 0.95 - 0.01 - 0.02
    assert pl.concat(near).height / 2400 == pytest.approx(0.5, abs=0.05)
