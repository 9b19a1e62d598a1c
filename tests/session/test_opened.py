"""Sessions on files, folders and frames by their paths and names."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
import traceback

import duckdb
import polars as pl
import pytest

import dpsql
from tests.session.tools import BUDGET

HUGE = dpsql.Budget(rho=1e12)
COLUMNS = {
    "sex": dpsql.Domain.labels(["f", "m"]),
    "age": dpsql.Domain.integers(0, 99),
    "wage": dpsql.Domain.number(0, 1000),
}
SCHEMA = {"people": COLUMNS}
BY_SEX = "SELECT sex, COUNT(*) AS n, SUM(age) AS a, SUM(wage) AS w FROM people GROUP BY sex"
ROWS = pl.DataFrame(
    {
        "sex": ["f" if i % 3 else "m" for i in range(300)],
        "age": [i % 90 for i in range(300)],
        "wage": [i + 0.5 for i in range(300)],
        "pid": [i % 100 for i in range(300)],
    }
)
EXACT = {"f": (200, *ROWS.filter(sex="f").select("age", "wage").sum().row(0)),
         "m": (100, *ROWS.filter(sex="m").select("age", "wage").sum().row(0))}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    ROWS.write_csv(folder / "people.csv")
    return folder / "people.csv"


def answers(frame):
    return {s: tuple(round(v, 1) for v in rest) for s, *rest in frame.drop("^.*_variance$").rows()}


def given(kind, folder):
    """The same rows as each of the kinds of things that can be given."""
    if kind == "csv":
        ROWS.write_csv(folder / "people.csv")
        return folder / "people.csv"
    if kind == "csv with semicolons":
        ROWS.write_csv(folder / "people.csv", separator=";", decimal_comma=True)
        return str(folder / "people.csv")
    if kind == "tsv":
        ROWS.write_csv(folder / "people.tsv", separator="\t", include_bom=True)
        return folder / "people.tsv"
    if kind == "csv.gz":
        (folder / "people.csv.gz").write_bytes(gzip.compress(ROWS.write_csv().encode()))
        return folder / "people.csv.gz"
    if kind == "csv as Windows writes it":
        ROWS.write_csv(folder / "people.csv", line_terminator="\r\n", quote_style="always")
        return folder / "people.csv"
    if kind == "parquet":
        ROWS.write_parquet(folder / "people.parquet")
        return folder / "people.parquet"
    if kind in {"folder", "pattern", "folder of CSV"}:
        place = folder / "people"
        place.mkdir()
        for i in range(3):
            part = ROWS.slice(100 * i, 100)
            if kind == "folder of CSV":
                part.write_csv(place / f"{i}.csv")
            else:
                part.write_parquet(place / f"{i}.parquet")
        return str(place / "*.parquet") if kind == "pattern" else place
    if kind == "partitions":
        place = folder / "people"
        for i in range(3):
            (place / f"part={i}").mkdir(parents=True)
            ROWS.slice(100 * i, 100).write_parquet(place / f"part={i}" / "x.parquet")
        return place
    if kind == "database":
        with duckdb.connect(folder / "x.duckdb") as con:
            con.register("rows", ROWS)
            con.execute("CREATE TABLE people AS FROM rows").fetchall()
        return folder / "x.duckdb"
    frames = {"polars": ROWS, "lazy": ROWS.lazy(), "arrow": ROWS.to_arrow()}
    frames["pandas"] = ROWS.to_pandas()
    return {"people": frames[kind]}


KINDS = [
    "csv", "csv with semicolons", "tsv", "csv.gz", "csv as Windows writes it", "parquet", "folder",
    "pattern", "folder of CSV", "partitions", "database", "polars", "lazy", "arrow", "pandas",
]  # fmt: skip
BESIDE = {
    "csv": "people.csv.ledger", "csv with semicolons": "people.csv.ledger",
    "tsv": "people.tsv.ledger", "csv.gz": "people.csv.gz.ledger",
    "csv as Windows writes it": "people.csv.ledger", "parquet": "people.parquet.ledger",
    "folder": "people.ledger", "pattern": "people.ledger", "folder of CSV": "people.ledger",
    "partitions": "people.ledger", "database": "x.duckdb.ledger",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_rows_and_the_account_is_beside_them(kind, tmp_path):
    rows = given(kind, tmp_path)
    frame = dpsql.query(rows, BY_SEX, budget=HUGE, schema=SCHEMA)
    assert answers(frame) == EXACT
    found = sorted(path.name for path in tmp_path.rglob("*.ledger"))
    assert found == ([BESIDE[kind]] if kind in BESIDE else [])
    if kind in BESIDE:
        again = dpsql.Session(rows, schema=SCHEMA)
        assert again.ledger.spent == HUGE.mu_squared


def test_a_schema_may_be_given_by_the_path_of_its_file(tmp_path, file):
    schema = tmp_path / "people.toml"
    schema.write_text(
        '[people.columns]\nsex = { labels = ["f", "m"] }\nage = { integers = [0, 99] }\n'
        "wage = { number = [0, 1000] }\n"
    )
    assert answers(dpsql.query(file, BY_SEX, budget=HUGE, schema=str(schema))) == EXACT
    with pytest.raises(dpsql.SchemaError, match="no such file"):
        dpsql.query(file, BY_SEX, budget=HUGE, schema=tmp_path / "nowhere.toml")


def test_several_by_their_names_are_in_one_account(tmp_path, file):
    ROWS.write_parquet(tmp_path / "p.parquet")
    with duckdb.connect(tmp_path / "x.duckdb") as con:
        con.execute("CREATE TABLE t AS SELECT true AS b FROM range(30)").fetchall()
    rows = {"people": file, "p": tmp_path / "p.parquet", "f": ROWS, "x": tmp_path / "x.duckdb"}
    session = dpsql.Session(rows, schema={**SCHEMA, "p": COLUMNS, "f": COLUMNS})
    counts = [
        session.query(f"SELECT COUNT(*) AS n FROM {table}", budget=HUGE).item(0, "n")
        for table in ("people", "p", "f", "x.t")
    ]
    assert [round(n) for n in counts] == [300, 300, 300, 30]
    assert session.ledger.path == file.with_name("people.csv.ledger")
    assert session.ledger.spent == 4 * HUGE.mu_squared
    alone = dpsql.Session(tmp_path / "p.parquet")
    assert alone.ledger.path == session.ledger.path
    assert dpsql.Session(tmp_path / "x.duckdb").ledger.path == session.ledger.path


def test_units_and_public_tables_of_files(tmp_path, file):
    (tmp_path / "bands.csv").write_text(
        "age,band\n" + "".join(f"{i},{i // 30}\n" for i in range(99))
    )
    rows = {"people": file, "bands": tmp_path / "bands.csv"}
    session = dpsql.Session(rows, schema=SCHEMA, unit="pid", max_rows=2, public=["bands"])
    sql = "SELECT band, COUNT(*) AS n FROM people JOIN bands USING (age) GROUP BY band"
    assert round(session.query(sql, budget=HUGE)["n"].sum()) == 200
    assert "one pid with all of its rows" in session.plan(sql, budget=BUDGET).neighbours


# ── types of CSV ───────────────────────────────────────────────────────────────────────────


def test_without_a_declaration_all_of_a_csv_is_text(file):
    """Nothing is looked for in rows: a column of digits is no number."""
    session = dpsql.Session(file)
    for what in ("AVG(age) AS a FROM people", "COUNT(*) AS n FROM people WHERE age > 9"):
        with pytest.raises(dpsql.SqlError, match="VARCHAR") as caught:
            session.query(f"SELECT {what}", budget=BUDGET)
        assert "dpsql schema" in caught.value.hint
    sql = "SELECT COUNT(*) AS n FROM people WHERE CAST(age AS INTEGER) > 9"
    assert round(session.query(sql, budget=HUGE).item(0, "n")) == ROWS.filter(pl.col.age > 9).height
    again = session.redeclared(schema=SCHEMA)
    assert answers(again.query(BY_SEX, budget=HUGE)) == EXACT
    assert session.query("SELECT COUNT(*) AS n FROM people", budget=HUGE)["n"].round().item() == 300


VALUES = {
    "integers": (
        dpsql.Domain.integers(0, 9, nullable=True),
        {"3": 3, " 3": 3, "3.0": 3, "3e0": 3, "3.7": None, "x": None, "": None, "12": None,
         "99999999999999999999": None, '"3,7"': None, '"4"': 4},
    ),
    "labels": (
        dpsql.Domain.labels(["a", "b;c", "ü"], nullable=True),
        {"a": "a", '"b;c"': "b;c", "ü": "ü", "A": None, "": None, '""': None},
    ),
    "boolean": (
        dpsql.Domain.boolean(nullable=True),
        {"0": False, "1": True, "true": True, "F": False, "yes": True, "2": None, "": None},
    ),
    "days": (
        dpsql.Domain.dates("2024-01-01", "2024-01-03", nullable=True),
        {"2024-01-02": "2024-01-02", "03.01.2024": "2024-01-03", "2024-01-02 10:00": "2024-01-02",
         "2024-13-01": None, "1/2/2024": None, "": None, "2025-01-01": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_is_of_the_declared_type_or_null(kind, tmp_path):
    domain, cases = VALUES[kind]
    lines = [f"{text},x" for text in cases]
    (tmp_path / "t.csv").write_text("v,w\n" + "\n".join(lines) + "\n", encoding="utf-8")
    frame = dpsql.query(
        tmp_path / "t.csv",
        "SELECT v, COUNT(*) AS n FROM t GROUP BY v",
        budget=HUGE,
        schema={"t": {"v": domain}},
    )
    expected = {}
    for value in cases.values():
        expected[value] = expected.get(value, 0) + 1
    found = {v if v is None or kind != "days" else str(v): round(n) for v, n, _ in frame.rows()}
    assert {v: n for v, n in found.items() if n} == expected


def test_numbers_with_a_comma_where_semicolons_are_between_values(tmp_path):
    bounds = {"t": {"v": dpsql.Domain.number(0, 100)}}
    for name, text in {"t.csv": "v;w\n1,5;x\n2.5;x\n", "u.csv": 'v,w\n"1,5",x\n2.5,x\n'}.items():
        (tmp_path / name).write_text(text)
    sql = "SELECT SUM(v) AS s FROM "
    found = dpsql.query(tmp_path / "t.csv", f"{sql}t", budget=HUGE, schema=bounds)["s"].item()
    assert round(found, 2) == 4.0
    found = dpsql.query(tmp_path / "u.csv", f"{sql}u", budget=HUGE, schema={"u": bounds["t"]})
    assert round(found["s"].item(), 2) == 2.5  # elsewhere 1,5 may be fifteen, or two values


def test_a_row_decides_about_no_type_delimiter_or_name(tmp_path):
    """The same answers of the other rows, whatever the text of one row looks like."""
    sql = "SELECT v, COUNT(*) AS n FROM t GROUP BY v"
    schema = {"t": {"v": dpsql.Domain.integers(0, 3)}}
    for odd in ("x,y", "2024-01-01,;;;;", ",", '"a\nb","c""d"', "1e999,\t|", "NaN,🙂"):
        (tmp_path / "t.csv").write_text(f"v,w\n{odd}\n" + "1,a\n2,b\n" * 50, encoding="utf-8")
        frame = dpsql.query(tmp_path / "t.csv", sql, budget=HUGE, schema=schema)
        assert [round(n) for n in frame["n"]] == [0, 50, 50, 0], odd


@pytest.mark.parametrize("encoding", ["UTF-16", "WINDOWS-1252"])
def test_the_hint_for_another_encoding_can_be_typed(encoding, tmp_path):
    ROWS.write_csv(tmp_path / "people.csv")
    text = (tmp_path / "people.csv").read_text().replace("pid", "größe")
    (tmp_path / "people.csv").write_text(text, encoding=encoding)
    with pytest.raises(dpsql.SchemaError, match="UTF-8") as caught:
        dpsql.Session(tmp_path / "people.csv")
    command = caught.value.hint.split(": ")[1].removesuffix(".")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)  # noqa: S602  as it is typed
    assert dpsql.Session({"people": tmp_path / "utf8.csv"}, schema=SCHEMA)


def test_names_of_tables_that_are_not_there_lead_to_those_that_are(tmp_path):
    ROWS.write_csv(tmp_path / "2024 survey.csv")
    session = dpsql.Session(tmp_path / "2024 survey.csv")
    with pytest.raises(dpsql.SchemaError) as caught:
        session.plan('SELECT COUNT(*) AS n FROM "2024 survy"', budget=BUDGET)
    assert '"2024 survey"' in caught.value.hint
    assert "texts" not in caught.value.hint


HEADS = {
    "numbers": "39,State-gov,77516\n", "a day": "2024-01-01,x\n", "nothing": "\n1,2\n",
    "no name within": "a,,b\n1,2,3\n", "twice": "a,A\n1,2\n", "a quote": 'a,"b\n1,2\n',
    "an empty file": "", "a truth": "true,x\n", "years": "1960,a\n",
}  # fmt: skip


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a_first_line_that_may_be_a_row_is_refused_and_not_shown(head, tmp_path):
    (tmp_path / "t.csv").write_text(head)
    with pytest.raises(dpsql.SchemaError) as caught:
        dpsql.Session(tmp_path / "t.csv")
    assert "State-gov" not in str(caught.value)
    assert "77516" not in str(caught.value)


def test_years_beside_names_are_names(tmp_path):
    (tmp_path / "t.csv").write_text("country,1960,1961\nAruba,4.8,NA\nMalta,3.6,3.7\n")
    schema = {"t": {"1960": dpsql.Domain.number(0, 10), "1961": dpsql.Domain.number(0, 10)}}
    sql = 'SELECT SUM("1960") AS a, SUM("1961") AS b FROM t'
    frame = dpsql.query(tmp_path / "t.csv", sql, budget=HUGE, schema=schema)
    assert [round(frame[name].item(), 1) for name in "ab"] == [8.4, 3.7]


def test_the_labels_of_rows_that_pandas_writes_have_a_name(tmp_path):
    ROWS.to_pandas().to_csv(tmp_path / "people.csv")
    assert (
        answers(dpsql.query(tmp_path / "people.csv", BY_SEX, budget=HUGE, schema=SCHEMA)) == EXACT
    )


MALFORMED = {
    "too many values": b"f,SECRET,3,4,5\n", "too few": b"f,SECRET\n",
    "not UTF-8": b"f,1,SECRET\xff,1\n",
    "an open quote": b'f,1,"SECRET,1\n', "a long line": b"f,1," + b"SECRET" * 500_000 + b",1\n",
    "a carriage return": b"f,1,SECRET\rx,1\n",
}  # fmt: skip


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED)
def test_a_line_that_is_no_row_is_told_of_before_the_charge_and_without_a_word_of_it(file, line):
    with file.open("ab") as rows:
        rows.write(line + b"f,1,2,3\n" * 3)
    session = dpsql.Session(file, schema=SCHEMA)
    session.plan(BY_SEX, budget=BUDGET)  # reads no row
    with pytest.raises(dpsql.SchemaError, match="can't be read as CSV") as caught:
        session.query(BY_SEX, budget=BUDGET)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))
    assert not re.search(r"\d", str(caught.value).replace("UTF-8", ""))  # nor of where it is
    assert session.ledger.spent == 0


# ── one account, one state ─────────────────────────────────────────────────────────────────


def view(file, ledger=None, name="people"):
    con = duckdb.connect()
    con.execute(f"CREATE VIEW {name} AS FROM read_parquet('{file}')").fetchall()
    return dpsql.Session(con, schema=SCHEMA, ledger=ledger)


def by_path(file, ledger=None):
    return dpsql.Session({"people": file}, schema=SCHEMA, ledger=ledger)


COUNT = "SELECT COUNT(*) AS n FROM people"


@pytest.mark.parametrize("first", ["path", "view", "folder"])
def test_the_same_file_by_its_path_and_by_a_view_has_one_account(tmp_path, first):
    folder = tmp_path / "data"
    folder.mkdir()
    for name in "ab":
        ROWS.write_parquet(folder / f"{name}.parquet")
    file, own, of_folder = (
        folder / "a.parquet",
        folder / "a.parquet.ledger",
        tmp_path / "data.ledger",
    )
    if first == "path":
        by_path(file).query(COUNT, budget=BUDGET)
        assert own.exists()
        assert not of_folder.exists()
        elsewhere = tmp_path / "other.ledger"
        for other in (
            lambda: view(file, elsewhere),
            lambda: view(folder / "*.parquet", elsewhere),
            lambda: by_path(folder),
        ):
            with pytest.raises(dpsql.LedgerError, match="have their account in") as caught:
                other().query(COUNT, budget=BUDGET)
            assert str(own) in caught.value.hint
        assert not of_folder.exists()  # which would be in the way of both
        through = view(folder / "*.parquet", own)
        through.query(COUNT, budget=BUDGET)
        assert through.ledger.spent == 2 * BUDGET.mu_squared
        assert by_path(folder / "b.parquet").ledger.path == own  # of the folder now, too
        assert by_path(folder).ledger.path == own
    else:
        started = view(file, of_folder) if first == "view" else by_path(folder)
        started.query(COUNT, budget=BUDGET)
        for name in "ab":
            session = by_path(folder / f"{name}.parquet")
            assert session.ledger.path == of_folder
            session.query(COUNT, budget=BUDGET)
        assert by_path(file).ledger.spent == 3 * BUDGET.mu_squared
        assert not own.exists()


def test_a_folder_with_one_file_has_the_account_of_the_folder(tmp_path):
    (tmp_path / "people").mkdir()
    ROWS.write_csv(tmp_path / "people" / "a.csv")
    dpsql.query(tmp_path / "people", COUNT, budget=BUDGET)
    ROWS.write_csv(tmp_path / "people" / "b.csv")
    assert dpsql.Session(tmp_path / "people").ledger.spent == BUDGET.mu_squared
    assert [path.name for path in tmp_path.rglob("*.ledger")] == ["people.ledger"]


def test_of_two_that_begin_at_once_only_one_is_charged(tmp_path):
    """A file by its path and its folder by a view: each looks at the other's place last."""
    folder = tmp_path / "data"
    folder.mkdir()
    ROWS.write_parquet(folder / "a.parquet")
    alone = by_path(folder / "a.parquet")  # its place is taken
    other = view(folder / "*.parquet", tmp_path / "data.ledger")
    with pytest.raises(dpsql.LedgerError, match=r"a\.parquet\.ledger"):
        other.query(COUNT, budget=BUDGET)
    assert other.ledger.spent == 0
    (folder / "a.parquet.ledger").rename(tmp_path / "aside")
    other.query(COUNT, budget=BUDGET)  # the folder's place is taken
    (tmp_path / "aside").rename(folder / "a.parquet.ledger")
    with pytest.raises(dpsql.LedgerError, match=r"data\.ledger"):
        alone.query(COUNT, budget=BUDGET)
    assert alone.ledger.spent == 0


