"""A headless Chromium for tests, if it is installed, and what it saw of a page."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "There is no Chromium here, so the tests that look at pages in it are left out. To run them: "
    "apt-get install chromium, and pip install playwright axe-playwright-python"
)


@cache
def program() -> str | None:
    """Find the browser."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


@cache
def is_there() -> bool:
    """Whether there are a browser, what drives it, and the rules of axe-core."""
    packages = all(map(importlib.util.find_spec, ("playwright", "axe_playwright_python")))
    return packages and program() is not None


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser that asks for nothing by itself."""
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-background-networking", "--disable-component-update", "--no-first-run"]
    arguments += ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """What a browser was asked for and complained of while a page was open."""

    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@contextmanager
def opened(
    browser: Any,
    place: Path,
    *,
    within: Path | None = None,
    width: int = 1000,
    scheme: str = "light",
    trusted: bool = False,
) -> Iterator[tuple[Any, Seen]]:
    """Open a file; whatever else the page asks for is refused, and noted.

    Args:
        browser: the browser.
        place: the file.
        within: a folder, of which the page may ask for other files, too.
        width: of the window.
        scheme: `light` or `dark`.
        trusted: whether scripts of the test may run in spite of the page's policy.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        bypass_csp=trusted,
        accept_downloads=True,
    )
    page, seen, own = context.new_page(), Seen(), place.absolute().as_uri()
    beside = f"{within.absolute().as_uri()}/" if within else None

    def decide(route: Any) -> None:
        url = route.request.url.partition("#")[0]
        if url == own or (beside and url.startswith(beside)):
            route.continue_()
        else:
            seen.asked.append(route.request.url)
            route.abort()

    context.route("**/*", decide)
    page.on("console", lambda message: seen.said.append(message.text))
    page.on("pageerror", lambda error: seen.said.append(str(error)))
    page.on("dialog", lambda dialog: seen.said.append(dialog.message))
    try:
        page.goto(own)
        yield page, seen
    finally:
        context.close()


def violations(page: Any) -> list[str]:
    """Return what the rules of axe-core say against a page, in words."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['help']}: {n['html'][:200]}" for v in found for n in v["nodes"]]
