"""Times of Parquet files that lie, are rewritten, or come from other writers; and what is asked."""

from __future__ import annotations

import base64
import os
import struct
import subprocess
import sys
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import dpsql
from dpsql.engines.duckdb import numbered
from dpsql.engines.duckdb.engine import DuckDBCounting
from dpsql.engines.duckdb.footers import PROTOCOL
from dpsql.errors import ExecutionError, SchemaError, StaleSchemaError
from dpsql.schema import Domain, Schema
from dpsql.session import answer
from tests.engines.test_files import quoted, view
from tests.helpers.described import describe_table
from tests.release.test_sums_of_neighbors import BUDGET, check_equal_counts, recorded_in

FIXTURES = Path(__file__).parents[1] / "fixtures" / "parquet_mr"
DAYS = Domain.dates("1970-01-01", "1970-01-02", "day", nullable=True)
ZONED_DAYS = Domain.dates("1970-01-01", "1970-01-02", "day", nullable=True, zone="UTC")
MILLIS = pa.timestamp("ms")


@pytest.fixture
def con():
    with duckdb.connect() as con:
        yield con


def written(path, kind, values, **options):
    stored = pa.int32() if kind == pa.time32("ms") else pa.int64()
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"t": pa.array(values, stored).view(kind)}), path, **options)
    return path


def session_of(con, file, domain, **options):
    view(con, quoted(file))
    schema = Schema({"v": {} if domain is None else {"t": domain}})
    ledger = file.parent.parent / f"{file.parent.name}.ledger"
    return dpsql.Session(con, schema=schema, ledger=ledger, **options)


# ── files that say of their values what isn't so ───────────────────────────────────────────

