"""Times of Parquet files read as numbers: neighbors, odd files, and the file system of it."""

from __future__ import annotations

import os
import random
import signal
import threading
import tracemalloc

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql
from dpsql.engines.duckdb import numbered
from dpsql.engines.duckdb.footers import PROTOCOL
from dpsql.engines.interrupts import interruptible
from dpsql.errors import DpsqlError, ExecutionError, SchemaError
from dpsql.schema import Domain, Schema, Unit
from tests.engines.test_files import quoted, view
from tests.helpers.described import describe_table
from tests.release.test_sums_of_neighbors import BUDGET, charged, check_alike, recorded_in, spent

CASES = 36
DAY = {"clock": 86_400_000_000, "clock_ms": 86_400_000, "clock_ns": 86_400_000_000_000}
KINDS = {
    "person": pa.int64(),
    "ms": pa.timestamp("ms"),
    "ms_utc": pa.timestamp("ms", "UTC"),
    "clock": pa.time64("us"),
    "clock_ms": pa.time32("ms"),
    "clock_ns": pa.time64("ns"),
    "x": pa.int32(),
}
STORED = {name: pa.int32() if name in {"clock_ms", "x"} else pa.int64() for name in KINDS}
FAR = [-(2**63), 2**63 - 1, 2**62, -9_223_372_022_400_000, -9_223_372_022_400_001]
FAR += [9_223_372_036_854_775, 9_223_372_036_854_776]
"""Times in milliseconds at the ends of DuckDB's, and beyond."""


def a_time(rng, name):
    """Return a number for a time: usual, at an end of its kind, beyond it, or none."""
    which = rng.random()
    if which < 0.1:
        return None
    if name in DAY:
        day, end = DAY[name], 2**31 if name == "clock_ms" else 2**63
        odd = [-1, 0, day - 1, day, day + 1, -end, end - 1]
        return rng.choice(odd) if which < 0.4 else rng.randrange(day)
    usual = 1_700_000_000_000 + rng.randrange(90 * DAY["clock_ms"])
    return rng.choice([*FAR, 0, -1]) if which < 0.4 else usual


def rows_of(rng, persons):
    return [
        (person, *(a_time(rng, name) for name in list(KINDS)[1:-1]), rng.choice([None, 0, 3, 9]))
        for person in persons
    ]


def write(folder, rows, how):
    """Write rows of two regions, into a file or two for each; some of which are empty."""
    for region in ("north", "south"):
        ours = [row for row in rows if (row[0] % 3 == 0) == (region == "north")]
        for part in range(how["files"]):
            place = folder / f"region={region}" / f"{part}.parquet"
            place.parent.mkdir(parents=True, exist_ok=True)
            columns = {
                name: pa.array([row[at] for row in ours[part :: how["files"]]], STORED[name])
                for at, name in enumerate(KINDS)
            }
            found = pa.table({name: c.view(KINDS[name]) for name, c in columns.items()})
            pq.write_table(found, place, **how["options"])


SCHEMA = {
    "region": Domain.labels(["north", "south"]),
    "x": Domain.integers(0, 9, nullable=True),
    "ms": Domain.dates("2023-11-01", "2024-02-28", "day", nullable=True, outside="clamp"),
    "ms_utc": Domain.dates("2023-11-01", "2024-02-28", "month", nullable=True, zone="UTC"),
}
KEYS = ["region", "hour(clock)", "hour(clock_ms)", "hour(clock_ns)", "date_trunc('month', ms)"]
KEYS += ["ms_utc", "clock_ms < TIME '12:00'"]
VALUES = ["COUNT(*)", "COUNT(x)", "COUNT(clock)", "COUNT(ms)", "SUM(x)"]
CONDITIONS = [
    "clock < TIME '08:00:00'",
    "clock_ms BETWEEN TIME '01:00' AND TIME '23:00'",
    "clock_ns IS NULL",
    "ms >= TIMESTAMP '2023-12-24 10:00:00'",
    "ms < TIMESTAMP '1900-01-01'",
    "ms_utc IS NOT NULL",
    "minute(clock) > 30",
    "region = 'north'",
    "hour(ms) < 12",
]


