"""The magics `%dpsql` and `%%dpsql`, in a shell in this process and in a kernel."""

from __future__ import annotations

import duckdb
import nbformat
import polars as pl
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from nbclient.exceptions import CellExecutionError

import dpsql
from dpsql.errors import LedgerError, SqlError
from dpsql.notebook import load_ipython_extension, unload_ipython_extension
from dpsql.privacy import begin_named
from tests.faces.kernel import notebook_of, run_notebook

BY_SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
AGES = "SELECT age, COUNT(*) AS n FROM people GROUP BY age"
CREATE = """
    CREATE TABLE people (
        sex ENUM('female', 'male') NOT NULL,
        age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 9),
        income INTEGER NOT NULL
    );
    INSERT INTO people SELECT 'female', i % 10, i FROM range(600) AS t(i);
"""


@pytest.fixture
def shell():
    """An IPython shell with the extension and a connection `con`."""
    found = InteractiveShell()
    found.user_ns.clear()
    with duckdb.connect() as con:
        con.execute(CREATE).fetchall()
        found.user_ns["con"] = con
        load_ipython_extension(found)
        yield found


def line(shell, options: str):
    return shell.run_line_magic("dpsql", options)


def cell(shell, options: str, sql: str = BY_SEX):
    return shell.run_cell_magic("dpsql", options, sql)


def test_one_statement_gives_a_frame(shell):
    frame = cell(shell, "--rho 1000")
    assert isinstance(frame, pl.DataFrame)
    assert frame.columns == ["sex", "n", "n_variance"]
    assert frame["n"].to_list() == pytest.approx([600, 0], abs=2)


def shown(shell, value) -> dict[str, str]:
    """What a front end is sent to show a value."""
    return shell.display_formatter.format(value)[0]


def test_one_statement_is_shown_with_standard_errors_and_its_picture(shell):
    frame = cell(shell, "--rho 1000")
    data = shown(shell, frame)
    assert "n_standard_error" in data["text/plain"]
    assert "<figure" in data["text/html"]
    assert "n_variance" not in "".join(data.values())
    assert "n_variance" in shown(shell, frame.head(1))["text/html"]  # a frame as any other
    assert cell(shell, "--rho 1000 --out found") is None
    assert "n_variance" in shown(shell, shell.user_ns["found"])["text/html"]


def test_several_statements_give_a_release(shell):
    release = cell(shell, "--rho 1000", f"-- name: a\n{BY_SEX};\n-- name: b\n{AGES};")
    assert list(release) == ["a", "b"]
    assert release.charged == dpsql.Budget(rho=1000)


def test_a_plan_spends_nothing(shell):
    plan = cell(shell, "--rho 1000 --plan")
    assert isinstance(plan, dpsql.Plan)
    assert repr(shell.run_line_magic("dpsql", "")).startswith("spent: ρ = 0\n")


def test_out_stores_the_result(shell):
    assert cell(shell, "--rho 1000 --out found") is None
    assert shell.user_ns["found"].height == 2


def test_rows_are_assumed_for_targets_of_averages(shell):
    options = "--plan --target query_1=0.5 --assume query_1=1000"
    plan = cell(shell, options, "SELECT sex, AVG(age) AS m FROM people GROUP BY sex")
    assert plan.expected_answers["largest_standard_error"].item() <= 0.5


def test_groups_that_may_be_empty_are_left_out(shell):
    sql = "SELECT age, COUNT(*) AS n FROM people GROUP BY age"
    kept = cell(shell, "--rho 1000 --groups-above 1000000", sql)
    assert kept.height == 0


def test_a_target_takes_the_place_of_a_budget(shell):
    plan = cell(shell, "--plan --target query_1=25")
    assert plan.expected_error()["worst_standard_error"][0] <= 25


def test_cells_share_one_account(shell):
    shell.run_line_magic("dpsql", "--total --rho 0.2")
    cell(shell, "--rho 0.15")
    with pytest.raises(dpsql.BudgetError, match=r"left ρ = 0\.05"):
        cell(shell, "--rho 0.15")
    account = shell.run_line_magic("dpsql", "")
    assert "left: ρ = 0.05" in repr(account)
    assert "75.0% of the total is spent" in account._repr_html_()


