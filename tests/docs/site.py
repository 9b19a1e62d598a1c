"""Look at a site that was built: where its links lead, and what it asks others for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements for which a browser fetches what they name."""
ONLY_NAMED = {"canonical", "search", "next", "prev", "index", "author"}
"""Kinds of `<link>` that name a place and fetch nothing."""


class Page(HTMLParser):
    """What a page links to, what it has fetched, and which places in it have names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        place = given.get(LOADS.get(tag, ""), "")
        if place and not (tag == "link" and set(given.get("rel", "").split()) <= ONLY_NAMED):
            self.fetched.append(place)


def problems(site: Path) -> Iterator[str]:
    """Say which links of a site lead nowhere, and what it would ask other servers for."""
    found = [p for p in site.rglob("*.html") if site / "_static" not in p.parents]  # templates
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in found}
    for path, page in sorted(pages.items()):
        where = path.relative_to(site)
        for place in page.fetched:
            if outside(place):
                yield f"{where} fetches {place}"
            elif not place.startswith("data:") and not target(path, place).exists():
                yield f"{where} fetches {place}, which isn't there"
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = target(path, link)
            if not place.exists():
                yield f"{where} links to {link}, which isn't there"
            elif place in pages and unquote(parts.fragment) not in pages[place].anchors:
                yield f"{where} links to {link}, which has no such place"
    for path in sorted(site.rglob("*.css")):
        for place in named_in(path.read_text(encoding="utf-8")):
            if outside(place):
                yield f"{path.relative_to(site)} fetches {place}"


def named_in(sheet: str) -> list[str]:
    """Return what a style sheet fetches."""
    return re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""", sheet)


def outside(place: str) -> bool:
    """Return whether a place is on a server."""
    parts = urlsplit(place)
    return bool(parts.netloc) or parts.scheme in {"http", "https"}


def target(page: Path, link: str) -> Path:
    """Return the file that a link of a page leads to."""
    path = unquote(urlsplit(link).path)
    found = (page.parent / path).resolve() if path else page
    return found / "index.html" if found.is_dir() else found