def test_a_link_leads_to_the_account_of_the_file(tmp_path, file):
    link = tmp_path / "other.csv"
    link.symlink_to(file)
    dpsql.query(link, "SELECT COUNT(*) AS n FROM other", budget=BUDGET, unit="pid", max_rows=3)
    assert [path.name for path in tmp_path.rglob("*.ledger")] == ["people.csv.ledger"]
    with pytest.raises(dpsql.LedgerError):  # and to the unit that it is bound to
        dpsql.query(file, COUNT, budget=BUDGET)
    dpsql.query(file, COUNT, budget=BUDGET, unit="pid", max_rows=3, schema=SCHEMA)
    assert dpsql.Session(link).ledger.spent == 2 * BUDGET.mu_squared


def test_a_file_under_two_names_is_refused(tmp_path, file):
    link = tmp_path / "other.csv"
    link.symlink_to(file)
    with pytest.raises(dpsql.SchemaError, match="given twice"):
        dpsql.Session({"people": file, "bands": link}, public=["bands"])


def test_the_copy_has_no_name_that_a_statement_could_use(file):
    session = dpsql.Session(file, schema=SCHEMA)
    con = session._data.declared.source.con
    hidden = next(n for (n,) in con.sql("SELECT database_name FROM duckdb_databases()").fetchall()
                  if n.startswith("copies_"))  # fmt: skip
    for name in (f"{hidden}.people", f"{hidden}.main.people"):
        with pytest.raises(dpsql.SchemaError):
            session.query(f"SELECT COUNT(*) AS n FROM {name}", budget=BUDGET)


