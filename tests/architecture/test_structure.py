"""The house rules: imports point down, vendors stay in their rooms, files stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dpsql"
FILES = sorted(p for p in PACKAGE.rglob("*.py") if "examples" not in p.parts)

RANKS = {
    "errors": 0,
    "hints": 0,
    "linalg": 1,
    "calls": 1,
    "progress": 2,
    "markup": 2,
    "schema": 2,
    "privacy": 2,
    "charts": 3,
    "workload": 3,
    "rows": 3,
    "rel": 4,
    "sql": 5,
    "engines": 5,
    "measurement": 6,
    "planner.residuals": 7,
    "planner.shares": 7,
    "planner.strategies": 8,
    "planner.reconstruction": 8,
    "planner.weights": 9,
    "planner.plans": 9,
    "planner.mechanisms": 10,
    "planner.registry": 11,
    "planner.reuse": 11,
    "planner.comparison": 12,
    "flags": 11,
    "request": 11,
    "answers": 12,
    "present": 13,
    "release": 14,
    "session": 15,
    "api": 16,
    "notebook": 17,
    "polars_namespace": 17,
    "cli": 17,
    "__init__": 18,
    "__main__": 18,
}
"""Room → rank. A module may import from its own room and from rooms of lower rank."""

VENDORS = {
    "duckdb": {"engines", "sql", "api", "cli", "notebook"},
    "sqlglot": {"sql", "schema"},
    "scipy": {"answers", "linalg", "measurement", "planner"},
    "flint": {"measurement", "planner", "privacy"},
    "cryptography": {"measurement"},
    "cvxpy": {"planner"},
    "msgspec": {"answers", "present", "release", "schema"},
    "psutil": {"privacy", "planner"},
    "psycopg": {"privacy"},
    "pyarrow": {"engines", "present", "release", "sql"},
    "pyspark": {"engines"},
    "deltalake": {"engines"},
    "pyiceberg": {"engines"},
    "pandas": {"present"},
    "jinja2": {"present"},
    "markupsafe": {"present"},
    "altair": {"charts"},
    "threadpoolctl": {"linalg"},
    "polars": {
        "planner",
        "sql",
        "engines",
        "answers",
        "present",
        "release",
        "session",
        "api",
        "notebook",
        "polars_namespace",
    },
    "numpy": {
        "answers",
        "engines",
        "linalg",
        "measurement",
        "planner",
        "release",
        "sql",
        "workload",
    },
    "sqlite3": {"privacy"},
    "fsspec": {"engines"},
    "click": {"cli"},
    "rich": {"cli"},
    "IPython": {"notebook"},
}
"""Vendor → rooms that may import it. Any other third-party import is refused."""


def room(path: Path) -> str:
    return room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))


def room_of(module: str) -> str:
    """`dpsql.sql.allow` → `sql`; the planner's folders are rooms of their own."""
    names = module.split(".")
    return ".".join(names[1:3]) if names[1] == "planner" else names[1]


