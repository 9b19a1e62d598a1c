"""Columns without negative numbers where one table of all joint cells would be too large."""

from __future__ import annotations

import itertools
import math

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.answers import adjusted
from dpsql.measurement import measure as measuring
from tests.benchmarks import nonnegative
from tests.helpers.inserted import insert
from tests.helpers.seeded import SeededBits

BUDGET = dpsql.Budget(rho=0.01)
COLUMNS = {"age": 50, "work": 8, "sex": 2, "town": 40, "hours": 30, "school": 16}
SCRIPT = {
    "age_town": "SELECT age, town, COUNT(*) AS n FROM people GROUP BY age, town",
    "age_hours": "SELECT age, hours, COUNT(*) AS n FROM people GROUP BY age, hours",
    "rest": "SELECT work, sex, school, COUNT(*) AS n FROM people GROUP BY work, sex, school",
    "town_work": "SELECT town, work, COUNT(*) AS n FROM people GROUP BY town, work",
    "ages": "SELECT age, COUNT(*) AS n FROM people GROUP BY age",
    "running": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS up_to FROM people GROUP BY age",
    "towns": "SELECT town, COUNT(*) AS n FROM people GROUP BY town",
    "sexes": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
    "adults": "SELECT sex, COUNT(*) AS n FROM people WHERE age >= 18 GROUP BY sex",
    "total": "SELECT COUNT(*) AS n FROM people",
    "busy": "SELECT age, COUNT(*) AS n FROM people GROUP BY age HAVING COUNT(*) > 100",
    "mean": "SELECT sex, AVG(age) AS age, MEDIAN(age) AS middle FROM people GROUP BY sex",
}


def rows(seed: int = 0, count: int = 5000) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    first = rng.gamma(1.0, 6.0, count)
    return pl.DataFrame(
        {
            name: np.minimum(first * rng.uniform(0.3, 1.0, count), n - 1).astype(np.int64)
            for name, n in COLUMNS.items()
        }
    )


@pytest.fixture
def con(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(7))
    con = duckdb.connect()
    columns = (f"{a} INT NOT NULL CHECK ({a} BETWEEN 0 AND {n - 1})" for a, n in COLUMNS.items())
    con.execute(f"CREATE TABLE people ({', '.join(columns)})").fetchall()
    insert(con, "people", rows().rows())
    yield con
    con.close()


@pytest.fixture
def session(con):
    assert math.prod(COLUMNS.values()) > adjusted.MAX_JOINT_CELLS
    return dpsql.Session(con)


def sums(frame: pl.DataFrame, by: str, value: str = "n_adjusted") -> list[float]:
    return frame.group_by(by).agg(pl.col(value).sum()).sort(by)[value].to_list()


def test_any_number_of_columns_can_be_adjusted(session):
    plain = session.release(SCRIPT, budget=BUDGET)
    release = session.release(SCRIPT, budget=0, nonnegative=True)
    assert plain["age_town"]["n"].min() < -10
    for name in ("age_town", "age_hours", "rest", "town_work", "ages", "towns", "sexes", "total"):
        assert release[name]["n"].to_list() == pytest.approx(plain[name]["n"].to_list())
        assert release[name]["n_adjusted"].min() >= 0


def test_what_is_promised_to_agree_agrees(session):
    release = session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    total = release["total"]["n_adjusted"][0]
    assert total == pytest.approx(release["total"]["n"][0])
    for name in ("age_town", "age_hours", "rest", "town_work", "ages", "towns", "sexes"):
        assert release[name]["n_adjusted"].sum() == pytest.approx(total)
    ages = release["ages"]["n_adjusted"].to_list()
    towns = release["towns"]["n_adjusted"].to_list()
    for name in ("age_town", "age_hours"):
        assert sums(release[name], "age") == pytest.approx(ages)
    for name in ("age_town", "town_work"):
        assert sums(release[name], "town") == pytest.approx(towns)
    sexes = release["sexes"].sort("sex")["n_adjusted"].to_list()
    assert sums(release["rest"], "sex") == pytest.approx(sexes)
    running = release["running"].sort("age")["up_to_adjusted"].to_list()
    assert running == pytest.approx(np.cumsum(ages).tolist())
    # What is computed is computed of the same tables.
    adults = release["adults"].sort("sex")["n_adjusted"].to_list()
    assert sum(adults) == pytest.approx(sum(ages[18:]), rel=1e-6)
    busy = release["busy"].join(release["ages"], on="age")
    assert busy["n_adjusted"].to_list() == pytest.approx(busy["n_adjusted_right"].to_list())
    assert release["mean"]["age_adjusted"].is_between(0, 49).all()
    assert release["mean"]["middle_adjusted"].is_between(0, 49).all()


