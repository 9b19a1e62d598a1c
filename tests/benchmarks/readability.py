"""Reading ease of the pages that people meet first, by Flesch's formula.

    python -m tests.benchmarks.readability              of this checkout
    python -m tests.benchmarks.readability ../other     and of another one, beside it

Flesch, "A new readability yardstick", 1948: 206.835 − 1.015 words/sentence − 84.6 syllables/word.
60 and more is plain English, 30 to 50 is for colleges. Code, tables, headings and the targets of
links are left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/tutorial/*.md", "docs/how-to/*.md", "docs/coming-from/*.md")
_LEFT_OUT = (
    (r"(?ms)^```.*?^```$", ""), (r"(?m)^\|.*$", ""), (r"(?m)^#.*$", ""), (r"(?m)^(?=[-*] )", ". "),
    (r"\[([^]]*)\]\([^)]*\)", r"\1"), (r"`[^`]*`", "code"), (r"[*_]", ""), (r"(?m)^\s*$", ". "),
)  # fmt: skip


def prose(page: str) -> str:
    """Return the sentences of a page of Markdown."""
    for pattern, instead in _LEFT_OUT:
        page = re.sub(pattern, instead, page)
    return page


def syllables(word: str) -> int:
    """Count groups of vowels, but for a silent e at the end."""
    groups = len(re.findall(r"[aeiouy]+", word.lower()))
    silent = bool(re.search(r"[^aeiouyl]e$", word.lower()))
    return max(1, groups - silent)


def reading_ease(text: str) -> tuple[float, float]:
    """Return Flesch's reading ease of a text, and its words a sentence."""
    sentences = [found for part in re.split(r"[.!?:;]\s", text) if (found := words(part))]
    count = sum(map(len, sentences))
    length = count / len(sentences)
    spoken = sum(syllables(word) for sentence in sentences for word in sentence)
    return 206.835 - 1.015 * length - 84.6 * spoken / count, length


def words(text: str) -> list[str]:
    """List the words of a sentence."""
    return re.findall(r"[A-Za-z][A-Za-z'’-]*", text)


def measure(root: Path) -> dict[str, tuple[float, float]]:
    """Return the reading ease of each page of a checkout, and of all together."""
    found = {
        path.relative_to(root).as_posix(): prose(path.read_text(encoding="utf-8"))
        for pattern in PAGES for path in sorted(root.glob(pattern))
    }  # fmt: skip
    found["all"] = ". ".join(found.values())
    return {name: reading_ease(text) for name, text in found.items()}


def main() -> None:
    """Print a line for each page."""
    roots = [ROOT, *map(Path, sys.argv[1:])]
    measured = [measure(root) for root in roots]
    for name in dict.fromkeys(name for pages in measured for name in pages):
        shown = (
            "{:6.1f} ({:4.1f} words)".format(*pages[name]) if name in pages else " " * 19
            for pages in measured
        )
        print(f"{name:42}", *shown)


if __name__ == "__main__":
    main()
