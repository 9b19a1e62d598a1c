"""`dpsql plan` and `dpsql schema`: they spend nothing and leave nothing behind."""

from __future__ import annotations

import json

import duckdb
import pytest

import dpsql
from dpsql.planner.plans.plan import Plan
from tests.cli.conftest import BY_SEX, Commands

EPSILON = ("--epsilon", "1", "--delta", "1e-9")


def plan(commands: Commands, *options: object) -> dict:
    return commands.document("plan", commands.script, "--db", commands.db, *options)


def test_it_prints_what_the_library_plans(commands):
    found = plan(commands, *EPSILON)
    with duckdb.connect(commands.db, read_only=True) as con:
        expected = dpsql.plan(
            con, dpsql.read_script(commands.script), budget=dpsql.Budget(epsilon=1, delta=1e-9)
        )
    assert found["statements"] == expected.expected_error().to_dicts()
    assert found["rmse"] == expected.rmse
    assert found["budget"]["epsilon"] == pytest.approx(1)
    assert found["neighbours"] == "add or remove one row of people"


def test_it_tells_what_other_budgets_would_buy(commands):
    by_budget = plan(commands, "--rho", "0.1")["error_by_budget"]
    assert [row["budget"] for row in by_budget] == [
        f"ρ = {r}" for r in (0.025, 0.05, 0.1, 0.2, 0.4)
    ]
    assert by_budget[3]["errors"] == pytest.approx(0.5**0.5)
    said = commands.done("plan", commands.script, "--db", commands.db, "--rho", "0.1")
    assert "with another budget" in said
    commands.done("query", BY_SEX, "--db", commands.db, "--rho", "0.1")
    assert "error_by_budget" not in plan(commands, "--rho", "0.1")


def test_it_leaves_no_ledger(commands):
    commands.done("plan", commands.script, "--db", commands.db, "--rho", "0.1")
    assert not commands.ledger.exists()


def test_past_measurements_make_a_plan_better(commands):
    commands.done("query", BY_SEX, "--db", commands.db, "--rho", "0.1")

    def error(*options):
        return plan(commands, "--rho", "0.1", *options)["statements"][0]["rmse"]

    assert error() < 0.8 * error("--no-reuse")


def test_past_counts_tell_errors_in_units_of_the_answer(commands):
    script = commands.folder / "mean.sql"
    script.write_text("-- name: mean\nSELECT sex, AVG(age) AS m FROM people GROUP BY sex;\n")
    options = ("plan", script, "--db", commands.db, "--rho", "0.1")
    assert commands.document(*options)["expected_answers"][0]["group_rows"] == 700
    told = " ".join(commands.done(*options).split())
    assert "± 0.2 for a group of 700 rows, ± 0.02 for 7,000" in told
    assert "for others add --assume rows=100000." in told
    commands.done("query", BY_SEX, "--db", commands.db, "--rho", "0.1")
    (row,) = commands.document(*options)["expected_answers"]
    assert row["rows_from"].startswith("noisy counts of ledger entry ")
    assert 0 < row["standard_error"] < 5
    assert f"mean: for {row['rows_from']}" in commands.done(*options).splitlines()
    found = commands.document(*options[:-2], "--target", "mean=1")
    assert found["targets_for"] == {"mean": row["rows_from"]}


def test_the_table_has_a_line_for_each_statement(commands):
    lines = commands.done("plan", commands.script, "--db", commands.db, *EPSILON).splitlines()
    assert lines[0].split() == ["statement", "answers", "standard", "error"]
    assert [line.split()[0] for line in lines[1:3]] == ["by_sex", "ages"]
    assert [line.split()[2] for line in lines[1:3]] == ["±", "±"]
    assert lines[1].endswith(" rows")
    assert any(line.startswith("budget: ρ = ") and "ε = 1 at δ = 1e-9" in line for line in lines)


def test_a_target_asks_for_the_least_budget(commands):
    found = plan(commands, "--target", "by_sex=25")
    errors = {row["statement"]: row["worst_standard_error"] for row in found["statements"]}
    assert errors["by_sex"] <= 25
    assert found["binding"] == ["by_sex"]
    tighter = plan(commands, "--target", "by_sex=5")
    assert tighter["budget"]["rho"] > found["budget"]["rho"]


def test_a_weight_makes_a_statement_more_accurate(commands):
    def error(*options):
        return plan(commands, "--rho", "0.1", *options)["statements"][0]["rmse"]

    assert error("--weight", "by_sex=50") < 0.8 * error()


def test_amounts_are_taken_as_the_decimals_that_are_typed(commands):
    assert plan(commands, "--rho", "0.1")["budget"]["mu_squared"] == "1/5"
    assert plan(commands, "--mu", "0.3")["budget"]["mu_squared"] == "9/100"


