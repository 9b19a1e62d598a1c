"""Lines of code by room: without comments, docstrings and blank lines.

Run it: python -m tests.benchmarks.code_lines [ROOT]

ROOT is a checkout; this one, if none is given. A room is a folder or a module of `dpsql/`; the
folders of `planner/` and `sql/` are rooms of their own.
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

DIVIDED = ("planner", "sql")
"""Folders whose folders are rooms."""

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> int:
    with path.open("rb") as file:
        tokens = [t for t in tokenize.tokenize(file.readline) if t.type not in NO_CODE]
    lines = {n for token in tokens[1:] for n in range(token.start[0], token.end[0] + 1)}
    return len(lines - _docstring_lines(path))


def _docstring_lines(path: Path) -> set[int]:
    """The lines of every string that is a statement of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and _is_text(node)]
    return {n for node in strings for n in range(node.lineno, (node.end_lineno or 0) + 1)}


def _is_text(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def room(path: Path) -> str:
    """`sql/text/spans.py` → `sql/text`, `schema/units.py` → `schema`."""
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] in DIVIDED and len(parts) > 2 else parts[0]


def main() -> None:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2]
    package = root / "dpsql"
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        here = room(path.relative_to(package))
        lines[here] += code_lines(path)
        files[here] += 1
    for name in [*sorted(lines), "all"]:
        counted = (files.total(), lines.total()) if name == "all" else (files[name], lines[name])
        print(f"{name:32} {counted[0]:4} files {counted[1]:6} lines")


if __name__ == "__main__":
    main()
