"""Answers taken elsewhere: CSV, Parquet, DuckDB, Arrow and pandas have what frames have."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import math
import os
import resource
import sys
from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.answers.frames import DESCRIBED, slices
from dpsql.errors import ReleaseFormatError
from dpsql.present import disk, formats
from dpsql.release.release import Release
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, connect

FIRST = dt.datetime(1950, 1, 1)
VALUES = pl.DataFrame(
    {
        "label": pl.Series(["a", None, "", 'b,"x"\n'], dtype=pl.Enum(["a", "", 'b,"x"\n', "="])),
        "text": ["<script>", None, "", "\r"],
        "whole": [1, None, 2**62 + 1, -(2**63)],
        "small": pl.Series([1, None, 255, 0], dtype=pl.UInt8),
        "huge": pl.Series([2**100, None, -(2**100), 0], dtype=pl.Int128),
        "n": [0.1 + 0.2, math.nan, None, 5e-324],
        "n_variance": [math.inf, -math.inf, 1e308, None],
        "day": [dt.date(2020, 1, 2), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "clock": [dt.time(1, 2, 3, 4), None, dt.time(0), dt.time(23, 59, 59, 999_999)],
        "stamp": [dt.datetime(2020, 1, 2, 3, 4, 5, 6), None, dt.datetime(1, 1, 1), FIRST],
        "zoned": pl.Series(
            [dt.datetime(2020, 7, 2, 3, 4, 5, 6), None, FIRST, dt.datetime(2020, 10, 25, 0, 30)],
        ).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"),
        "lasts": [dt.timedelta(3, 4, 5), None, dt.timedelta(-1, 0, 1), dt.timedelta(0)],
        "price": pl.Series(
            [Decimal("1.20"), None, Decimal("-0.05"), Decimal(10**8)], dtype=pl.Decimal(12, 2)
        ),
        "yes": [True, None, False, True],
        "several": [[1, None], None, [], [3]],
        "both": [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}, {"a": 2, "b": None}],
    }
)  # fmt: skip


class Given:
    """Frames that are given, as those of a release."""

    def __init__(self, given: dict[str, pl.DataFrame]) -> None:
        self.given = given

    @property
    def names(self):
        return tuple(self.given)

    def frame(self, name):
        return self.given[name]

    def batches(self, name, rows):
        yield from slices(self.given[name], rows)

    def columns(self, name):
        kept = [c for c in self.given[name].columns if c != "n_variance"]
        rows = [
            (c, "value" if c == "n" else "key", "exact" if c == "n" else None, None) for c in kept
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(DESCRIBED, pl.String), orient="row")


def with_frames(release: Release, given: dict[str, pl.DataFrame]) -> Release:
    """A release with other answers."""
    from dataclasses import replace

    facts = replace(release.facts, statements=dict.fromkeys(given, "SELECT 1"))
    return Release(facts, Given(given), b"")


@pytest.fixture(scope="module")
def typed(release):
    return with_frames(release, {"values": VALUES, "none": VALUES.clear()})


def said_of(path: Path) -> dict:
    return json.loads((path / "metadata.json").read_text(encoding="utf-8"))


def read_csv(con: duckdb.DuckDBPyConnection, path: Path, said: dict, name: str) -> None:
    """Make a table of a file, by the types that the metadata name."""
    columns = {f'"{c["column"]}"': c["type"] for c in said["columns"]}
    texts = ", ".join(f"{column}: 'VARCHAR'" for column in columns)
    values = ", ".join(
        f"CAST({c}{'::JSON' if '[]' in t or 'STRUCT' in t else ''} AS {t}) AS {c}"
        for c, t in columns.items()
    )
    con.execute(
        f"CREATE TABLE {name} AS SELECT {values} FROM read_csv('{path}', columns = {{{texts}}}, "
        "header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '', "
        "allow_quoted_nulls = false, auto_detect = false)"
    ).fetchall()


def assert_same_rows(con: duckdb.DuckDBPyConnection, one: str, other: str) -> None:
    assert con.execute(f"DESCRIBE {one}").fetchall() == con.execute(f"DESCRIBE {other}").fetchall()
    for left, right in ((one, other), (other, one)):
        sql = f"SELECT * FROM {left} EXCEPT ALL SELECT * FROM {right}"
        assert con.execute(sql).fetchall() == []


# ── each form ──────────────────────────────────────────────────────────────────────────────


def test_each_value_is_the_same_in_csv_and_in_duckdb(typed, tmp_path):
    """NaN, infinities, NULL beside empty texts, times to the microsecond, decimals, lists."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'Europe/Berlin'").fetchall()
    typed.to_csv(tmp_path / "csv")
    typed.to_duckdb(con, schema="here")
    for name in typed:
        said = said_of(tmp_path / "csv")["statements"][name]
        read_csv(con, tmp_path / "csv" / said["file"], said, f"read_{name}")
        assert_same_rows(con, f'here."{name}"', f"read_{name}")
    plain = [c for c in VALUES.columns if c not in ("lasts", "zoned", "huge")]
    listed = ", ".join(f'"{c}"' for c in plain)
    found = con.execute(f'SELECT {listed} FROM here."values"').fetchall()
    assert repr(found) == repr(VALUES.select(plain).rows())
    sql = 'SELECT huge, lasts, epoch_us(zoned) FROM here."values"'
    moments = VALUES["zoned"].dt.epoch("us")
    assert con.execute(sql).fetchall() == list(
        zip(VALUES["huge"], VALUES["lasts"], moments, strict=True)
    )
    assert con.execute('SELECT count(*) FROM here."none"').fetchall() == [(0,)]
    types = dict(
        con.execute('SELECT column_name, column_type FROM (DESCRIBE here."values")').fetchall()
    )
    assert types["label"].startswith("ENUM(")
    assert types["clock"] == "TIME"
    assert types["price"] == "DECIMAL(12,2)"


