"""Bounds of numbers and of expressions that are added up, wherever they are declared."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError
from dpsql.schema import Domain, Schema, Table
from dpsql.schema.declarations import parse_toml
from dpsql.schema.document import write_toml
from dpsql.schema.domain import NumberBounds
from dpsql.schema.stored import table_from_json, table_to_json
from tests.helpers.described import check_declared, read_table, verify_unchanged

PRODUCT = "price * (1 - discount)"


def number(low, high) -> NumberBounds:
    return NumberBounds(Fraction(low), Fraction(high))


def table_of(columns: str, schema: Schema | None = None, comments: str = "") -> Table:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t ({columns}); {comments}").fetchall()
    check_declared(con, schema)
    return read_table(con, ("t",), schema)


class TestNumbers:
    @pytest.mark.parametrize(
        ("low", "high"), [(0, 5), (0.0, "5"), (Decimal(0), Decimal("5.0")), ("-0", 5.0)]
    )
    def test_bounds_are_read_exactly(self, low, high):
        assert Domain.number(low, high) == number(0, 5)
        assert Domain.number("-0.1", 0.1) == number("-0.1", "0.1")

    @pytest.mark.parametrize(
        ("low", "high", "says"),
        [
            (5, 0, "not in order"),
            (5, 5, "not in order"),
            (0, math.inf, "inf is not a finite number"),
            (-math.inf, 0, "-inf is not a finite number"),
            (math.nan, 0, "nan is not a finite number"),
            (0, "nan", "not a decimal number"),
            (0, "Infinity", "not a decimal number"),
            (0, Decimal("sNaN"), "not a decimal number"),
            (0, 10**60, "too many digits"),
            (False, True, "not a decimal number"),
            (None, 1, "two bounds, or none"),
            (1, None, "two bounds, or none"),
        ],
    )
    def test_other_bounds_are_refused_with_a_hint(self, low, high, says):
        with pytest.raises(SchemaError, match=says) as error:
            Domain.number(low, high)
        assert error.value.hint

    @pytest.mark.parametrize("written", ["[5, 0]", "[0, inf]", "[nan, 1]", "[0]", "[0, 1, 2]", "7"])
    def test_files_refuse_them_too(self, written):
        for text in (f"[t.columns]\nx = {{ number = {written} }}",
                     f'[t.expressions]\n"x + 1" = {{ number = {written} }}'):  # fmt: skip
            with pytest.raises(SchemaError) as error:
                parse_toml(text)
            assert error.value.hint

    @pytest.mark.parametrize("type_", ["VARCHAR", "DATE", "BOOLEAN", "UHUGEINT", "INTEGER[]"])
    def test_only_numbers_that_can_be_added_up_have_bounds(self, type_):
        schema = Schema({"t": {"x": Domain.number(0, 9)}})
        with pytest.raises(SchemaError, match=r"column x has the type") as error:
            table_of(f"x {type_}", schema)
        if type_ == "UHUGEINT":
            con = duckdb.connect()
            con.execute("CREATE TABLE t (x UHUGEINT)").fetchall()
            con.execute(error.value.hint[error.value.hint.index("ALTER") :].replace("…", "t"))
            assert read_table(con, ("t",), schema).bounds == {"x": number(0, 9)}


class TestChecks:
    @pytest.mark.parametrize(
        ("column", "bounds"),
        [
            ("DOUBLE CHECK (x BETWEEN 0 AND 5000)", (0, 5000)),
            ("FLOAT CHECK (x >= -0.5 AND 7.25 > x)", ("-0.5", "7.25")),
            ("DOUBLE CHECK (x IN (0, 0.5, 1))", (0, 1)),
            ("DOUBLE CHECK (x IS NULL OR x > 0 AND x <= 3::DOUBLE)", (0, 3)),
            ("DECIMAL(15,2) CHECK (x BETWEEN 0 AND 1000000.5)", (0, "1000000.5")),
            ("HUGEINT CHECK (x BETWEEN -1 AND 100)", (-1, 100)),
            ("DOUBLE CHECK (x >= 0) CHECK (x <= 9)", (0, 9)),
            ("INTEGER CHECK (x BETWEEN 0 AND 40000000)", (0, 40_000_000)),
            ("BIGINT CHECK (x > -1000000 AND x <= 1)", (-999_999, 1)),
        ],
    )
    def test_a_check_bounds_numbers_without_cells(self, column, bounds):
        table = table_of(f"x {column}")
        assert (dict(table.bounds), [*table.undeclared]) == ({"x": number(*bounds)}, ["x"])
        assert "x" in table.enforced

    @pytest.mark.parametrize(
        "column",
        [
            "DOUBLE", "DOUBLE CHECK (x >= 0)", "DOUBLE CHECK (x < 5)", "DOUBLE CHECK (abs(x) < 3)",
            "DOUBLE CHECK (x BETWEEN 5 AND 0)", "DOUBLE CHECK (x <> 3)", "DOUBLE CHECK (x = 2)",
            "DOUBLE CHECK (x BETWEEN 0 AND 5 OR x = 9)", "DOUBLE CHECK (x BETWEEN y AND 5)",
            "DOUBLE CHECK (x + 1 BETWEEN 0 AND 5)", "VARCHAR CHECK (x BETWEEN '0' AND '5')",
            "UHUGEINT CHECK (x BETWEEN 0 AND 5)", "DOUBLE CHECK (x BETWEEN '-inf' AND 'inf')",
        ],
    )  # fmt: skip
    def test_other_checks_say_nothing(self, column):
        assert not table_of(f"x {column}, y INTEGER").bounds

    def test_what_a_small_check_allows_stays_a_domain(self):
        table = table_of("x INTEGER CHECK (x BETWEEN 0 AND 9), y DECIMAL(4,2) CHECK (y IN (1, 2))")
        assert (table.columns.keys(), dict(table.bounds)) == ({"x", "y"}, {})

    @pytest.mark.parametrize("check", ["x BETWEEN 1 AND 1000000", "x IN (0, 40000000)"])
    def test_as_many_whole_numbers_as_are_written_out_stay_a_domain(self, check):
        table = table_of(f"x INTEGER CHECK ({check})")
        assert (table.columns.keys(), dict(table.bounds)) == ({"x"}, {})

    def test_the_ledger_sees_the_table_that_it_saw_before_checks_had_bounds(self):
        bounded, plain = table_of("x DOUBLE CHECK (x BETWEEN 0 AND 9)"), table_of("x DOUBLE")
        assert bounded.bounds != plain.bounds
        assert bounded.fingerprint == plain.fingerprint
        assert bounded.described == plain.described

    def test_a_declaration_goes_before_the_check(self):
        columns, wide = "x DOUBLE CHECK (x BETWEEN 0 AND 9)", Domain.number(0, 100)
        table = table_of(columns, Schema({"t": {"X": wide}}))
        assert (dict(table.bounds), table.enforced) == ({"x": wide}, frozenset())
        assert table.fingerprint != table_of(columns).fingerprint

    def test_other_bounds_between_plan_and_release_are_noticed(self):
        con = duckdb.connect()
        con.execute("CREATE TABLE t (x DOUBLE CHECK (x BETWEEN 0 AND 9))").fetchall()
        table = read_table(con, ("t",))
        verify_unchanged(con, table)
        con.execute("DROP TABLE t; CREATE TABLE t (x DOUBLE CHECK (x BETWEEN 0 AND 8))").fetchall()
        with pytest.raises(dpsql.StaleSchemaError):
            verify_unchanged(con, table)


class TestComments:
    def test_a_column_has_what_its_entry_in_a_file_has(self):
        comments = """
            COMMENT ON COLUMN t.x IS 'dpsql: {"number": [0, 0.1]}';
            COMMENT ON COLUMN t."an age" IS ' dpsql: {"integers": [0, 9], "nullable": true}';
            COMMENT ON COLUMN t.other IS 'in dpsql: nothing';
        """
        table = table_of('x DOUBLE, "an age" INTEGER, other INTEGER', None, comments)
        assert dict(table.bounds) == {"x": number(0, "0.1")}
        assert table.columns["an age"].size == 11
        assert table.enforced == frozenset()
        schema = Schema({"t": {"x": Domain.number(0, 5)}})
        table = table_of('x DOUBLE, "an age" INTEGER, other INTEGER', schema, comments)
        assert dict(table.bounds) == {"x": number(0, 5)}
        assert "an age" in table.columns

    @pytest.mark.parametrize(
        "comment",
        ["dpsql: {", 'dpsql: {"number": [5, 0]}', 'dpsql: {"numbers": [0, 5]}', "dpsql: []",
         'dpsql: {"number": [0, "x"]}',
         'dpsql: {"labels": ["a"]}', 'dpsql: {"number": [0, NaN]}',
         'dpsql: {"number": [0, 1e999]}'],
    )  # fmt: skip
    def test_what_is_not_understood_is_refused(self, comment):
        with pytest.raises(SchemaError) as error:
            table_of("x DOUBLE", None, f"COMMENT ON COLUMN t.x IS '{comment}';")
        assert "x" in error.value.message
        assert error.value.hint

    @pytest.mark.parametrize(
        "unit", ["", '"unit": "person", "max_rows": 3, ', '"each_row": true, ']
    )
    def test_a_table_has_expressions_beside_its_unit(self, unit):
        comment = f'COMMENT ON TABLE t IS \'dpsql: {{{unit}"expressions": {{"x + 1": [0, 0.5]}}}}\''
        table = table_of("x DOUBLE, person INTEGER", None, comment)
        assert dict(table.expressions) == {"x + 1": number(0, "0.5")}
        assert (table.unit is not None, table.each_row) == ("unit" in unit, "each" in unit)

    @pytest.mark.parametrize(
        "of", ['{"x + 1": [1, 0]}', '{"y + 1": [0, 1]}', "[]", '{"x +": [0, 1]}']
    )
    def test_expressions_that_are_not_understood_are_refused(self, of):
        with pytest.raises(SchemaError):
            table_of("x DOUBLE", None, f"COMMENT ON TABLE t IS 'dpsql: {{\"expressions\": {of}}}'")


class TestExpressions:
    COLUMNS = "price DOUBLE, discount DECIMAL(4,2), odd INTEGER"

    @pytest.mark.parametrize(
        "bounds", [(0, 110_000), ["0", Decimal(110_000)], Domain.number(0, 110_000.0)]
    )
    def test_bounds_are_pairs_or_numbers(self, bounds):
        schema = Schema({}, expressions={"t": {PRODUCT: bounds}})
        assert schema.expressions == {"t": {PRODUCT: number(0, 110_000)}}
        assert "expressions" in repr(schema)
        assert dict(table_of(self.COLUMNS, schema).expressions) == {PRODUCT: number(0, 110_000)}

    @pytest.mark.parametrize(
        "given",
        [7, {"t": 7}, {"t": {PRODUCT: 7}}, {"t": {PRODUCT: (1,)}}, {"t": {PRODUCT: "01"}},
         {"t": {7: (0, 1)}}, {"t": {"": (0, 1)}}, {"t": {PRODUCT: (1, 0)}}, {7: {}},
         {"t": {PRODUCT: (0, math.inf)}}, {"t": {PRODUCT: (math.nan, 0)}},
         {"t": {"x" * 10_001: (0, 1)}}, {"t": {PRODUCT: {"number": (0, 1), "more": 1}}}],
    )  # fmt: skip
    def test_other_bounds_are_refused(self, given):
        with pytest.raises(SchemaError) as error:
            Schema({}, expressions=given)
        assert error.value.hint

    @pytest.mark.parametrize(
        ("text", "says", "hint"),
        [
            ("prize * 2", "no column prize", "did you mean price?"),
            ("price *", "not an expression", "for example"),
            ("price FROM t --", "not an expression", "for example"),
            ("price; DROP TABLE t", "not an expression", "for example"),
            ("price) + (odd", "not an expression", "for example"),
            ("1 + 1", "not an expression of a row", "for example"),
            ("t.price + 1", "names a column with its table", "alone"),
            ("SUM(price)", "not of one row", "aggregates"),
            ("price + (SELECT 1)", "not of one row", "subqueries"),
            ("lag(price) OVER ()", "not of one row", "windows"),
            ("(" * 3000 + "price" + ")" * 3000, "", ""),
        ],
    )
    def test_what_is_not_an_expression_of_a_row_is_refused(self, text, says, hint):
        with pytest.raises(SchemaError) as error:
            table_of(self.COLUMNS, Schema({}, expressions={"t": {text: (0, 1)}}))
        assert says in error.value.message
        assert hint in (error.value.hint or "")

    def test_tables_that_only_have_expressions_are_looked_for(self):
        with pytest.raises(SchemaError, match="no table nowhere"):
            table_of(self.COLUMNS, Schema({}, expressions={"nowhere": {PRODUCT: (0, 1)}}))

    def test_files_are_read_and_written(self, tmp_path):
        bounded = {PRODUCT: (0, 9), 'price / "odd"': ("-0.5", 1)}
        schema = Schema({"t": {"price": Domain.number(0, "0.1")}}, expressions={"t": bounded})
        text = write_toml([table_of(self.COLUMNS, schema)])
        assert f'"{PRODUCT}" = {{ number = [0, 9] }}' in text
        (tmp_path / "s.toml").write_text(text)
        again = Schema.load(tmp_path / "s.toml")
        assert (again.expressions, dict(again)) == (schema.expressions, dict(schema))

    def test_a_release_keeps_them(self):
        schema = Schema({"t": {"price": Domain.number(0, 5)}}, expressions={"t": {PRODUCT: (0, 9)}})
        columns = f"{self.COLUMNS}, y DOUBLE CHECK (y BETWEEN 0 AND 2)"
        table = table_of(columns, schema)
        again = table_from_json(json.loads(json.dumps(table_to_json(table))))
        assert again == table
        assert (again.enforced, again.fingerprint) == (table.enforced, table.fingerprint)
        for damage in ({"text": "zzz", "bounds": ["0", "1"]}, {"text": "odd", "bounds": ["1", "0"]},
                       {"text": "odd", "bounds": ["0", "nan"]}, {"text": "odd"}):  # fmt: skip
            document = table_to_json(table)
            document["expressions"] = [damage]
            with pytest.raises(SchemaError, match=r"damaged|no column|order|number"):
                table_from_json(document)

    def test_they_change_nothing_of_what_was_counted(self):
        schema = Schema({}, expressions={"t": {PRODUCT: (0, 9)}})
        assert table_of(self.COLUMNS, schema).fingerprint == table_of(self.COLUMNS).fingerprint
