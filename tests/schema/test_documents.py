"""Schema files, and tables as plain JSON: exact round trips, and nothing else is understood."""

from __future__ import annotations

import copy
import json
import random
import re
from datetime import date
from decimal import Decimal

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, given, settings

import dpsql
from dpsql.cli import main
from dpsql.errors import SchemaError
from dpsql.schema import Domain, Schema, Table, Unit
from dpsql.schema.declarations import MAX_BYTES, parse_toml
from dpsql.schema.document import TODO, write_toml
from dpsql.schema.domain import UnknownBounds, UnknownKeys
from dpsql.schema.drafts import _GUESSES, declaration_hint
from dpsql.schema.entries import as_code
from dpsql.schema.sequences import DecimalRange
from dpsql.schema.stored import table_from_json, table_to_json
from dpsql.schema.units import KeyStep, ResolvedUnit
from tests.benchmarks.hospital import Hospital
from tests.helpers.described import check_declared, read_table, table_names
from tests.schema.strategies import declared_domains, tables
from tests.sql.people import CREATE

repeatable = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

EVERYTHING = """
[people]
unit = "person_id"
max_rows = 3

[people.columns]
age = { integers = [0, 115], nullable = true, outside = "drop" }
grade = { values = [1, 2, 3, 6], outside = "clamp" }
price = { decimals = [0, 99.95], step = 0.05 }
fine = { decimals = ["-0.10", 0.30], step = "0.1" }
born = { dates = [2020-01-15, "2020-03-01"], grain = "month" }
holiday = { values = [2026-12-24, 2026-01-01] }
income = { bins = [0, 0.1, 20, 1e3], nullable = true, outside = "clamp" }
site = { labels = ["Berlin", "else"], other = "else" }
member = { boolean = true, nullable = true }

[people.columns."net income"]
integers = [-5, 5]

[visits]
unit = "people.id"
max_rows = 1
"""


def load(tmp_path, text: str | bytes) -> Schema:
    path = tmp_path / "schema.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Schema.load(path)


class TestReadingFiles:
    def test_every_kind_of_domain(self, tmp_path):
        schema = load(tmp_path, EVERYTHING)
        assert dict(schema["people"]) == {
            "age": Domain.integers(0, 115, nullable=True, outside="drop"),
            "grade": Domain("BIGINT", (1, 2, 3, 6), outside="clamp"),
            "price": Domain.decimals("0", "99.95", "0.05"),
            "fine": Domain.decimals("-0.1", "0.3", "0.1"),
            "born": Domain.dates("2020-01-01", "2020-03-31", "month"),
            "holiday": Domain("DATE", (date(2026, 12, 24), date(2026, 1, 1))),
            "income": Domain.bins([0, 0.1, 20, 1000], nullable=True, outside="clamp"),
            "site": Domain.labels(["Berlin", "else"], other="else"),
            "member": Domain.boolean(nullable=True),
            "net income": Domain.integers(-5, 5),
        }
        assert schema.units == {"people": Unit("person_id", 3), "visits": Unit("people.id", 1)}

    def test_windows_files_are_read(self, tmp_path):
        text = b"\xef\xbb\xbf" + b'[t.columns]\r\na = { labels = ["\xc3\xa4"] }\r\n'
        assert load(tmp_path, text)["t"]["a"] == Domain.labels(["ä"])

    def test_decimals_are_not_read_as_floats(self):
        text = "[t.columns]\na = { decimals = [0.1, 123456789012345678.3], step = 0.1 }"
        values = parse_toml(text).tables["t"]["a"].values
        assert isinstance(values, DecimalRange)
        assert values[-1] == Decimal("123456789012345678.3")

    def test_a_release_from_a_file(self, tmp_path):
        path = tmp_path / "schema.toml"
        path.write_text('[t.columns]\nx = { labels = ["a", "b"], nullable = true }')
        con = duckdb.connect()
        con.execute("CREATE TABLE t (x VARCHAR); INSERT INTO t VALUES ('a'), ('b'), ('c')")
        frame = dpsql.query(
            con,
            "SELECT x, COUNT(*) AS n FROM t GROUP BY x",
            budget=dpsql.Budget(rho=10**9),
            schema=Schema.load(str(path)),
        )
        assert frame["x"].to_list() == ["a", "b", None]
        assert [round(n) for n in frame["n"]] == [1, 1, 1]


