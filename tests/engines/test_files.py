"""Parquet files as private tables: which files, whose account, and what hostile bits do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.frozen import root_of
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.schema import Domain, Schema, Unit
from tests.helpers.described import describe_table, verify_unchanged

CLOCKS = {"h": Domain.integers(0, 3, nullable=True)}
SCHEMA = Schema({"v": CLOCKS})


@pytest.fixture
def con():
    with duckdb.connect() as con:
        yield con


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / 'rows of "it\'s"'
    folder.mkdir()
    for name in ("a.parquet", "b.parquet"):
        write(folder / name)
    return folder


def write(file, rows=8, **columns):
    file.parent.mkdir(parents=True, exist_ok=True)
    found = columns or {
        "h": pa.array([i % 4 for i in range(rows)], pa.int32()),
        "s": pa.array([f"t{i % 3}" for i in range(rows)]),
    }
    pq.write_table(pa.table(found), file)


def quoted(path):
    return "'" + str(path).replace("'", "''") + "'"


def view(con, relation, items="*"):
    con.execute(f"CREATE OR REPLACE VIEW v AS SELECT {items} FROM {relation}").fetchall()


def counted(con, table, *columns):
    return DuckDBEngine(con).marginals(table, [columns])[columns].tolist()


def test_patterns_lists_and_names_of_files(con, folder):
    both, one = quoted(folder / "*.parquet"), quoted(folder / "a.parquet")
    name = '"' + str(folder / "*.parquet").replace('"', '""') + '"'
    other = quoted(folder / "b.parquet")
    for relation, rows in {
        f"read_parquet({both})": 16,
        f"parquet_scan({both}, union_by_name = true)": 16,
        f"read_parquet([{one}, {other}], hive_partitioning := false)": 16,
        f"read_parquet({one}) AS q": 8,
        both: 16,
        one: 8,
        name: 16,
    }.items():
        view(con, relation)
        table = describe_table(con, ("v",), SCHEMA)
        assert counted(con, table, "h") == [rows // 4] * 4 + [0]
        assert table.origin.roots == (folder,)
        for pattern in ("*", "?", "["):
            assert pattern not in table.origin.sql


def test_a_table_goes_before_a_file_of_its_name(con, folder, monkeypatch):
    monkeypatch.chdir(folder)
    view(con, "'a.parquet'")
    con.execute('CREATE TABLE "a.parquet" (h INTEGER, s VARCHAR)').fetchall()
    assert describe_table(con, ("v",), SCHEMA).stored.path == ("memory", "main", "a.parquet")


def test_relative_paths_are_files_of_this_process(con, folder, monkeypatch):
    monkeypatch.chdir(folder)
    view(con, "'a.parquet'")
    table = describe_table(con, ("v",), SCHEMA)
    monkeypatch.chdir("/")
    assert counted(con, table, "h")[:4] == [2] * 4
    with pytest.raises(SchemaError, match="reads no file now"):
        describe_table(con, ("v",), SCHEMA)


def test_the_account_of_a_file_depends_on_its_own_path(con, folder, tmp_path):
    for path, root in {
        "/data/flights/x.parquet": "/data/flights",
        "/data/flights/year=2024/month=1/x.parquet": "/data/flights",
        "/data/a=1/flights/b=2/x.parquet": "/data/a=1/flights",
    }.items():
        assert root_of(path) == Path(root)
    link, inner = tmp_path / "link", folder / "month=1" / "c.parquet"
    link.symlink_to(folder)
    write(inner)
    (tmp_path / "elsewhere.parquet").symlink_to(folder / "a.parquet")
    for relation in (
        f"{quoted(link / '*.parquet')}",
        f"{quoted(tmp_path / 'elsewhere.parquet')}",
        f"{quoted(folder / 'month=1' / '*.parquet')}",
        quoted(folder / "**" / "c.parquet"),
        f"{quoted(folder / '..' / folder.name / 'b.parquet')}",
    ):
        view(con, f"read_parquet({relation}, hive_partitioning = false)")
        assert describe_table(con, ("v",), SCHEMA).origin.roots == (folder,)


def test_partitions_are_columns_if_the_definition_says_so(con, tmp_path):
    for month in (1, 2, 11):
        write(tmp_path / "f" / f"month={month}" / "x.parquet")
    files = quoted(tmp_path / "f" / "*" / "*.parquet")
    view(con, f"read_parquet({files}, hive_partitioning = true)")
    schema = Schema({"v": CLOCKS | {"month": Domain.integers(1, 12)}})
    table = describe_table(con, ("v",), schema)
    assert counted(con, table, "month")[:12] == [8, 8, *[0] * 8, 8, 0]
    view(con, files)  # DuckDB finds partitions by itself here
    with pytest.raises(SchemaError, match="columns aren't those") as caught:
        describe_table(con, ("v",), schema)
    assert "hive_partitioning = true" in caught.value.hint
    view(con, f"{files} WHERE month = 1", "h")
    with pytest.raises(SchemaError, match="names month") as caught:
        describe_table(con, ("v",), SCHEMA)
    assert "hive_partitioning = true" in caught.value.hint


@pytest.mark.parametrize(
    "rest",
    ["WHERE month = 2", "WHERE month + 1 BETWEEN 2 AND 3", "WHERE day > DATE '2026-01-01'", ""],
)
def test_definitions_have_partitions_in_the_types_of_duckdb(con, tmp_path, rest):
    for month in (1, 2, 11):
        write(tmp_path / "f" / f"month={month}" / f"day=2026-0{month % 9}-01" / "x.parquet")
    files = quoted(tmp_path / "f" / "*" / "*" / "*.parquet")
    view(con, f"read_parquet({files}, hive_partitioning = true) {rest}", "h, month, day")
    schema = Schema({"v": CLOCKS | {"month": Domain.integers(1, 12)}})
    table = describe_table(con, ("v",), schema)
    expected = dict(con.execute("SELECT month, count(*) FROM v GROUP BY ALL").fetchall())
    assert {i + 1: n for i, n in enumerate(counted(con, table, "month")) if n} == expected
    assert table.undeclared["day"] == "DATE"
    # As text they are what the folders say, and the same table of the same account.
    asked = f"read_parquet({files}, hive_partitioning = true, hive_types_autocast = false)"
    view(con, asked, "h, month, day")
    text = describe_table(con, ("v",), SCHEMA, Unit("month", 1))
    assert text.undeclared["month"] == "VARCHAR"
    assert text.stored.path == table.stored.path


LAYOUTS = {
    "one key": ["m=1/x", "m=2/x"],
    "one file": ["m=2/x"],
    "in capitals": ["M=1/x", "M=2/x"],
    "nested": ["m=1/k=3/x", "m=2/k=1/x"],
    "twice": ["m=1/m=3/x", "m=2/m=1/x"],
    "other keys": ["m=1/x", "k=2/x"],
    "none of one": ["m=1/x", "k/x"],
    "none at all": ["a/x", "b/x"],
    "in the name of a file": ["a/m=1", "b/m=2"],
    "a link": ["m=1/x", "m=2 -> m=1"],
}
ASKED = ["", ", hive_partitioning = true", ", hive_partitioning = false",
         ", hive_partitioning = true, hive_types_autocast = false"]  # fmt: skip


@pytest.mark.sampled(60)
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("items", ["m", "*", "h", "M AS m", "h, m + 0 AS m", "h FROM_WHERE m = 2"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_folders_named_like_columns_are_read_as_duckdb_reads_them(
    con, tmp_path, layout, items, asked
):
    """Or refused, and then what the hint says is answered."""
    for name in LAYOUTS[layout]:
        link, _, to = name.partition(" -> ")
        if to:
            (tmp_path / "f" / link).symlink_to(tmp_path / "f" / to)
        else:
            write(tmp_path / "f" / f"{name}.parquet", h=pa.array([0, 3]), m=pa.array([2, 4]))
    files = f"read_parquet({quoted(tmp_path / 'f' / '**' / '*.parquet')}"
    items, _, where = items.partition(" FROM_WHERE ")
    shown = [items, f"{files}{{}}) WHERE {where}" if where else f"{files}{{}})"]

    def described(option):
        view(con, shown[1].format(option), shown[0])
        return describe_table(con, ("v",), Schema({"v": declared()}))

    def answered(option):
        try:
            return bool(described(option))
        except (duckdb.Error, SchemaError):
            return False

    def declared():
        names = {"h": Domain.integers(0, 4), "m": Domain.integers(0, 4)}
        types = {name: kind for name, kind, *_ in con.execute("DESCRIBE v").fetchall()}
        return {name: names[name] for name in types if name in names and types[name] != "VARCHAR"}

    try:
        con.execute(f"SELECT {shown[0]} FROM {shown[1].format(asked)}").fetchall()
    except duckdb.Error:
        return  # DuckDB has no such view
    try:
        table = described(asked)
        refusal = None
    except SchemaError as error:
        refusal = error
    if refusal is not None:
        options = [option for option in ASKED[1:3] if option.removeprefix(", ") in refusal.hint]
        assert any(map(answered, options)) or "VARCHAR, BIGINT" in refusal.message
        return
    for column in table.columns:
        sql = f'SELECT "{column}"::BIGINT, count(*) FROM v GROUP BY ALL'
        found = {i: n for i, n in enumerate(counted(con, table, column)) if n}
        assert found == dict(con.execute(sql).fetchall())


def test_a_folder_that_is_named_otherwise_makes_partitions_text(con, tmp_path):
    """Which is another description of the table: what was planned for doesn't go on."""
    write(tmp_path / "f" / "month=1" / "x.parquet")
    files = quoted(tmp_path / "f" / "*" / "*.parquet")
    view(con, f"read_parquet({files}, hive_partitioning = true) WHERE month = 1", "h")
    table = describe_table(con, ("v",), SCHEMA)
    write(tmp_path / "f" / "month=none" / "x.parquet")
    with pytest.raises(SchemaError, match="VARCHAR"):
        describe_table(con, ("v",), SCHEMA)
    with pytest.raises(StaleSchemaError):
        verify_unchanged(con, table, SCHEMA)


