"""Keys of every kind that a database lets in: they are told as they are stored, or not at all."""

from __future__ import annotations

import unicodedata

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpsql

LARGE = dpsql.Budget(rho=10**9)
KEYS = dpsql.Keys(delta="1e-9")
HOSTILE = {
    "NUL": ["\x00", "a\x00", "a\x00b", "\x00a", "a"],
    "look-alikes": [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")] + ["e", "е"],
    "zero width": ["ab", "a\u200bb", "a\u200db", "a\ufeffb", "\u2060ab", "ab\u00ad"],
    "bidirectional": ["\u202eabc", "abc", "\u2066abc\u2069"],
    "spaces": [" ", "  ", "\u00a0", "\t", "\n", "\r\n", "", "\u3000"],
    "ends of planes": ["\U0010ffff", "\uffff", "\ufffd", "\ue000", "𝕒"],
    "SQL": ["'; DROP TABLE t; --", '"', "'", "$$", "\\", "NULL", "/*", "{key}", "?"],
    "numbers": ["1", "01", "1.0", "1e0", "+1", "nan", "-0"],
    "HTML": ["<b>", "&lt;b&gt;", "</script>"],
    "the labels": ["(other)", "(OTHER)", "( other)", "other"],
    "long": ["x" * 1_000, "y" * 999, "é" * 500],
}


def table(values, unit=False):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (person INTEGER, k VARCHAR)")
    for i, value in enumerate(values):
        con.execute("INSERT INTO t SELECT i * 100 + $1, $2 FROM range(50) r (i)", [i, value])
    return con, dpsql.Session(con, unit="person", max_rows=1) if unit else dpsql.Session(con)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("kind", HOSTILE)
def test_keys_are_told_as_they_are_stored(kind, unit):
    values = HOSTILE[kind]
    con, session = table(values, unit)
    found = session.find_keys("t", "k", budget=LARGE, keys=KEYS)
    told = sorted(set(values) - {"(other)"}, key=str.encode)
    assert list(found.keys) == told
    frame = session.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", budget=LARGE)
    counts = {k: round(n) for k, n in frame.select("k", "n").rows() if round(n)}
    assert counts == dict(con.execute("SELECT k, count(*) FROM t GROUP BY k").fetchall())
    again = session.find_keys("t", "k", budget=0)
    assert again.keys == found.keys
    repr(found).encode("ascii", "backslashreplace")


def test_what_is_too_long_is_one_of_the_others():
    values = ["a", "x" * 1_000_000, "x" * 1_001, "é" * 501]
    _, session = table(values)
    assert session.find_keys("t", "k", budget=LARGE, keys=KEYS).keys == ("a",)
    frame = session.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", budget=LARGE)
    counts = {k: round(n) for k, n in frame.select("k", "n").rows()}
    assert counts == {"a": 50, "(other)": 150, None: 0}


BYTES = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"]
WAYS = {
    "cast": "SELECT ($1::BLOB)::VARCHAR",
    "decode": "SELECT decode($1::BLOB)",
    "read": "SELECT content FROM read_text('{path}')",
    "csv": "SELECT k FROM read_csv('{path}', header = false, columns = {{'k': 'VARCHAR'}})",
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of", range(len(BYTES)))
def test_bytes_that_are_no_text_do_not_get_in_or_do_no_harm(tmp_path, way, of):
    """DuckDB refuses most, and writes others out as escapes; what gets in is told as it is."""
    path = tmp_path / "bytes.txt"
    path.write_bytes(BYTES[of])
    con, session = table(["plain"])
    sql, given = WAYS[way].format(path=path), [BYTES[of]] if "$1" in WAYS[way] else []
    try:
        (value,) = con.execute(sql, given).fetchone()
    except duckdb.Error:
        return  # it didn't get in
    con.execute(f"INSERT INTO t SELECT i, ({sql}) FROM range(50) r (i)", given)
    told = {"plain", value}
    assert set(session.find_keys("t", "k", budget=LARGE, keys=KEYS).keys) == told
    frame = session.query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", budget=LARGE)
    counts = {k: round(n) for k, n in frame.select("k", "n").rows() if round(n)}
    assert counts == dict.fromkeys(told, 50)


def texts(values):
    """Return a column of bytes as Parquet has one of texts, whether they are texts or not."""
    found = pa.array(values, pa.binary())
    return pa.table({"k": pa.StringArray.from_buffers(len(found), *found.buffers()[1:], None)})


IN_FILES = {
    "NUL": (b"b\x00c", "b\x00c"), "the label": (b"(other)", "(other)"),
    "a million signs": (b"x" * 1_000_000, "(other)"), "no text": (b"b\xffc", "b?c"),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("kind", IN_FILES)
def test_keys_of_files_are_found_or_are_others(tmp_path, kind, ending):
    """DuckDB writes `?` for bytes of a Parquet file that are no text; CSV with them is refused."""
    stored, told = IN_FILES[kind]
    path, values = tmp_path / f"t.{ending}", [b"a"] * 50 + [stored] * 7
    if ending == "csv":
        path.write_bytes(b"k\n" + b"\n".join(values))
    else:
        pq.write_table(texts(values), path)
    session, sql = dpsql.Session(path), "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    if (kind, ending) == ("no text", "csv"):
        with pytest.raises(dpsql.SchemaError, match="isn't UTF-8"):
            session.query(sql, budget=LARGE, keys=KEYS)
        assert session.ledger.spent == 0
        return
    frame = session.query(sql, budget=LARGE, keys=KEYS)
    counts = {k: round(n) for k, n in frame.select("k", "n").rows() if round(n)}
    assert counts == {"a": 50, told: 7}