def submodule(package: str, name: str) -> str | None:
    """Resolve `from package import name` if the name is a module of ours."""
    path = ROOT.joinpath(*package.split("."), f"{name}.py")
    return f"{package}.{name}" if package.startswith("dpsql") and path.exists() else None


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file: most rules look at each, and walking is most of their work."""
    return tuple(ast.walk(tree_of(path)))


def is_name(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module, and whether only type checkers see it."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.If):
            names = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            typing_only |= "TYPE_CHECKING" in names
        if isinstance(node, ast.Import):
            found.extend((alias.name, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            found.extend((submodule(package, a.name) or package, typing_only) for a in node.names)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr | ast.expr_context | ast.arguments):
                visit(child, typing_only)

    visit(tree_of(path), typing_only=False)
    return found


def wrong(files: Iterable[Path], problems: Callable[[Path], Iterable[str]]) -> list[str]:
    """Name each file in which something is wrong, and what: all of them at once."""
    return [f"{path.relative_to(ROOT)}: {what}" for path in files for what in problems(path)]


def upward(path: Path) -> Iterator[str]:
    here = room(path)
    for module, _ in imports(path):
        if module.startswith("."):
            yield f"imports are absolute, not {module}"
        elif module == "dpsql":
            yield "no module imports the package root"
        elif module.startswith("dpsql"):
            there = room_of(module)
            if there != here and RANKS[there] >= RANKS[here]:
                yield f"{here} imports {module}"


def test_imports_point_down():
    assert not wrong(FILES, upward)


def elsewhere(path: Path) -> Iterator[str]:
    for module, typing_only in imports(path):
        top = module.split(".")[0]
        if top == "dpsql" or typing_only:
            continue
        if top in VENDORS:
            if room(path).split(".")[0] not in VENDORS[top]:
                yield f"{top} is in {room(path)}"
        elif top not in sys.stdlib_module_names:
            yield f"{top} has no room"


def test_vendors_stay_in_their_rooms():
    assert not wrong(FILES, elsewhere)


def test_what_is_public_of_a_table_is_known_without_a_database():
    """`schema/` asks a catalog, by a protocol, and knows no connection: not even its type."""
    for path in (p for p in FILES if room(p) == "schema"):
        assert "duckdb" not in {module.split(".")[0] for module, _ in imports(path)}, path.name
        strings = (n.value for n in nodes_of(path) if isinstance(n, ast.Constant))
        assert not [s for s in strings if "system.main." in str(s)], path.name


OPENS_ONE = {"engines/__init__.py", "polars_namespace.py"}
"""Who may know which engine there is: what finds the one for a connection, and what makes one."""


def test_engines_are_known_by_their_protocols():
    """Each has a folder, which `data_source` opens; the files beside it serve any database."""
    beside = PACKAGE / "engines"
    folders = {path.parent for path in FILES if path.parent.parent == beside}
    assert folders
    for folder in folders:
        for path in (p for p in FILES if folder not in p.parents):
            modules = [module.split(".") for module, _ in imports(path)]
            if str(path.relative_to(PACKAGE)) not in OPENS_ONE:
                assert ["dpsql", "engines", folder.name] not in [m[:3] for m in modules], path
            if path.parent == beside:
                assert folder.name not in {m[0] for m in modules}, path


def test_there_are_no_import_cycles():
    graph = {}
    for path in FILES:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        graph[name] = {m for m, _ in imports(path) if m.startswith("dpsql.")}
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"cycle: {' -> '.join([*trail, module])}"
        if module in done:
            return
        for other in graph.get(module, set()):
            walk(other, (*trail, module))
        done.add(module)

    for module in graph:
        walk(module, ())


def test_folders_of_a_room_import_each_other_one_way():
    """As rooms do. (An `__init__.py` that others see a folder by is above all that is in it.)"""
    arrows = set()
    for path in (p for p in FILES if p.name != "__init__.py"):
        for module, _ in imports(path):
            there = ROOT.joinpath(*module.split("."))
            if module.startswith("dpsql.") and not there.is_dir() and room_of(module) == room(path):
                arrows.add((path.parent, there.parent))
    assert not {
        (here, there) for here, there in arrows if here != there and (there, here) in arrows
    }


FOLDING = {
    "schema/names.py": "the rule for names itself",
    "engines/spark/sql/text.py": "digits of hexadecimal numbers",
    "engines/spark/bounded.py": "digits of hexadecimal numbers",
    "engines/lakes.py": "the scheme of a URL; how Spark compares names",
    "privacy/sqlite/tables.py": "two words of the library's own",
    "privacy/conversions.py": "the upper end of a ball",
    "privacy/budget.py": "the letter of an exponent",
    "answers/sources.py": "the first letter of a sentence",
    "present/disk.py": "a path, which has other letters than a-z replaced",
    "notebook.py": "the first letter of a sentence",
    "cli/forms.py": "the ending of a path",
    "charts/specs.py": "the first letter of a sentence",
}
"""Files that make letters small or capital by Python's rules, and of what: never of names."""