def test_views_of_views_of_files(con, folder):
    con.execute(f"CREATE VIEW w AS FROM {quoted(folder / '*.parquet')}").fetchall()
    view(con, "w WHERE s <> 't0'", "h + 1 AS h, s AS town")
    table = describe_table(con, ("v",), Schema({"v": {"h": Domain.integers(1, 4)}}))
    expected = con.execute("SELECT h, count(*) FROM v GROUP BY h ORDER BY h").fetchall()
    assert counted(con, table, "h")[:4] == [n for _, n in expected]


def test_units_of_files(con, folder):
    view(con, quoted(folder / "*.parquet"), "s AS person, h")
    table = describe_table(con, ("v",), SCHEMA, Unit("person", 1))
    assert sum(counted(con, table, "h")) == 3
    assert table.stored.unit.column == "s"
    with pytest.raises(SchemaError, match="no column nobody"):
        describe_table(con, ("v",), SCHEMA, Unit("nobody", 1))


REFUSED = {
    "read_parquet('http://127.0.0.1/x.parquet')": "another machine",
    "read_parquet('s3://bucket/*.parquet')": "another machine",
    "'https://127.0.0.1/x.parquet'": "another machine",
    "read_parquet(['{a}', 'hf://x/y.parquet'])": "another machine",
    "read_parquet('file://{a}')": "another machine",
    "read_parquet('{folder}/nothing*.parquet')": "no file",
    "read_parquet(['{a}', '{folder}/vacuumed.parquet'])": "no file now by one of its paths",
    "read_parquet(['{a}', '{a}'])": "twice",
    "read_parquet(['{folder}/*.parquet', '{a}'])": "twice",
    "read_parquet('{a}', filename = true)": "filename = true",
    "read_parquet('{a}', file_row_number = true)": "file_row_number",
    "read_parquet('{a}', binary_as_string = true)": "binary_as_string",
    "read_parquet('{a}', can_have_nan = true)": "can_have_nan",
    "read_parquet('gs://bucket/*.parquet')": "another machine",
    "read_parquet('gcs://bucket/*.parquet')": "another machine",
    "read_parquet('r2://bucket/*.parquet')": "another machine",
    "read_parquet('az://bucket/*.parquet')": "another machine",
    "read_parquet('abfss://bucket/*.parquet')": "another machine",
    "read_csv('{folder}/x.csv')": "CSV",
    "read_csv_auto('{folder}/x.csv')": "CSV",
    "read_csv('{folder}/x.csv', auto_detect = false)": "CSV",
    "'{folder}/x.csv'": "CSV",
    "'{folder}/X.TSV'": "CSV",
    "'{folder}/x.csv.gz'": "CSV",
    "'{folder}/x.json'": "what read_json gives",
    "'{folder}/x.ndjson'": "what read_json gives",
    "delta_scan('{folder}')": "what delta_scan gives",
    "iceberg_scan('{folder}')": "what iceberg_scan gives",
    "sqlite_scan('{folder}/x.db', 't')": "arguments that aren't understood",
    "postgres_scan('host=secret', 'public', 't')": "arguments that aren't understood",
    "mysql_query('db', 'SELECT 1')": "arguments that aren't understood",
    "read_xlsx('{folder}/x.xlsx')": "what read_xlsx gives",
    "read_json('{folder}/x.json')": "what read_json gives",
    "read_text('{a}')": "what read_text gives",
    "read_blob('{a}')": "what read_blob gives",
    "glob('{folder}/*')": "what glob gives",
    "parquet_metadata('{a}')": "what parquet_metadata gives",
    "parquet_schema('{a}')": "what parquet_schema gives",
}