def statement(rng):
    keys = rng.sample(KEYS, rng.randint(0, 2))
    values = rng.sample(VALUES, rng.randint(1, 2))
    listed = [f"{key} AS k{n}" for n, key in enumerate(keys)]
    listed += [f"{value} AS v{n}" for n, value in enumerate(values)]
    where = f" WHERE {' AND '.join(rng.sample(CONDITIONS, rng.randint(1, 2)))}"
    by = f" GROUP BY {', '.join(f'k{n}' for n in range(len(keys)))}" if keys else ""
    return f"SELECT {', '.join(listed)} FROM v{where if rng.random() < 0.6 else ''}{by}"


answered = []


def of_rows(con, place, rows, how, asked):
    """Write rows, and release a script of them with an account of its own."""
    write(place / "rows", rows, how)
    files = quoted(place / "rows" / "*" / "*.parquet")
    view(con, f"read_parquet({files}, hive_partitioning = true)")
    ledger = place / "rows.ledger"
    ledger.unlink(missing_ok=True)
    session = dpsql.Session(con, schema=asked["schema"], ledger=ledger)
    return recorded_in(session, asked["script"], budget=BUDGET)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(CASES))
def test_neighbors_differ_in_noisy_integers_alone(tmp_path, seed):
    """No time of any row makes a scan fail, or moves other rows."""
    rng = random.Random(seed)  # noqa: S311
    max_rows = rng.choice([None, 1, 3])
    units = {} if max_rows is None else {"v": Unit("person", max_rows)}
    asked = {
        "schema": Schema({"v": SCHEMA}, units=units),
        "script": {f"s{n}": statement(rng) for n in range(rng.randint(1, 2))},
    }
    options = {
        "row_group_size": rng.choice([3, 1000]),
        "version": rng.choice(["1.0", "2.6"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "use_dictionary": rng.choice([True, False]),
        "write_statistics": rng.choice([True, False]),
        "write_page_index": rng.choice([True, False]),
    }
    how = {"files": rng.choice([1, 2]), "options": options}
    rows = rows_of(rng, [rng.randrange(8) for _ in range(40)])
    con = duckdb.connect(config={"threads": 2})
    try:
        whole = of_rows(con, tmp_path, rows, how, asked)
    except ExecutionError:
        raise
    except DpsqlError:  # for what the statement says, before the charge
        answered.append(False)
        return
    answered.append(True)
    without = [row for row in rows if row[0] != 1] if max_rows else rows[1:]
    more = [*rows, *rows_of(rng, [10**6] * (5 if max_rows else 1))]
    for other in (without, more):
        replayed = of_rows(con, tmp_path, other, how, asked)
        check_alike(whole, replayed)
        assert spent(whole, replayed) <= charged(whole)


def test_most_random_statements_are_answered():
    assert not answered or sum(answered) >= len(answered) / 2


def test_rows_are_those_that_duckdb_reads(tmp_path):
    """Where all times are usual, each cell counts what DuckDB's own reader gives."""
    rng = random.Random(7)  # noqa: S311
    usual = [row for row in rows_of(rng, range(600)) if None not in row and is_usual(row)]
    assert len(usual) > 20
    write(tmp_path, usual, {"files": 2, "options": {"row_group_size": 7}})
    con = duckdb.connect()
    files = f"read_parquet({quoted(tmp_path / '*' / '*.parquet')}, hive_partitioning = true)"
    view(con, files)
    shown = (
        "person, ms, ms_utc, clock, clock_ms, CAST(clock_ns AS TIME) AS clock_ns, x, "
        "CAST(region AS VARCHAR) AS region"
    )
    table = describe_table(con, ("v",), Schema({"v": SCHEMA}))
    ours = f"SELECT {shown} FROM ({table.origin.sql}) ORDER BY person"
    theirs = f"SELECT {shown} FROM {files} ORDER BY person"
    assert PROTOCOL in table.origin.sql
    assert con.execute(ours).fetchall() == con.execute(theirs).fetchall()


def is_usual(row):
    times = dict(zip(KINDS, row, strict=True))
    return all(0 <= times[name] < day for name, day in DAY.items()) and all(
        0 < times[name] < 2 * 10**12 for name in ("ms", "ms_utc")
    )


# ── files that aren't as usual ─────────────────────────────────────────────────────────────


def one_file(path, rows=4, **options):
    values = pa.array(range(rows), pa.int64())
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"i": values, "t": values.view(pa.timestamp("ms"))}), path, **options)
    return path