class TestRefusedFiles:
    @pytest.mark.parametrize(
        ("entry", "message", "hint"),
        [
            ("integer = [0, 1]", "no key integer", "did you mean integers?"),
            ("integers = [0, 1], nulable = true", "no key nulable", "did you mean nullable?"),
            ("integers = [0, 1], step = 2", "no key step beside integers", "nullable, outside"),
            ('labels = ["a"], integers = [0, 1]', "two kinds", "keep one"),
            ("nullable = true", "kind of the domain is missing", "integers, values"),
            ("", "kind of the domain is missing", "boolean"),
            ("integers = [0]", "first and the last", "integers = [0, 115]"),
            ("integers = [0, 1, 2]", "first and the last", "integers = [0, 115]"),
            ("integers = [0, 1.0]", "integers can't be", "integers = [0, 115]"),
            ("integers = [false, true]", "integers can't be", "integers = [0, 115]"),
            ("integers = 5", "integers can't be 5", "integers = [0, 115]"),
            ("integers = [5, 3]", "empty", "3..5"),
            ("integers = [0, 99999999999999999999]", "64-bit", "smaller"),
            ("integers = [0, 1], nullable = 1", "nullable can't be 1", "true or false"),
            ('integers = [0, 1], nullable = "true"', "nullable can't be", "true or false"),
            ('integers = [0, 1], outside = "null"', "domain without NULL", "nullable = true"),
            ('integers = [0, 1], outside = "other"', "outside can't be", '"clamp"'),
            ("integers = [0, 1], outside = [[]]", "outside can't be", '"clamp"'),
            ('values = [1, "a"]', "not all whole numbers", "values = [1, 2, 3, 6]"),
            ("values = [true, false]", "not all whole numbers", "values = [1, 2, 3, 6]"),
            ("values = []", "not all whole numbers", "values = [1, 2, 3, 6]"),
            ("values = [1, 1]", "twice", "once"),
            ("values = [9223372036854775808]", "64-bit", "leave it out"),
            ('values = [2, 1], outside = "clamp"', "in order", "sort"),
            ("decimals = [0, 1]", "step is missing", "step = 0.05"),
            ("decimals = [0, 1], step = [1]", "step is not a number", "step = 0.05"),
            ("decimals = [0, 1], step = 0", "above 0", "step"),
            ("decimals = [0, 1], step = 0.3", "does not divide", "whole number of steps"),
            ("decimals = [nan, inf], step = 1", "not a decimal number", "0.05"),
            ("decimals = [0, 1e999999999999999999999], step = 1", "not a decimal", "0.05"),
            ("decimals = [0, 1e99999], step = 1", "too many digits", "digits"),
            ('decimals = ["a", 1], step = 1', "not a decimal number", "0.05"),
            ('dates = ["2026-13-01", 2026-12-31]', "not a date", "2026-01-31"),
            ("dates = [2026-01-01T00:00:00, 2026-12-31]", "dates can't be", "2026-01-01"),
            ("dates = [2026-02-01, 2026-01-01]", "empty", "did you mean"),
            ('dates = [2026-01-01, 2026-12-31], grain = "decade"', "no grain", "month"),
            ("dates = [2026-01-01, 2026-12-31], grain = []", "no grain", "month"),
            ('dates = ["2026-01-01 24:00", 2026-12-31], grain = "hour"', "not a date and", "18:00"),
            (
                "dates = [2026-01-01T00:00:00Z, 2026-12-31], grain = 'minute'",
                "without a zone",
                "18:00",
            ),
            ("dates = [2026-01-01, 2026-12-31], zone = 1", "zone can't be 1", "Europe/Berlin"),
            ('dates = [2026-01-01, 2026-12-31], zone = "a b"', "no time zone", "UTC"),
            ('integers = [1, 2], zone = "UTC"', "no key zone", "nullable"),
            ("bins = [1]", "two edges", "bins = [0, 10, 20, 50]"),
            ("bins = [0, nan]", "not an edge", "finite"),
            ("bins = [0, inf]", "not an edge", "finite"),
            ("bins = [0, 1e400]", "not an edge", "finite"),
            ("bins = [0, true]", "not an edge", "finite"),
            ("bins = [1, 0]", "does not lie above", "ascending"),
            ('labels = "a"', "must be a list", 'labels = ["a", "b"]'),
            ("labels = [1]", "not all texts", "quotes"),
            ('labels = ["a", "a"]', "twice", "once"),
            ("labels = []", "no values", "at least one"),
            ('labels = ["a"], outside = "clamp"', "no ends", 'outside = "drop"'),
            ('labels = ["a"], other = "b"', "not listed", "add it"),
            ('labels = ["a"], other = 1', "not listed", "add it"),
            ('labels = ["a"], other = "a", outside = "drop"', "two rules", "keep one"),
            ("boolean = false", "boolean can't be False", "boolean = true"),
            ('boolean = true, outside = "drop"', "no key outside", "nullable"),
        ],
    )
    def test_entries(self, entry, message, hint):
        with pytest.raises(SchemaError) as raised:
            parse_toml(f"[people.columns]\nage = {{ {entry} }}")
        assert raised.value.message.startswith("table people: column age: ")
        assert message in raised.value.message
        assert raised.value.hint is not None
        assert hint in raised.value.hint

    @pytest.mark.parametrize(
        ("text", "message", "hint"),
        [
            ("people = 1", "table people: This should be a table", "[people.columns]"),
            ("[[people]]", "table people: This should be a table", "[people.columns]"),
            ("[people]", "Nothing is declared", "[people.columns]"),
            ("[people.age]\nintegers = [0, 1]", "no key age", "[people.columns.age]"),
            ("[people.colums.age]\nintegers = [0, 1]", "no key colums", "columns"),
            ('[people]\nunits = "a"', "no key units", "did you mean unit?"),
            ("[people]\ncolumns = 3", "The columns are 3", "[people.columns]"),
            ("[people.columns]\nage = [0, 115]", "The domain is [0, 115]", "integers = [0, 115]"),
            (
                "[people]\nmax_rows = 3",
                "needs the column that identifies the unit",
                'unit = "person_id"',
            ),
            ("[people]\neach_row = false", "Either each row", "each_row = true alone"),
            ("[people]\neach_row = true\nmax_rows = 3", "Either each row", "each_row = true alone"),
            ("[people]\nunit = 3\nmax_rows = 3", "does not name a column", 'unit = "person_id"'),
            ('[people]\nunit = "id"\nmax_rows = 0', "max_rows can't be 0", "whole number"),
            ('[people]\nunit = "id"\nmax_rows = true', "max_rows can't be True", "whole number"),
            ("[people.columns]\na = {boolean = true}\nA = {boolean = true}", "twice", "keep one"),
            ("[a.columns]\n[A.columns]", "table A is declared twice, also as a", "keep one"),
            ("[people.columns]\na = 1\na = 2", "not TOML", "quotes"),
            ("[people.columns]\n[people.columns]", "not TOML", "quotes"),
            ("age: integers", "not TOML", "quotes"),
            ("a = " + "9" * 5000, "not TOML", "quotes"),
            ("a = " + "[" * 5000, "nested too deeply", "one list"),
            ("a." * 5000 + "a = 1", "dots", "[table.columns]"),
            ('"" = 1', "A table has no name", "name"),
        ],
    )
    def test_files(self, text, message, hint):
        with pytest.raises(SchemaError) as raised:
            parse_toml(text)
        assert message in raised.value.message
        assert raised.value.hint is not None
        assert hint in raised.value.hint

    def test_the_file_is_named(self, tmp_path):
        with pytest.raises(SchemaError, match=r"schema\.toml: table t: column x: The range"):
            load(tmp_path, "[t.columns]\nx = { integers = [2, 1] }")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"\xff\xfe", "not UTF-8"),
            (b"#" * (MAX_BYTES + 1), "more than 1,048,576 bytes"),
            (b"a = \x00", "not TOML"),
        ],
    )
    def test_bytes_that_are_no_schema(self, tmp_path, content, message):
        with pytest.raises(SchemaError, match=message):
            load(tmp_path, content)

    def test_paths_that_are_no_file(self, tmp_path):
        for path in (tmp_path, tmp_path / "missing.toml", "a\0b", "/dev/zero"):
            with pytest.raises(SchemaError, match=r"no such file|can't be read"):
                Schema.load(path)
        with pytest.raises(SchemaError, match="not the path"):
            Schema.load(None)

    def test_messages_can_not_be_disguised(self):
        with pytest.raises(SchemaError) as raised:
            parse_toml('["a\\u202E\\u001b"]\n"\\u001b[2J" = 1')
        assert not {"\u202e", "\x1b"} & set(str(raised.value))