@pytest.mark.parametrize("kind", ["csv", "parquet", "folder of CSV"])
def test_files_that_are_written_meanwhile_are_refused(kind, tmp_path):
    rows = given(kind, tmp_path)
    session = dpsql.Session({"people": rows}, schema=SCHEMA)
    session.plan(BY_SEX, budget=BUDGET)
    written = rows if rows.is_file() else rows / "0.csv"
    content = written.read_bytes()
    if kind == "parquet":
        session.query(BY_SEX, budget=BUDGET)  # it is listed anew
        spent = session.ledger.spent
        os.utime(written, ns=(1, 1))
        session.query(BY_SEX, budget=BUDGET)
        assert session.ledger.spent == 2 * spent
        return
    written.write_bytes(content + b"f,1,2,3\n")
    for _ in range(2):
        with pytest.raises(dpsql.StaleSchemaError, match="written"):
            session.query(BY_SEX, budget=BUDGET)
    assert session.ledger.spent == 0
    again = dpsql.Session({"people": rows}, schema=SCHEMA)
    assert answers(again.query(BY_SEX, budget=HUGE))["f"][0] == 201
    written.write_bytes(content)  # after it was counted
    with pytest.raises(dpsql.StaleSchemaError):
        again.query("SELECT age, COUNT(*) AS n FROM people GROUP BY age", budget=BUDGET)