KINDS = {
    "ms": (MILLIS, "q", "t", DAYS),
    "ms_utc": (pa.timestamp("ms", "UTC"), "q", "t", ZONED_DAYS),
    "clock_ms": (pa.time32("ms"), "i", "hour(t)", None),
    "clock": (pa.time64("us"), "q", "hour(t)", None),
    "clock_ns": (pa.time64("ns"), "q", "hour(t)", None),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_least_and_largest_values_that_a_file_tells_decide_nothing(con, tmp_path, name):
    """Where DuckDB took them for true, it would drop the bounds, and fail for the values beyond."""
    kind, code, key, domain = KINDS[name]
    low, high = -(2 ** (8 * struct.calcsize(code) - 1)), 2 ** (8 * struct.calcsize(code) - 1) - 1
    said, stored = [1, 5, 2, 7], [high, 5, low, 7]
    plain = {"use_dictionary": False, "compression": "none"}
    file = written(tmp_path / "rows" / "x.parquet", kind, said, **plain)
    content = file.read_bytes()
    before, after = (struct.pack(f"<4{code}", *values) for values in (said, stored))
    assert content.count(before) == 1
    file.write_bytes(content.replace(before, after))
    session = session_of(con, file, domain)
    sql = f"SELECT {key} AS k, COUNT(*) AS n FROM v GROUP BY k"
    found = recorded_in(session, {"n": sql}, budget=BUDGET)
    cells = max(found.counts.values(), key=np.size)
    assert (cells[0], cells[-1], cells.sum()) == (2, 2, 4)


# ── files that are rewritten ───────────────────────────────────────────────────────────────


def replaced(kind=MILLIS, step=1000):
    def rewrite(file):
        written(file.with_suffix(".new"), kind, range(0, 3000 * step, step))
        os.replace(file.with_suffix(".new"), file)

    return rewrite


REWRITES = {
    "other rows": replaced(),
    "the same numbers, which are microseconds": replaced(pa.timestamp("us"), 1),
    "times of day": replaced(pa.time64("us"), 1),
    "no times": replaced(pa.int64(), 1),
    "shorter": lambda file: os.truncate(file, 5000),
    "no Parquet": lambda file: file.write_bytes(b"4242" * 9000),
    "removed": os.remove,
}


@pytest.mark.parametrize("when", ["open", "read"])
@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_a_rewrite_after_the_charge_gives_no_answer(con, tmp_path, rewrite, when):
    options = {"row_group_size": 300, "use_dictionary": False, "compression": "none"}
    file = written(tmp_path / "rows" / "x.parquet", MILLIS, range(3000), **options)
    session = session_of(con, file, DAYS, budget=BUDGET)
    run, read, opening = DuckDBCounting.run, numbered._File.read, numbered._Files.open
    charged, done = [], []

    def rewriting(given, *how, **named):
        if charged and not done:
            done.append(True)
            rewrite(file)
        return (opening if when == "open" else read)(given, *how, **named)

    def running(counting):
        charged.append(True)
        return run(counting)

    place = numbered._Files if when == "open" else numbered._File
    with (
        patch.object(DuckDBCounting, "run", running),
        patch.object(place, when, rewriting),
        pytest.raises((ExecutionError, StaleSchemaError)) as caught,
    ):
        session.release({"n": "SELECT t, COUNT(*) AS n FROM v GROUP BY t"}, budget=BUDGET)
    assert done
    assert session.ledger.remaining == 0
    assert "42" not in str(caught.value)
    assert "1970" not in str(caught.value)


@pytest.mark.parametrize("when", ["rehearse", "check"])
@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_a_rewrite_before_the_charge_is_noticed_and_costs_nothing(con, tmp_path, rewrite, when):
    file = written(tmp_path / "rows" / "x.parquet", MILLIS, range(3000), compression="none")
    session = session_of(con, file, DAYS, budget=BUDGET)
    place = DuckDBCounting if when == "check" else answer
    step, done = getattr(place, when), []

    def rewriting(given):
        done.append(rewrite(file))
        return step(given)

    with patch.object(place, when, rewriting), pytest.raises(StaleSchemaError):
        session.release({"n": "SELECT t, COUNT(*) AS n FROM v GROUP BY t"}, budget=BUDGET)
    assert len(done) == 1
    assert not session.ledger.entries()


# ── other writers ──────────────────────────────────────────────────────────────────────────
#
# The files of FIXTURES are of parquet-mr 1.17.0, by its ExampleParquetWriter: four rows, and a
# fifth whose times are beyond their types. Pages of version 2 store numbers as differences.


@pytest.mark.parametrize("pages", [1, 2])
def test_files_of_parquet_mr(con, pages):
    view(con, quoted(FIXTURES / f"pages_{pages}.parquet"))
    table = describe_table(con, ("v",), Schema({}))
    assert PROTOCOL in table.origin.sql
    found = con.execute(
        "SELECT id, s, wall, epoch_ms(utc), clock_ms, clock, clock_ns "
        f"FROM ({table.origin.sql}) ORDER BY id"
    ).fetchall()
    for row, hours in enumerate([0, 5, 10, 15]):
        moment = datetime(2023, 11, 14, 22, 13, 20) + timedelta(hours=row)
        millis, clock = int(moment.replace(tzinfo=UTC).timestamp() * 1000), time(hours)
        wanted = (None if row == 2 else moment, millis, None if row == 1 else clock, clock, clock)
        assert found[row] == (row, "x", *wanted)
    assert found[4:] == [(4, "hostile", *[None] * 5)]


def test_older_clocks_of_parquet_mr_are_in_utc_and_not_read(con):
    """Those that are only called TIME_MILLIS or TIME_MICROS are in UTC by the format."""
    view(con, quoted(FIXTURES / "clocks_in_utc.parquet"))
    table = describe_table(con, ("v",), Schema({}))
    found = con.execute(f"SELECT * FROM ({table.origin.sql}) ORDER BY id").fetchall()
    assert [row[0] for row in found] == list(range(5))
    assert found[4][1] is None
    assert table.undeclared["clock"].startswith("TIME WITH TIME ZONE")


class _Keys(encryption.KmsClient):
    """What encrypts keys by nothing."""

    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return base64.b64encode(key)


def encrypted(path, *, plain):
    how = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["t"]}, plaintext_footer=plain
    )
    keys = encryption.KmsConnectionConfig()
    properties = encryption.CryptoFactory(_Keys).file_encryption_properties(keys, how)
    numbers = pa.array(range(4), pa.int64())
    table = pa.table({"i": numbers, "t": numbers.view(MILLIS)})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)


def test_an_encrypted_footer_is_refused(con, tmp_path):
    file = written(tmp_path / "rows" / "x.parquet", MILLIS, [1])
    session = session_of(con, file, DAYS)
    encrypted(file, plain=False)
    with pytest.raises(ValueError, match="isn't Parquet"):
        numbered._File(str(file))
    with pytest.raises(SchemaError, match="can't read its files as Parquet"):
        session.release({"n": "SELECT COUNT(*) AS n FROM v"}, budget=BUDGET)
    assert not session.ledger.entries()


def test_an_encrypted_column_below_a_footer_that_is_not_gives_no_answer(con, tmp_path):
    """All rows fail, whatever they are: DuckDB has no key."""
    file = tmp_path / "rows" / "x.parquet"
    file.parent.mkdir()
    encrypted(file, plain=True)
    session = session_of(con, file, DAYS, budget=BUDGET)
    with pytest.raises(ExecutionError):
        session.release({"n": "SELECT t, COUNT(*) AS n FROM v GROUP BY t"}, budget=BUDGET)
    assert session.ledger.remaining == 0


