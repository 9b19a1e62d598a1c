"""Shape of the house: files, lines, functions, repetition and imports of a checkout.

Run it: python -m tests.benchmarks.house [ROOT ...]

ROOT is a checkout, of which `dpsql/` is measured, or any folder of Python files; this checkout, if
none is given. A row for each has

    files, lines, code    all; lines of code without comments, docstrings and blank lines
    median, longest       lines of a file
    over 20               functions and methods of a cyclomatic complexity above 20
    alike                 pairs of places that share six or more lines of code in a row
    imports               share of lines that are imports

Complexity is counted as radon does: 1, and 1 more for each branch, loop, handler, comprehension and
condition of one, conditional expression, `assert` and further operand of `and` or `or`. A function
that is defined inside another one counts by itself.

Places are alike if what is written there is the same but for blank lines, comments, docstrings and
how far it is indented. Lines of imports don't count, as these repeat each other anyway; and a
stretch counts once, however long it is.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.code_lines import code_lines

MOST_COMPLEX = 20
"""Above which a function is hard to follow."""
ALIKE = 6
"""Lines in a row that are a repetition."""
HEADER = ("files", "lines", "code", "median", "longest", "over 20", "alike", "imports")

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (
    ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension,
    ast.Assert, ast.match_case,
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What is counted of one checkout."""

    lines: dict[Path, int]
    code: int
    complex: list[tuple[int, str]]
    """Complexity and place of the functions above `MOST_COMPLEX`, the worst first."""
    alike: list[tuple[str, str, int]]
    """Two places, and how many lines they share."""
    imports: int

    def row(self) -> tuple[str, ...]:
        """Write it below `HEADER`."""
        lines = sum(self.lines.values())
        return (
            f"{len(self.lines):,}", f"{lines:,}", f"{self.code:,}",
            f"{median(self.lines.values()):.0f}", f"{max(self.lines.values()):,}",
            f"{len(self.complex)}", f"{len(self.alike)}", f"{self.imports / lines:.1%}",
        )  # fmt: skip


def shape_of(root: Path) -> Shape:
    """Measure the package of a checkout, or all files of a folder."""
    package = root / "dpsql" if (root / "dpsql").is_dir() else root
    files = sorted(p for p in package.rglob("*.py") if "examples" not in p.parts)
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    hard = [
        (count, f"{path.relative_to(package)}:{node.name}")
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS) and (count := complexity(node)) > MOST_COMPLEX
    ]
    return Shape(
        {path: len(text.splitlines()) for path, text in texts.items()},
        sum(map(code_lines, files)),
        sorted(hard, reverse=True),
        alike({str(p.relative_to(package)): plain(texts[p], trees[p]) for p in files}),
        sum(len(lines_of_imports(tree)) for tree in trees.values()),
    )


def complexity(function: ast.AST) -> int:
    """Count the ways through a function, without those that are defined in it."""
    count = 1
    for node in _inside(function):
        count += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += len(node.ifs)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.Try)):
            count += bool(node.orelse)
        elif isinstance(node, ast.Match):
            count -= any(_takes_all(case) for case in node.cases)
    return count


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from _inside(child)


def _takes_all(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def lines_of_imports(tree: ast.Module) -> set[int]:
    """Return the numbers of all lines that belong to an import."""
    nodes = (n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom)))
    return {n for node in nodes for n in range(node.lineno, (node.end_lineno or 0) + 1)}


def plain(text: str, tree: ast.Module) -> list[tuple[int, str]]:
    """Return the lines that are compared, with their numbers."""
    hidden = lines_of_imports(tree)
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            hidden.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = ((n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if n not in hidden)
    return [(n, line) for n, line in lines if line and not line.startswith("#")]


def alike(files: dict[str, list[tuple[int, str]]]) -> list[tuple[str, str, int]]:
    """Find pairs of places that share `ALIKE` lines in a row; each stretch once."""
    starts: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in files.items():
        for at in range(len(lines) - ALIKE + 1):
            starts[tuple(line for _, line in lines[at : at + ALIKE])].append((name, at))
    pairs = {
        (one, other)
        for places in starts.values()
        for number, one in enumerate(places)
        for other in places[number + 1 :]
    }
    return sorted(_stretches(pairs, files), key=lambda found: -found[2])


Pair = tuple[tuple[str, int], tuple[str, int]]


def _stretches(
    pairs: set[Pair], files: dict[str, list[tuple[int, str]]]
) -> Iterator[tuple[str, str, int]]:
    for one, other in pairs:
        if (_moved(one, -1), _moved(other, -1)) in pairs:
            continue  # it began before
        longer = 0
        while (_moved(one, longer + 1), _moved(other, longer + 1)) in pairs:
            longer += 1
        places = [f"{name}:{files[name][at][0]}" for name, at in (one, other)]
        yield places[0], places[1], ALIKE + longer


def _moved(place: tuple[str, int], by: int) -> tuple[str, int]:
    return place[0], place[1] + by


def main() -> None:
    roots = [Path(a) for a in sys.argv[1:]] or [Path(__file__).parents[2]]
    print(f"{'':24}" + "".join(f"{name:>9}" for name in HEADER))
    shapes = {root: shape_of(root) for root in roots}
    for root, shape in shapes.items():
        print(f"{str(root)[-23:]:24}" + "".join(f"{cell:>9}" for cell in shape.row()))
    for root, shape in shapes.items():
        print(f"\n{root}")
        for count, place in shape.complex:
            print(f"  {count:4} ways  {place}")
        for one, other, lines in shape.alike[:20]:
            print(f"  {lines:4} lines {one}, {other}")


if __name__ == "__main__":
    main()