def test_parquet_has_the_same_frames(typed, tmp_path):
    path = typed.to_parquet(tmp_path / "answers")
    assert path == tmp_path / "answers"
    said = said_of(path)["statements"]
    for name in typed:
        assert_frame_equal(pl.read_parquet(path / said[name]["file"]), typed[name])
    assert pl.read_parquet(path / "values.parquet").schema == VALUES.schema


def test_arrow_and_pandas_keep_types(typed):
    import pandas as pd

    kept = VALUES.drop("huge")  # Arrow has no such integers
    typed = with_frames(typed, {"values": kept, "none": kept.clear()})
    arrow = typed.to_arrow()
    assert_frame_equal(pl.DataFrame(arrow["values"]), kept)
    frames = typed.to_pandas()
    assert list(frames) == ["values", "none"]
    values = frames["values"]
    assert values["whole"].tolist() == [1, pd.NA, 2**62 + 1, -(2**63)]
    assert values["label"].cat.categories.tolist() == ["a", "", 'b,"x"\n', "="]
    assert values["label"].isna().tolist() == [False, True, False, False]
    assert values["price"].iloc[2] == Decimal("-0.05")
    assert values["day"].iloc[3] == dt.date(9999, 12, 31)
    assert values["clock"].iloc[3] == dt.time(23, 59, 59, 999_999)
    assert values["yes"].dtype == pd.BooleanDtype()
    assert math.isinf(values["n_variance"].iloc[0])
    assert math.isnan(values["n"].iloc[1])
    assert values["lasts"].iloc[0] == pd.Timedelta(dt.timedelta(3, 4, 5))
    assert str(values["zoned"].dtype) == "datetime64[us, Europe/Berlin]"
    assert (frames["none"].dtypes == values.dtypes).all()
    assert len(frames["none"]) == 0


def test_without_pandas(release, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ReleaseFormatError, match="not installed") as caught:
        release.to_pandas()
    assert caught.value.hint == 'pip install "dpsql[pandas]"'


# ── a release ──────────────────────────────────────────────────────────────────────────────


def test_metadata_say_what_was_asked_and_what_it_means(release, tmp_path):
    said = said_of(release.to_csv(tmp_path / "answers"))
    assert said["what"] == "answers of a dpsql release"
    assert said["neighbours"] == release.neighbours
    assert said["budget"]["asked"] == {"form": "epsilon", "amount": "1", "delta": "1/1000000000"}
    assert said["ledger"]["entry"] == release.receipt.seq
    assert said["versions"]["dpsql"]
    assert said["post_processing"]["confidence"] == 0.9
    assert list(said["statements"]) == list(SCRIPT)
    for name, own in said["statements"].items():
        content = (tmp_path / "answers" / own["file"]).read_bytes()
        assert own["sha256"] == hashlib.sha256(content).hexdigest()
        assert own["sql"] == SCRIPT[name]
        assert own["rows"] == release[name].height
        assert [c["column"] for c in own["columns"]] == release[name].columns
        assert all(c["meaning"] for c in own["columns"])
    columns = {c["column"]: c for c in said["statements"]["towns"]["columns"]}
    assert columns["town"]["role"] == "key"
    assert columns["town"]["type"] == "VARCHAR"
    assert (columns["mean_lower"]["role"], columns["mean_lower"]["of"]) == ("lower", "mean")
    assert "0.9" in columns["n_upper"]["meaning"]
    assert columns["mean"]["variance"] == "approximate"
    assert "is approximate" in columns["mean"]["meaning"]
    assert sorted(p.name for p in (tmp_path / "answers").iterdir()) == [
        "born.csv", "by_sex.csv", "median.csv", "metadata.json", "towns.csv"
    ]  # fmt: skip


