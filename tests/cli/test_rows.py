"""`dpsql rows`, and --report-cut."""

from __future__ import annotations

import duckdb
import pytest

from tests.cli.conftest import Commands


@pytest.fixture
def visits(commands: Commands) -> Commands:
    with duckdb.connect(commands.db) as con:
        con.execute("""
            CREATE TABLE visits (who INTEGER);
            INSERT INTO visits SELECT CASE WHEN i % 10 > 0 THEN i // 30 END FROM range(120) AS t(i);
            INSERT INTO visits SELECT 77 FROM range(3);
        """).fetchall()
    return commands


ASKED = ("--unit", "who", "--rho", 10**12)


def test_units_by_their_rows(visits):
    found = visits.document("rows", "visits", "--db", visits.db, *ASKED, "--up-to", 20)
    rows = {row["max_rows"]: row for row in found["rows"]}
    assert round(rows[3]["units"]) == 1
    assert round(rows[20]["units_cut"]) == round(rows[None]["units"]) == 4
    assert found["charged"]["rho"] == 10**12
    printed = visits.run("rows", "visits", "--db", visits.db, "--unit", "who", "--free", "--up-to",
                         20)  # fmt: skip
    assert printed.exit_code == 0
    assert "units_cut_share" in printed.stdout
    assert "charged: nothing" in printed.stderr
    assert "max_rows,units" in visits.done("rows", "visits", "--db", visits.db, *ASKED, "--csv")


def test_rows_without_a_unit(visits):
    found = visits.document("rows", "visits", "--db", visits.db, *ASKED, "--without-unit")
    assert [round(row["rows"]) for row in found["rows"]] == [12]


def test_what_is_refused(visits):
    for arguments, code, said in (
        (("visits", "--db", visits.db, "--rho", 1), 4, "--unit person_id"),
        (("visit", "--db", visits.db, *ASKED), 4, "did you mean visits?"),
        (("visits", "--db", visits.db, "--unit", "who"), 2, "Give a budget"),
        (("visits", "--db", visits.db, *ASKED, "--free"), 2, "--free spends nothing"),
        (("visits", "--db", visits.db, *ASKED, "--csv", "--json"), 2, "Choose one of"),
        (("visits", "--db", visits.db, *ASKED, "--up-to", 0), 9, "--up-to 100"),
    ):
        result = visits.run("rows", *arguments)
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert "rho" not in visits.run("ledger", "--db", visits.db).stdout


def test_units_that_were_cut(visits):
    script = visits.folder / "visits.sql"
    script.write_text("SELECT COUNT(*) AS n FROM visits", encoding="utf-8")
    asked = (script, "--db", visits.db, *ASKED, "--max-rows", 5, "--report-cut")
    assert "units_cut" in visits.done("plan", *asked)
    out = visits.folder / "out"
    assert visits.document("release", *asked, "--out", out)["statements"] == [
        "query_1", "units_cut"
    ]  # fmt: skip
    shown = visits.done("show", out, "units_cut", "--csv").splitlines()
    names = ("units_cut", "units", "units_cut_share")
    assert shown[0] == ",".join(f"{name},{name}_variance" for name in names)
    assert [round(float(v), 1) for v in shown[1].split(",")[::2]] == [4, 5, 0.8]
    refused = visits.run("plan", visits.script, "--db", visits.db, "--rho", 1, "--report-cut")
    assert refused.exit_code == 4
    assert "leave --report-cut out" in refused.stderr