def test_types_of_pandas_that_are_found_in_rows_are_not_taken(tmp_path):
    """Columns of objects are texts, and categories that were found in rows are no domain."""
    frame = ROWS.to_pandas()
    frame["mixed"] = [1 if i else "x" for i in range(300)]
    frame["mixed"] = frame["mixed"].astype(object)
    frame["sex"] = frame["sex"].astype("category")
    session = dpsql.Session(frame)
    undeclared = session._data.declared.source.describe(("self",)).undeclared
    assert undeclared["mixed"] == undeclared["sex"] == "VARCHAR"


def test_each_session_of_a_frame_has_an_account_of_its_own(tmp_path):
    total = dpsql.Budget(rho=BUDGET.rho)
    for _ in range(2):
        dpsql.Session(ROWS, budget=total).query("SELECT COUNT(*) AS n FROM self", budget=BUDGET)
    place = tmp_path / "rows.ledger"
    dpsql.query(ROWS, "SELECT COUNT(*) AS n FROM self", budget=BUDGET, ledger=place)
    with pytest.raises(dpsql.BudgetError):
        dpsql.Session(ROWS, budget=total, ledger=place).query(
            "SELECT COUNT(*) AS n FROM self", budget=BUDGET
        )


# ── what it isn't ──────────────────────────────────────────────────────────────────────────


