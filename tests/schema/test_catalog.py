"""Public domains read from DuckDB's catalog."""

import re
from dataclasses import replace
from datetime import date

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.schema import Domain, Schema
from dpsql.schema.checks import values_from_checks
from tests.helpers.described import read_table, verify_unchanged


@pytest.fixture
def con():
    return duckdb.connect()


def create(con, columns, name="t"):
    con.execute(f"CREATE TABLE {name} ({columns})").fetchall()
    return read_table(con, (name.strip('"'),))


@pytest.mark.parametrize(
    ("definition", "values"),
    [
        ("INTEGER CHECK (x BETWEEN -5 AND 90)", range(-5, 91)),
        ("TINYINT CHECK (x >= 0 AND x <= 3)", range(4)),
        ("BIGINT CHECK (0 <= x AND 3 > x)", range(3)),
        ("INTEGER CHECK (x > -3), CHECK (5 > x)", range(-2, 5)),
        ("INTEGER CHECK (x >= 0), CHECK (x <= 99), CHECK (x < 10), CHECK (x <> 4)", range(10)),
        ("INTEGER CHECK (x >= 0 AND x <= 4.5)", range(5)),
        ("INTEGER CHECK (x > 0.5 AND x < 4.5)", range(1, 5)),
        ("INTEGER CHECK (x::BIGINT >= 0 AND CAST(x AS HUGEINT) < 5::BIGINT)", range(5)),
        ("INTEGER CHECK (x = 7)", range(7, 8)),
        ("INTEGER CHECK (x IN (5, 1, -2, 1))", (-2, 1, 5)),
        ("INTEGER CHECK (x IN (2, 1, 3))", range(1, 4)),
        ("INTEGER CHECK (x IN (1, 2, 9)), CHECK (x < 5)", range(1, 3)),
        ("INTEGER CHECK (x = 1 OR x = 5)", (1, 5)),
        ("UTINYINT CHECK (x BETWEEN -5 AND 300)", range(256)),
        ("INTEGER CHECK ((x BETWEEN 0 AND 9) AND y > 0), y INTEGER", range(10)),
        ("VARCHAR CHECK (x IN ('b', 'a', 'o''x', 'b'))", ("b", "a", "o'x")),
        ("VARCHAR CHECK (x = 'u' OR x = 'v')", ("u", "v")),
        ("VARCHAR CHECK (x IN ('a', 'b')), CHECK (x IN ('b', 'c'))", ("b",)),
        ("ENUM ('small', 'big', 'o''x', 'a, b')", ("small", "big", "o'x", "a, b")),
        ("BOOLEAN", (False, True)),
    ],
)
def test_understood(con, definition, values):
    table = create(con, f"x {definition}")
    assert table.columns["x"].values == values
    assert table.columns["x"].nullable
    assert "x" not in table.undeclared


@pytest.mark.parametrize(
    ("definition", "domain"),
    [
        ("DECIMAL(5, 2) CHECK (x BETWEEN 0 AND 1.25)", Domain.decimals(0, "1.25", "0.01")),
        ("DECIMAL(5, 2) CHECK (x > -0.005 AND 0.031 >= x)", Domain.decimals(0, "0.03", "0.01")),
        ("DECIMAL(5, 0) CHECK (x >= -3 AND x < 3.5)", Domain.decimals(-3, 3, 1)),
        ("DECIMAL(5, 2) CHECK (x IN (0.5, 0.25, 0.75, 7::DECIMAL(5, 2), 0.251)), CHECK (x < 5)",
         Domain.decimals("0.25", "0.75", "0.25")),
        ("DECIMAL(38, 2) CHECK (x = 2.5 OR x = 2.5), CHECK (x IN (2.5, 3))",
         Domain.decimals("2.5", "2.5", "0.01")),
        ("DATE CHECK (x BETWEEN DATE '2020-01-01' AND DATE '2020-12-31')",
         Domain.dates("2020-01-01", "2020-12-31")),
        ("DATE CHECK (x >= '2020-02-28' AND x < '2020-03-02'::DATE)",
         Domain.dates("2020-02-28", "2020-03-01")),
        ("DATE CHECK (x IS NULL OR x = '2020-02-28')", Domain.dates("2020-02-28", "2020-02-28")),
        ("DATE CHECK (x IN ('2020-03-01', '2020-02-28'))",
         Domain("DATE", (date(2020, 2, 28), date(2020, 3, 1)))),
    ],
)  # fmt: skip
def test_decimals_and_dates_are_understood(con, definition, domain):
    found = create(con, f"x {definition}").columns["x"]
    expected = replace(domain, nullable=True, outside="null")
    assert found == expected.of_column(definition.split(" CHECK")[0].replace(", ", ","))


