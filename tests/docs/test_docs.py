"""The documentation runs, its links and paths exist, and it leaves nothing public out."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable

import psycopg
import pytest

import dpsql
import dpsql.cli
import dpsql.workload
from dpsql import errors
from dpsql.linalg import matrices
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.registry import able
from dpsql.planner.strategies import dual
from dpsql.rows.functions import FUNCTIONS
from dpsql.sql.binding import bind
from dpsql.sql.lowering import evaluate
from dpsql.sql.text import limits
from dpsql.workload import Identity, Workload
from dpsql.workload import workload as workloads
from tests.architecture.test_structure import RANKS, TRUSTED
from tests.docs.pages import (
    PAGES,
    README,
    ROOT,
    WITH_SERVER,
    WITH_SPARK,
    blocks,
    layout,
    name,
    numbers,
    prose,
    read,
    run,
)
from tests.release.adult import census_task, connect

REFERENCE = "\n".join(read(page) for page in PAGES if "reference" in page.parts)
EXAMPLES = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]
LONGEST_LINE = 110
FOLDERS = ("dpsql", "examples", "tests", "docs", ".ci")


def paths() -> list[str]:
    """Give all files and folders of the project; those of folders end in a slash."""
    below = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*")]
    named = [*ROOT.glob("*.*"), *(ROOT / folder for folder in FOLDERS), *below]
    return [f"/{name(p)}" + "/" * p.is_dir() for p in named]


PATHS = paths()


@pytest.mark.postgres
def test_what_the_page_with_a_server_shows(tmp_path, monkeypatch, address):
    services = tmp_path / "services"
    fields = psycopg.conninfo.conninfo_to_dict(address, dbname="accounts")
    services.write_text("[accounts]\n" + "".join(f"{k}={v}\n" for k, v in fields.items()))
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS accounts")
        connection.execute("CREATE DATABASE accounts")
    check_page(WITH_SERVER, tmp_path, monkeypatch)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_the_page_with_spark_shows(spark, tmp_path, monkeypatch):
    check_page(WITH_SPARK, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "page", [p for p in EXAMPLES if p not in {WITH_SERVER, WITH_SPARK}], ids=name
)
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    check_page(page, tmp_path, monkeypatch)


def check_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page == README:  # its readers have a file of their own
        rows = (f"{i},{('north', 'south')[i % 2]},{20 + i % 50}" for i in range(2000))
        (tmp_path / "people.csv").write_text("\n".join(["id,region,age", *rows]))
    for block, output, error in run(page):
        where = f"{name(page)}:{block.line}"
        if block.raises is not None:
            kinds = [c.__name__ for c in type(error).__mro__] if error is not None else []
            assert block.raises in kinds, f"{where} announces {block.raises}"
        if block.shown is not None:
            assert layout(output) == layout(block.shown), where
            if not block.noisy:
                # Solvers stop anywhere within their tolerance, a little differently elsewhere.
                expected = pytest.approx(numbers(block.shown), rel=1e-3, abs=5e-4)
                assert numbers(output) == expected, f"{where}\n{output}"


def test_there_are_examples_on_every_page_that_teaches():
    named = {name(page) for page in EXAMPLES}
    assert "README.md" in named
    teaching = [p for p in PAGES if {"tutorial", "how-to"} & set(p.parts)]
    assert not {name(p) for p in teaching} - named


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_paths_exist(page):
    folders = "|".join(map(re.escape, FOLDERS))
    for path in re.findall(rf"`((?:{folders})/[\w./*-]*)`", read(page)):
        assert list(ROOT.glob(path.rstrip("/"))), path


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=name)
def test_files_and_folders_that_are_named_by_the_end_of_their_paths_exist(page):
    """A page says `dual.py` or `strategies/` where it has said in which room that is."""
    for ending in re.findall(r"`([\w./-]+(?:\.py|\.md|/))`", prose(page)):
        assert any(path.endswith("/" + ending) for path in PATHS), ending


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lines_are_short_enough_to_review(page):
    for line in prose(page).splitlines():
        assert len(line) <= LONGEST_LINE or line.startswith("|") or "](" in line, line


def test_every_page_can_be_found_from_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / target).resolve()
        for target in re.findall(r"\]\(([^)#\s]+\.md)\)", read(index))
    }
    assert {p for p in PAGES if "docs" in p.relative_to(ROOT).parts} - {index} <= linked


@pytest.mark.parametrize("public", [*dpsql.__all__, *dpsql.workload.__all__])
def test_every_public_name_is_in_the_reference(public):
    assert re.search(rf"\b{public}\b", REFERENCE), public


def all_errors() -> list[str]:
    for module in pkgutil.walk_packages(dpsql.__path__, "dpsql."):
        if "examples" not in module.name:
            importlib.import_module(module.name)
    found, pending = [], [errors.DpsqlError, errors.InternalError]
    while pending:
        kind = pending.pop()
        found.append(kind.__name__)
        pending += [k for k in kind.__subclasses__() if k.__module__.startswith("dpsql")]
    return sorted(set(found))


@pytest.mark.parametrize("error", all_errors())
def test_every_error_is_in_the_reference(error):
    text = read(ROOT / "docs" / "reference" / "errors.md")
    assert re.search(rf"`{error}`", text), error


@pytest.mark.parametrize("command", sorted(dpsql.cli.main.commands))
def test_every_command_is_in_the_reference(command):
    assert f"dpsql {command}" in read(ROOT / "docs" / "reference" / "cli.md")


def test_the_architecture_page_has_the_layers_that_are_enforced():
    text = read(ROOT / "docs" / "explanation" / "architecture.md")
    for room, rank in RANKS.items():
        rows = [line for line in text.splitlines() if line.startswith(f"| {rank} |")]
        shown = "__init__.py" if room == "__init__" else room.replace(".", "/")
        assert any(f"`{shown}" in row or f"`dpsql/{shown}" in row for row in rows), room


def test_the_trusted_files_are_listed():
    text = read(ROOT / "docs" / "explanation" / "privacy-promise.md")
    for path in TRUSTED:
        assert f"`dpsql/{path}`" in text, path


API, COMPARING = (
    read(ROOT / "docs" / path) for path in ("reference/api.md", "how-to/compare-mechanisms.md")
)
PURE = able(Workload({"a": 2}).add(["a"], [Identity()]), dpsql.Budget(epsilon=1, delta=0))
"""Mechanisms with noise for pure budgets."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_is_where_users_look_for_one(mechanism):
    assert f"`{mechanism}`" in (dpsql.compare.__doc__ or "")
    budgets = cell(API, f"`{mechanism}`", 1)
    assert ("pure ε" in budgets or budgets == "all") == (mechanism in PURE)
    noise = cell(COMPARING, f'`"{mechanism}"`', 2)
    assert ("Laplace" in noise) == (mechanism in PURE)