OTHERS = {
    "x.sqlite": (b"SQLite format 3\0" + bytes(90), "an SQLite database"),
    "x.xlsx": (b"PK\x03\x04" + bytes(90), "a ZIP archive, as Excel workbooks are"),
    "x.feather": (b"ARROW1" + bytes(90), "Arrow"), "x.json": (b'{"a": 1}', "JSON"),
    "x.jsonl": (b'[{"a": 1}]', "JSON"), "x.dat": (b"a,b\n1,2\n", "by its ending"),
    "x.csv": (b"PAR1" + bytes(90), "a Parquet file"), "y.csv": (b"PK\x03\x04abc", "ZIP"),
    "x.parquet": (b"a,b\n1,2\n", "no Parquet file"), "x.duckdb": (b"abc", "neither a DuckDB"),
    "x.csv.gz": (b"a,b\n1,2\n", "can't be read"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_of_another_kind_is_called_by_its_name(name, tmp_path):
    content, said = OTHERS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(dpsql.SchemaError, match=said) as caught:
        dpsql.Session(tmp_path / name)
    assert caught.value.hint
    assert not [*tmp_path.rglob("*.ledger")]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nowhere.csv", "There is no file"), ("", "not a path"),
        ("https://x/y.csv", "another machine"), ({}, "name → file"),
        ({"a": 3}, "neither a path nor a frame"), ({3: "x.csv"}, "name → file"),
        (3, "neither a path, a frame"), ("nowhere/*.parquet", "reads no file"),
    ],
)  # fmt: skip
def test_what_is_nothing_at_all(what, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dpsql.SchemaError, match=said) as caught:
        dpsql.Session(what)
    assert caught.value.hint