def test_adjusted_columns_and_loaded_releases_go_along(tmp_path):
    session = dpsql.Session(connect(), schema=SCHEMA)
    made = session.release({"born": SCRIPT["born"]}, budget=BUDGET, nonnegative=True)
    loaded = dpsql.Release.load(made.save(tmp_path / "saved"))
    for number, one in enumerate((made, loaded)):
        said = said_of(one.to_parquet(tmp_path / f"answers{number}"))["statements"]["born"]
        roles = [(c["column"], c["role"], c["of"]) for c in said["columns"]]
        assert roles[-2:] == [("n_variance", "variance", "n"), ("n_adjusted", "adjusted", "n")]
    first, second = (tmp_path / f"answers{i}" / "metadata.json" for i in (0, 1))
    assert first.read_bytes() == second.read_bytes()


def test_results_are_asked_where_they_were_written(release):
    con = connect()
    where = release.to_duckdb(con, schema="temp")
    assert where["by sex"] == '"temp"."main"."by sex"'
    n = release["born"]["n"].sum()
    ((found,),) = con.execute("SELECT sum(n) FROM born").fetchall()
    assert math.isclose(found, n, rel_tol=1e-12)
    sql = "SELECT comment FROM duckdb_tables() WHERE table_name = 'born'"
    ((comment,),) = con.execute(sql).fetchall()
    assert json.loads(comment)["statements"]["born"]["sql"] == SCRIPT["born"]
    sql = "SELECT comment FROM duckdb_columns() WHERE table_name = 'born' ORDER BY column_index"
    assert "public" in con.execute(sql).fetchall()[0][0]
    session = dpsql.Session(con, schema=SCHEMA)  # the private table is still found
    assert session.plan(SCRIPT, budget=BUDGET).rmse > 0


def test_a_private_table_is_never_hidden_nor_replaced(release):
    """By a statement of its name, in whatever case; another schema is the way out."""
    hiding = with_frames(release, {"People": VALUES})
    con = connect()
    before = con.execute("SELECT * FROM people").fetchall()
    for options in (
        {},
        {"overwrite": True},
        {"schema": "temp"},
        {"schema": "main", "overwrite": True},
    ):
        with pytest.raises(ReleaseFormatError, match="People already") as caught:
            hiding.to_duckdb(con, **options)
        assert "schema" in caught.value.hint
    con.execute("CREATE VIEW w AS SELECT 1").fetchall()
    with pytest.raises(ReleaseFormatError, match="W already"):
        with_frames(release, {"W": VALUES}).to_duckdb(con, overwrite=True)
    assert con.execute("SELECT * FROM people").fetchall() == before
    hiding.to_duckdb(con, schema="answers")
    assert con.execute("SELECT * FROM people").fetchall() == before
    assert con.execute("SELECT count(*) FROM answers.People").fetchall() == [(4,)]


def test_tables_are_replaced_if_they_may_be(release):
    con = duckdb.connect()
    release.to_duckdb(con, schema="answers")
    with pytest.raises(ReleaseFormatError, match="already") as caught:
        release.to_duckdb(con, schema="answers")
    assert "overwrite=True" in caught.value.hint
    con.execute("DELETE FROM answers.born").fetchall()
    release.to_duckdb(con, schema="answers", overwrite=True)
    assert con.execute("SELECT count(*) FROM answers.born").fetchall() == [
        (release["born"].height,)
    ]


def test_a_database_of_its_own(release, tmp_path):
    path = tmp_path / "answers.duckdb"
    assert release.to_duckdb(path)["born"] == '"main"."born"'
    assert os.listdir(tmp_path) == ["answers.duckdb"]
    with pytest.raises(ReleaseFormatError, match="exists already"):
        release.to_duckdb(str(path))
    assert release.to_duckdb(path, overwrite=True)["born"] == '"main"."born"'
    with duckdb.connect(path, read_only=True) as con:
        assert con.execute("SELECT count(*) FROM born").fetchall() == [(release["born"].height,)]
    with pytest.raises(ReleaseFormatError, match="can't be put into another schema"):
        release.to_duckdb(tmp_path / "other.duckdb", schema="results")
    people = tmp_path / "people.duckdb"
    with duckdb.connect(people) as con:
        con.execute("CREATE TABLE born (private INTEGER)").fetchall()
    with pytest.raises(ReleaseFormatError, match="born already"):
        release.to_duckdb(people, overwrite=True)
    (tmp_path / "text").write_text("no database, which is long enough for its first block")
    for wrong in (tmp_path / "text", tmp_path, tmp_path / "no" / "where.duckdb"):
        with pytest.raises(ReleaseFormatError):
            release.to_duckdb(wrong, overwrite=True)