def in_the_long_form(file):
    """Write the number of a kind of time in the long form, as nobody does."""
    content, size = file.read_bytes(), int.from_bytes(file.read_bytes()[-8:-4], "little")
    footer = content[-8 - size : -8]
    assert footer.count(b"\x4c\x8c") == 1
    footer = footer.replace(b"\x4c\x8c", b"\x4c\x0c\x10")
    behind = len(footer).to_bytes(4, "little") + b"PAR1"
    file.write_bytes(content[: -8 - size] + footer + behind)


def test_files_that_say_times_otherwise_are_refused_and_the_hint_works(con, tmp_path):
    file = one_file(tmp_path / "a" / "x.parquet")
    in_the_long_form(file)
    read = f"SELECT epoch_ms(t) FROM {quoted(file)}"
    assert con.execute(read).fetchall() == [(0,), (1,), (2,), (3,)]  # DuckDB takes it
    view(con, quoted(file))
    with pytest.raises(SchemaError, match="in another way than files usually do") as caught:
        describe_table(con, ("v",), Schema({}))
    again = caught.value.hint.split(": ", 1)[1].split("'")
    again[1], again[3] = str(file), str(tmp_path / "b.parquet")
    con.execute("'".join(again)).fetchall()
    view(con, quoted(tmp_path / "b.parquet"))
    assert describe_table(con, ("v",), Schema({})).undeclared["t"] == "TIMESTAMP"


def test_one_unusual_file_of_several_is_refused(con, tmp_path):
    one_file(tmp_path / "a.parquet")
    in_the_long_form(one_file(tmp_path / "b.parquet"))
    view(con, quoted(tmp_path / "*.parquet"))
    with pytest.raises(SchemaError, match="in another way than"):
        describe_table(con, ("v",), Schema({}))


def test_the_hint_for_times_with_a_zone_works(con, tmp_path):
    path = tmp_path / "x.parquet"
    con.execute(f"COPY (SELECT CAST('07:30:00+02' AS TIMETZ) AS t) TO {quoted(path)}").fetchall()
    view(con, quoted(path))
    with pytest.raises(SchemaError) as caught:
        describe_table(con, ("v",), Schema({"v": {"t": Domain.integers(0, 1)}}))
    typed = caught.value.hint
    assert "CREATE TABLE" in typed
    con.execute(typed[typed.index("CREATE TABLE") :].split(";")[0]).fetchall()
    assert describe_table(con, ("v_stored",), Schema({})).undeclared["t"] == "TIME"


def test_times_of_nested_columns_and_alike_names_of_columns(con, tmp_path):
    moment = pa.array([1, 2], pa.timestamp("ms"))
    nested = pa.StructArray.from_arrays([moment], ["t"])
    table = pa.table({"t": moment, "n": nested, "T2": moment, 'q"': moment})
    pq.write_table(table, tmp_path / "x.parquet")
    view(con, quoted(tmp_path / "x.parquet"))
    found = describe_table(con, ("v",), Schema({}))
    assert [found.undeclared[name] for name in ("t", "T2", 'q"')] == ["TIMESTAMP"] * 3


# ── the file system ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def con():
    with duckdb.connect() as con:
        yield con


def numbers_of(con, path):
    numbered.register(con)
    return con.execute(f"SELECT sum(t) FROM read_parquet('{PROTOCOL}://{path}')").fetchall()


def test_it_reads_parquet_and_writes_nothing(con, tmp_path):
    file = one_file(tmp_path / "x.parquet")
    assert numbers_of(con, file) == [(6,)]
    other = tmp_path / "x.csv"
    other.write_text("secret\n1\n")
    for refused in (
        f"FROM read_csv('{PROTOCOL}://{other}')",
        f"FROM read_text('{PROTOCOL}://{other}')",
        f"COPY (SELECT 1) TO '{PROTOCOL}://{tmp_path}/new.parquet'",
        f"COPY (SELECT 1) TO '{PROTOCOL}://{file}'",
    ):
        with pytest.raises(duckdb.Error):
            con.execute(refused).fetchall()
    assert sorted(os.listdir(tmp_path)) == ["x.csv", "x.parquet"]
    con.execute("SET enable_external_access = false").fetchall()
    with pytest.raises(duckdb.PermissionException):
        numbers_of(con, file)