def test_names_are_compared_by_one_rule():
    """DuckDB ignores the case of a to z only, which is `folded` of `dpsql/schema/names.py`."""
    methods = {"lower", "upper", "casefold", "swapcase", "capitalize", "title"}
    names = "|".join(sorted(methods))
    named = re.compile(rf"\.\s*({names})\s*\(\s*\)|\bstr\s*\.\s*({names})\b")  # in few files
    found = set()
    for path in (p for p in FILES if named.search(p.read_text(encoding="utf-8"))):
        for node in nodes_of(path):
            called = isinstance(node, ast.Call) and not node.args and node.func
            passed = isinstance(node, ast.Attribute) and is_name(node.value, "str") and node
            method = called or passed
            if isinstance(method, ast.Attribute) and method.attr in methods:
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(FOLDING)


CLASS = re.compile(r"^ *class (\w+)[:(]", re.MULTILINE)


def test_class_names_are_unique():
    texts = [path.read_text(encoding="utf-8") for path in FILES]
    classes = [name for text in texts for name in CLASS.findall(text)]
    assert len(classes) > 500
    assert not {name for name, count in Counter(classes).items() if count > 1}


QUESTION = re.compile(r"\s*(What|How|Of|Where)\b")


def beginning_with_a_question(path: Path) -> Iterator[str]:
    """Docstrings of modules, classes, functions and fields: constants that are statements."""
    for node in nodes_of(path):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and QUESTION.match(str(value.value)):
            yield f"line {value.lineno}: {str(value.value)[:40]!r}"


def test_docstrings_begin_with_a_noun():
    """Of the field, or with a verb, where something is done: a stranger reads no other line."""
    assert not wrong(FILES, beginning_with_a_question)


def test_files_stay_small():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert not wrong(FILES, lambda path: [f"{lines[path]} lines"] * (lines[path] > 800))


TRUSTED = (
    "measurement/certify.py",
    "measurement/factors.py",
    "measurement/strategy.py",
    "measurement/distributions.py",
    "measurement/guarded.py",
    "measurement/laplace.py",
    "measurement/exponential.py",
    "measurement/gaussian.py",
    "measurement/randomness.py",
    "measurement/keys.py",
    "measurement/quantiles.py",
    "measurement/halving.py",
    "measurement/measure.py",
    "measurement/narrow.py",
    "measurement/wide.py",
    "workload/spread.py",
    "rows/functions.py",
    "rows/write.py",
    "rows/typed.py",
    "rows/measure.py",
    "rows/windows.py",
    "rel/check.py",
    "rel/keys.py",
    "engines/codes.py",
    "engines/relations.py",
    "engines/table_relations.py",
    "engines/key_scores.py",
    "engines/duckdb/key_scores.py",
    "engines/ranked.py",
    "engines/duckdb/ranked.py",
    "engines/spark/ranked.py",
    "engines/distinct.py",
    "engines/duckdb/distinct.py",
    "engines/spark/distinct.py",
    "engines/duckdb/relations.py",
    "engines/duckdb/files.py",
    "engines/duckdb/footers.py",
    "engines/duckdb/numbered.py",
    "engines/duckdb/one_pass.py",
    "engines/duckdb/opened.py",
    "engines/frozen.py",
    "engines/lakes.py",
    "engines/delta.py",
    "engines/iceberg.py",
    "engines/duckdb/projection.py",
    "engines/duckdb/sums.py",
    "engines/spark/bounded.py",
    "engines/spark/key_scores.py",
    "engines/spark/made.py",
    "engines/spark/relations.py",
    "engines/spark/tables.py",
    "engines/spark/units.py",
    "engines/spark/columns.py",
    "engines/spark/sql/expressions.py",
    "engines/spark/coding.py",
    "engines/spark/files.py",
    "engines/spark/partials.py",
    "privacy/amount.py",
    "privacy/event.py",
    "privacy/files.py",
    "privacy/history.py",
    "privacy/ledger.py",
    "privacy/place.py",
    "privacy/pointer.py",
    "privacy/postgres/check.py",
    "privacy/postgres/connection.py",
    "privacy/postgres/ledgers.py",
    "privacy/postgres/store.py",
    "privacy/postgres/tables.py",
    "privacy/conversions.py",
    "privacy/keys.py",
    "privacy/purpose.py",
    "privacy/store.py",
    "privacy/sqlite/check.py",
    "privacy/sqlite/format2.py",
    "privacy/sqlite/store.py",
    "privacy/sqlite/tables.py",
)