def test_all_tables_are_written_or_none(release, tmp_path):
    class Failing(Given):
        def frame(self, name):
            if name == "second":
                raise dpsql.SqlError("it can't be computed")
            return super().frame(name)

    failing = Release(
        with_frames(release, {"first": VALUES, "second": VALUES}).facts,
        Failing({"first": VALUES, "second": VALUES}),
        b"",
    )
    con = duckdb.connect()
    with pytest.raises(dpsql.SqlError):
        failing.to_duckdb(con, schema="answers")
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
    con.begin()  # the caller's own transaction stays the caller's
    release.to_duckdb(con)
    con.rollback()
    assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
    for form in ("to_csv", "to_parquet"):
        with pytest.raises(dpsql.SqlError):
            getattr(failing, form)(tmp_path / form)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("schema", ["", "a.b.c", ".", "a.", "x" * 300, 3, "nowhere.main", "a\x00b"])
def test_what_is_no_schema(release, schema):
    with pytest.raises(ReleaseFormatError) as caught:
        release.to_duckdb(duckdb.connect(), schema=schema)
    assert caught.value.hint


def test_what_can_not_be_written_to(release, tmp_path):
    path = tmp_path / "x.duckdb"
    duckdb.connect(path).close()
    con = duckdb.connect(path, read_only=True)
    with pytest.raises(ReleaseFormatError, match="read-only"):
        release.to_duckdb(con)
    release.to_duckdb(con, schema="temp")
    assert con.execute("SELECT count(*) FROM born").fetchall() == [(release["born"].height,)]
    con.close()
    with pytest.raises(ReleaseFormatError):
        release.to_duckdb(con)
    with pytest.raises(ReleaseFormatError, match="no DuckDB connection"):
        release.to_duckdb(3)
    with pytest.raises(ReleaseFormatError, match="exists already"):
        release.to_duckdb(path)
    with pytest.raises(dpsql.ArgumentError):
        release.to_duckdb(duckdb.connect(), overwrite="yes")
    with pytest.raises(dpsql.ArgumentError):
        release.to_csv("")


HOSTILE = [
    "<script>alert(1)</script>", "../x", "CON", "x" * 300, "Twice", "TWICE", "", "a\x00b", "..",
    'a"; DROP TABLE x; --', "metadata", "\u202ex", "twice_2", "main.people", "temp",
]  # fmt: skip


def test_hostile_names(release, tmp_path):
    hostile = with_frames(release, dict.fromkeys(HOSTILE, VALUES))
    (tmp_path / "inner").mkdir()
    path = hostile.to_csv(tmp_path / "inner" / "answers")
    assert os.listdir(tmp_path) == ["inner"]
    assert os.listdir(tmp_path / "inner") == ["answers"]
    files = {own["file"] for own in said_of(path)["statements"].values()}
    assert len(files) == len(HOSTILE)
    assert files | {"metadata.json"} == set(os.listdir(path))
    assert all(name.isascii() and len(name) < 100 for name in files)
    con = duckdb.connect()
    where = hostile.to_duckdb(con, schema="answers")
    assert list(where) == HOSTILE
    assert len({name.lower() for name in where.values()}) == len(HOSTILE)
    for name in where.values():
        assert con.execute(f"SELECT count(*) FROM {name}").fetchall() == [(4,)]


def test_an_empty_release(release, tmp_path):
    """None can be made of no statement; what is written of one is metadata alone."""
    empty = with_frames(release, {})
    assert os.listdir(empty.to_csv(tmp_path / "csv")) == ["metadata.json"]
    assert empty.to_duckdb(duckdb.connect()) == {}
    assert empty.to_pandas() == empty.to_arrow() == {}


def test_a_million_rows(release, tmp_path):
    many = pl.DataFrame({"k": range(1_000_000), "n": [0.5] * 1_000_000})
    large = with_frames(release, {"many": many})
    large.to_csv(tmp_path / "csv")
    large.to_parquet(tmp_path / "parquet")
    con = duckdb.connect()
    large.to_duckdb(con)
    for source in ("many", f"'{tmp_path}/csv/many.csv'", f"'{tmp_path}/parquet/many.parquet'"):
        sql = f"SELECT count(*), sum(k), sum(n) FROM {source}"
        assert con.execute(sql).fetchall() == [(10**6, 499_999_500_000, 5e5)]