@pytest.mark.parametrize(
    "definition",
    [
        "INTEGER",
        "VARCHAR",
        "DATE CHECK (x >= '2020-01-01')",
        "DATE CHECK (x BETWEEN DATE '0001-01-01' AND DATE '9999-12-31')",
        "DATE CHECK (x BETWEEN '-infinity' AND 'infinity')",
        "DATE CHECK (x BETWEEN '2020-1-1' AND '2020-1-2')",
        "DATE CHECK (x BETWEEN TIMESTAMP '2020-01-01 00:00:00' AND DATE '2020-02-01')",
        "DATE CHECK (x::VARCHAR BETWEEN '2020-01-01' AND '2020-02-01')",
        "DATE CHECK (x IN ('2020-01-01', NULL))",
        "TIMESTAMP CHECK (x BETWEEN DATE '2020-01-01' AND DATE '2020-02-01')",
        "DECIMAL(5, 2) CHECK (x >= 0)",
        "DECIMAL(9, 4) CHECK (x BETWEEN 0 AND 1000)",
        "DECIMAL(5, 2) CHECK (x::INTEGER BETWEEN 0 AND 1)",
        "DECIMAL(5, 2) CHECK (x BETWEEN 0 AND 1e0)",
        "DECIMAL(5, 2) CHECK (x IN (1, 2, 4))",
        "DECIMAL(38, 38) CHECK (x BETWEEN 0 AND 0.5)",
        "DATE",
        "DOUBLE CHECK (x BETWEEN 0 AND 1)",
        "INTEGER CHECK (x > 0)",
        "INTEGER CHECK (x > 0 AND x < y), y INTEGER",
        "INTEGER CHECK (x % 2 = 0)",
        "INTEGER CHECK (x + 1 BETWEEN 0 AND 3)",
        "INTEGER CHECK (x > 5 AND x < 3)",
        "INTEGER CHECK (x IN (1, NULL))",
        "INTEGER CHECK (x IN (1, y)), y INTEGER",
        "INTEGER CHECK (NOT x BETWEEN 0 AND 3)",
        "INTEGER CHECK (x BETWEEN 0 AND 3 OR y > 0), y INTEGER",
        "INTEGER CHECK (x = 1 OR y = 2), y INTEGER",
        "INTEGER CHECK (x::VARCHAR IN ('1', '2'))",
        "INTEGER CHECK (x::FLOAT BETWEEN 0 AND 3)",
        "INTEGER CHECK (x BETWEEN 0 AND 1e1)",
        "INTEGER CHECK (y BETWEEN 0 AND 3), y INTEGER",
        "VARCHAR CHECK (x LIKE 'a%')",
        "VARCHAR CHECK (x BETWEEN 'a' AND 'b')",
        "VARCHAR CHECK (lower(x) IN ('a'))",
        "VARCHAR COLLATE NOCASE CHECK (x IN ('a', 'bob'))",
        "VARCHAR COLLATE NOACCENT CHECK (x IN ('a')), y STRUCT(x INTEGER)",
        "INTEGER, s STRUCT(x INTEGER), CHECK (s.x BETWEEN 0 AND 3)",
        "INTEGER, s STRUCT(x INTEGER), CHECK (s.x IS NULL OR s.x BETWEEN 0 AND 3)",
        "INTEGER, t STRUCT(x INTEGER), CHECK (t.x BETWEEN 0 AND 3)",
        "INTEGER[]",
    ],
)
def test_not_understood_gives_no_domain(con, definition):
    table = create(con, f"x {definition}")
    assert "x" not in table.columns
    assert "x" in table.undeclared