def test_trusted_files_state_their_guarantees():
    docstrings = {name: ast.get_docstring(tree_of(PACKAGE / name)) for name in TRUSTED}
    assert not [name for name, text in docstrings.items() if "Guarantees:" not in (text or "")]


def test_the_page_says_how_many_lines_are_trusted():
    """To within a twentieth: those that state guarantees, and all that must be right."""
    page = (ROOT / "docs/explanation/privacy-promise.md").read_text(encoding="utf-8")
    page = page.partition("## The trusted core")[2]
    said = [int(n.replace(",", "")) for n in re.findall(r"about ([\d,]+) lines", page)]
    files: set[Path] = set()
    for part, lines in zip(page.split("Together they have"), said, strict=True):
        for line in part.splitlines():
            folder = PACKAGE
            for name in re.findall(r"`([\w/]+\.py)`", line):
                path = ROOT / name if name.startswith("dpsql/") else folder / name
                folder = path.parent
                if path.exists():  # of some, only the last part is written again
                    files.add(path)
        found = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        assert abs(found - lines) < lines / 20, (found, lines)


def asserted_or_random(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Assert):
            yield f"line {node.lineno} asserts"
        elif isinstance(node, ast.Attribute):
            of_numpy = is_name(node.value, "np", "numpy") and node.attr.startswith("random")
            if of_numpy or is_name(node.value, "random"):
                yield f"line {node.lineno}: {ast.unparse(node)}"
    if "random" in {module for module, _ in imports(path)}:
        yield "imports random"


def test_no_assert_and_no_seeded_randomness_in_shipped_code():
    """`python -O` removes asserts; noise comes from the operating system only."""
    assert not wrong(FILES, asserted_or_random)


SHARING = {"sql", "execute", "query", "table"}
SHARED = re.compile(rf"\bduckdb\s*\.\s*({'|'.join(sorted(SHARING))})\b")


def shared(path: Path) -> set[str]:
    if not SHARED.search(path.read_text(encoding="utf-8")):
        return set()  # most files need no tree
    called = (n.func for n in nodes_of(path) if isinstance(n, ast.Call))
    names = {f.attr for f in called if isinstance(f, ast.Attribute) and is_name(f.value, "duckdb")}
    return SHARING & names


def test_tests_share_no_connection():
    """A result that one test leaves unread would refuse the next one."""
    files = sorted(Path(__file__).parent.parent.rglob("*.py"))
    assert not wrong(files, lambda path: [f"duckdb.{name}" for name in shared(path)])


def test_no_public_signature_has_a_seed():
    import inspect

    import dpsql

    for name in dpsql.__all__:
        thing = getattr(dpsql, name)
        if callable(thing) and not (isinstance(thing, type) and issubclass(thing, Exception)):
            parameters = inspect.signature(thing).parameters
            assert not {p for p in parameters if "seed" in p or "rng" in p}


def test_importing_loads_nothing_heavy():
    code = (
        "import sys, dpsql; heavy = {'cvxpy', 'clarabel', 'scipy.optimize', 'rich', 'pandas', "
        "'psycopg', 'pyspark', 'deltalake', 'pyiceberg', 'py4j', 'jinja2', 'altair', "
        "'vl_convert', 'fsspec'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