def test_explaining_is_asked_for(commands):
    arguments = ("plan", commands.script, "--db", commands.db, "--rho", "0.1")
    assert "worst standard error" not in commands.done(*arguments)
    explained = commands.done(*arguments, "--explain")
    assert "residual space" in explained
    assert "worst standard error" in explained
    assert "residual space" in plan(commands, "--rho", "0.1", "--explain")["explanation"]


def test_a_script_comes_from_standard_input_too(commands):
    text = commands.done("plan", "-", "--db", commands.db, "--rho", "0.1", text=BY_SEX)
    assert text.splitlines()[1].split()[:2] == ["query_1", "2"]


def test_a_privacy_unit_is_told_and_paid_for(commands):
    one = plan(commands, "--rho", "0.1")
    three = plan(commands, "--rho", "0.1", "--unit", "income", "--max-rows", "3")
    assert "income" in three["neighbours"]
    assert three["rmse"] == pytest.approx(3 * one["rmse"], rel=0.05)


def test_a_schema_file_gives_a_domain(commands):
    commands.script.write_text("SELECT income, COUNT(*) AS n FROM people GROUP BY income")
    refused = commands.run("plan", commands.script, "--db", commands.db, "--rho", "0.1")
    assert refused.exit_code == 3
    assert "--schema" in refused.stderr
    file = commands.folder / "schema.toml"
    file.write_text("[people.columns]\nincome = { integers = [0, 9] }\n")
    assert plan(commands, "--rho", "0.1", "--schema", file)["statements"][0]["rows"] == 10


def test_the_schema_lists_domains_and_what_has_none(commands):
    (table,) = commands.document("schema", "--db", commands.db)["tables"]
    assert table["table"] == "people"
    assert {c["name"]: c["cells"] for c in table["columns"]} == {"sex": 2, "age": 100}
    (income,) = table["undeclared"]
    assert income["name"] == "income"
    assert "people.columns.income = { decimals" in income["hint"]
    text = commands.done("schema", "--db", commands.db)
    assert "ENUM {female, male}" in text
    assert "without a public domain" in text


def test_the_schema_tells_no_number_of_rows(commands):
    assert "1000" not in commands.done("schema", "--db", commands.db).replace(",", "")


def test_the_schema_as_a_file_can_be_loaded(commands):
    file = commands.folder / "schema.toml"
    file.write_text(commands.done("schema", "--db", commands.db, "--toml"), encoding="utf-8")
    assert set(dpsql.Schema.load(file)["people"]) == {"sex", "age"}


FLIGHTS = """
    year BIGINT, month BIGINT, day BIGINT, dep_time BIGINT, sched_dep_time BIGINT, dep_delay BIGINT,
    arr_time BIGINT, sched_arr_time BIGINT, arr_delay BIGINT, carrier VARCHAR, flight BIGINT,
    tailnum VARCHAR, origin VARCHAR, dest VARCHAR, air_time BIGINT, distance BIGINT, hour BIGINT,
    minute BIGINT, time_hour TIMESTAMPTZ
"""


def test_from_a_bare_table_of_nineteen_columns_to_a_plan_in_one_command_and_one_edit(commands):
    with duckdb.connect(commands.db) as con:
        con.execute(f"DROP TABLE people; CREATE TABLE flights ({FLIGHTS})").fetchall()
    text = commands.done("schema", "--db", commands.db, "--toml")
    for column in FLIGHTS.split(","):
        assert f"# TODO {column.split()[0]} = {{" in text
    kept = ("origin", "dep_delay", "arr_delay", "hour")
    edited = [
        line.removeprefix("# TODO ")
        if line.startswith(tuple(f"# TODO {name} =" for name in kept)) else line
        for line in text.splitlines()
    ]  # fmt: skip
    file = commands.folder / "flights.toml"
    file.write_text("\n".join(edited), encoding="utf-8")
    commands.script.write_text(
        "SELECT origin, hour, AVG(arr_delay - dep_delay) AS a, COUNT(dest) AS n FROM flights "
        "WHERE carrier <> 'UA' GROUP BY origin, hour"
    )
    budget = ("--epsilon", "1", "--delta", "1e-9")
    found = plan(commands, *budget, "--schema", file, "--assume", "flights.origin=4")["statements"]
    assert all(statement["rows"] >= 100 for statement in found)