def test_other_columns_may_have_a_collation(con):
    columns = """x VARCHAR DEFAULT ('b' COLLATE NOCASE) CHECK (x IN ('a', 'b')),
        "COLLATE" ENUM('COLLATE NOCASE'), y VARCHAR COLLATE NOCASE.NOACCENT CHECK (y IN ('c'))"""
    table = create(con, columns)
    assert table.columns.keys() == {"x", "COLLATE"}
    assert table.undeclared == {"y": "VARCHAR with a collation"}


def test_the_connection_may_have_a_collation(con):
    """Its CHECKs follow that, so rows may be there that they don't name."""
    table = create(con, "x VARCHAR CHECK (x IN ('a', 'b')), y INTEGER CHECK (y < 3 AND y > 0)")
    assert set(table.columns) == {"x", "y"}
    con.execute("PRAGMA default_collation = 'nocase'").fetchall()
    con.execute("INSERT INTO t VALUES ('A', 1)").fetchall()
    assert set(read_table(con, ("t",)).columns) == {"y"}
    with pytest.raises(StaleSchemaError):
        verify_unchanged(con, table)
    con.execute("PRAGMA default_collation = 'binary'").fetchall()
    assert read_table(con, ("t",)) == table


def test_a_column_that_says_nothing_has_the_fingerprint_of_before(con):
    plain = create(con, "x VARCHAR, y BOOLEAN")
    con.execute("DROP TABLE t").fetchall()
    other = create(con, "x VARCHAR COLLATE NOCASE, y BOOLEAN")
    assert (plain.undeclared["x"], other.undeclared["x"]) == ("VARCHAR", "VARCHAR with a collation")
    assert plain.fingerprint == other.fingerprint


class Foreign:
    """A connection whose current database is said to be of another type."""

    def __init__(self, con, *found):
        self._con, self._found = con, list(found)

    def execute(self, sql, parameters=()):
        if "duckdb_databases()" not in sql:
            return self._con.execute(sql, parameters)
        said = self._found[0] if self._found else ("", "")  # of the current database; or of another
        name = "database_name" if self._found else "'other'"
        here = f"FROM ({sql}) WHERE database_name = current_database()"
        said_here = f"SELECT * REPLACE ({name} AS database_name, ? AS path, ? AS type) {here}"
        return self._con.execute(said_here, said)


@pytest.mark.parametrize(
    "found",
    [
        [("host=db password=secret", "postgres")],
        [("people.db", "sqlite")],
        [("", "mysql")],
        [("x.duckdb", None)],
        [],
    ],
)
def test_no_account_is_kept_beside_a_database_of_another_system(con, found, tmp_path, monkeypatch):
    create(con, "x BOOLEAN")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchemaError, match="not DuckDB's own") as caught:
        dpsql.Session(Foreign(con, *found))
    assert "secret" not in str(caught.value)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []
    assert dpsql.Session(Foreign(con, (None, "duckdb"))).ledger.path is None


@pytest.mark.parametrize(
    "type_",
    ["INTEGER", "UTINYINT", "VARCHAR", "VARCHAR COLLATE NOCASE", "DATE", "TIMESTAMP", "DOUBLE",
     "FLOAT", "DECIMAL(18,3)", "DECIMAL(1,1)", "DECIMAL(5,0)", "DECIMAL(30,20)", "DECIMAL(37,37)"],
)  # fmt: skip
def test_hints_work_when_typed(con, type_):
    table = create(con, f'"odd ""name" {type_}', '"a table"')
    with pytest.raises(SchemaError) as caught:
        table.column('odd "name')
    *checks, schema = re.split(r"\bpass schema=", caught.value.hint)
    declared = eval(schema.removesuffix("."), {"dpsql": dpsql})  # noqa: S307  our own hint
    assert read_table(con, ("a table",), declared).columns
    for found in re.findall(r"CHECK (\(.*\)), or", checks[0]):
        con.execute('DROP TABLE "a table"').fetchall()
        assert create(con, f'"odd ""name" {type_} CHECK {found}', '"a table"').columns


def test_huge_check_gives_no_domain_soon():
    text = "x IN (" + ", ".join(map(str, range(200_000))) + ")"
    assert values_from_checks("x", "INTEGER", [text]) is None
    assert values_from_checks("x", "INTEGER", ["(" * 400 + "x > 1" + ")" * 400]) is None
    assert values_from_checks("x", "INTEGER", ["x IN ("]) is None