def test_rows_are_made_up_of_a_release(shell):
    cell(shell, "--rho 50 --out release", f"{BY_SEX}; {AGES}")
    release = shell.user_ns["release"]
    made = line(shell, "--synthetic release --rows 200 --seed 3 --updates 1")
    assert made.equals(release.synthetic(200, updates=1, seed=3))
    assert line(shell, "--synthetic release --rows 200 --seed 3 --out rows") is None
    assert shell.user_ns["rows"].height == 200
    found = line(shell, "--synthetic release --seed 3 --quality --table people")
    assert found.equals(release.synthetic_quality(release.synthetic(seed=3)))
    assert line(shell, "").text.startswith("spent: ρ = 50")


@pytest.mark.parametrize(
    "options",
    ["--rows 5", "--quality", "--out rows", "--synthetic con", "--synthetic nothing",
     "--synthetic release --rows -1", "--synthetic release --seed x"],
)  # fmt: skip
def test_wishes_for_rows_that_can_not_be_meant(shell, options):
    cell(shell, "--rho 50 --out release", f"{BY_SEX}; {AGES}")
    with pytest.raises(UsageError):
        line(shell, options)


def test_hints_about_rows_name_options(shell):
    cell(shell, "--rho 50 --out release", f"{BY_SEX}; {AGES}")
    with pytest.raises(dpsql.SchemaError, match="people"):
        line(shell, "--synthetic release --table peeple")
    with pytest.raises(dpsql.ResourceLimitError) as error:
        line(shell, "--synthetic release --rows 999999999999")
    assert "--rows" in error.value.hint


def test_past_answers_are_free(shell):
    first = cell(shell, "--rho 1000")
    again = cell(shell, "--free")
    assert again["n"].to_list() == pytest.approx(first["n"].to_list(), abs=1e-6)
    assert "spent: ρ = 1000" in repr(shell.run_line_magic("dpsql", ""))


def test_budgets_come_in_all_forms_and_as_variables(shell):
    shell.user_ns["small"] = dpsql.Budget(rho=0.25)
    assert cell(shell, "--plan --budget small").budget == dpsql.Budget(rho=0.25)
    assert cell(shell, "--plan --mu 0.1").budget == dpsql.Budget(mu=0.1)
    expected = dpsql.Budget(epsilon=1, delta=1e-9)
    assert cell(shell, "--plan --epsilon 1 --delta 1e-9").budget == expected


def test_a_session_is_used_as_it_is(shell):
    session = dpsql.Session(shell.user_ns["con"], budget=dpsql.Budget(rho=1))
    shell.user_ns["mine"] = session
    cell(shell, "--con mine --rho 0.5")
    assert session.remaining == dpsql.Budget(rho=0.5).rho
    with pytest.raises(UsageError, match="has its declarations"):
        cell(shell, "--con mine --rho 0.1 --unit income --max-rows 2")


def test_the_only_connection_is_found(shell):
    shell.user_ns["data"] = shell.user_ns.pop("con")
    assert cell(shell, "--rho 1").height == 2
    with duckdb.connect() as other:
        shell.user_ns["other"] = other
        with pytest.raises(UsageError, match="2 connections"):
            cell(shell, "--rho 1")
        assert cell(shell, "--con data --rho 1").height == 2


