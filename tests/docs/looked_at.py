"""What can be seen of a page of the site, in a browser, that is not as it should be."""

from __future__ import annotations

from typing import Any

from tests.helpers.browser import Seen

WIDTHS = (1400, 800, 360)
THEME = "[PST]: "
"""What the theme says to the console, of its own affairs, begins like this."""

_LEAVING = """width => {
    const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
    function within(e) {  // a part of the page that scrolls by itself, as wide tables do
        for (let up = e; (up = up.parentElement) && !up.matches('main, .bd-article-container');)
            if (scrolls(up)) return true;
        return false;
    }
    return [...document.querySelectorAll('main :is(h1, h2, h3, h4, p, li, dt, figure, pre, table)')]
        .filter(e => e.getClientRects().length && !within(e))
        .filter(e => e.getBoundingClientRect().right > width + 1
            || /^H\\d$/.test(e.tagName) && e.scrollWidth > e.clientWidth + 1)
        .map(e => e.outerHTML.slice(0, 100));
}"""
_NAMELESS = """[...document.querySelectorAll('img, svg, [role=img]')]
    .filter(e => !e.closest('[aria-hidden=true]') && e.getClientRects().length)
    .filter(e => !(e.parentElement.closest('[role=img]')))
    .filter(e => !(e.getAttribute('alt') || e.getAttribute('aria-label')
        || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent || '').trim())
    .map(e => e.outerHTML.slice(0, 100))"""
_UNSEEN = """[...document.querySelectorAll('main figure')]
    .filter(e => {
        const drawn = e.querySelector('svg, img, table')?.getBoundingClientRect();
        const marks = e.querySelectorAll('img, path, rect, line, td').length;
        return !drawn || drawn.width < 50 || drawn.height < 30 || !marks;
    })
    .map(e => e.outerHTML.slice(0, 100))"""


def complaints(page: Any, seen: Seen) -> list[str]:
    """Say what is wrong with a page that is open, at several widths of the window."""
    found = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"at {width} pixels it is {wide} wide")
        found += [f"at {width} pixels this is cut: {e}" for e in page.evaluate(_LEAVING, width)]
    found += [f"this picture says nothing: {e}" for e in page.evaluate(_NAMELESS)]
    found += [f"this picture can't be seen: {e}" for e in page.evaluate(_UNSEEN)]
    found += [f"it asks for {place}" for place in seen.asked]
    return found + [f"it says {text}" for text in heard(seen)]


def heard(seen: Seen) -> list[str]:
    """Return what a page said to the console, without what its theme says of itself."""
    return [text for text in seen.said if not text.startswith(THEME)]