def test_what_is_only_added_up_is_listed(commands):
    file = commands.folder / "schema.toml"
    file.write_text(
        "[people.columns]\nincome = { number = [0, 0.5] }\n"
        '[people.expressions]\n"income * age" = { number = [0, 9] }\n'
    )
    (table,) = commands.document("schema", "--db", commands.db, "--schema", file)["tables"]
    assert table["bounds"] == [{"of": "income", "bounds": "number 0..0.5"}]
    assert table["expressions"] == [{"of": "income * age", "bounds": "number 0..9"}]
    text = commands.done("schema", "--db", commands.db, "--schema", file)
    assert "without a public domain" not in text
    again = commands.done("schema", "--db", commands.db, "--schema", file, "--toml")
    assert "TODO" not in again
    file.write_text(again)
    assert dpsql.Schema.load(file).expressions["people"]["income * age"].high == 9
    file.write_text('[people.expressions]\n"income * aeg" = { number = [0, 9] }\n')
    refused = commands.run("schema", "--db", commands.db, "--schema", file)
    assert refused.exit_code == 4
    assert "did you mean age?" in refused.stderr


def test_one_table_is_chosen_by_name(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("CREATE TABLE other (known BOOLEAN)").fetchall()
    found = commands.document("schema", "--db", commands.db)["tables"]
    assert [table["table"] for table in found] == ["other", "people"]
    (only,) = commands.document("schema", "--db", commands.db, "--table", "main.other")["tables"]
    assert only["columns"][0]["domain"] == "BOOLEAN {False, True} or NULL"


def test_an_unknown_table_is_a_schema_error(commands):
    result = commands.run("schema", "--db", commands.db, "--table", "peple")
    assert result.exit_code == 4
    assert "did you mean people?" in result.stderr


def test_json_is_plain_ascii(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("CREATE TABLE shop (item ENUM('\u202ereversed', 'café'))").fetchall()
    text = commands.done("schema", "--db", commands.db, "--json")
    assert text.isascii()
    assert "café" in json.loads(text)["tables"][1]["columns"][0]["domain"]
    assert "\u202e" not in commands.done("schema", "--db", commands.db)


def test_a_plan_that_loses_accuracy_is_loud(commands, monkeypatch):
    monkeypatch.setattr(Plan, "avoidable", property(lambda _: 1.5))
    asked = (commands.script, "--db", commands.db, "--rho", 1)
    printed = commands.run("plan", *asked)
    assert printed.exit_code == 10
    assert "WARNING: The variance is 150% above what is possible" in printed.stdout
    document = commands.run("plan", *asked, "--json")
    assert document.exit_code == 10
    assert json.loads(document.stdout)["warning"]
    assert json.loads(document.stdout)["avoidable"] == 1.5
    out = commands.folder / "out"
    refused = commands.run("release", *asked, "--out", out)
    assert refused.exit_code == 10
    assert "--accept-gap" in refused.stderr
    assert not out.exists()
    assert not commands.ledger.exists() or "rho" not in commands.done("ledger", commands.ledger)
    commands.done("release", *asked, "--out", out, "--accept-gap")
    commands.done("query", BY_SEX, "--db", commands.db, "--rho", 1, "--accept-gap")


def test_units_and_references_are_proposed(commands):
    with duckdb.connect(commands.db) as con:
        con.execute("DROP TABLE people").fetchall()
        con.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, vip BOOLEAN)").fetchall()
        con.execute("""
            CREATE TABLE orders (customer INTEGER REFERENCES customers (id), shop_id INTEGER);
            CREATE TABLE shops (id INTEGER);
        """).fetchall()
    tables = commands.document("schema", "--db", commands.db)["tables"]
    assert {table["table"]: table["proposed"] for table in tables} == {
        "customers": {"unit": "customers", "root": "customers", "references": {}},
        "orders": {
            "unit": "customers", "root": "customers", "references": {"shop_id": "shops.id"}
        },
        "shops": {"unit": None, "root": "customers", "references": {}},
    }  # fmt: skip
    text = commands.done("schema", "--db", commands.db)
    assert "  Its rows may belong to customers.\n" in text
    assert "  shop_id may refer to shops.id, but no FOREIGN KEY says so.\n" in text
    assert "  Hint: dpsql schema --toml drafts what to declare then.\n" in text
    file = commands.folder / "shop.toml"
    drafts = commands.done("schema", "--db", commands.db, "--toml")
    file.write_text(drafts.replace("# TODO ", ""), encoding="utf-8")
    again = commands.document("schema", "--db", commands.db, "--schema", file)["tables"]
    assert [table["unit"] for table in again] == [
        {"key": "id", "max_rows": 1}, {"key": "customers.id", "max_rows": 3}, None,
    ]  # fmt: skip
    assert not any(table["proposed"]["unit"] for table in again)


def test_a_script_may_be_sql_itself(commands):
    sql = "select sex, COUNT(*) AS n FROM people GROUP BY sex"
    told = commands.done("plan", sql, "--db", commands.db, "--rho", "1")
    assert "query_1" in told
    assert commands.run("plan", "selection.sql", "--db", commands.db, "--rho", "1").exit_code == 2
