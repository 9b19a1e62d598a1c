"""Words of the glossary, linked where a page of the site uses them for the first time.

The glossary has each as a paragraph that begins with it in bold, `**Budget.** The amount …`. On
the site it is an anchor; the first use in the prose of another page leads there, with the sentence
that explains it. The pages themselves stay plain Markdown.
"""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

GLOSSARY = "reference/glossary"
_ENTRY = re.compile(r"^\*\*([^*`]+)\.\*\* ((?:.+\n?)+)", re.MULTILINE)
_BLOCK = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_NO_PROSE = re.compile(
    r"(^(?:[#|<>:]|    ).*$|`[^`]*`|!?\[[^]]*\]\([^)]*\)|<[^>]*>|\*\*[^*]*\*\*)", re.MULTILINE
)
"""Headings, tables, code, links and whatever is in bold or HTML."""
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
EVERYDAY = frozenset({"agree", "block", "charge", "cover", "plan", "release", "reuse", "script"})
"""Words that pages use in their everyday meaning, too."""


@cache
def meanings(glossary: Path) -> dict[str, str]:
    """Return the words of a glossary, in small letters, each with its first sentence."""
    found = {}
    for names, text in _ENTRY.findall(glossary.read_text(encoding="utf-8")):
        first = re.split(r"(?<=[.])\s", " ".join(_LINK.sub(r"\1", text).split()))[0]
        found |= {name.strip().lower(): first for name in names.split(",")}
    return found


def anchor(word: str) -> str:
    """Return the name of a word's place in the glossary."""
    return "word-" + "-".join(word.lower().split())


def with_words(app: Any, name: str, source: list[str]) -> None:
    """Make places of the words of the glossary, and links to them of their first uses."""
    if name == GLOSSARY:
        source[0] = _ENTRY.sub(_with_anchors, source[0])
    elif Path(app.srcdir, f"{name}.md").exists() and name != "index":
        words = meanings(Path(app.srcdir, f"{GLOSSARY}.md"))
        place = "../" * name.count("/") + f"{GLOSSARY}.html"
        source[0] = linked(source[0], words, place)


def _with_anchors(match: re.Match[str]) -> str:
    places = (f'<span id="{anchor(word.strip())}"></span>' for word in match[1].split(","))
    return "".join(places) + match[0]


def linked(page: str, words: dict[str, str], place: str) -> str:
    """Link the first use of each word in the prose of a page of Markdown.

    Args:
        page: its text.
        words: the words, with what explains them.
        place: the address of the glossary, as seen from the page.
    """
    open_words = {word: text for word, text in words.items() if word not in EVERYDAY}
    longest = sorted(open_words, key=len, reverse=True)
    sought = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, longest))})(?![\w-])", re.IGNORECASE)

    def link(match: re.Match[str]) -> str:
        text = open_words.pop(match[1].lower(), None)
        if text is None:
            return match[0]
        title = html.escape(text, quote=True)
        return f'<a class="word" href="{place}#{anchor(match[1])}" title="{title}">{match[0]}</a>'

    def prose(block: str) -> str:
        parts = _NO_PROSE.split(block)
        return "".join(part if i % 2 else sought.sub(link, part) for i, part in enumerate(parts))

    return "".join(block if i % 2 else prose(block) for i, block in enumerate(_BLOCK.split(page)))