@pytest.mark.parametrize(("relation", "why"), REFUSED.items(), ids=REFUSED)
def test_what_is_not_a_list_of_parquet_files_here_is_refused(con, tmp_path, relation, why):
    folder = tmp_path / "d"
    write(folder / "a.parquet")
    (folder / "x.csv").write_text("h\n1\n")
    (folder / "x.json").write_text('{"h": 1}\n')
    text = relation.format(folder=folder, a=folder / "a.parquet")
    # The catalog's text is written as DuckDB would, since it looks at the files itself.
    catalog = Catalog(con, f"CREATE VIEW v AS SELECT * FROM {text};")
    with pytest.raises(SchemaError, match=why) as caught:
        describe_table(catalog, ("v",), SCHEMA)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


UNREADABLE = {
    "long": b"3," + b"x" * 2_100_000,
    "not UTF-8": b"3,\xff",
    "a carriage return": b"3,x\ry",
    "a quote that isn't closed": b'3,"x',
}


@pytest.mark.parametrize("row", UNREADABLE.values(), ids=UNREADABLE)
def test_why_csv_is_refused_one_row_decides_about_others(con, tmp_path, row):
    """If this fails, DuckDB has mended something, and CSV can be thought of anew."""
    file = tmp_path / "x.csv"
    asked = f"""
        FROM read_csv({quoted(file)}, auto_detect = false, header = true, delim = ',', quote = '"',
            escape = '"', parallel = false, columns = {{'h': 'VARCHAR', 's': 'VARCHAR'}}
    """
    lines = [b"h,s", b"1,a", row, b"2,b", b""]
    file.write_bytes(b"\n".join(lines))
    assert ("2", "b") not in found_by(con, f"{asked})")
    skipped = row in (UNREADABLE["long"], UNREADABLE["not UTF-8"])
    assert (("2", "b") in found_by(con, f"{asked}, ignore_errors = true)")) == skipped