def test_a_folder_without_rows_or_with_several_kinds(tmp_path):
    with pytest.raises(dpsql.SchemaError, match="neither Parquet nor CSV"):
        dpsql.Session(tmp_path)
    ROWS.write_csv(tmp_path / "a.csv")
    ROWS.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(dpsql.SchemaError, match="several kinds"):
        dpsql.Session(tmp_path)


def test_a_database_can_be_written_again_when_its_session_is_closed(tmp_path):
    path = given("database", tmp_path)
    dpsql.query(path, COUNT, budget=BUDGET)
    dpsql.plan(path, COUNT, budget=BUDGET)
    duckdb.connect(path).close()
    with dpsql.Session(path) as session:
        session.plan(COUNT, budget=BUDGET)
        with pytest.raises(duckdb.ConnectionException):
            duckdb.connect(path)
    duckdb.connect(path).close()
    with duckdb.connect(path) as con:
        with dpsql.Session(con) as session:
            session.plan(COUNT, budget=BUDGET)
        assert con.execute("SELECT 1").fetchall() == [(1,)]


WRITER = "import duckdb, sys; con = duckdb.connect(sys.argv[1]); print(1, flush=True); input()"


def test_a_database_that_is_open_for_writing_gets_one_line_on_read_only(tmp_path):
    path = tmp_path / "x.duckdb"
    con = duckdb.connect(path)
    con.execute("CREATE TABLE t AS SELECT true AS b").fetchall()
    with pytest.raises(dpsql.SchemaError, match="open for writing in this process") as caught:
        dpsql.Session(path)
    assert "read_only=True" in caught.value.hint
    con.close()
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(dpsql.SchemaError, match="can't be opened for reading") as caught:
            dpsql.Session(path)
        other.communicate(b"\n")
    assert "read_only=True" in caught.value.hint
    assert dpsql.query(path, "SELECT COUNT(*) AS n FROM t", budget=BUDGET).height == 1


