"""Values that rest on few rows, or on noise: what is known of each, what is marked and left out."""

from __future__ import annotations

import json
import math

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.answers import frames
from dpsql.measurement import measure as measuring
from dpsql.request import Request, named
from tests.helpers.seeded import SeededBits

HUGE = dpsql.Budget(rho=10**7)
SMALL = dpsql.Budget(rho=0.05)
ROWS = {"f": 30, "m": 2970, "x": 0}
SCHEMA = dpsql.Schema({"people": {"income": dpsql.Domain.number(0, 50)}})
OF = "FROM people GROUP BY sex"
NEAR = 0.1
"""Noise of HUGE is far below."""


def connect() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE people (
            sex ENUM('f', 'm', 'x') NOT NULL,
            age INT NOT NULL CHECK (age BETWEEN 0 AND 9),
            income INT
        );
        INSERT INTO people
        SELECT CASE WHEN i % 100 = 0 THEN 'f' ELSE 'm' END, i % 7, i % 50 FROM range(3000) AS t(i);
    """).fetchall()
    return con


def session() -> dpsql.Session:
    return dpsql.Session(connect(), schema=SCHEMA)


def released(sql: str, budget: dpsql.Budget = HUGE, **options) -> dpsql.Release:
    return session().release({"asked": sql}, budget=budget, **options)


# ── what values rest on ────────────────────────────────────────────────────────────────────

FEW = "COUNT(*) FILTER (WHERE age < 1)"
RESTS = {
    f"SELECT sex, COUNT(*) AS n {OF}": {"n": "self"},
    f"SELECT sex, COUNT(*) AS n, {FEW} AS young {OF}": {"n": "self", "young": "self"},
    f"SELECT sex, COUNT(*) AS n, SUM(income) AS s {OF}": {"n": "self", "s": "group"},
    f"SELECT sex, SUM(income) AS s {OF}": {"s": None},
    f"SELECT sex, AVG(age) AS a {OF}": {"a": "group"},
    f"SELECT sex, AVG(income) AS a, SUM(income) AS s {OF}": {"a": "group", "s": "group"},
    f"SELECT sex, {FEW} * 1.0 / COUNT(*) AS share {OF}": {"share": "group"},
    f"SELECT sex, STDDEV(age) AS d, sqrt(COUNT(*)) AS r {OF}": {"d": "group", "r": "group"},
    f"SELECT sex, MEDIAN(age) AS m {OF}": {"m": "group"},
    f"SELECT sex, MEDIAN(age) AS m {OF} ORDER BY m LIMIT 2": {"m": "group"},
    f"SELECT sex, COUNT(*) AS n, AVG(age) AS a {OF} HAVING COUNT(*) > 10 ORDER BY n DESC": {
        "n": "self", "a": "group",
    },
    f"SELECT sex, COUNT(*) - 100 AS less, 2 * COUNT(*) AS twice {OF}": {
        "less": "group", "twice": "group",
    },
    "SELECT sex, SUM(COUNT(*)) OVER (ORDER BY sex) AS up_to FROM people GROUP BY sex": {
        "up_to": "self"
    },
    f"SELECT sum(n) AS sex, max(n) AS most FROM (SELECT sex, COUNT(*) AS n {OF})": {
        "sex": "self", "most": None,
    },
    f"SELECT sex, COUNT(*) AS n {OF} UNION ALL SELECT sex, 2 * COUNT(*) {OF}": {"n": None},
}  # fmt: skip


@pytest.mark.parametrize("sql", RESTS)
def test_values_rest_on_the_rows_behind_them(sql):
    """With hardly any noise: numbers of rows, as DuckDB counts them."""
    frame, support = released(sql)._frames.supported("asked")
    assert list(support.rows) == list(RESTS[sql])
    for name, kind in RESTS[sql].items():
        found = support.rows[name]
        assert found.len() == frame.height
        if kind == "self":
            assert_frame_equal(
                found.to_frame(), frame.select(pl.col(name).cast(pl.Float64)), rel_tol=1e-9
            )
        elif kind == "group":
            for sex, rows in zip(frame["sex"], found, strict=True):
                assert rows == pytest.approx(ROWS[sex], abs=NEAR)


def test_nothing_is_known_of_a_sum_alone():
    made = released(f"SELECT sex, SUM(income) AS s {OF}")
    assert made._frames.supported("asked")[1].rows["s"].null_count() == 3
    shown = made.suppressed(100)
    assert_frame_equal(shown["asked"], made["asked"])
    assert "not suppressed" in shown.columns("asked")["reason"][1]


# ── suppression ────────────────────────────────────────────────────────────────────────────


def test_values_of_few_rows_are_null_and_rows_stay():
    sql = f"SELECT sex, COUNT(*) AS n, AVG(age) AS a, MEDIAN(age) AS m, SUM(income) AS s {OF}"
    made = released(sql, confidence=0.9)
    shown = made.suppressed(25)
    plain, frame = made["asked"], shown["asked"]
    assert frame.schema == plain.schema
    assert frame["sex"].to_list() == ["f", "m", "x"]
    assert_frame_equal(frame[:2], plain[:2])
    assert frame[2].drop("sex").row(0) == (None,) * (frame.width - 1)
    frame = made.suppressed(100)["asked"]
    assert frame["n"].null_count() == frame["a_lower"].null_count() == 2
    assert frame["n_variance"].null_count() == frame["m_upper"].null_count() == 2
    assert_frame_equal(shown.suppressed(1)["asked"][:2], plain[:2])  # of all values, once more
    assert_frame_equal(made["asked"], plain)


def test_a_count_is_judged_by_itself_and_a_share_by_its_group():
    sql = f"SELECT sex, {FEW} AS few, {FEW} * 1.0 / COUNT(*) AS share, COUNT(*) AS n {OF}"
    frame = released(sql).suppressed(25)["asked"]
    assert frame["few"].is_null().to_list() == [True, False, True]
    assert frame["share"].is_null().to_list() == [False, False, True]


def test_conditions_order_and_limits_see_all_values(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(3))
    sql = f"SELECT sex, COUNT(*) AS n {OF} HAVING COUNT(*) < 100 ORDER BY n DESC LIMIT 2"
    made = released(sql)
    shown = made.suppressed(10)
    assert shown["asked"]["sex"].to_list() == made["asked"]["sex"].to_list() == ["f", "x"]
    assert shown["asked"]["n"].is_null().to_list() == [False, True]


def test_nothing_else_is_measured_or_charged():
    """An equal call without it would hand out what an interrupted one with it has paid for."""
    asked = Request(named("SELECT 1"), SMALL)
    with_it = Request(named("SELECT 1"), SMALL, suppress_below=5)
    assert asked.digest == with_it.digest
    sql = {"asked": f"SELECT sex, COUNT(*) AS n {OF}"}
    one = session()
    first = one.release(sql, budget=SMALL, suppress_below=5)
    again = one.release(sql, budget=0)
    assert one.ledger.spent == SMALL.mu_squared
    assert_frame_equal(again.suppressed(5)["asked"], first["asked"], rel_tol=1e-9)


def test_every_call_that_answers_takes_it():
    sql, one = f"SELECT sex, COUNT(*) AS n {OF}", session()
    made = one.release({"asked": sql}, budget=HUGE, suppress_below=10)
    frames_ = [
        made["asked"],
        made.query(sql, suppress_below=10),
        one.query(sql, budget=0, suppress_below=10),
        one.release([sql], budget=0, suppress_below=10)["query_1"],
        dpsql.query(connect(), sql, budget=HUGE, suppress_below=10),
    ]
    for frame in frames_:
        assert frame["n"].is_null().to_list() == [False, False, True]
    assert made.query(sql)["n"].null_count() == 0
    frame = pl.DataFrame({"sex": pl.Series(["f"] * 30, dtype=pl.Enum(["f", "x"]))})
    found = frame.dp.sql(
        "SELECT sex, COUNT(*) AS n FROM self GROUP BY sex", budget=HUGE, suppress_below=10
    )
    assert dict(zip(found["sex"], found["n"].is_null(), strict=True)) == {
        "f": False, "x": True, None: True,
    }  # fmt: skip


@pytest.mark.parametrize("below", [-1, 0, 0.0, "10", True, math.nan, math.inf, [1]])
def test_what_is_no_number_of_rows_is_refused_before_the_charge(below):
    one, sql = session(), f"SELECT sex, COUNT(*) AS n {OF}"
    with pytest.raises(dpsql.ArgumentError, match="number of rows") as caught:
        one.release(sql, budget=HUGE, suppress_below=below)
    assert "suppress_below=10" in caught.value.hint
    assert one.ledger.entries() == ()
    made = one.release(sql, budget=HUGE)
    with pytest.raises(dpsql.ArgumentError):
        made.suppressed(below)
    with pytest.raises(dpsql.ArgumentError):
        made.query(sql, suppress_below=below)


def test_adjusted_values_go_with_theirs():
    sql = f"SELECT sex, COUNT(*) AS n {OF}"
    made = released(sql, nonnegative=True, suppress_below=10)
    assert made["asked"]["n_adjusted"].is_null().to_list() == [False, False, True]
    said = dict(made.columns("asked").select("column", "reason").rows())
    assert "fewer than 10 rows" in said["n"]
    assert "fewer than 10 rows" in said["n_adjusted"]
    assert "biased" in said["n_adjusted"]
    assert said["sex"] is None
    assert "fewer than 10 rows" in made.summary()


def test_columns_that_are_only_named_so_stay():
    sql = f"SELECT sex, COUNT(*) AS n, sex AS n_adjusted {OF}"
    frame = released(sql).suppressed(10)["asked"]
    assert frame["n_adjusted"].null_count() == 0
    assert frame["n"].null_count() == 1


def test_biased_answers_are_suppressed_too():
    sql = f"SELECT sex, COUNT(*) AS n {OF}"
    made = released(sql, mechanism="aim", suppress_below=20)
    assert made["asked"]["n"].is_null().to_list() == [False, False, True]
    assert made.marks("asked")["n"].to_list() == [None, None, "suppressed"]


def test_batches_are_suppressed_as_the_frame_is(monkeypatch):
    sql = "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age"
    made = released(sql)
    shown = made.suppressed(10)
    expected = shown["asked"]
    assert 0 < expected["n"].null_count() < expected.height
    assert_frame_equal(pl.concat(shown.batches("asked", 7)), expected)
    fresh = made.suppressed(10)
    made._frames._frames.clear()
    monkeypatch.setattr(frames, "MAX_CELLS", 5)
    with pytest.raises(dpsql.ResourceLimitError):
        fresh["asked"]
    assert_frame_equal(pl.concat(fresh.batches("asked", 7)), expected)


# ── on disk ────────────────────────────────────────────────────────────────────────────────

STORED = {
    "n": f"SELECT sex, COUNT(*) AS n {OF}",
    "a": f"SELECT sex, AVG(age) AS a, COUNT(*) AS n {OF} ORDER BY n",
    "m": f"SELECT sex, MEDIAN(age) AS m {OF}",
}


def test_what_is_saved_has_all_values_and_can_be_shown_so(tmp_path):
    one = session()
    made = one.release(
        STORED, budget=SMALL, confidence=0.9, out=tmp_path / "out", suppress_below=20
    )
    loaded = dpsql.Release.load(tmp_path / "out", ledger=one.ledger)
    assert loaded["n"]["n"].null_count() == 0
    made.save(tmp_path / "again")
    for name in ("n.parquet", "a.parquet", "release.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    shown = loaded.suppressed(20)
    for name in STORED:
        assert_frame_equal(shown[name], made[name], rel_tol=1e-9)
        assert_frame_equal(shown.marks(name), made.marks(name))
        assert_frame_equal(shown.columns(name), made.columns(name))
    assert_frame_equal(pl.concat(shown.batches("n", 2)), made["n"], rel_tol=1e-9)


def test_answers_are_taken_elsewhere_as_they_are_shown(tmp_path):
    made = released(f"SELECT sex, COUNT(*) AS n {OF}", suppress_below=10)
    made.to_csv(tmp_path / "csv")
    assert (tmp_path / "csv" / "asked.csv").read_text().splitlines()[3] == "x,,"
    said = json.loads((tmp_path / "csv" / "metadata.json").read_text())
    assert said["post_processing"]["suppress_below"] == 10
    assert "fewer than 10 rows" in said["statements"]["asked"]["columns"][1]["meaning"]
    con = duckdb.connect()
    made.to_duckdb(con)
    assert con.execute("SELECT sex FROM asked WHERE n IS NULL").fetchall() == [("x",)]


def test_what_can_not_be_answered_again_is_refused(tmp_path):
    """A statement over a public table, which a folder does not have; and forged values."""
    con = connect()
    con.execute("CREATE TABLE names AS SELECT 'f' AS k, 'women' AS called").fetchall()
    one = dpsql.Session(con, schema=SCHEMA, public="names")
    sql = "SELECT called, COUNT(*) AS n FROM people JOIN names ON sex = k GROUP BY called"
    made = one.release(sql, budget=HUGE, out=tmp_path / "out")
    assert made.suppressed(10)["query"]["n"].null_count() == 0
    loaded = dpsql.Release.load(tmp_path / "out")
    assert loaded["query"].height == 1
    for ask in (lambda: loaded.suppressed(10)["query"], lambda: loaded.marks("query")):
        with pytest.raises(dpsql.UndeterminedError, match="public table") as caught:
            ask()
        assert "public={…: frame}" in caught.value.hint
    names = {"names": pl.DataFrame({"k": ["f"], "called": ["women"]})}
    asked = loaded.facts.statements["query"]
    assert loaded.query(asked, public=names, suppress_below=10)["n"].null_count() == 0
    assert loaded.query(asked, public=names, suppress_below=100)["n"].null_count() == 1


@pytest.mark.parametrize("mechanism", ["aim", "pairs"])
def test_what_fitted_tables_say_is_known_until_they_are_saved(tmp_path, mechanism):
    sql = "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age"
    made = released(sql, dpsql.Budget(rho=1), mechanism=mechanism, out=tmp_path / "out")
    assert made.suppressed(100)["asked"]["n"].null_count() > 0
    made.suppressed(100).to_csv(tmp_path / "csv")
    loaded = dpsql.Release.load(tmp_path / "out")
    for ask in (lambda: loaded.suppressed(10)["asked"], lambda: loaded.marks("asked")):
        with pytest.raises(dpsql.UndeterminedError, match="fitted") as caught:
            ask()
        assert "suppress_below=10" in caught.value.hint


def test_groups_that_were_left_out_are_left_out_again(tmp_path):
    sql = "SELECT sex, age, COUNT(*) AS n, AVG(income) AS a FROM people GROUP BY sex, age"
    made = released(sql, SMALL, groups_above=2, out=tmp_path / "out")
    assert 7 <= made["asked"].height < 30
    loaded = dpsql.Release.load(tmp_path / "out")
    assert loaded.facts.groups_above == 2
    assert_frame_equal(loaded.marks("asked"), made.marks("asked"))
    assert_frame_equal(loaded.suppressed(50)["asked"], made.suppressed(50)["asked"], rel_tol=1e-9)


# ── marks ──────────────────────────────────────────────────────────────────────────────────


def test_marks_are_those_of_noise(monkeypatch):
    """180 counts of which most are of no row: those below their standard error, and no others."""
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(11))
    sql = "SELECT sex, age, COUNT(*) AS n, AVG(income) AS a FROM people GROUP BY sex, age"
    made = released(sql, SMALL)
    frame, marked = made["asked"], made.marks("asked")
    assert marked.columns == ["n", "a"]
    assert marked.schema["n"] == pl.Enum(["suppressed", "divided by noise", "noise"])
    below = frame["n"].abs() < frame["n_variance"].sqrt()
    assert (marked["n"] == "noise").fill_null(value=False).to_list() == below.to_list()
    near = frame["n"].abs() < 2 * frame["n_variance"].sqrt()
    divided = (marked["a"] == "divided by noise").fill_null(value=False)
    assert 0 < near.sum() < frame.height
    assert (divided == near).mean() > 0.8  # an average divides by a count of its own
    assert marked["n"][frame["n"].arg_max()] is None


def test_suppression_is_the_first_mark(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(5))
    sql = f"SELECT sex, COUNT(*) AS n, AVG(age) AS a {OF}"
    made = released(sql)
    assert made.marks("asked")["a"].to_list() == [None, None, "divided by noise"]
    marked = made.suppressed(100).marks("asked")
    assert marked["n"].to_list() == marked["a"].to_list() == ["suppressed", None, "suppressed"]
    with pytest.raises(KeyError):
        made.marks("nothing")


def test_a_quantile_is_noise_if_its_interval_leaves_out_nothing(monkeypatch):
    """As that of a group without rows. Both ways to answer, several types, and what has none."""
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(7))
    each = "MEDIAN(age) AS m, QUANTILE_DISC(age, 0.25) AS q, MIN(age) AS low, MAX(age) AS high"
    for more in ("", "HAVING COUNT(*) > -1000 ORDER BY sex", "ORDER BY sex LIMIT 3"):
        made = released(f"SELECT sex, {each} {OF} {more}", dpsql.Budget(rho=0.2))
        frame, marked = made["asked"], made.marks("asked")
        assert marked.columns == ["m", "q", "low", "high"]
        assert frame["m_lower"][2] == 0
        assert frame["m_upper"][2] == 9
        for name in marked.columns:
            assert marked[name].to_list() == [None, None, "noise"], (more, name)
    days = f"SELECT sex, QUANTILE_DISC(DATE '2020-01-01' + age, 0.5) AS d, COUNT(*) AS n {OF}"
    made = released(f"{days} ORDER BY sex", dpsql.Budget(rho=0.2), confidence=0.8)
    assert made.marks("asked")["d"].to_list() == [None, None, "noise"]
    made = released(f"SELECT sex, MEDIAN(age) + 1 AS m, MEDIAN(1) AS one {OF}", SMALL)
    assert made.marks("asked").null_count().row(0) == (3, 3)


def test_variances_are_divided_by_noise_too(monkeypatch):
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(2))
    made = released(f"SELECT sex, VAR_SAMP(age) AS v {OF}")
    assert made.marks("asked")["v"].to_list() == [None, None, "divided by noise"]