def found_by(con, sql):
    """Return the rows of a statement; none if it fails."""
    try:
        return con.execute(sql).fetchall()
    except duckdb.Error:
        return []


def test_the_hint_for_csv_works(con, tmp_path):
    (tmp_path / "x.csv").write_text("h,s\n1,a\n2,b\n")
    con.execute(f"CREATE VIEW w AS FROM {quoted(tmp_path / 'x.csv')}").fetchall()
    with pytest.raises(SchemaError, match="CSV") as caught:
        describe_table(con, ("w",))
    con.execute(caught.value.hint.split(": ", 1)[1]).fetchall()
    assert list(describe_table(con, ("w_stored",)).undeclared) == ["h", "s"]
    # What the page says in its place.
    made = tmp_path / "d" / "x.parquet"
    made.parent.mkdir()
    read = f"read_csv({quoted(tmp_path / 'x.csv')})"
    con.execute(f"COPY (FROM {read}) TO {quoted(made)}").fetchall()
    view(con, quoted(made))
    assert sum(counted(con, describe_table(con, ("v",), SCHEMA), "h")) == 2


class Catalog:
    """A connection whose catalog says that there is a view of some definition."""

    def __init__(self, con, sql):
        self.con, self.sql = con, sql
        con.execute("CREATE OR REPLACE VIEW v AS SELECT 1 AS h, 'x' AS s").fetchall()

    def execute(self, sql, parameters=()):
        if "SELECT sql FROM system.main.duckdb_views()" in sql:
            told = sql.replace("SELECT sql", "SELECT ? AS sql", 1)
            return self.con.execute(told, [self.sql, *parameters])
        return self.con.execute(sql, parameters)


