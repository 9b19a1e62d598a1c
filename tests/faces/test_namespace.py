"""`df.dp`: Polars frames as private tables."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal

import polars as pl
import pytest

import dpsql
import dpsql.polars_namespace
from dpsql.engines.duckdb.frames import store_frame
from dpsql.errors import SchemaError
from dpsql.privacy import Ledger
from tests.helpers.described import read_table

LARGE = dpsql.Budget(rho=10_000)
COUNT = "COUNT(*) AS n FROM self"


@pytest.fixture
def people() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "sex": pl.Series(["F", "M", None, "F"] * 100, dtype=pl.Enum(["F", "M"])),
            "Employed": [True, None, False, True] * 100,
            "age": [10, 20, 30, None] * 100,
            "person": list(range(100)) * 4,
        }
    )


def counts(frame: pl.DataFrame) -> list[int]:
    return [round(n) for n in frame["n"]]


def test_enum_and_boolean_bring_their_values(people):
    frame = people.dp.sql(f"SELECT sex, employed, {COUNT} GROUP BY sex, employed", budget=LARGE)
    assert frame["sex"].dtype == pl.Enum(["F", "M"])
    assert frame.select("sex", "Employed").rows() == [
        (sex, employed) for sex in ("F", "M", None) for employed in (False, True, None)
    ]
    assert counts(frame) == [0, 200, 0, 0, 0, 100, 100, 0, 0]


def test_other_columns_are_declared(people):
    sql = f"SELECT age, {COUNT} GROUP BY age"
    schema = {"age": dpsql.Domain.integers(9, 30)}
    frame = people.dp.sql(sql, budget=LARGE, schema=schema)
    assert dict(zip(frame["age"], counts(frame), strict=True))[20] == 100
    assert frame.height == 22
    with pytest.raises(SchemaError, match="no public domain") as caught:
        people.dp.sql(sql, budget=LARGE)
    # The hint is a Schema, as for tables of a database, so that is taken too.
    assert 'dpsql.Schema({"self": {"age": dpsql.Domain.integers(' in caught.value.hint
    assert people.dp.sql(sql, budget=LARGE, schema=dpsql.Schema({"self": schema})).height == 22


def test_a_declaration_can_leave_out_null(people):
    schema = {"sex": dpsql.Domain.labels(["F", "M"])}
    frame = people.dp.sql(f"SELECT sex, {COUNT} GROUP BY sex", budget=LARGE, schema=schema)
    assert counts(frame) == [200, 100]


def test_lazy_frames_are_collected(people):
    frame = people.lazy().filter(pl.col("age") == 20).dp.sql(f"SELECT {COUNT}", budget=LARGE)
    assert counts(frame) == [100]


def test_several_statements_give_a_release(people):
    statements = {"a": f"SELECT {COUNT}", "b": f"SELECT sex, {COUNT} GROUP BY sex"}
    release = people.dp.sql(statements, budget=LARGE, confidence=0.9)
    assert list(release) == ["a", "b"]
    assert "n_lower" in release["b"].columns


def test_a_session_keeps_one_account(people):
    session = people.dp.session(budget=dpsql.Budget(rho=1))
    gc.collect()  # nothing but the session holds the database
    session.query(f"SELECT {COUNT}", budget=dpsql.Budget(rho=0.75))
    assert session.remaining == dpsql.Budget(rho=0.25).rho
    with pytest.raises(dpsql.BudgetError):
        session.query(f"SELECT {COUNT}", budget=dpsql.Budget(rho=0.5), reuse=False)


def test_a_ledger_keeps_the_account_across_calls(people, tmp_path):
    file = tmp_path / "people.ledger"
    for _ in range(2):
        people.dp.sql(f"SELECT {COUNT}", budget=dpsql.Budget(rho=0.5), ledger=file)
    assert Ledger.existing(file).spent == dpsql.Budget(rho=1).mu_squared


def test_units_are_protected_together(people):
    session = people.dp.session(unit="person", max_rows=2)
    plan = session.plan(f"SELECT {COUNT}", budget=LARGE)
    assert plan.contributions == 2
    assert counts(session.query(f"SELECT {COUNT}", budget=LARGE)) == [200]


def test_public_frames_are_joined(people):
    bands = pl.DataFrame({"band": ["low", "high"], "lo": [0, 20], "hi": [19, 99]})
    frame = people.dp.sql(
        f"SELECT b.band, {COUNT} JOIN bands AS b ON age BETWEEN b.lo AND b.hi GROUP BY b.band",
        budget=LARGE,
        schema={"age": dpsql.Domain.integers(0, 99)},
        public={"bands": bands},
    )
    assert dict(zip(frame["band"], counts(frame), strict=True)) == {"low": 100, "high": 200}


def test_nothing_of_the_frame_itself_is_changed(people):
    before = people.clone()
    people.dp.sql(f"SELECT {COUNT}", budget=LARGE)
    assert people.equals(before)
    assert people.schema == before.schema


def described(series: pl.Series) -> tuple[dict, dict]:
    frame = pl.DataFrame({"c": series}).with_row_index("other")
    with store_frame(frame) as con:
        table = read_table(con, ("self",))
    return dict(table.columns), dict(table.undeclared)


STORED = {
    "TINYINT": pl.Series([1, None], dtype=pl.Int8),
    "UBIGINT": pl.Series([1, None], dtype=pl.UInt64),
    "FLOAT": pl.Series([1.5, float("nan")], dtype=pl.Float16),
    "DOUBLE": pl.Series([float("nan"), float("inf"), None]),
    "VARCHAR": pl.Series(["x", None], dtype=pl.Categorical),
    "DATE": pl.Series([dt.date(2026, 1, 1), None]),
    "TIMESTAMP": pl.Series([dt.datetime(2026, 1, 1, 5)], dtype=pl.Datetime("ns")),
    "DECIMAL(10,2)": pl.Series([Decimal("1.25")], dtype=pl.Decimal(10, 2)),
    "HUGEINT": pl.Series([2**100, None], dtype=pl.Int128),
    "UHUGEINT": pl.Series([2**127, None], dtype=pl.UInt128),
    "INTEGER": pl.Series([None, None]),
    "BIGINT[]": pl.Series([[1], None]),
    "STRUCT(a BIGINT)": pl.Series([{"a": 1}]),
    "BLOB": pl.Series([b"x"]),
}


@pytest.mark.parametrize(("type_", "series"), STORED.items(), ids=list(STORED))
def test_columns_keep_their_type_and_say_nothing_of_their_rows(type_, series):
    columns, undeclared = described(series)
    assert columns == {}
    assert undeclared == {"other": "UINTEGER", "c": type_}


@pytest.mark.parametrize("values", [[2**100, -(2**100), None, 0], [None, None]], ids=str)
def test_what_comes_as_text_is_what_it_was(values):
    frame = pl.DataFrame({"c": pl.Series(values, dtype=pl.Int128 if any(values) else pl.Null)})
    with store_frame(frame) as con:
        assert [row for (row,) in con.execute("SELECT c FROM self").fetchall()] == values


def test_columns_that_cannot_be_read_are_left_out():
    columns, undeclared = described(pl.Series([None], dtype=pl.Object))
    assert columns == {}
    assert set(undeclared) == {"other"}


def test_the_clock_of_a_time_zone_is_kept():
    late = pl.Series([dt.datetime(2026, 1, 1, 23)]).dt.replace_time_zone("America/New_York")
    frame = pl.DataFrame({"at": late}).dp.sql(
        f"SELECT at, {COUNT} GROUP BY at",
        budget=LARGE,
        schema={"at": dpsql.Domain.dates("2026-01-01", "2026-01-02")},
    )
    assert counts(frame) == [1, 0]


def test_nan_has_no_bin():
    frame = pl.DataFrame({"x": [0.5, float("nan"), None, float("inf")]}).dp.sql(
        f"SELECT x, {COUNT} GROUP BY x",
        budget=LARGE,
        schema={"x": dpsql.Domain.bins([0, 1, 2], nullable=True)},
    )
    assert counts(frame) == [1, 0, 3]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pl.DataFrame({"a": [1], "A": [2]}), "can't tell the columns a and A apart"),
        (pl.DataFrame({"": [1]}), "has no name"),
        (pl.DataFrame(), "no column"),
        (pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}), "no column"),
    ],
    ids=["case", "empty", "nothing", "object"],
)
def test_frames_that_cannot_be_tables_are_refused(frame, message):
    with pytest.raises(SchemaError, match=message):
        frame.dp.sql(f"SELECT {COUNT}", budget=LARGE)


def test_odd_names_and_labels_are_only_names_and_labels():
    odd = '"; DROP TABLE self; --'
    frame = pl.DataFrame({odd: pl.Series(["it's", "^x$"], dtype=pl.Enum(["it's", "^x$"]))})
    quoted = '"' + odd.replace('"', '""') + '"'
    answer = frame.dp.sql(f"SELECT {quoted} AS k, {COUNT} GROUP BY {quoted}", budget=LARGE)
    assert answer["k"].to_list() == ["it's", "^x$", None]
    assert counts(answer) == [1, 1, 0]
