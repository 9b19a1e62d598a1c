"""Standard errors in place of variances: in whatever is handed out, and in nothing that is kept."""

from __future__ import annotations

import json

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql import request
from dpsql.errors import ArgumentError, SqlError
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, connect

END = "_standard_error"


@pytest.fixture(scope="module")
def release() -> dpsql.Release:
    session = dpsql.Session(connect(), schema=SCHEMA)
    return session.release(SCRIPT, budget=BUDGET, confidence=0.9)


def as_roots(frame: pl.DataFrame) -> pl.DataFrame:
    """Write the same by hand: the variance of each value, by its place behind that."""
    ends = [name for name in frame.columns if name.endswith("_variance")]
    assert ends
    roots = [pl.col(n).sqrt().alias(n.replace("_variance", END)) for n in ends]
    return frame.select(*(roots[ends.index(n)] if n in ends else pl.col(n) for n in frame.columns))


def test_whatever_is_handed_out_has_them(release, tmp_path):
    shown = release.with_standard_errors()
    con = duckdb.connect()
    places = shown.to_duckdb(con, schema="temp")
    shown.to_parquet(tmp_path / "parquet")
    shown.to_csv(tmp_path / "csv")
    for name in SCRIPT:
        wanted = as_roots(release[name])
        assert_frame_equal(shown[name], wanted)
        assert_frame_equal(shown.suppressed(1)[name], as_roots(release.suppressed(1)[name]))
        assert pl.concat(shown.batches(name, 2)).columns == wanted.columns
        assert shown.to_arrow()[name].column_names == wanted.columns
        assert [*shown.to_pandas()[name].columns] == wanted.columns
        assert con.sql(f"FROM {places[name]}").columns == wanted.columns
        for form, read in (("parquet", pl.read_parquet), ("csv", pl.read_csv)):
            said = json.loads((tmp_path / form / "metadata.json").read_text())["statements"][name]
            assert read(tmp_path / form / said["file"]).columns == wanted.columns
            for column in said["columns"]:
                assert "variance beside" not in column["meaning"]
                is_error = column["column"].endswith(END)
                assert (column["role"] == "standard_error") == is_error
                assert not is_error or column["of"] == column["column"].removesuffix(END)
    sql = "SELECT COUNT(*) AS n FROM people"
    assert_frame_equal(shown.query(sql), as_roots(release.query(sql)))


def test_what_is_kept_read_and_marked_is_as_without(release, tmp_path):
    shown = release.with_standard_errors()
    loaded = dpsql.Release.load(shown.save(tmp_path / "kept"))
    for name in SCRIPT:
        assert_frame_equal(loaded[name], release[name])
        assert_frame_equal(loaded.with_standard_errors()[name], shown[name])
        assert_frame_equal(shown.marks(name), release.marks(name))
        assert_frame_equal(shown.columns(name), release.columns(name))
        assert_frame_equal(shown.show(name), release.show(name))
    for style, form in (("to_markdown", "md"), ("to_csv", "csv")):
        pages = [
            getattr(each, style)(tmp_path / f"{i}{form}", style="office")
            for i, each in enumerate((shown, release))
        ]
        own, other = ({p.name: p.read_text() for p in page.glob(f"*.{form}")} for page in pages)
        assert own == other
    assert shown.summary() == release.summary()


def test_every_way_of_asking_takes_the_option():
    sql = "SELECT member, COUNT(*) AS n FROM people GROUP BY member"
    asked = {"budget": BUDGET, "standard_errors": True}
    session = dpsql.Session(connect(), schema=SCHEMA)
    frame = connect().sql("SELECT member FROM people").pl()
    for found in (
        session.query(sql, **asked),
        session.query(sql, budget=0, standard_errors=True),
        session.release({"a": sql, "b": SCRIPT["by sex"]}, **asked)["a"],
        dpsql.query(connect(), sql, schema=SCHEMA, **asked),
        dpsql.query(connect(), [sql], schema=SCHEMA, **asked)["query_1"],
        frame.dp.sql(sql.replace("people", "self"), **asked),
    ):
        assert found.columns == ["member", "n", "n_standard_error"]
        assert found["n_standard_error"].is_between(1, 10).all()
    with pytest.raises(ArgumentError, match="standard_errors"):
        session.query(sql, budget=BUDGET, standard_errors="yes")
    assert session.query(sql, budget=0).columns == ["member", "n", "n_variance"]


def test_it_asks_for_nothing_else():
    """So it is neither a reason to measure again, nor to charge what was paid for."""
    asked = (("q", SCRIPT["by sex"]),)
    plain = request.Request(asked, BUDGET)
    assert request.Request(asked, BUDGET, standard_errors=True).digest == plain.digest


@pytest.mark.parametrize("alias", ["n_standard_error", "N_Standard_Error"])
def test_no_other_column_has_the_name(alias):
    session = dpsql.Session(connect(), schema=SCHEMA)
    for items in (f"member AS {alias}, COUNT(*) AS n", f"SUM(age) AS {alias}, COUNT(*) AS n"):
        with pytest.raises(SqlError, match=r"(?i)two columns .* n_standard_error"):
            session.query(f"SELECT {items} FROM people GROUP BY member", budget=BUDGET)
    assert not session.history.height


def test_what_a_statement_calls_a_variance_is_none():
    """A key `n`, and an average that is called as the variance of a value `n` would be."""
    sql = "SELECT member AS n, AVG(age) AS n_variance FROM people GROUP BY member"
    session = dpsql.Session(connect(), schema=SCHEMA)
    plain = session.query(sql, budget=BUDGET)
    found = session.query(sql, budget=0, standard_errors=True)
    assert found["n_variance"].to_list() == plain["n_variance"].to_list()
    assert found.columns == ["n", "n_variance", "n_variance_standard_error"]


def test_biased_answers_have_neither():
    sql = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
    asked = {"budget": BUDGET, "mechanism": "pairs", "standard_errors": True}
    assert dpsql.query(connect(), sql, schema=SCHEMA, **asked).columns == ["sex", "n"]
