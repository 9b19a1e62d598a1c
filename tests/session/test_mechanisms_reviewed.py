"""What a hostile reader found of mechanisms: kinds of noise, cells that changed, and zeros."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.answers.facts import GAUSSIAN_NOISE, LAPLACE_NOISE
from dpsql.errors import LedgerError, MechanismError, ReleaseFormatError, UndeterminedError
from tests.session.tools import AGES, BY_SEX, create

PURE = dpsql.Budget(epsilon=2, delta=0)
SAME = dpsql.Budget(rho=PURE.mu_squared / 2)
GAUSSIAN = dpsql.Budget(rho=0.1)


@pytest.fixture
def session():
    with create() as con:
        yield dpsql.Session(con)


def interrupted(monkeypatch, session, **asked):
    """Measure, and fail before anything is handed out."""

    def fail(*arguments, **more):
        raise OSError

    with monkeypatch.context() as broken:
        broken.setattr(dpsql.Release, "save", fail)
        with pytest.raises(OSError):
            session.release({"ages": AGES}, out="never", **asked)


@pytest.mark.parametrize(("first", "second"), [(SAME, PURE), (PURE, SAME)])
def test_one_kind_of_noise_is_not_handed_out_as_the_other(monkeypatch, session, first, second):
    """Both cost the same μ², and are asked in the same words."""
    interrupted(monkeypatch, session, budget=first, mechanism="hdmm")
    release = session.release({"ages": AGES}, budget=second, mechanism="hdmm")
    assert session.ledger.spent == 2 * PURE.mu_squared, "the second request is another one"
    assert release.facts.noise == (LAPLACE_NOISE if second.pure else GAUSSIAN_NOISE)
    assert release.facts.laplace == second.pure


@pytest.mark.parametrize("mechanism", ["aim", "pairs", "hdmm", "gaussian"])
def test_cells_that_a_public_table_changes_after_a_crash(monkeypatch, mechanism):
    with create() as con:
        con.execute("CREATE TABLE bands AS SELECT i AS age, i // 5 AS band FROM range(10) t(i)")
        session = dpsql.Session(con, public=["bands"])
        sql = {"b": "SELECT band, COUNT(*) AS n FROM people JOIN bands USING (age) GROUP BY band"}

        def fail(*arguments, **more):
            raise OSError

        with monkeypatch.context() as broken:
            broken.setattr(dpsql.Release, "save", fail)
            with pytest.raises(OSError):
                session.release(sql, budget=GAUSSIAN, mechanism=mechanism, out="never")
        # As many bands as before, of other ages: rows may not be counted to the wrong ones.
        con.execute("UPDATE bands SET band = (age + 3) % 10 // 5")
        huge = dpsql.Budget(rho=1000)
        exact = con.execute(
            "SELECT band, count(*) FROM people JOIN bands USING (age) GROUP BY ALL ORDER BY band"
        ).fetchall()
        release = session.release(sql, budget=GAUSSIAN, mechanism=mechanism)
        assert session.ledger.spent == 2 * GAUSSIAN.mu_squared
        assert release["b"].height == 2
        near = session.release(sql, budget=huge, mechanism=mechanism)["b"].sort("band")
        assert near["n"].to_list() == pytest.approx([n for _, n in exact], abs=3)


@pytest.mark.parametrize(("mechanism", "budget"), [("gaussian", GAUSSIAN), ("laplace", PURE)])
@pytest.mark.parametrize("more", [{}, {"ages": AGES}])
def test_queries_that_are_always_zero(session, mechanism, budget, more):
    script = {"none": "SELECT COUNT(*) AS n FROM people WHERE age > 5 AND age < 3", **more}
    try:
        release = session.release(script, budget=budget, mechanism=mechanism)
    except dpsql.SqlError:  # no possible row fulfils it
        return
    assert abs(release["none"]["n"][0]) < 1e-9
    assert release["none"]["n_variance"][0] < 1e-9


@pytest.mark.parametrize("mechanism", ["laplace", "hdmm"])
def test_a_free_release_states_the_noise_of_what_it_rests_on(session, tmp_path, mechanism):
    session.release({"ages": AGES}, budget=PURE, mechanism=mechanism)
    free = session.release({"ages": AGES}, budget=0, out=tmp_path / "free")
    assert free.facts.noise == LAPLACE_NOISE
    assert free.facts.mechanism is None
    assert "discrete Laplace noise" in free.summary()
    loaded = dpsql.Release.load(tmp_path / "free", ledger=session.ledger)
    assert loaded.facts.noise == LAPLACE_NOISE
    assert_frame_equal(loaded["ages"], free["ages"])


def test_a_table_answers_what_single_queries_dont(session):
    script = {
        "old": "SELECT COUNT(*) AS n FROM people WHERE age > 3",
        "table": "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex",
    }
    for mechanism, budget in (("laplace", PURE), ("gaussian", GAUSSIAN)):
        release = session.release(script, budget=budget, mechanism=mechanism)
        ages = release.query(AGES)
        table = release["table"].group_by("age").agg(pl.col("n").sum()).sort("age")
        assert ages["n"].to_list() == pytest.approx(table["n"].to_list())


@pytest.mark.parametrize(
    ("says", "mechanism", "budget"),
    [
        ({"mechanism": "laplace"}, "gaussian", GAUSSIAN),
        ({"mechanism": "querysmasher"}, "gaussian", GAUSSIAN),
        ({"mechanism": "aim", "rmse": None}, "hdmm", GAUSSIAN),
        ({"mechanism": "hdmm", "rmse": 1.0}, "aim", GAUSSIAN),
        ({"mechanism": "pairs", "rmse": None}, "hdmm", GAUSSIAN),
        ({"mechanism": "pairs"}, "querysmasher", GAUSSIAN),
        ({"mechanism": "querysmasher"}, "pairs", GAUSSIAN),
        ({"mechanism": "aim"}, "pairs", GAUSSIAN),
        ({"mechanism": "pairs"}, "aim", GAUSSIAN),
        ({"laplace": True}, "hdmm", GAUSSIAN),
        ({"budget": PURE}, "hdmm", SAME),
        ({"budget": PURE, "laplace": True}, "hdmm", SAME),
        ({"laplace": False, "budget": SAME}, "laplace", PURE),
    ],
)
def test_a_release_that_says_another_kind_of_promise(session, tmp_path, says, mechanism, budget):
    """Not even with the ledger that holds its charge."""
    from dataclasses import replace

    release = session.release({"ages": AGES}, budget=budget, mechanism=mechanism)
    forged = release.with_facts(replace(release.facts, **says)).save(tmp_path / "forged")
    if says == {"mechanism": "laplace"}:
        # A name for the same kind of measurements: the noise that is stated is still true.
        assert dpsql.Release.load(forged).facts.noise == GAUSSIAN_NOISE
        return
    with pytest.raises((ReleaseFormatError, LedgerError)):
        dpsql.Release.load(forged, ledger=session.ledger)


def test_what_is_missing_is_said_of_the_measurements_there_are(session):
    session.release({"sexes": BY_SEX}, budget=PURE, mechanism="laplace")
    with pytest.raises(UndeterminedError) as caught:
        session.query("SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex", budget=0)
    assert "can't be put together" in caught.value.hint
    assert "age" in caught.value.message


def test_nothing_is_measured_by_any_mechanism_where_nothing_is_asked():
    con = duckdb.connect()
    con.execute("CREATE TABLE people (sex BOOLEAN NOT NULL)")
    for mechanism in ("gaussian", "hdmm", "fourier"):
        with pytest.raises(MechanismError):
            dpsql.query(con, "SELECT COUNT(*) AS n FROM people", budget=0, mechanism=mechanism)