class TestWritingFiles:
    @repeatable
    @given(tables(domains=declared_domains))
    def test_what_is_written_is_read_back(self, table):
        assume(len({name.lower() for name in table.columns}) == len(table.columns))
        assume(table.unit is None or table.unit.name.strip())
        read = parse_toml(write_toml([table]))
        schema = table.path[-2] if len(table.path) > 1 else "main"
        name = table.name if schema == "main" else f"{schema}.{table.name}"
        assert read.tables[name] == dict(table.columns)
        if table.unit is not None:
            assert read.units == {name: Unit(table.unit.name, table.unit.max_rows)}

    @repeatable
    @given(declared_domains())
    def test_what_is_written_in_python_makes_the_same_domain(self, domain):
        assert eval(as_code(domain), {"dpsql": dpsql}) == domain  # noqa: S307

    def test_a_catalog_becomes_a_schema_for_a_table_without_checks(self):
        con = duckdb.connect()
        con.execute(CREATE)
        declared = read_table(con, ("people",))
        found = parse_toml(write_toml([declared]))
        assert set(found.tables["people"]) == set(declared.columns)
        con.execute("CREATE TABLE bare AS FROM people")
        bare = read_table(con, ("bare",), Schema({"bare": found.tables["people"]}))
        assert {n: str(d) for n, d in bare.columns.items()} == {
            n: str(d) for n, d in declared.columns.items()
        }
        again = read_table(con, ("people",), Schema(found.tables, units=found.units))
        assert again.fingerprint == declared.fingerprint

    def test_units_are_found_again(self):
        con = duckdb.connect()
        con.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
        con.execute("""
            CREATE TABLE orders (
                id INTEGER PRIMARY KEY, customer INTEGER REFERENCES customers (id)
            );
            CREATE TABLE items ("order" INTEGER REFERENCES orders (id), kind ENUM ('a', 'b'))
        """)
        declared = read_table(con, ("items",), None, Unit("customers", 4))
        found = parse_toml(write_toml([declared]))
        again = read_table(con, ("items",), Schema(found.tables, units=found.units))
        assert again.unit == declared.unit
        assert again.fingerprint == declared.fingerprint

    def test_columns_without_a_domain_say_what_to_declare(self):
        types = {
            "age": "SMALLINT", "price": "DECIMAL(6,2)", "name": "VARCHAR", "day": "DATE",
            "pay": "DOUBLE", "seen": "TIMESTAMP", "raw": "BLOB",
            "trap": 'STRUCT("a\nintegers = [0, 1]" INTEGER)',
        }  # fmt: skip
        text = write_toml([Table("t", {}, types)])
        assert parse_toml(text).tables == {"t": {}}
        rules = 'nullable = true, outside = "clamp"'
        assert f"# TODO age = {{ integers = [0, 115], {rules} }}  # SMALLINT: 117 cells" in text
        assert "# TODO price = { number = true }  # DECIMAL(6,2): found for a part" in text
        assert "If its ends are known: { number = [0, 1000] }." in text
        assert f"{{ decimals = [0, 1000], step = 10, {rules} }}" in text
        assert "# VARCHAR: does it tell persons apart?" in text
        assert "# raw is a column of type BLOB: it can't have a domain." in text
        assert text.count(TODO) == 9  # one in the header, two of the unit
        found = parse_toml(text.replace(TODO, ""))
        assert list(found.tables["t"]) == list(types)[:6]
        assert found.units == {"t": Unit("name", 3)}

    def test_drafts_know_names_and_types_and_nothing_else(self):
        drafts = {
            "month": ("INTEGER", "integers = [1, 12]"),
            "DayOfWeek": ("TINYINT", "integers = [0, 7]"),
            "dep_time": ("BIGINT", "bins = [0, 600, 1200, 1800, 2400]"),
            "sex": ("VARCHAR", 'labels = ["female", "male"]'),
            "born": ("DATE", 'dates = [1920-01-01, 2020-12-31], grain = "year"'),
            "small price": ("DECIMAL(2,2)", "decimals = [0.00, 0.09], step = 0.01"),
            "tiny": ("DECIMAL(2,2)", "number = [0, 1]"),
            "cost": ("DECIMAL(4,2)", "decimals = [0, 99], step = 1"),
            "charge": ("DECIMAL(4,2)", "number = [0, 100]"),
            "anything": ("DOUBLE", "number = [0, 100]"),
            "something": ("DOUBLE", "decimals = [0, 100], step = 1"),
            "air_time": ("BIGINT", "number = [0, 600]"),
            "arr_delay": ("INTEGER", "number = [-60, 300]"),
            "income": ("INTEGER", "number = [0, 200000]"),
            "level": ("UTINYINT", "integers = [0, 100]"),
            "latitude": ("UTINYINT", "integers = [0, 90]"),
        }
        text = write_toml([Table("t", {}, {name: type_ for name, (type_, _) in drafts.items()})])
        for name, (_, entry) in drafts.items():
            (line,) = (
                ln
                for ln in text.splitlines()
                if ln.startswith((f"{TODO}{name} ", f'{TODO}"{name}"'))
            )
            assert entry in line

    @pytest.mark.parametrize("type_", ["INTEGER", "DOUBLE", "DECIMAL(18,2)"])
    def test_no_draft_has_a_range_that_is_a_guess(self, type_):
        """What a name is about is its last word, or the one before `of` and the like."""
        facts = ["month", "birth_month", "month_of_birth", "hour", "DayOfWeek", "age", "week"]
        facts += ["isMember", "age_at_visit", "pickup_lat", "has_children", "dow", "customerAge"]
        guesses = [word for names, *_ in _GUESSES for word in names.split()]
        guesses += ["x", "hours_per_week", "visits per month", "month_sales", "day_charge",
                    "price_per_hour", "age_years", "per", "time_spent_waiting"]  # fmt: skip
        known = ["time", "dep_time"]
        (facts if type_ == "INTEGER" else guesses).extend(known)
        text = write_toml([Table("t", {}, dict.fromkeys([*facts, *guesses], type_))])
        drafts = parse_toml(text.replace(TODO, "")).tables["t"]
        assert {name for name, of in drafts.items() if isinstance(of, UnknownBounds)} == {*guesses}

    def test_every_draft_fits_its_column(self):
        types = ["TINYINT", "UBIGINT", "DECIMAL(3,2)", "DECIMAL(18,4)", "DOUBLE", "FLOAT", "DATE",
                 "TIMESTAMP", "VARCHAR", "BIGINT"]  # fmt: skip
        names = ["month", "time", "age", "delay", "lat", "distance", "price", "income", "sex",
                 "born", "id", "x"]  # fmt: skip
        columns = {f"{name}_{i}": type_ for name in names for i, type_ in enumerate(types)}
        con = duckdb.connect()
        listed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        con.execute(f"CREATE TABLE t ({listed})").fetchall()
        table = read_table(con, ("t",))
        written = parse_toml(write_toml([table]).replace(TODO, ""))
        given = read_table(con, ("t",), Schema(written.tables, units=written.units))
        drafted = [name for name in columns if not name.startswith("id_")]
        assert {*given.columns, *given.bounds, *given.unknown} == {*drafted}
        texts = {n for n, of in given.unknown.items() if isinstance(of, UnknownKeys)}
        assert {columns[name] for name in texts} == {"VARCHAR"}
        numbers = {columns[name] for name in given.unknown.keys() - texts}
        assert numbers == {*types} - {"VARCHAR", "DATE", "TIMESTAMP"}
        assert given.unit is not None
        lines = [
            re.split(" (?:by it, too|texts are known): ", line.removeprefix(TODO))
            for line in write_toml([table]).splitlines()
            if line.startswith(TODO) and "{" in line
        ]
        domains = [f"{line.partition(' = ')[0]} = {''.join(other) or line.partition(' = ')[2]}"
                   for line, *other in lines]  # fmt: skip
        found = parse_toml("[t.columns]\n" + "\n".join(domains))
        assert [*read_table(con, ("t",), Schema(found.tables)).columns] == drafted
        for name in drafted:
            code = (
                declaration_hint("t", name, columns[name]).partition("schema=")[2].removesuffix(".")
            )
            declared = eval(code, {"dpsql": dpsql})  # noqa: S307  the hint, as it is typed
            assert (
                read_table(con, ("t",), declared).columns[name]
                == read_table(con, ("t",), Schema(found.tables)).columns[name]
            )

    def test_tables_of_other_schemas_are_named_with_them(self, tmp_path):
        con = duckdb.connect()
        con.execute("CREATE SCHEMA stage; CREATE TABLE stage.people (age INTEGER)").fetchall()
        con.execute("CREATE TABLE people (age INTEGER)").fetchall()
        age = Domain.integers(0, 9)
        for name in ("stage.people", "STAGE.People", "memory.stage.people"):
            table = read_table(con, ("stage", "people"), Schema({name: {"age": age}}))
            assert table.columns["age"].size == 10
            assert not read_table(con, ("people",), Schema({name: {"age": age}})).columns
        declared = Schema({"stage.people": {"age": age}, "people": {"age": Domain.integers(0, 1)}})
        check_declared(con, declared)
        tables = [read_table(con, name, declared) for name in table_names(con)]
        text = write_toml(tables)
        again = load(tmp_path, text)
        assert {name: dict(columns) for name, columns in again.items()} == {
            "people": {"age": Domain.integers(0, 1)}, "stage.people": {"age": age},
        }  # fmt: skip
        nested = load(tmp_path, "[stage.people.columns]\nage = { integers = [0, 9] }")
        assert dict(nested["stage.people"]) == {"age": age}
        with pytest.raises(SchemaError, match=r"no table stage\.persons") as error:
            check_declared(con, Schema({"stage.persons": {}}))
        assert error.value.hint == "did you mean stage.people?"

    def test_a_name_alone_means_the_only_table_of_that_name(self):
        con = duckdb.connect()
        con.execute("CREATE SCHEMA stage; CREATE TABLE stage.people (age INTEGER)").fetchall()
        declared = Schema({"people": {"age": Domain.integers(0, 9)}})
        check_declared(con, declared)
        assert read_table(con, ("stage", "people"), declared).columns["age"].size == 10
        con.execute("CREATE TABLE people (age INTEGER)").fetchall()
        assert not read_table(con, ("stage", "people"), declared).columns
        assert read_table(con, ("people",), declared).columns["age"].size == 10

    def test_what_a_file_can_not_say_is_a_comment(self):
        domain = Domain("UBIGINT", range(2**64))
        text = write_toml([Table("t", {"big": domain})])
        assert "# big: only the table itself can declare UBIGINT" in text
        assert parse_toml(text).tables == {"t": {}}

    def test_long_lists_are_wrapped(self):
        domain = Domain.labels([f"label {i}" for i in range(500)], nullable=True)
        text = write_toml([Table("t", {"x": domain})])
        assert max(map(len, text.splitlines())) <= 110
        assert parse_toml(text).tables["t"]["x"] == domain

    def test_two_tables_with_one_name(self):
        with pytest.raises(SchemaError, match="two tables T"):
            write_toml([Table("t", {}), Table("T", {})])


