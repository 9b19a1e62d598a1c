"""Read the pages: fenced blocks, prose, links, and running a page's Python."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from dpsql.cli import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
OF_THE_PROJECT = ("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [README, *(ROOT / name for name in OF_THE_PROJECT), *sorted((ROOT / "docs").rglob("*.md"))]

WITH_SERVER = ROOT / "docs" / "how-to" / "share-a-ledger.md"
"""The page whose commands are run, too. It needs PostgreSQL, as the service `accounts`."""
TUTORIAL = ROOT / "docs" / "tutorial" / "first-release.md"
COMMANDED = {README, TUTORIAL, WITH_SERVER}
"""Pages of which the commands are run, too."""
WITH_SPARK = ROOT / "docs" / "how-to" / "count-in-spark.md"
"""The page that needs Spark."""

_FENCE = re.compile(r"^```(\w*(?: noisy)?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_RAISES = re.compile(r"\A# raises (\w+)\n")


class Block(NamedTuple):
    """A fenced block, and the output that the page shows right below it."""

    language: str
    code: str
    line: int
    """The line of the page on which the code begins."""
    shown: str | None
    noisy: bool
    """Whether noise, or the machine, makes the numbers of that output differ each time."""

    @property
    def raises(self) -> str | None:
        """The error that a first line `# raises SqlError` announces."""
        match = _RAISES.match(self.code)
        return match[1] if match else None


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Give all blocks; a `text` block that follows a `python` block is its output.

    `text noisy` is output of which the numbers differ each time.
    """
    text = read(page)
    found = list(_FENCE.finditer(text))
    result = []
    for i, match in enumerate(found):
        after = found[i + 1] if i + 1 < len(found) else None
        follows = after is not None and not text[match.end() : after.start()].strip()
        output = follows and after is not None and after[1] in {"text", "text noisy"}
        shown = after[2] if after is not None and output else None
        line = text.count("\n", 0, match.start(2)) + 1
        noisy = after is not None and after[1] == "text noisy"
        result.append(Block(match[1], match[2], line, shown, noisy))
    return result


def prose(page: Path) -> str:
    """Give the page without its fenced blocks."""
    return _FENCE.sub("", read(page))


def run(page: Path) -> Iterator[tuple[Block, str, BaseException | None]]:
    """Run the page's Python blocks in one namespace; give each block's output and error."""
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "sh" and page in COMMANDED:
            yield block, typed(block.code), None
        if block.language != "python":
            continue
        # Leading newlines make a traceback point at the line of the page.
        code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
        output, error = io.StringIO(), None
        with contextlib.redirect_stdout(output):
            try:
                exec(code, namespace)  # noqa: S102  the pages are ours
            except Exception as raised:
                if block.raises is None:
                    raise
                error = raised
                print(f"{type(raised).__module__}.{type(raised).__name__}: {raised}")
        yield block, output.getvalue(), error
    for value in namespace.values():
        if hasattr(value, "close") and hasattr(value, "execute"):
            value.close()


def typed(code: str) -> str:
    """Run the commands of a block, as far as they are dpsql's, or copy an example's data."""
    output = ""
    for line in code.replace("\\\n", " ").splitlines():
        command, *arguments = shlex.split(line, comments=True)
        into = arguments[-1] if arguments[-2:-1] == [">"] else None
        if command == "cp":
            shutil.copy(ROOT / arguments[0], arguments[1])
        elif command == "dpsql":
            result = CliRunner().invoke(main, arguments[:-2] if into else arguments)
            assert result.exit_code == 0, result.output
            if into:
                Path(into).write_text(result.stdout, encoding="utf-8")
            else:
                output += result.stdout
    return output


def layout(text: str) -> list[str]:
    """Give the lines of an output without what noise changes: numbers and column widths."""
    text = re.sub(r"\b[0-9a-f]{32,64}\b", "#", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+(\+00:00)?", "#", text)
    text = re.sub(r"-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", "#", text)
    text = re.sub(r"[─═^]+", "-", text)
    text = re.sub(r"[ \t]+", " ", text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def numbers(text: str) -> list[float]:
    """Give the numbers of an output, without digests and times."""
    text = re.sub(r"\b[0-9a-f]{32,64}\b|\d{4}-\d\d-\d\dT[\d:]+(\+00:00)?", "#", text)
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]
