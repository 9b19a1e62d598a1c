"""Tables of files on pages: the first lines of docstrings, as they are when the site is made.

A page has `<!-- files: dpsql/answers -->` where the files of a folder are to be listed. Anywhere
else `python docs/site_parts/files.py dpsql/answers` lists them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_FILES = re.compile(r"^<!-- files: ([\w/]+) -->$", re.MULTILINE)


def with_files(app: Any, name: str, source: list[str]) -> None:
    """Put tables of files into a page that asks for some."""
    source[0] = _FILES.sub(lambda match: table(ROOT / match[1]), source[0])


def table(folder: Path) -> str:
    """Return a table of the files of a folder, and of the folders in it."""
    rows = (f"| `{path.relative_to(folder)}` | {said} |" for path, said in described(folder))
    return "\n".join(["| File | Noun |", "|---|---|", *rows])


def described(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file with the first line of its docstring, those of folders after the others.

    Raises:
        ValueError: there is none.
    """
    paths = [path for path in folder.rglob("*.py") if not path.name.startswith("__")]
    if not paths:
        raise ValueError(f"{folder} has no files to list")
    for path in sorted(paths, key=lambda path: (path.parent, path.name)):
        yield path, first_line(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")


def first_line(docstring: str) -> str:
    """Return the first line of a docstring, with nothing in it that ends a cell of a table."""
    return docstring.partition("\n")[0].replace("|", "\\|").rstrip(".")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(f"{table(ROOT / argument)}\n")