STAYS = """
    SELECT i AS stay, i % 100 AS pid,
        TIMESTAMPTZ '2026-03-01 08:00:00+00' + to_hours(i) AS came,
        came + to_hours(24 + i % 48) AS went
    FROM range(300) AS t(i)
"""


def test_persons_of_a_csv_and_their_stays_of_parquet(tmp_path, file):
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute(f"COPY ({STAYS}) TO '{tmp_path}/stays.parquet'")
        con.execute(
            f"COPY (SELECT range AS pid, 'w' AS ward FROM range(100)) TO '{tmp_path}/p.csv'"
        )
    times = dpsql.Domain.dates("2026-03-01", "2026-03-31", "day", zone="UTC")
    schema = dpsql.Schema(
        {"p": {"ward": dpsql.Domain.labels(["w"])}, "stays": {"came": times, "went": times}},
        references={"stays.pid": "p.pid"},
    )
    files = {"p": tmp_path / "p.csv", "stays": tmp_path / "stays.parquet"}
    session = dpsql.Session(files, schema=schema, unit=dpsql.Unit("p", {"p": 1, "stays": 3}))
    days = "AVG(EXTRACT(epoch FROM went - came) / 86400)"
    sql = f"SELECT ward, COUNT(*) AS n, {days} AS d FROM stays JOIN p USING (pid) GROUP BY ward"
    found = session.query(sql, budget=HUGE)
    right = sum(24 + i % 48 for i in range(300)) / 300 / 24
    assert found["n"].round().to_list() == [300]
    assert found["d"].to_list() == pytest.approx([right], abs=1e-4)


def test_a_public_file_of_csv_is_no_reason_to_draft_a_schema(tmp_path, file):
    (tmp_path / "wards.csv").write_text("ward\na\n")
    files = {"people": file, "wards": tmp_path / "wards.csv"}
    session = dpsql.Session(files, schema=SCHEMA, public=["wards"])
    with pytest.raises(dpsql.DpsqlError) as error:
        session.plan("SELECT pid, COUNT(*) AS n FROM people GROUP BY pid", budget=BUDGET)
    assert "wards" not in str(error.value)