def test_not_null_and_order(con):
    table = create(
        con, "b BOOLEAN NOT NULL, id INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 9), a VARCHAR"
    )
    assert list(table.columns) == ["b", "id"]
    assert not table.columns["b"].nullable
    assert not table.columns["id"].nullable
    assert dict(table.undeclared) == {"a": "VARCHAR"}
    assert table.path == ("memory", "main", "t")


def test_generated_columns_have_no_domain(con):
    table = create(con, "a BOOLEAN, g BOOLEAN GENERATED ALWAYS AS (NOT a)")
    assert dict(table.undeclared) == {"g": "GENERATED BOOLEAN"}
    with pytest.raises(SchemaError, match="generated"):
        read_table(con, ("t",), Schema({"t": {"g": Domain.boolean()}}))


def test_hostile_names_and_labels(con):
    label = "'x'); DROP TABLE t; --"
    con.execute(
        'CREATE TABLE "t""; --" ("a""b" ENUM (' + "'" + label.replace("'", "''") + "', 'é\n'))"
    ).fetchall()
    table = read_table(con, ('T"; --',))
    assert table.columns['a"b'].values == (label, "é\n")


class TestNames:
    def test_case_schema_and_database(self, con):
        create(con, "a BOOLEAN", "People")
        con.execute("CREATE SCHEMA s; CREATE TABLE s.people (b BOOLEAN)").fetchall()
        assert read_table(con, ("PEOPLE",)).path == ("memory", "main", "People")
        assert read_table(con, ("S", "People")).path == ("memory", "s", "people")
        assert read_table(con, ("memory", "s", "people")).path == ("memory", "s", "people")
        assert read_table(con, ("memory", "people")).path == ("memory", "main", "People")
        con.execute("USE s").fetchall()
        assert read_table(con, ("people",)).path == ("memory", "s", "people")

    def test_unknown(self, con):
        create(con, "a BOOLEAN", "people")
        with pytest.raises(SchemaError, match="no table peopel") as caught:
            read_table(con, ("peopel",))
        assert caught.value.hint == "did you mean people?"

    @pytest.mark.parametrize("parts", [(), ("",), ("a",) * 4, ("\ud800",), ("x\x00",)])
    def test_not_a_name(self, con, parts):
        with pytest.raises(SchemaError):
            read_table(con, parts)

    def test_schema_or_database(self, con):
        con.execute("CREATE SCHEMA memory; CREATE TABLE memory.memory.t (a BOOLEAN)").fetchall()
        create(con, "b BOOLEAN")
        with pytest.raises(SchemaError, match="ambiguous"):
            read_table(con, ("memory", "t"))

    def test_views_and_frames(self, con):
        con.execute("CREATE VIEW v AS SELECT 1").fetchall()
        con.register("frame", con.sql("SELECT 1 AS a").to_arrow_table())
        for name in ("v", "frame"):
            with pytest.raises(SchemaError, match="only base tables"):
                read_table(con, (name,))

    def test_temporary_tables(self, con):
        con.execute("CREATE TEMP TABLE only_temp (a BOOLEAN)").fetchall()
        with pytest.raises(SchemaError, match="temporary"):
            read_table(con, ("only_temp",))
        create(con, "a BOOLEAN")
        con.execute("CREATE TEMP TABLE t (b BOOLEAN)").fetchall()
        with pytest.raises(SchemaError, match="hides"):
            read_table(con, ("t",))
        assert list(read_table(con, ("main", "t")).columns) == ["a"]

    @pytest.mark.parametrize(
        "parts", [("other", "main", "t"), ("other", "t"), ("t",), ("duckdb_tables",)]
    )
    def test_other_databases_and_system_tables(self, con, parts):
        con.execute("ATTACH ':memory:' AS other; CREATE TABLE other.t (a BOOLEAN)").fetchall()
        with pytest.raises(SchemaError):
            read_table(con, parts)

    def test_information_schema(self, con):
        with pytest.raises(SchemaError, match="no table"):
            read_table(con, ("information_schema", "tables"))


