"""Reports in a real browser: nothing is asked of a network, and everybody can read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import browser as browsers
from tests.helpers.browser import opened, violations
from tests.report.hostile import HOSTILE, hostile
from tests.report.odd import odd_release

pytestmark = pytest.mark.browser
WIDTHS = (390, 768, 1280)
SCHEMES = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}
PAPER = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsers.chromium() as started:
        yield started


@pytest.fixture(scope="module")
def place(release, session, tmp_path_factory) -> Path:
    return release.report(tmp_path_factory.mktemp("report") / "page.html", ledger=session.ledger)


@pytest.fixture(scope="module")
def odd(release, tmp_path_factory) -> Path:
    return odd_release(release).report(tmp_path_factory.mktemp("odd") / "page.html", title=HOSTILE)


WRITTEN_OVER = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
    const texts = [...svg.querySelectorAll('text')]
        .filter(e => e.textContent.trim() && !/rotate/.test(e.getAttribute('transform')))
        .filter(e => getComputedStyle(e).opacity > 0)
        .map(e => [e.textContent, e.getBoundingClientRect()]);
    return texts.flatMap(([a, r], i) => texts.slice(i + 1)
        .filter(([, s]) => Math.min(r.right, s.right) - Math.max(r.left, s.left) > 1
            && Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top) > 4)
        .map(([b]) => a + ' | ' + b));
})
"""
CUT_OFF = """
[...document.querySelectorAll('figure svg text')]
    .filter(e => e.textContent.trim())
    .map(e => [e.textContent, e.getBoundingClientRect()])
    .filter(([, r]) => r.right > innerWidth || r.left < 0).map(([text]) => text)
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_pictures_of_anything_are_neither_cut_off_nor_written_over(browser, odd, width):
    with opened(browser, odd, width=width, trusted=True) as (page, seen):
        assert page.locator("figure svg").count() > 12
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(WRITTEN_OVER) == []
        assert page.evaluate(CUT_OFF) == []
    assert seen.asked == []
    assert seen.said == []


def test_what_is_written_over_is_seen(browser, odd, tmp_path):
    """So the test above could fail."""
    text, changed = odd.read_text(encoding="utf-8"), tmp_path / "changed.html"
    changed.write_text(text.replace("</style>", "figure text { font-size: 30px; }</style>"))
    with opened(browser, changed, width=360, trusted=True) as (page, _):
        assert page.evaluate(WRITTEN_OVER)
        assert page.evaluate(CUT_OFF)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_has_nothing_against_anything(browser, odd, scheme):
    with opened(browser, odd, scheme=scheme, trusted=True) as (page, _):
        assert violations(page) == []


def test_wide_tables_fit_on_paper(browser, odd):
    with opened(browser, odd, width=720, trusted=True) as (page, _):
        page.emulate_media(media="print")
        assert page.locator("table.wide").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 720


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_asks_for_nothing_and_fits(browser, place, width, scheme):
    with opened(browser, place, width=width, scheme=scheme) as (page, seen):
        assert page.evaluate(PAPER) == SCHEMES[scheme]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for link in page.locator("nav a").all():
            link.click()
        assert page.screenshot(full_page=True).startswith(b"\x89PNG")
    assert seen.asked == []
    assert seen.said == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[2]])
def test_axe_has_nothing_against_it(browser, place, width, scheme):
    with opened(browser, place, width=width, scheme=scheme, trusted=True) as (page, _):
        assert violations(page) == []


def test_axe_sees_what_is_wrong(browser, tmp_path):
    """So the test above could fail."""
    wrong = tmp_path / "wrong.html"
    wrong.write_text("<html><body><img src='data:,'><p style='color:#eee'>pale</p></body></html>")
    with opened(browser, wrong, trusted=True) as (page, _):
        found = {each.partition(":")[0] for each in violations(page)}
    assert {"image-alt", "color-contrast", "html-has-lang"} <= found


def test_files_can_be_saved(browser, place, release, tmp_path):
    release.to_csv(tmp_path / "csv")
    with opened(browser, place) as (page, seen):
        with page.expect_download() as waiting:
            page.click("a[download='born.csv']")
        saved = Path(waiting.value.path()).read_bytes()
        assert waiting.value.suggested_filename == "born.csv"
    assert saved == (tmp_path / "csv" / "born.csv").read_bytes()
    assert seen.said == []


def test_keys_reach_everything(browser, place):
    with opened(browser, place, width=WIDTHS[0]) as (page, _):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        reached = set()
        for _ in range(200):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
        scrolling = page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.scrollWidth > e.clientWidth + 1"
            " && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX))"
            ".map(e => e.outerHTML.slice(0, 200))"
        )
    assert scrolling  # in so narrow a window some tables are too wide
    assert {*scrolling} <= reached


@pytest.mark.parametrize("scheme", SCHEMES)
def test_on_paper_it_is_dark_on_white_and_whole(browser, place, scheme):
    with opened(browser, place, scheme=scheme) as (page, seen):
        page.emulate_media(media="print", color_scheme=scheme)
        assert page.evaluate(PAPER) == SCHEMES["light"]
        hidden = page.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter(e => e.scrollHeight > e.clientHeight + 1).length"
        )
        assert hidden == 0
        assert page.pdf(format="A4").startswith(b"%PDF")
    assert seen.asked == []


def test_hostile_names_do_nothing(browser, tmp_path):
    place = hostile().report(tmp_path / "page.html", title=HOSTILE)
    with opened(browser, place, trusted=True) as (page, seen):
        assert page.inner_text("h1") == HOSTILE.replace("\u202e", "�")
        assert page.locator("script, img, b, iframe, object").count() == 0
        assert violations(page) == []
    assert seen.asked == []
    assert seen.said == []


def test_the_policy_in_the_page_holds(browser, place, tmp_path):
    """Even what was put into the page afterwards may not run, and asks for nothing."""
    changed = tmp_path / "changed.html"
    planted = (
        "<script>document.title = 'ran'</script><img src='http://example.org/a.png'>"
        "<style>@import 'http://example.org/b.css';</style><iframe src='http://example.org'></iframe>"
    )
    text = place.read_text(encoding="utf-8")
    changed.write_text(text.replace("</header>", f"</header>{planted}"), encoding="utf-8")
    with opened(browser, changed) as (page, seen):
        page.wait_for_timeout(200)
        assert page.title() != "ran"
    assert seen.asked == []
    assert seen.said  # the browser says that it refused
