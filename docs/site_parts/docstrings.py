"""Docstrings as Sphinx reads them: they have Markdown's code, in lines and in blocks."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)(\w?)|(\|)")
"""Code with what follows at once, or a bar, which would name something else there."""


def as_restructured_text(
    app: Any, what: str, name: str, item: Any, options: Any, lines: list[str]
) -> None:
    """Write the code in a docstring's `lines`, in place, as reStructuredText has it."""
    lines[:] = with_blocks(_CODE.sub(_literal, "\n".join(lines)).splitlines())


def with_blocks(lines: list[str]) -> list[str]:
    """Announce each block of code, which is indented and stands after an empty line."""
    found: list[str] = []
    for i, line in enumerate(lines):
        before = [other for other in lines[:i] if other.strip()]
        if line.strip() and before and not lines[i - 1].strip():
            deeper = _indentation(line) > _indentation(before[-1])
            if deeper and not before[-1].endswith("::"):
                found += [" " * _indentation(before[-1]) + "::", ""]
        found.append(line)
    return found


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _literal(match: re.Match[str]) -> str:
    if match[3]:
        return r"\|"
    code = " ".join(match[1].split())
    return f"``{code}``" + (f"\\ {match[2]}" if match[2] else "")