# ── other processes ────────────────────────────────────────────────────────────────────────

FORKED = f"""
import os, sys
import duckdb
from dpsql.engines.duckdb import numbered

def total():
    with duckdb.connect() as con:
        numbered.register(con)
        rows = con.execute(f"SELECT sum(t) FROM read_parquet('{PROTOCOL}://{{sys.argv[1]}}')")
        return rows.fetchone()[0]

found = total()
child = os.fork()
if not child:
    os._exit(0 if total() == found else 1)
print(found, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_reads_by_a_connection_of_its_own(tmp_path):
    """By one of its parent's, DuckDB reads no file at all there: its threads are left behind."""
    file = written(tmp_path / "x.parquet", MILLIS, range(3000), row_group_size=300)
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, str(file)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert ran.stdout.split() == [str(sum(range(3000))), "0"]


# ── what is asked ──────────────────────────────────────────────────────────────────────────

ASKED = {
    "hours": "SELECT hour(clock) AS h, COUNT(*) AS n FROM v GROUP BY h",
    "hours of moments": "SELECT hour(ms) AS h, COUNT(*) AS n FROM v GROUP BY h",
    "months": "SELECT date_trunc('month', ms) AS m, COUNT(*) AS n FROM v GROUP BY m",
    "days": "SELECT ms, COUNT(*) AS n FROM v GROUP BY ms",
    "days since": "SELECT date_diff('day', TIMESTAMP '2023-11-14', ms) AS d, COUNT(*) AS n "
    "FROM v GROUP BY d",
    "before noon": "SELECT COUNT(*) AS n FROM v WHERE clock < TIME '12:00' "
    "AND ms >= TIMESTAMP '2023-11-20 06:00:00'",
    "between": "SELECT COUNT(*) AS n FROM v "
    "WHERE clock BETWEEN TIME '01:00' AND TIME '23:00:00.5' OR minute(clock) > 58",
    "last hour": "SELECT MAX(hour(clock)) AS h FROM v",
    "first day": "SELECT MIN(ms) AS d FROM v",
    "sum": "SELECT SUM(minute(clock)) AS s FROM v",
}
REFUSED = [
    "SELECT MIN(clock) AS c FROM v",
    "SELECT MAX(clock) AS c FROM v",
    "SELECT clock, COUNT(*) AS n FROM v GROUP BY clock",
]
PLACES = {
    "file": "CREATE VIEW v AS FROM {file}",
    "view": "CREATE VIEW w AS FROM {file}; CREATE VIEW v AS SELECT clock, ms FROM w",
}
ROWS = (
    "SELECT CAST(make_timestamp_ms(1700000000000 + i * 5000000) AS TIMESTAMP_MS) AS ms, "
    "CAST(make_timestamp(i * 5011000000) AS TIME) AS clock FROM range(400) r(i)"
)


def asked_of(place, folder):
    file = folder / "rows" / "x.parquet"
    file.parent.mkdir(parents=True)
    days = Domain.dates("2023-11-14", "2023-12-31", "day", nullable=True)
    con = duckdb.connect()
    con.execute(f"COPY ({ROWS}) TO {quoted(file)}").fetchall()
    con.execute(place.format(file=quoted(file))).fetchall()
    return dpsql.Session(con, schema=Schema({"v": {"ms": days}}), ledger=folder / "rows.ledger")


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_is_asked_of_files_is_counted_as_of_a_table(tmp_path, place):
    table = asked_of("CREATE TABLE v AS FROM {file}", tmp_path / "table")
    files = asked_of(place, tmp_path / "files")
    one, other = (recorded_in(s, ASKED, budget=BUDGET) for s in (table, files))
    check_equal_counts(one, other)
    assert sum(int(cells.sum()) for cells in one.counts.values()) > 400


@pytest.mark.parametrize("place", ["CREATE TABLE v AS FROM {file}", *PLACES.values()])
def test_hints_for_times_of_day_work(tmp_path, place):
    session = asked_of(place, tmp_path)
    for sql in REFUSED:
        with pytest.raises(SchemaError) as caught:
            session.release({"n": sql}, budget=BUDGET)
        typed = caught.value.hint.split("group by ")[1].removesuffix(".")
        again = sql.replace("clock", typed)
        assert len(session.release({"n": again}, budget=BUDGET)["n"]) in {1, 25}