def test_columns_say_what_agrees(session, tmp_path):
    release = session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    described = release.columns("age_town").filter(pl.col("role") == "adjusted")
    assert described["reason"].to_list() == [adjusted.REASON_BY_MARGINAL]
    assert "agree with all tables of one column, and nearly with those of several" in (
        adjusted.REASON_BY_MARGINAL
    )
    assert "`columns` says which agree" in release.summary()
    release.save(tmp_path / "release")
    loaded = dpsql.Release.load(tmp_path / "release")
    assert loaded.columns("age_town").equals(release.columns("age_town"))
    assert loaded["age_town"].equals(release["age_town"])
    # Free answers are unbiased ones, whatever was adjusted.
    asked = "SELECT age, COUNT(*) AS n FROM people GROUP BY age"
    found = loaded.query(asked).sort("age")["n"].to_list()
    assert found == pytest.approx(release["ages"].sort("age")["n"].to_list())
    # Where one table can be fitted, it is, and says so.
    small = {name: SCRIPT[name] for name in ("ages", "sexes")}
    joint = session.release(small, budget=BUDGET, nonnegative=True, reuse=False)
    assert joint.columns("ages").filter(pl.col("role") == "adjusted")["reason"].to_list() == [
        "biased: of a table that fits all measurements"
    ]


def test_errors_fall_far_below_the_unbiased_ones(session):
    release = session.release(SCRIPT, budget=BUDGET, nonnegative=True, weights="marginal")
    data = rows()
    for keys, name in ((["age", "town"], "age_town"), (["age", "hours"], "age_hours")):
        truth = data.group_by(keys).len("rows")
        found = release[name].join(truth, on=keys, how="left").fill_null(0)
        off = [(found[c] - found["rows"]).abs().sum() for c in ("n", "n_adjusted")]
        assert off[1] < off[0] / 3


def test_a_release_that_was_interrupted_is_made_good_with_the_same_columns(con, tmp_path):
    session = dpsql.Session(con)

    def interrupt(phase, done, of):
        if phase == "adjusting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.release(SCRIPT, budget=BUDGET, nonnegative=True, progress=interrupt)
    spent = session.ledger.spent
    assert spent > 0
    again = session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    assert session.ledger.spent == spent
    assert again["age_town"]["n_adjusted"].min() >= 0
    assert sums(again["age_town"], "age") == pytest.approx(again["ages"]["n_adjusted"].to_list())


def test_later_releases_are_adjusted_with_all_that_is_known(session):
    session.release(SCRIPT, budget=BUDGET)
    first = session.release({"ages": SCRIPT["ages"]}, budget=0, nonnegative=True)
    more = session.release(
        {name: SCRIPT[name] for name in ("ages", "age_town")}, budget=BUDGET, nonnegative=True
    )
    assert sums(more["age_town"], "age") == pytest.approx(more["ages"]["n_adjusted"].to_list())
    assert more["ages"]["n_variance"][0] < first["ages"]["n_variance"][0]


def test_batches_are_pieces_of_the_same_table(session):
    release = session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    pieces = pl.concat(release.batches("age_town", rows=77))
    whole = release["age_town"]["n_adjusted"].to_list()
    assert pieces["n_adjusted"].to_list() == pytest.approx(whole)


def test_conditions_that_leave_cells_open_are_fitted_by_themselves(session):
    """Of which schools there are nothing is known, but for a sum over some of them."""
    script = {
        "odd": "SELECT town, SUM(school * school) AS s FROM people WHERE work = 3 GROUP BY town",
        "town_work": SCRIPT["town_work"],
        "age_hours": SCRIPT["age_hours"],
        "long": "SELECT town, hours, COUNT(*) AS n FROM people GROUP BY town, hours",
        "sexes": "SELECT sex, work, COUNT(*) AS n FROM people GROUP BY sex, work",
    }
    release = session.release(script, budget=BUDGET, nonnegative=True)
    found = release["odd"]["s_adjusted"]
    assert found.min() >= 0
    assert found.is_finite().all()
    assert release["long"]["n_adjusted"].min() >= 0