def test_frames_that_are_too_large_are_written_in_batches(release, tmp_path, monkeypatch):
    class Large(Given):
        def frame(self, name):
            raise dpsql.ResourceLimitError("too large")

    large = Release(with_frames(release, {"v": VALUES}).facts, Large({"v": VALUES}), b"")
    monkeypatch.setattr(formats, "BATCH", 3)
    large.to_csv(tmp_path / "csv")
    with_frames(release, {"v": VALUES}).to_csv(tmp_path / "whole")
    assert (tmp_path / "csv" / "v.csv").read_bytes() == (tmp_path / "whole" / "v.csv").read_bytes()
    con = duckdb.connect()
    large.to_duckdb(con)
    assert con.execute("SELECT count(*) FROM v").fetchall() == [(4,)]
    with pytest.raises(dpsql.ResourceLimitError):
        large.to_arrow()


# ── places ─────────────────────────────────────────────────────────────────────────────────


def test_what_exists_is_refused_unless_it_may_be_replaced(release, tmp_path):
    place = tmp_path / "answers"
    release.to_csv(place)
    with pytest.raises(ReleaseFormatError, match="exists already") as caught:
        release.to_csv(place)
    assert "overwrite=True" in caught.value.hint
    release.to_parquet(place, overwrite=True)
    assert "born.csv" not in os.listdir(place)
    (place / "mine.txt").write_text("mine")
    before = sorted(os.listdir(place))
    for overwrite in (False, True):
        with pytest.raises(ReleaseFormatError):
            release.to_csv(place, overwrite=overwrite)
    assert sorted(os.listdir(place)) == before
    assert os.listdir(tmp_path) == ["answers"]


@pytest.mark.parametrize("what", ["file", "link", "folder", "release", "forged", "long"])
def test_only_answers_are_replaced(release, tmp_path, what):
    place = tmp_path / "answers"
    if what == "file":
        place.write_text("mine")
    elif what == "link":
        release.to_csv(tmp_path / "there")
        place.symlink_to(tmp_path / "there")
    elif what == "release":
        release.save(place)
    elif what == "long":
        place = tmp_path / ("x" * 300)
    else:
        place.mkdir()
        content = '{"what": "answers of a dpsql release", "statements": []}'
        (place / "metadata.json").write_text("{" if what == "folder" else content)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(ReleaseFormatError) as caught:
        release.to_csv(place, overwrite=True)
    assert caught.value.hint
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_failed_replacement_leaves_the_old_answers(release, tmp_path, monkeypatch):
    place = tmp_path / "answers"
    release.to_csv(place)
    before = sorted((p.name, p.read_bytes()) for p in place.iterdir())
    real = os.rename

    def rename(source, target):
        if str(source).endswith("answers") or ".replaced." in str(source):
            return real(source, target)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(disk.os, "rename", rename)
        with pytest.raises(ReleaseFormatError):
            release.to_parquet(place, overwrite=True)
    assert sorted((p.name, p.read_bytes()) for p in place.iterdir()) == before
    assert os.listdir(tmp_path) == ["answers"]


def test_a_full_disk_leaves_nothing_behind(release, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        for form in ("to_csv", "to_parquet"):
            with pytest.raises(ReleaseFormatError, match="too large"):
                getattr(release, form)(tmp_path / "answers")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_folder_without_rights(release, tmp_path, monkeypatch):
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", denied)  # root may write everywhere
    with pytest.raises(ReleaseFormatError, match="ermission"):
        release.to_csv(tmp_path / "answers")


@pytest.mark.parametrize("place", [None, 5, "", "a\x00b", b"a"])
def test_what_is_no_path_is_refused(release, place):
    for write in (release.save, release.to_csv, release.to_parquet, dpsql.Release.load):
        with pytest.raises(dpsql.ArgumentError, match="path is not a path"):
            write(place)
    with pytest.raises(dpsql.DpsqlError) as caught:
        release.to_duckdb(place)
    assert caught.value.hint


def test_a_database_that_exists_is_written_to_if_one_says_so(release, tmp_path):
    release.to_duckdb(tmp_path / "a.duckdb")
    with pytest.raises(dpsql.ReleaseFormatError, match="exists already") as caught:
        release.to_duckdb(tmp_path / "a.duckdb")
    assert "overwrite=True" in caught.value.hint
    assert release.to_duckdb(tmp_path / "a.duckdb", overwrite=True)