CLINIC = Table(
    "visits",
    {
        "age": Domain.integers(0, 115, nullable=True).as_type("SMALLINT"),
        "grade": Domain("TINYINT", (1, 2, 6)),
        "price": Domain.decimals("0", "9.95", "0.05").of_column("DECIMAL(6,2)"),
        "born": Domain.dates("1990-01-01", "2020-12-31", "quarter").of_column("TIMESTAMP"),
        "holiday": Domain("DATE", (date(2026, 1, 1), date(2026, 12, 24)), column_type="DATE"),
        "dose": Domain.bins([0, 0.1, 2.5, 1e300], outside="clamp").of_column("DOUBLE"),
        "site": Domain.labels(["north", "söuth", "rest"], other="rest"),
        "size": Domain("ENUM", ("small", "big")),
        "member": Domain.boolean(),
    },
    {"notes": "VARCHAR", "raw": "BLOB"},
    ("clinic", "main", "visits"),
    ResolvedUnit(
        "orders.person_id", "person_id", "BIGINT",
        (KeyStep("order_id", ("clinic", "main", "orders"), "id", "INTEGER"),), 3,
    ),
    frozenset({"member", "age"}),
)  # fmt: skip


class TestJson:
    @repeatable
    @given(tables())
    def test_round_trip(self, table):
        text = json.dumps(table_to_json(table), allow_nan=False)
        again = table_from_json(json.loads(text))
        assert again == table
        assert again.fingerprint == table.fingerprint
        assert again.enforced == table.enforced
        assert json.dumps(table_to_json(again)) == text

    def test_every_kind_of_domain(self):
        again = table_from_json(json.loads(json.dumps(table_to_json(CLINIC))))
        assert again == CLINIC
        assert again.fingerprint == CLINIC.fingerprint
        assert list(again.columns) == list(CLINIC.columns)

    def test_what_is_read_from_a_catalog(self):
        con = duckdb.connect()
        con.execute(CREATE)
        table = read_table(con, ("people",))
        assert table_from_json(json.loads(json.dumps(table_to_json(table)))) == table

    def test_millions_of_values_take_no_room(self):
        table = Table("t", {"x": Domain.decimals(0, 10**15, "0.01")})
        assert len(json.dumps(table_to_json(table))) < 400

    @pytest.mark.parametrize(
        "document",
        [None, [], "x", 1, {}, {"name": "t"}, {**table_to_json(CLINIC), "more": 1}],
    )
    def test_no_table(self, document):
        with pytest.raises(SchemaError, match="damaged"):
            table_from_json(document)

    @pytest.mark.parametrize(
        ("column", "key", "value"),
        [
            ("age", "type", "VARCHAR"),
            ("age", "type", "INTEGER; DROP TABLE x"),
            ("age", "column_type", "x) FROM y --"),
            ("age", "column_type", "DOUBLE\n"),
            ("age", "nullable", 1),
            ("age", "outside", None),
            ("age", "outside", "other"),
            ("age", "values", {"kind": "integers", "low": 0, "high": 40_000}),
            ("age", "values", {"kind": "integers", "low": 5, "high": 4}),
            ("age", "values", {"kind": "integers", "low": True, "high": 4}),
            ("age", "values", {"kind": "integers", "low": 0.0, "high": 4}),
            ("grade", "values", {"kind": "listed", "items": [1, 1]}),
            ("grade", "values", {"kind": "listed", "items": [1000]}),
            ("grade", "values", {"kind": "listed", "items": ["a"]}),
            ("price", "values",
             {"kind": "decimals", "low": "0.00", "high": "1.00", "step": "0.03", "scale": 2}),
            ("price", "values",
             {"kind": "decimals", "low": "0.00", "high": "9.950", "step": "0.05", "scale": 2}),
            ("price", "values",
             {"kind": "decimals", "low": "٠.00", "high": "9.95", "step": "0.05", "scale": 2}),
            ("born", "values",
             {"kind": "dates", "first": "1990-01-02", "length": 4, "grain": "quarter"}),
            ("born", "values",
             {"kind": "dates", "first": "1990-01-01", "length": 10**6, "grain": "quarter"}),
            ("born", "values", {"kind": "dates", "first": "1990-01-01", "length": 4, "grain": "x"}),
            ("dose", "values", {"kind": "bins", "lowers": [0.0, 1.0], "uppers": [2.0, 3.0]}),
            ("dose", "values", {"kind": "bins", "lowers": [0.0], "uppers": [float("nan")]}),
            ("dose", "values", {"kind": "bins", "lowers": [0.0], "uppers": [float("inf")]}),
            ("dose", "values", {"kind": "bins", "lowers": [0.0], "uppers": [10**400]}),
            ("dose", "values", {"kind": "bins", "lowers": [0.0], "uppers": [2**53 + 1]}),
            ("dose", "values", {"kind": "bins", "lowers": [], "uppers": []}),
            ("site", "other", "elsewhere"),
            ("site", "values", {"kind": "listed", "items": ["\ud800"]}),
            ("size", "values", {"kind": "boolean"}),
        ],
    )  # fmt: skip
    def test_damaged_domains(self, column, key, value):
        document = table_to_json(CLINIC)
        (entry,) = (c for c in document["columns"] if c["name"] == column)
        entry[key] = value
        with pytest.raises(SchemaError):
            table_from_json(document)

    @pytest.mark.parametrize("enforced", [["notes"], ["nothing"], ["age", "age"], [1], "age", None])
    def test_enforced_columns_are_columns_with_a_domain(self, enforced):
        with pytest.raises(SchemaError, match="column"):
            table_from_json({**table_to_json(CLINIC), "enforced": enforced})

    def test_a_column_twice(self):
        document = table_to_json(CLINIC)
        document["undeclared"].append({"name": "age", "type": "BLOB"})
        with pytest.raises(SchemaError, match="column"):
            table_from_json(document)

    @pytest.mark.parametrize("seed", range(6))
    def test_mutated_documents_raise_nothing_else(self, seed):
        """Whatever is still accepted is a table, which can be written again."""
        rng = random.Random(seed)  # noqa: S311  repeatable, on purpose
        refused = 0
        for _ in range(300):
            document = copy.deepcopy(table_to_json(CLINIC))
            for _ in range(rng.randint(1, 3)):
                _mutate(rng, document)
            try:
                table = table_from_json(document)
            except SchemaError:
                refused += 1
            else:
                assert table_from_json(table_to_json(table)).fingerprint == table.fingerprint
        assert 150 < refused < 300