def test_no_statement_and_no_view_of_users_names_it(con, tmp_path):
    file = one_file(tmp_path / "x.parquet")
    numbered.register(con)
    view(con, f"'{PROTOCOL}://{file}'")
    with pytest.raises(SchemaError, match="another machine"):
        describe_table(con, ("v",), Schema({}))
    view(con, quoted(file))
    session = dpsql.Session(con, schema=Schema({"v": {}}), ledger=tmp_path / "x.ledger")
    for table in (f"'{PROTOCOL}://{file}'", f'"{PROTOCOL}://{file}"'):
        for relation in (table, f"read_parquet({table})"):
            with pytest.raises(DpsqlError):
                session.release({"n": f"SELECT COUNT(*) AS n FROM {relation}"})
    assert not session.ledger.entries()


def test_connections_of_several_threads_register_it_once(tmp_path):
    file = one_file(tmp_path / "x.parquet")
    con = duckdb.connect()
    found, start = [], threading.Barrier(4)

    def work(own):
        start.wait()
        found.append(numbers_of(own, file))

    threads = [threading.Thread(target=work, args=[con.cursor()]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[(6,)]] * 4


def test_a_shorter_file_is_an_error_and_no_memory_of_duckdb(tmp_path):
    file = one_file(tmp_path / "x.parquet")
    opened = numbered._File(str(file))
    os.truncate(file, 100)
    opened.seek(90)
    with pytest.raises(OSError, match="shorter"):
        opened.read(20)
    opened.close()
    for content in (b"", b"PAR1", b"PAR1\xff\xff\xff\x7fPAR1", b"PAR1" + b"\x00" * 4 + b"PARE"):
        file.write_bytes(content)
        with pytest.raises((ValueError, OSError)):
            numbered._File(str(file))


def test_each_range_of_bytes_is_the_file_with_its_changes(tmp_path):
    file = one_file(tmp_path / "x.parquet")
    opened, content = numbered._File(str(file)), bytearray(file.read_bytes())
    for place, byte in opened._changed.items():
        content[place] = byte
    assert content != file.read_bytes()
    for start in range(0, len(content), 7):
        for size in (0, 1, 8, 300):
            opened.seek(start)
            assert opened.read(min(size, len(content) - start)) == content[start : start + size]
    opened.close()


@pytest.mark.parametrize("error", [OSError("row 42"), ValueError("row 42"), MemoryError("row 42")])
def test_an_error_while_rows_are_read_says_nothing_of_them(con, tmp_path, monkeypatch, error):
    ledger = tmp_path / "rows.ledger"
    file = one_file(tmp_path / "rows" / "x.parquet", 3000, row_group_size=300, use_dictionary=False)
    view(con, quoted(file))
    days = Domain.dates("1970-01-01", "1970-01-02", "day")
    session = dpsql.Session(con, schema=Schema({"v": {"t": days}}), ledger=ledger, budget=BUDGET)
    read = numbered._File.read

    def failing(opened, size):
        if opened._places[threading.get_ident()] < 9000:
            raise error
        return read(opened, size)

    with monkeypatch.context() as patch:
        patch.setattr(numbered._File, "read", failing)
        with pytest.raises(ExecutionError) as caught:
            session.release({"n": "SELECT t, COUNT(*) AS n FROM v GROUP BY t"}, budget=BUDGET)
    told, seen = "", caught.value
    while seen is not None:
        told, seen = told + f"{seen} {vars(seen)}", seen.__cause__ or seen.__context__
    assert "42" not in told
    assert session.ledger.remaining == 0
    session.release({"n": "SELECT t, COUNT(*) AS n FROM v GROUP BY t"}, budget=BUDGET)


def test_ctrl_c_while_a_file_is_read_ends_the_statement(con, tmp_path, monkeypatch):
    file, once = one_file(tmp_path / "x.parquet", 3000, row_group_size=100), [1]
    read = numbered._File.read

    def interrupting(opened, size):
        if once:
            once.pop()
            signal.raise_signal(signal.SIGINT)
        return read(opened, size)

    monkeypatch.setattr(numbered._File, "read", interrupting)
    with pytest.raises(KeyboardInterrupt), interruptible(con):
        numbers_of(con, file)
    assert numbers_of(con, file) == [(sum(range(3000)),)]


def test_memory_does_not_grow_with_rows(con, tmp_path):
    """Python holds what DuckDB asks for at once, and of a footer no more than its columns."""
    most = []
    for groups in (2, 40):
        file = one_file(
            tmp_path / f"{groups}.parquet", 5000 * groups, row_group_size=5000, use_dictionary=False
        )
        numbers_of(con, file)
        tracemalloc.start()
        numbers_of(con, file)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 2 * most[0] + 100_000