def test_whole_numbers_and_larger_tables_are_refused_before_the_charge(session, monkeypatch):
    with pytest.raises(dpsql.ResourceLimitError, match="joint cells") as error:
        session.release(SCRIPT, budget=BUDGET, integers=True, nonnegative=True)
    assert "leave integers= out" in error.value.hint
    monkeypatch.setattr(adjusted, "MAX_CELLS", 1999)
    with pytest.raises(dpsql.ResourceLimitError, match="age, town has 2,000 joint cells") as error:
        session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    assert "leave nonnegative= out" in error.value.hint
    monkeypatch.setattr(adjusted, "MAX_CELLS", 1 << 24)
    monkeypatch.setattr(adjusted, "MAX_COLUMNS", 2)
    with pytest.raises(dpsql.ResourceLimitError, match="work, sex, school has 3 columns"):
        session.release(SCRIPT, budget=BUDGET, nonnegative=True)
    assert session.ledger.spent == 0


def test_several_tables_have_tables_of_their_own(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(7))
    con = duckdb.connect()
    con.execute("CREATE TABLE people (id INT PRIMARY KEY, sex BOOLEAN NOT NULL)").fetchall()
    names = [f"c{i}" for i in range(6)]
    columns = ", ".join(f"{a} INT NOT NULL CHECK ({a} BETWEEN 0 AND 29)" for a in names)
    con.execute(f"CREATE TABLE visits (person INT REFERENCES people(id), {columns})").fetchall()
    insert(con, "people", [(i, i % 3 == 0) for i in range(800)])
    rng = np.random.default_rng(1)
    insert(con, "visits", [(i % 800, *np.minimum(rng.geometric(0.2, 6), 29).tolist())
                           for i in range(1600)])  # fmt: skip
    session = dpsql.Session(con, unit="people.id", max_rows={"people": 1, "visits": 2})
    script = {
        "sexes": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
        "c0": "SELECT c0, COUNT(*) AS n FROM visits GROUP BY c0",
        **{
            f"{a}_{b}": f"SELECT {a}, {b}, COUNT(*) AS n FROM visits GROUP BY ALL"
            for a, b in itertools.pairwise(names)
        },
    }
    release = session.release(script, budget=dpsql.Budget(rho=0.05), nonnegative=True)
    total = release["c0"]["n_adjusted"].sum()
    for name in script:
        assert release[name]["n_adjusted"].min() >= 0
        if name != "sexes":
            assert release[name]["n_adjusted"].sum() == pytest.approx(total)
    assert sums(release["c0_c1"], "c0") == pytest.approx(release["c0"]["n_adjusted"].to_list())
    assert release.columns("c0")["reason"][-1] == adjusted.REASON_BY_MARGINAL
    con.close()


class TestAdult:
    """All pairs and all triples of the census extract at ε = 1, three times each.

    The errors are sums of absolute differences in shares of the rows, on average over all tables.
    Seeds are fixed.
    """

    def errors(self, *, alike: bool, sets: list[tuple[str, ...]], seeds: int) -> list[float]:
        codes, sizes = nonnegative.adult()
        budget = dpsql.Budget(epsilon=1, delta=1e-9)
        data = nonnegative.Measured(codes, sizes, alike, budget, singles=len(sets[0]) > 2)
        truth = nonnegative.marginals_of(codes, sizes, sets)
        return [
            nonnegative.distance(truth, data.tables(seed, sets)[0].table) for seed in range(seeds)
        ]

    @pytest.mark.parametrize(("alike", "most"), [(False, 0.103), (True, 0.085)])
    def test_pairs(self, alike, most):
        pairs = list(itertools.combinations(nonnegative.SIZES, 2))
        assert np.mean(self.errors(alike=alike, sets=pairs, seeds=3)) <= most

    def test_triples_from_pairs(self):
        triples = list(itertools.combinations(nonnegative.SIZES, 3))[::4]
        assert np.mean(self.errors(alike=True, sets=triples, seeds=1)) <= 0.175

    def test_running_totals_are_no_worse(self):
        codes, sizes = nonnegative.adult()
        budget = dpsql.Budget(epsilon=1, delta=1e-9)
        data = nonnegative.Measured(codes, sizes, True, budget, singles=False)
        truth = nonnegative.marginals_of(codes, sizes, [(name,) for name in sizes])
        found = dict.fromkeys(sizes, np.zeros(2))
        for seed in range(10):
            for name, both in nonnegative.running(truth, *data.tables(seed, [])).items():
                found[name] = found[name] + both
        for unbiased, ours in found.values():
            assert ours <= unbiased * (1 + 1e-9)
        assert found["fnlwgt_bin"][1] < 0.8 * found["fnlwgt_bin"][0]
