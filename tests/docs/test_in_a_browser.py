"""The site in a real browser: it fits, is whole without a network, and everybody can use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.docs.looked_at import complaints, heard
from tests.docs.pages import ROOT
from tests.helpers import browser as browsers
from tests.helpers.browser import opened, violations

pytest.importorskip("sphinx", reason="the site needs pip install 'dpsql[docs]'")
pytestmark = [pytest.mark.browser, pytest.mark.slow]  # the site takes long to build

DOCS = ROOT / "docs"
WRITTEN = sorted(str(p.relative_to(DOCS).with_suffix("")) for p in DOCS.rglob("*.[mr][ds]*"))
MADE = ["genindex", "py-modindex", "search", "demo-report"]
KINDS = [
    "index", "tutorial/first-release", "how-to/choose-max-rows", "how-to/index", "reference/cli",
    "explanation/accounting", "gallery/index", "gallery/shop", "coming-from/tumult", "search",
]  # fmt: skip
"""One page of each kind."""
SCHEMES = ("light", "dark")
GALLERY = {"index": 4, "adult": 4, "admissions": 4, "shop": 4, "tpch": 2}
"""How many pictures the pages of the gallery have."""
PAPER = "getComputedStyle(document.body).backgroundColor"
FOCUSED = """(() => {
    const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
    const ringed = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    return {text: e.outerHTML.slice(0, 120), shown: box.width > 0 && box.height > 0,
            marked: ringed || style.boxShadow !== 'none'};
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.chromium() as started:
        yield started


def at(site: Path, name: str) -> Path:
    return site / f"{name}.html"


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", [*WRITTEN, *MADE])
def test_a_page_is_whole_and_fits(browser, site, name):
    with opened(browser, at(site, name), within=site) as (page, seen):
        assert page.title()
        assert complaints(page, seen) == []


def test_what_is_wrong_with_a_page_is_found(browser, tmp_path):
    """So the test above could fail."""
    wrong = tmp_path / "wrong.html"
    wrong.write_text(
        "<main><h1 style='width: 9em; overflow: hidden'>Donaudampfschifffahrtsgesellschaft</h1>"
        "<p style='width: 500px'>too wide</p><img src='http://example.org/a.png'>"
        "<figure role='img'><svg></svg></figure></main><script>nothing.there()</script>",
        encoding="utf-8",
    )
    with opened(browser, wrong, within=tmp_path) as (page, seen):
        found = "\n".join(complaints(page, seen))
    assert "at 360 pixels it is 5" in found
    assert "at 800 pixels this is cut: <h1" in found
    assert "at 360 pixels this is cut: <p" in found
    assert "this picture says nothing: <img" in found
    assert "this picture says nothing: <figure" in found
    assert "this picture can't be seen: <figure" in found
    assert "it asks for http://example.org/a.png" in found
    assert "it says nothing is not defined" in found


@pytest.mark.parametrize(("name", "count"), GALLERY.items())
def test_pictures_of_the_gallery_are_told_in_words(browser, site, name, count):
    with opened(browser, at(site, f"gallery/{name}"), within=site) as (page, _):
        pictures = page.locator("figure.picture").all()
        words = [
            each.get_attribute("aria-label") or each.locator("figcaption").inner_text()
            for each in pictures
        ]
    assert len({*words}) == count
    assert all(len(each.split()) >= 5 for each in words), words


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_report_of_the_demo_is_found_in_the_gallery(browser, site, scheme):
    with opened(browser, at(site, "gallery/index"), within=site, scheme=scheme) as (page, seen):
        page.get_by_text("the report of the demo").click()
        assert page.url.endswith("/demo-report.html")
        assert page.inner_text("h1") == "The Adult census extract"
        assert page.locator("figure").count() >= 8  # some are tables with numbers
        assert complaints(page, seen) == []


@pytest.mark.parametrize(
    ("words", "leads", "has"),
    [
        ("max_rows", "how-to/choose-max-rows.html", "max_rows"),
        ("snowflake", "coming-from/snowflake.html", "PRIVACY POLICY"),
        ("read_script", "reference/docstrings.html", "read_script"),
    ],
)
def test_a_search_leads_to_a_page(browser, site, words, leads, has):
    with opened(browser, at(site, "tutorial/first-release"), within=site) as (page, seen):
        page.keyboard.press("Control+k")
        page.keyboard.type(words)
        page.keyboard.press("Enter")
        page.wait_for_url("**/search.html?q=*")
        page.get_by_text("Search finished").wait_for()  # none is put before the others any more
        page.locator("ul.search li a").first.click()
        page.wait_for_url(f"**/{leads}*")  # and until all of it is there
        assert has in page.inner_text("main")
        assert (seen.asked, heard(seen)) == ([], [])


def test_a_search_for_what_is_nowhere_says_so(browser, site):
    with opened(browser, at(site, "search"), within=site) as (page, _):
        page.locator("main input[name=q]").fill("zyxwvut")
        page.keyboard.press("Enter")
        page.get_by_text("did not match any documents").wait_for()
        assert page.locator("ul.search li").count() == 0


def test_it_is_dark_where_readers_have_it_dark_or_ask_for_it(browser, site):
    with opened(browser, at(site, "gallery/adult"), within=site) as (page, _):
        seen = {}
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
            ink = page.evaluate("getComputedStyle(document.querySelector('figure text')).fill")
            seen[scheme] = (brightness(page.evaluate(PAPER)), brightness(ink))
        assert seen["light"][0] > 200 > 100 > seen["light"][1]
        assert seen["dark"][0] < 60 < 150 < seen["dark"][1]
        page.get_by_role("button", name="Color mode").click()
        page.get_by_role("button", name="Light").click()
        assert brightness(page.evaluate(PAPER)) > 200  # though the system is dark
        page.reload()
        assert brightness(page.evaluate(PAPER)) > 200


def brightness(color: str) -> float:
    """The mean of red, green and blue."""
    return sum(map(float, re.findall(r"[\d.]+", color)[:3])) / 3


@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("name", ["how-to/choose-max-rows", "gallery/shop"])
def test_keys_skip_and_show_where_they_are(browser, site, name, width):
    with opened(browser, at(site, name), within=site, width=width) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == "Skip to main content"
        page.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0")
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(FOCUSED))
        assert [each["text"] for each in reached if not (each["shown"] and each["marked"])] == []
        page.evaluate("document.activeElement.blur()")
        page.reload()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("!!document.activeElement.closest('main')")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "scheme"), [*zip(KINDS, cycle(SCHEMES), strict=False)])
def test_axe_has_nothing_against_a_page_of_each_kind(browser, site, name, scheme):
    place = at(site, name)
    with opened(browser, place, within=site, scheme=scheme, width=1400, trusted=True) as (page, _):
        assert violations(page) == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("name", [*WRITTEN, *MADE])
def test_axe_has_nothing_against_any_page(browser, site, name, width, scheme):
    place = at(site, name)
    with opened(browser, place, within=site, scheme=scheme, width=width, trusted=True) as (page, _):
        assert violations(page) == []