@pytest.mark.parametrize("name", ["a*.parquet", "a?.parquet", "a[1].parquet", "a{b,c}.parquet"])
def test_files_whose_names_are_patterns_are_refused(con, folder, name):
    shutil.copy(folder / "a.parquet", folder / name)
    view(con, quoted(folder / "*.parquet"))
    with pytest.raises(SchemaError, match="may stand for others"):
        describe_table(con, ("v",), SCHEMA)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_under_two_names_is_refused(con, folder, link):
    link(folder / "a.parquet", folder / "c.parquet")
    view(con, quoted(folder / "*.parquet"))
    with pytest.raises(SchemaError, match="twice"):
        describe_table(con, ("v",), SCHEMA)


@pytest.mark.parametrize(
    "columns",
    [
        {"h": pa.array([1], pa.int64()), "s": pa.array(["x"])},
        {"h": pa.array(["no number"]), "s": pa.array(["x"])},
        {"s": pa.array(["x"]), "h": pa.array([1], pa.int32())},
        {"h": pa.array([1], pa.int32())},
        {"h": pa.array([1], pa.int32()), "s": pa.array(["x"]), "t": pa.array([1])},
    ],
)
def test_files_of_other_columns_are_refused(con, folder, columns):
    view(con, quoted(folder / "*.parquet"))
    write(folder / "c.parquet", **columns)
    with pytest.raises(SchemaError, match="same columns"):
        describe_table(con, ("v",), SCHEMA)


def test_a_connection_that_may_not_read_files(con, folder):
    view(con, quoted(folder / "*.parquet"))
    con.execute("SET enable_external_access = false").fetchall()
    with pytest.raises(SchemaError, match="can't look for its files") as caught:
        describe_table(con, ("v",), SCHEMA)
    assert "enable_external_access" in caught.value.hint