def test_files_are_asked_by_their_path(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell.user_ns.clear()
    (tmp_path / "people.csv").write_text("sex\nmale\n" + "female\n" * 40)
    (tmp_path / "people.toml").write_text(
        "[people.columns]\nsex = { labels = ['female', 'male'] }\n"
    )
    with pytest.raises(UsageError, match=r"0 connections .* --con people\.csv"):
        cell(shell, "--rho 1000")
    line(shell, "--con people.csv --total --rho 5000")
    frame = cell(shell, "--con people.csv --schema people.toml --rho 1000")
    assert frame["n"].to_list() == pytest.approx([40, 1], abs=2)
    assert cell(shell, "--con ./people.csv --rho 1000").height == 2  # as it was declared
    assert "ρ = 3000" in line(shell, f"--con {tmp_path / 'people.csv'}").text
    with dpsql.Session("people.csv") as session:  # the account is beside the file
        assert session.remaining == 3000
    with pytest.raises(UsageError, match="declared otherwise"):
        cell(shell, "--con people.csv --rho 1 --unit sex --max-rows 2")
    with pytest.raises(dpsql.SchemaError, match=r"gone\.csv"):
        cell(shell, "--con gone.csv --rho 1")
    with pytest.raises(UsageError, match="no variable gone"):
        cell(shell, "--con gone --rho 1")


def test_a_variable_goes_before_a_file_of_its_name(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "con").write_text("sex\nmale\n")
    assert cell(shell, "--con con --rho 1000")["n"].to_list() == pytest.approx([600, 0], abs=2)


@pytest.mark.parametrize("said", ["--ledger x.ledger", "--dataset hr.people"])
def test_where_the_account_is_belongs_to_the_first_cell(shell, said):
    assert cell(shell, "--rho 1").height == 2
    with pytest.raises(UsageError, match="declared otherwise"):
        cell(shell, f"--rho 1 {said}")


@pytest.mark.postgres
def test_rows_in_memory_have_an_account_by_their_name(shell, address):
    with pytest.raises(LedgerError, match=r"--dataset hr\.people"):
        cell(shell, f"--rho 1 --ledger {address}")
    begin_named("hr.people", address)
    with pytest.raises(LedgerError, match="leave --dataset out"):
        cell(shell, "--rho 1 --dataset hr.people")
    with pytest.raises(LedgerError, match="No ledger of that server"):
        cell(shell, f"--rho 1 --ledger {address} --dataset hr.others")
    assert cell(shell, f"--rho 1 --ledger {address} --dataset hr.people").height == 2


def test_declarations_belong_to_the_first_cell(shell):
    shell.user_ns["declared"] = dpsql.Schema({"people": {"income": dpsql.Domain.integers(0, 1)}})
    sql = "SELECT income, COUNT(*) AS n FROM people GROUP BY income"
    declared = "--schema declared --unit income --max-rows 2"
    assert cell(shell, f"--rho 1000 {declared}", sql).height == 2
    assert cell(shell, "--rho 1000", sql).height == 2
    assert "income" in cell(shell, "--rho 1 --plan", sql).neighbours
    with pytest.raises(UsageError, match="declared otherwise"):
        cell(shell, "--rho 1000 --unit income --max-rows 3")


def test_the_total_may_be_fixed_before_anything_is_declared(shell):
    shell.user_ns["declared"] = dpsql.Schema({"people": {"income": dpsql.Domain.integers(0, 1)}})
    line(shell, "--total --rho 2000")
    sql = "SELECT income, COUNT(*) AS n FROM people GROUP BY income"
    assert cell(shell, "--rho 1000 --schema declared", sql).height == 2
    assert "left: ρ = 1000" in repr(line(shell, ""))  # the account in memory goes on


def test_a_cell_says_what_is_left(shell, capsys):
    line(shell, "--total --rho 1")
    cell(shell, "--rho 0.25")
    assert capsys.readouterr().out.startswith("charged: ρ = 0.25; left: ρ = 0.75;")
    cell(shell, "--rho 0.25 --plan")
    cell(shell, "--free")
    assert capsys.readouterr().out == ""


def test_targets_of_a_cell_may_have_a_most(shell):
    frame = cell(shell, "--target query_1=5 --at-most --rho 0.5")
    assert frame["n_variance"].max() <= 25
    with pytest.raises(dpsql.BudgetError):
        cell(shell, "--target query_1=0.5 --at-most --rho 0.01")
    with pytest.raises(UsageError, match="--at-most is for --target"):
        cell(shell, "--at-most --rho 0.5")


def test_hints_name_options_of_cells(shell):
    cell(shell, "--rho 0.1")
    with pytest.raises(dpsql.UndeterminedError) as error:
        cell(shell, "--free", "SELECT age, COUNT(*) AS n FROM people GROUP BY age")
    assert "for example --rho 0.01" in error.value.hint
    with pytest.raises(dpsql.SqlError) as error:
        cell(shell, "--rho 1", "SELECT COUNT(*) AS n FROM people JOIN other USING (age)")
    assert "no table other" in error.value.message


def test_frames_of_other_libraries_are_public_tables(shell):
    bands = pl.DataFrame({"band": ["young", "old"], "lo": [0, 5], "hi": [4, 9]})
    sql = (
        "SELECT b.band, COUNT(*) AS n FROM people JOIN bands AS b ON age BETWEEN b.lo AND b.hi "
        "GROUP BY b.band ORDER BY b.band"
    )
    for other in (bands.lazy(), bands.to_arrow(), bands.to_pandas().iloc[[1, 0]]):
        shell.user_ns["bands"] = other
        shell.user_ns["con"] = shell.user_ns["con"].cursor()  # declared anew for each
        assert cell(shell, "--rho 1000 --public bands", sql)["band"].to_list() == ["old", "young"]


def test_a_unit_that_is_named_twice_is_refused(shell):
    with pytest.raises(dpsql.SchemaError, match="several privacy units"):
        cell(shell, "--rho 1000 --unit sex --unit age --max-rows 3", BY_SEX)


def test_public_frames_are_joined(shell):
    shell.user_ns["bands"] = pl.DataFrame({"band": ["young", "old"], "lo": [0, 5], "hi": [4, 9]})
    frame = cell(
        shell,
        "--rho 1000 --public bands",
        "SELECT b.band, COUNT(*) AS n FROM people JOIN bands AS b"
        " ON age BETWEEN b.lo AND b.hi GROUP BY b.band",
    )
    assert frame["n"].to_list() == pytest.approx([300, 300], abs=2)


@pytest.mark.parametrize(
    "options",
    [
        "--rho x",
        "--bogus",
        "--rho 1 --target a",
        "--rho 1 --out no-name",
        "--con missing --rho 1",
        "--budget con",
        "--budget missing",
        "--rho '1",
    ],
)
def test_wrong_options_are_usage_errors(shell, options):
    with pytest.raises(UsageError):
        cell(shell, options)


def test_a_budget_without_total_is_a_usage_error_in_the_line_magic(shell):
    with pytest.raises(UsageError, match="--total"):
        shell.run_line_magic("dpsql", "--rho 1")


def test_a_missing_budget_is_a_budget_error(shell):
    with pytest.raises(dpsql.BudgetError):
        cell(shell, "")


def test_errors_are_rendered_short(shell):
    with pytest.raises(SqlError) as caught:
        cell(shell, "--rho 1", "SELECT sexx, COUNT(*) AS n FROM people GROUP BY sexx")
    lines = caught.value._render_traceback_()
    assert lines[0] == "SqlSchemaError: There is no column sexx in people."
    assert lines[-1] == "Hint: did you mean sex?"
    assert caught.value.__cause__ is None


def test_the_extension_can_be_unloaded(shell):
    unload_ipython_extension(shell)
    with pytest.raises(UsageError):
        cell(shell, "--rho 1")


SETUP = f"%load_ext dpsql\nimport duckdb\ncon = duckdb.connect()\ncon.execute('''{CREATE}''');"


def test_a_kernel_shows_frames_cards_and_short_errors(tmp_path):
    notebook = run_notebook(
        notebook_of(
            SETUP,
            "%dpsql --total --rho 1",
            f"%%dpsql --rho 0.1\n{BY_SEX}",
            f"%%dpsql --rho 0.1 --plan\n{BY_SEX}",
            "%%dpsql --rho 0.1\nSELECT sexx, COUNT(*) AS n FROM people GROUP BY sexx",
            "from dpsql.progress import watched\nwith watched(None) as w:\n    w.note('long')",
        ),
        tmp_path,
        allow_errors=True,
    )
    _, account, frame, plan, failed, long = ([*c.outputs] for c in notebook.cells)
    assert long == []  # of a line that goes away nothing is kept
    assert "Privacy budget of" in account[0].data["text/html"]
    assert frame[0].text.startswith("charged: ρ = 0.1; left: ρ = 0.9")
    assert "<svg " in frame[1].data["text/html"]
    for kind in ("text/html", "text/plain"):
        assert "n_standard_error" in frame[1].data[kind]
        assert "n_variance" not in frame[1].data[kind]
    assert "± " in plan[0].data["text/html"]
    assert "planning spends nothing" in plan[0].data["text/html"]
    assert failed[0].output_type == "error"
    assert failed[0].ename == "SqlSchemaError"
    assert len(failed[0].traceback) == 4


@pytest.mark.parametrize("options", ["--rho 1e9999", "--con missing --rho 1"])
def test_an_error_stops_the_notebook(tmp_path, options):
    after = nbformat.v4.new_code_cell("open('went_on', 'w').close()")
    notebook = notebook_of(SETUP, f"%%dpsql {options}\n{BY_SEX}")
    notebook.cells.append(after)
    with pytest.raises(CellExecutionError):
        run_notebook(notebook, tmp_path)
    assert not (tmp_path / "went_on").exists()


def test_a_total_may_set_delta_aside(shell):
    shown = line(shell, "--total --epsilon 1 --delta 1e-9 --key-delta 1e-10")
    assert "ε = 1 at δ = 1e-9; δ = 1e-10 for keys" in repr(shown)
    with pytest.raises(UsageError, match="add --total"):
        line(shell, "--key-delta 1e-10")
    cell(shell, "--epsilon 1 --delta 1e-9")
    assert "left: ρ = 0; δ = 1e-10 for keys" in repr(line(shell, ""))