ODD = [
    None, True, -1, 0, 2**70, 0.5, float("nan"), float("inf"), "", "x", "\ud800", "DATE", "1e5",
    "0001-01-01", "9999-12-31", "DECIMAL(1,0)", [], [[]], [1, 1], {}, {"kind": "listed"},
]  # fmt: skip


def _mutate(rng, document) -> None:
    """Replace, remove, repeat or swap something, anywhere."""
    places = []
    pending = [document]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        places += [(node, key) for key in keys]
        pending += [node[key] for key in keys if isinstance(node[key], (dict, list))]
    if not places:
        return
    node, key = rng.choice(places)
    how = rng.randrange(4)
    if how == 0:
        node[key] = copy.deepcopy(rng.choice(ODD))
    elif how == 1:
        del node[key]
    elif how == 2 and isinstance(node, list):
        node.append(copy.deepcopy(node[key]))
    else:
        other, its = rng.choice(places)
        if other is not node:
            node[key] = copy.deepcopy(other[its])


def test_bins_of_a_float_column_are_written_and_read():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x FLOAT)").fetchall()
    table = read_table(con, ("t",), Schema({"t": {"x": Domain.bins([0, 0.1, 0.7, 2])}}))
    text = write_toml([table])
    assert read_table(con, ("t",), Schema(parse_toml(text).tables)) == table
    assert table_from_json(table_to_json(table)) == table