def cell(text: str, first: str, column: int) -> str:
    """Give a cell of the one row that begins with `first`."""
    rows = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    assert len(rows) == 1, f"{first} needs a row"
    return rows[0].split("|")[1:-1][column].strip()


def listed(mechanisms: Iterable[str]) -> str:
    *others, last = (f"`{mechanism}`" for mechanism in mechanisms)
    return f"{', '.join(others)} and {last}"


@pytest.mark.parametrize("page", ["reference/api.md", "reference/cli.md"])
def test_mechanisms_for_pure_budgets_are_listed(page):
    assert f"for {listed(PURE)}" in read(ROOT / "docs" / page).replace("the mechanisms ", "")


@pytest.mark.parametrize("page", ["reference/api.md", "how-to/reuse-measurements.md"])
def test_mechanisms_of_marginals_are_listed(page):
    of_marginals = listed(name for name, traits in MECHANISMS.items() if traits.measures_marginals)
    text = " ".join(read(ROOT / "docs" / page).split())
    assert f"What {of_marginals} measured" in text or f"Measurements of {of_marginals}" in text


def commands(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("python3 ")]


def test_the_readme_has_the_two_commands_that_ci_runs():
    shown = [c for b in blocks(README) if b.language == "sh" for c in commands(b.code)]
    assert len(shown) == 2
    assert sorted(shown) == sorted(commands(read(ROOT / ".ci" / "run")))


def test_the_limits_in_the_reference_are_those_of_the_code():
    page = ROOT / "docs" / "reference" / "sql" / "refusals-and-limits.md"
    text = read(page).split("## Limits")[1]
    for limit in (
        limits.MAX_STATEMENT_BYTES, limits.MAX_SCRIPT_BYTES, limits.MAX_STATEMENTS,
        limits.MAX_TOKENS, limits.MAX_PARENTHESES, limits.MAX_PREFIXES, limits.MAX_DEPTH,
        bind.MAX_NAME_CHARACTERS, evaluate.MAX_JOINT_CELLS, matrices.MAX_ENTRIES,
        workloads.MAX_CELLS, dual.MAX_RANK + 1,
    ):  # fmt: skip
        assert re.search(rf"(?<![\d,]){limit:,}(?![\d,])", text), f"{limit:,}"


def test_the_functions_that_may_run_on_rows_are_those_of_the_code():
    text = read(ROOT / "docs" / "reference" / "sql" / "functions.md")
    section = text.split("## What may run on rows")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    words = set(re.findall(r"[a-z]\w+", " ".join(rows[1:])))
    signs = {name for name in FUNCTIONS if not name.isidentifier()}
    assert all(sign in rows[0].replace("\\|", "|") for sign in signs)
    written = {"and", "or", "not", "between", "in", "is_null", "is_distinct", "is_not_distinct"}
    upper = {"coalesce", "nullif", "like", "ilike", "negative"}
    written |= {"bounded", "clock", "shift"}  # no functions of SQL: what others are written by
    assert set(FUNCTIONS) - signs - written - upper <= words


def test_the_census_figures_are_what_is_planned():
    con = connect()
    plan = dpsql.plan(con, census_task(), budget=dpsql.Budget(epsilon=1, delta=1e-9))
    con.close()
    text = read(README)
    assert f"**{plan.rmse:.2f}**" in text
    assert f"{plan.workload.count} answers" in text