class TestOrdersOfVisitsOfPeople:
    """Rows of a file that lead to persons through another file alone."""

    FILES = ("people", "visits", "orders")
    DECLARED = {  # noqa: RUF012
        "schema": {
            "people": {"sex": dpsql.Domain.labels(["f", "m"])},
            "orders": {"item": dpsql.Domain.labels(["x", "y"])},
        },
        "unit": dpsql.Unit(
            "people",
            {"people": 1, "visits": 2, "orders": 3},
            references={
                "visits.person_id": "people.id",
                "orders.visit_id": "visits.visit_id",
            },
        ),
    }
    BY_ITEM = "SELECT item, COUNT(*) AS n FROM orders GROUP BY item ORDER BY item"
    ORDERS = ((10, "x"), (10, "y"), (11, "x"), (11, "x"), (12, "y"), (13, "x"), (14, "x"),
              (99, "y"), (None, "x"))  # fmt: skip
    VISITS = ((10, 1), (11, 1), (12, 2), (13, 3), (13, 2), (14, None))
    """One belongs to two persons, and one to nobody."""

    def frames(self, without: int | None = None) -> dict[str, pl.DataFrame]:
        """All rows, but for those that come and go with a person."""
        visits = [(v, p) for v, p in self.VISITS if p is None or p != without]
        theirs = {v for v, p in self.VISITS if p == without and without is not None}
        left = {v for v, _ in visits}
        orders = [(v, i) for v, i in self.ORDERS if v not in theirs or v in left]
        rows = (
            [(p, s) for p, s in ((1, "f"), (2, "m"), (3, "f"), (4, "m")) if p != without],
            visits,
            orders,
        )
        names = (("id", "sex"), ("visit_id", "person_id"), ("visit_id", "item"))
        made = (pl.DataFrame(r, n, orient="row") for r, n in zip(rows, names, strict=True))
        return dict(zip(self.FILES, made, strict=True))

    def database(self, folder, frames):
        """Put all into one DuckDB file, as the hint says."""
        with duckdb.connect(folder / "all.duckdb") as con:
            for name, frame in frames.items():
                frame.write_csv(folder / f"{name}.csv")
                con.execute(f"CREATE TABLE {name} AS FROM '{folder / name}.csv'").fetchall()
        return folder / "all.duckdb"

    @pytest.mark.parametrize("ending", ["csv", "parquet"])
    def test_files_are_refused_and_the_hint_says_what_is_answered(self, tmp_path, ending):
        files = {name: tmp_path / f"{name}.{ending}" for name in self.FILES}
        for name, frame in self.frames().items():
            (frame.write_csv if ending == "csv" else frame.write_parquet)(files[name])
        with dpsql.Session(files, **self.DECLARED) as session:
            with pytest.raises(dpsql.SchemaError, match="another table, visits") as caught:
                session.query(self.BY_ITEM, budget=HUGE)
            assert not session.history.height
        assert "one DuckDB file" in str(caught.value.hint)
        assert "a frame in place of each file" in str(caught.value.hint)

    def answer(self, rows) -> list[int]:
        with dpsql.Session(rows, **self.DECLARED) as session:
            assert (
                "add or remove one people.id with all of its rows"
                in session.plan(self.BY_ITEM, budget=HUGE).neighbours
            )
            return [round(n) for n in session.query(self.BY_ITEM, budget=HUGE)["n"]]

    @pytest.mark.parametrize("kind", ["frames", "database"])
    def test_a_person_moves_no_more_than_their_own_rows(self, tmp_path, kind):
        """Neighbors are replayed: without a person, all rows that lead to them alone are gone."""
        found = {}
        for without in (None, 1, 2, 3, 4):
            frames, folder = self.frames(without), tmp_path / f"{without}"
            folder.mkdir()
            rows = frames if kind == "frames" else self.database(folder, frames)
            found[without] = self.answer(rows)
        # of person 1 three of four orders; of visit 13 the order counts for both of its persons
        assert sum(found[None]) == 3 + 2 + 1
        moved = {p: [a - b for a, b in zip(found[None], n, strict=True)] for p, n in found.items()}
        assert sum(moved[1]) == 3
        assert moved[2] == [1, 1]
        assert moved[3] == [1, 0]
        assert moved[4] == [0, 0]
        assert all(n >= 0 for each in moved.values() for n in each)