def test_a_schema_may_be_given_by_the_path_of_its_file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("[self.columns]\nage = { integers = [0, 9] }\n", encoding="utf-8")
    frame = pl.DataFrame({"age": [1, 2, 2]})
    budget = dpsql.Budget(rho=10**9)
    sql = "SELECT COUNT(*) AS n FROM self WHERE age = 2"
    for schema in (path, str(path), Schema.load(path)):
        found = frame.dp.sql(sql, schema=schema, budget=budget)
        assert found["n"][0] == pytest.approx(2, abs=0.1)
        assert dpsql.plan(frame, sql, schema=schema, budget=budget).rmse > 0
    with pytest.raises(SchemaError, match=r"other\.toml"):
        frame.dp.sql(sql, schema="other.toml", budget=budget)


class TestIds:
    """Columns of ids: no range is made up of them, and persons go before what they do."""

    def text(self, *names: str, type_: str = "INTEGER") -> str:
        return write_toml([Table("t", {}, {**dict.fromkeys(names, type_), "age": "INTEGER"})])

    def unit(self, *names: str) -> str:
        (line,) = (each for each in self.text(*names).splitlines() if "unit =" in each)
        return line.removeprefix(TODO)

    @pytest.mark.parametrize("thing", ["admission", "visit", "order", "encounter", "row", ""])
    @pytest.mark.parametrize("person", ["patient", "person", "customer", "user", "Member"])
    @pytest.mark.parametrize("end", ["_id", "Id", "id"])
    def test_the_unit_is_the_person_wherever_it_stands(self, thing, person, end):
        others = [f"{thing}_id" if thing else "id"]
        for names in ([person + end, *others], [*others, person + end]):
            assert self.unit(*names).startswith(f'unit = "{person}{end}"  # if one may')

    def test_what_is_undecided_is_said_to_be(self):
        one = self.unit("admission_id", "visit_id")
        assert one.startswith('unit = "admission_id"  # decide whose each row is: "admission_id", ')
        assert one.endswith('"visit_id" may tell other things than persons apart')
        two = self.unit("order_id", "employee_id", "customer_id")
        assert two == 'unit = "employee_id"  # decide whose each row is; or "customer_id"'
        assert self.unit("patient_name", "patient_id").startswith('unit = "patient_id"  # if')
        assert self.unit("name").startswith('unit = "name"  # decide')
        assert "unit =" not in self.text("paid", "covid", "valid", "humidity")

    @pytest.mark.parametrize("type_", ["INTEGER", "BIGINT", "VARCHAR", "UUID", "DECIMAL(9,0)"])
    @pytest.mark.parametrize("name", ["id", "patient_id", "admissionId", "userid", "uuid", "ssn"])
    def test_no_range_and_no_list_is_made_up(self, name, type_):
        text = self.text(name, type_=type_)
        assert f"{TODO}{name} " not in text
        assert [line for line in text.splitlines() if line.startswith(f"# {name} is ")]
        assert list(parse_toml(text.replace(TODO, "")).tables["t"]) == ["age"]

    def test_drafts_of_a_hospital(self, tmp_path):
        """Of each file by itself; and of all, which lead to the patients."""
        files = Hospital(tmp_path).files
        for table in ("patients", "admissions", "diagnoses", "labs"):
            text = self.printed(files[table])
            assert f'{TODO}unit = "patient_id"  # if one may have several rows' in text
            assert "_id = {" not in text
        named = {name: path for name, path in files.items() if name != "wards"}
        text = self.printed(*(f"{name}={path}" for name, path in named.items()))
        assert text.count(f'{TODO}unit = "patients"') == 4
        assert 'admission_id = "admissions.admission_id"' in text

    def printed(self, *places: str) -> str:
        given = [part for place in places for part in ("--db", place)]
        result = CliRunner().invoke(main, ["schema", "--toml", *given])
        assert not result.exit_code, result.output
        return result.stdout