class TestConnections:
    def test_errors_of_duckdb_do_not_escape(self, con):
        con.execute("BEGIN").fetchall()
        with pytest.raises(duckdb.Error):
            con.execute("SELECT error('secret')").fetchall()
        with pytest.raises(SchemaError, match="can't be read") as caught:
            read_table(con, ("t",))
        assert "secret" not in str(caught.value)
        con.close()
        with pytest.raises(SchemaError, match="can't be read"):
            read_table(con, ("t",))

    def test_busy_connection(self):
        class Busy:
            def execute(self, sql, parameters):
                raise duckdb.ResourceInUseException("busy")

        with pytest.raises(SchemaError, match="not read to its end") as caught:
            read_table(Busy(), ("t",))
        assert "con.cursor()" in caught.value.hint

    def test_other_errors_do_escape(self):
        with pytest.raises(AttributeError):
            read_table(object(), ("t",))

    def test_read_only_file(self, tmp_path):
        path = tmp_path / "adult.duckdb"
        with duckdb.connect(str(path)) as con:
            create(con, "a ENUM ('x'), b INTEGER CHECK (b BETWEEN 0 AND 1)")
        with duckdb.connect(str(path), read_only=True) as con:
            assert list(read_table(con, ("adult", "main", "t")).columns) == ["a", "b"]


class TestDeclared:
    COLUMNS = "i SMALLINT CHECK (i BETWEEN 0 AND 9), e ENUM ('s', 'm', 'l'), v VARCHAR, f BOOLEAN"

    def read(self, con, **domains):
        return read_table(con, ("t",), Schema({"T": domains}))

    def test_declared_goes_first(self, con):
        create(con, self.COLUMNS)
        labels = Domain.labels(["y", "x"], nullable=True)
        table = self.read(con, I=Domain.integers(0, 99), v=labels)
        assert table.columns["i"] == Domain("SMALLINT", range(100))
        assert table.columns["v"] == labels
        assert table.columns["e"].values == ("s", "m", "l")

    def test_enum_keeps_its_own_order(self, con):
        create(con, self.COLUMNS)
        table = self.read(con, e=Domain.labels(["l", "m", "s"]))
        assert table.columns["e"] == Domain("ENUM", ("s", "m", "l"))

    @pytest.mark.parametrize(
        ("column", "domain", "message"),
        [
            ("x", Domain.boolean(), "doesn't have"),
            ("i", Domain.integers(0, 40_000), "goes beyond"),
            ("i", Domain("BIGINT", (1, -40_000)), "goes beyond"),
            ("i", Domain.boolean(), "can't have"),
            ("i", Domain.labels(["1"]), "can't have"),
            ("v", Domain.integers(0, 1), "can't have"),
            ("e", Domain.labels(["s", "xl"]), "not a label"),
            ("e", Domain.labels(["s", "m"]), "lacks its label 'l'"),
            ("e", Domain.integers(0, 1), "can't have"),
            ("f", Domain.labels(["true"]), "can't have"),
        ],
    )
    def test_refused(self, con, column, domain, message):
        create(con, self.COLUMNS)
        with pytest.raises(SchemaError, match=message) as caught:
            self.read(con, **{column: domain})
        assert caught.value.hint

    def test_twice(self, con):
        create(con, self.COLUMNS)
        with pytest.raises(SchemaError, match="twice"):
            read_table(con, ("t",), Schema({"t": {}, "T": {}}))

    def test_other_tables_do_not_matter(self, con):
        create(con, self.COLUMNS)
        schema = Schema({"u": {"x": Domain.boolean()}})
        assert read_table(con, ("t",), schema) == read_table(con, ("t",))


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN c INTEGER",
        "ALTER TABLE t DROP b",
        "ALTER TABLE t RENAME a TO c",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t ALTER b TYPE BIGINT",
        "ALTER TABLE t ALTER a TYPE ENUM ('x', 'y', 'z')",
        "ALTER TABLE t ALTER a SET NOT NULL",
        "DROP TABLE t; CREATE VIEW t AS SELECT 'x'::ENUM ('x', 'y') AS a, 1 AS b",
    ],
)
def test_stale(con, change):
    table = create(con, "a ENUM ('x', 'y'), b INTEGER")
    verify_unchanged(con, table)
    con.execute("INSERT INTO t VALUES ('x', 1)").fetchall()
    verify_unchanged(con, table)
    con.execute(change).fetchall()
    with pytest.raises(StaleSchemaError, match=r"altered or dropped|reads no table"):
        verify_unchanged(con, table)