def test_what_is_not_parquet_is_refused(con, folder):
    view(con, quoted(folder / "*.parquet"))
    (folder / "c.parquet").write_text("secret")
    with pytest.raises(SchemaError, match="as Parquet") as caught:
        describe_table(con, ("v",), SCHEMA)
    assert "secret" not in str(caught.value)


def replace_file(folder):
    os.replace(folder / "b.parquet", folder / "a.parquet")


def touch_back(folder):
    """Write other rows of the same length, and set the times back."""
    file = folder / "a.parquet"
    before, content = file.stat(), bytearray(file.read_bytes())
    with file.open("r+b") as opened:
        opened.write(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = {
    "added": lambda folder: write(folder / "c.parquet"),
    "removed": lambda folder: (folder / "a.parquet").unlink(),
    "written": lambda folder: write(folder / "a.parquet", 9),
    "replaced": replace_file,
    "touched": lambda folder: os.utime(folder / "a.parquet", ns=(1, 1)),
    "times set back": touch_back,
    "folder moved": lambda folder: folder.rename(folder.with_name("gone")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_of_files_are_noticed(con, folder, change):
    view(con, quoted(folder / "*.parquet"))
    table = describe_table(con, ("v",), SCHEMA)
    verify_unchanged(con, table, SCHEMA)
    table.origin.check_unchanged()
    change(folder)
    with pytest.raises(StaleSchemaError) as caught:
        verify_unchanged(con, table, SCHEMA)
    assert caught.value.hint
    if change is not CHANGES["added"]:
        with pytest.raises(StaleSchemaError):
            table.origin.check_unchanged()


def test_a_file_that_is_added_is_not_counted(con, folder):
    view(con, quoted(folder / "*.parquet"))
    table = describe_table(con, ("v",), SCHEMA)
    write(folder / "c.parquet")
    assert sum(counted(con, table, "h")) == 16


def test_hostile_bits_are_values_of_their_types_or_null(con, tmp_path):
    """DuckDB's casts of a time that there isn't end the whole database."""
    raw = pa.array([b"\xff\xfe", b"ok", b"\x00", b"\xed\xa0\x80", None, b"t"])
    ends = [2**63 - 1, -(2**63), -(2**63) + 1, 0, None, 1]
    small = [2**31 - 1, -(2**31), -(2**31) + 1, 0, None, 1]
    floats = [np.nan, np.inf, -np.inf, -0.0, None, 5e-324]
    text = pa.Array.from_buffers(pa.string(), 6, raw.buffers())
    decimals = pa.Array.from_buffers(
        pa.decimal128(3, 1), 6,
        [None, pa.py_buffer(np.array([2**63 - 1, 2**62, 999, 0, 1000, 0, 5, 0, 0, 0, 0, 0],
                                     dtype=np.int64).tobytes())],
    )  # fmt: skip
    write(
        tmp_path / "d" / "x.parquet",
        s=text,
        t=pa.array(ends, pa.timestamp("us")),
        z=pa.array(ends, pa.timestamp("us", "UTC")),
        d=pa.array(small, pa.date32()),
        f=pa.array(floats),
        m=pa.array(ends, pa.timestamp("ms")),
        mz=pa.array(ends, pa.timestamp("ms", "UTC")),
        clock=pa.array(ends, pa.time64("us")),
        clock_ns=pa.array(ends, pa.time64("ns")),
        clock_ms=pa.array(small, pa.int32()).view(pa.time32("ms")),
        n=pa.array(ends, pa.timestamp("ns")),
        c=decimals,
        nested=pa.array([{"t": end} for end in ends], pa.struct([("t", pa.timestamp("ms"))])),
        several=pa.array([[end] for end in ends], pa.list_(pa.timestamp("ms"))),
    )
    items = (
        "*, date_trunc('month', t) AS month, d > DATE '1969-12-31' AS late, lower(s) AS low, "
        "CAST(t AS VARCHAR) AS shown, c * 10 AS big, hour(clock) AS h1, hour(clock_ms) AS h2"
    )
    view(con, quoted(tmp_path / "d" / "*.parquet"), items)
    domains = {
        "s": Domain.labels(["ok", "t"], nullable=True),
        "t": Domain.dates("1969-01-01", "1971-12-31", "day", nullable=True),
        "d": Domain.dates("1969-01-01", "1971-12-31", "day", nullable=True, outside="clamp"),
        "f": Domain.bins([-1, 0, 1], nullable=True, outside="clamp"),
        "c": Domain.decimals(0, 99, "0.1", nullable=True),
        "month": Domain.dates("1969-01-01", "1971-12-31", "month", nullable=True),
        "low": Domain.labels(["ok"], nullable=True),
        "m": Domain.dates("1969-01-01", "1971-12-31", "day", nullable=True),
        "mz": Domain.dates("1969-01-01", "1971-12-31", "day", nullable=True, zone="UTC"),
        "h1": Domain.integers(0, 23, nullable=True),
        "h2": Domain.integers(0, 23, nullable=True),
    }
    table = describe_table(con, ("v",), Schema({"v": domains}))
    times = [table.undeclared[name] for name in ("clock", "clock_ns", "clock_ms")]
    assert times == ["TIME"] * 3
    for column in domains:
        assert sum(counted(con, table, column)) == 6, column
    assert counted(con, table, "late") == [0, 2, 4]
    for column, day in {"m": 365, "mz": 365, "h1": 0, "h2": 0}.items():
        found = counted(con, table, column)
        assert (found[day], found[-1]) == (2, 4), column
    bounded = describe_table(con, ("v",), Schema({"v": domains}), Unit("s", 1))
    assert sum(counted(con, bounded, "t")) == 5


# ── versions of tables, by the files that they name ────────────────────────────────────────


def of_files(con, paths):
    view(con, f"read_parquet([{', '.join(map(quoted, paths))}])")


def test_a_version_of_delta_is_read_by_its_files_until_it_is_vacuumed(con, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    place = str(tmp_path / "people")
    rows = pa.table({"h": pa.array([0, 1, 1], pa.int32())})
    deltalake.write_deltalake(place, rows)
    deltalake.write_deltalake(place, rows, mode="append")
    of_files(con, deltalake.DeltaTable(place, version=1).file_uris())
    before = describe_table(con, ("v",), SCHEMA)
    table = deltalake.DeltaTable(place)
    table.optimize.compact()
    deltalake.write_deltalake(place, rows, mode="append")
    again = describe_table(con, ("v",), SCHEMA)
    assert counted(con, again, "h") == [2, 4, 0, 0, 0]
    assert before.origin.state == again.origin.state
    assert before.origin.roots == (Path(place),)
    table = deltalake.DeltaTable(place)
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(SchemaError, match="no file now"):
        describe_table(con, ("v",), SCHEMA)
    with pytest.raises(StaleSchemaError):
        again.origin.check_unchanged()


def test_a_snapshot_of_iceberg_is_read_by_its_files(con, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    home = f"sqlite:///{tmp_path}/catalog.db"
    catalog = catalogs.SqlCatalog("c", uri=home, warehouse=f"file://{tmp_path}")
    catalog.create_namespace("hr")
    rows = pa.table({"h": pa.array([0, 1, 1], pa.int32())})
    table = catalog.create_table("hr.people", schema=rows.schema)
    table.append(rows)
    snapshot = table.current_snapshot().snapshot_id
    table.append(rows)
    tasks = table.scan(snapshot_id=snapshot).plan_files()
    of_files(con, [task.file.file_path.removeprefix("file://") for task in tasks])
    described = describe_table(con, ("v",), SCHEMA)
    assert counted(con, described, "h") == [1, 2, 0, 0, 0]
    assert [root.name for root in described.origin.roots] == ["data"]
