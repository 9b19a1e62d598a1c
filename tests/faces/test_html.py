"""HTML for notebooks: complete, and safe whatever the names and labels are."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import duckdb
import pytest

import dpsql
from dpsql import markup
from dpsql.present.account import account_card, amount

HOSTILE = "<img src=x onerror=alert(1)>"
LABELS = [HOSTILE, "\"'>&<b", "\u202etxt.exe", "</td></table><script>", "a\x1b[31m\nb"]
VOID = {"img", "br", "hr", "input", "meta", "link"}


class Reader(HTMLParser):
    """Checks that tags are balanced and known, and collects text and tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}\n"


KNOWN_TAGS = {"div", "strong", "span", "pre", "details", "summary"}
KNOWN_TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
PICTURE = {"figure", "figcaption", "svg", "path", "text", "rect", "line", "circle"}


def check(html: str) -> Reader:
    Reader(html)
    outside, pictures = html, []
    while inner := re.findall("<svg (?:(?!<svg ).)*?</svg>", outside, flags=re.DOTALL):
        pictures += inner
        for each in inner:
            outside = outside.replace(each, "")
    found = Reader(outside)
    assert found.tags <= KNOWN_TAGS | {"figure", "figcaption", "p"}
    assert found.attributes <= {"style", "role", "aria-label", "title"}
    for picture in pictures:
        drawn = Reader(picture)
        assert drawn.tags <= PICTURE
        assert not {a for a in drawn.attributes if a.startswith("on") or a in {"href", "style"}}
    for character in ("\u202e", "\x1b"):
        assert character not in html
    return found


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture
def session():
    with duckdb.connect() as con:
        labels = ", ".join(map(quoted, LABELS))
        con.execute(f"CREATE TABLE shop (item ENUM({labels}), big BOOLEAN NOT NULL)").fetchall()
        yield dpsql.Session(con, budget=dpsql.Budget(rho=1))


SCRIPT = {
    HOSTILE: "SELECT item, COUNT(*) AS n FROM shop GROUP BY item",
    "by size": f'SELECT big, COUNT(*) AS "{HOSTILE}" FROM shop GROUP BY big',
}
BUDGET = dpsql.Budget(rho=0.25)


def test_a_plan_tells_errors_budget_gap_and_shares(session):
    found = check(session.plan(SCRIPT, budget=BUDGET)._repr_html_())
    for words in (HOSTILE, "by size", "ρ = 0.25", "add or remove one row of shop", "share"):
        assert words in found.text
    assert "planning spends nothing" in found.text


def test_a_plan_for_targets_tells_what_decides(session):
    plan = session.plan(SCRIPT, targets={"by size": 10})
    assert "decided by" in check(plan._repr_html_()).text


def test_a_release_tells_its_charge_and_first_rows(session):
    found = check(session.release(SCRIPT, budget=BUDGET)._repr_html_())
    for words in (HOSTILE, "by size", "ρ = 0.25", "n_standard_error", "Release of 2 statements"):
        assert words in found.text
    assert "all 6 rows" in found.text  # of six groups five are shown, and all behind a click
    assert found.text.count("NULL") == 2  # in the table, and beside its bar


def test_cards_have_pictures_of_errors_and_answers(session):
    plan = session.plan(SCRIPT, budget=BUDGET)
    assert "Twice ρ would divide all errors by 1.41" in check(plan._repr_html_()).text
    release = session.release(SCRIPT, budget=BUDGET)
    found = release._repr_html_()
    assert found.count("<svg ") == len(release)
    assert "Bars: n by item with one standard error to each side" in check(found).text
    again = session.plan(SCRIPT, budget=BUDGET)  # beside what was measured
    assert "<svg " not in again._repr_html_()


def test_headers_stand_above_their_numbers():
    found = markup.table(["name", "n"], [["a", 1.5], ["b", None]])
    header, *rows = (part.split("</t")[0] for part in found.split("<t") if part[:2] in {"h ", "d "})
    assert "left" in header
    assert "right" in rows[0]
    assert ["right" in row for row in rows[1:]] == [False, True, False, True]


def test_a_release_of_many_statements_is_cut(session):
    script = {f"q{i}": "SELECT big, COUNT(*) AS n FROM shop GROUP BY big" for i in range(20)}
    text = check(session.release(script, budget=BUDGET)._repr_html_()).text
    assert "q11" in text
    assert "q12" not in text
    assert "8 more statements" in text


def test_an_account_tells_what_is_spent_and_left(session):
    session.release(SCRIPT, budget=BUDGET)
    html = account_card(session.ledger)
    text = check(html).text
    for words in ("Privacy budget of :memory:", "ρ = 0.25", "ρ = 0.75", "1 charges"):
        assert words in text
    assert "25.0% of the total is spent" in html
    assert "width:25%" in html


def test_an_account_without_a_total():
    with duckdb.connect() as con:
        text = check(account_card(dpsql.Session(con).ledger)).text
    assert "not limited" in text


@pytest.mark.parametrize("value", [*LABELS, 3, 2.5, None, True, float("nan")])
def test_every_piece_escapes_what_it_shows(value):
    text = str(value)
    pieces = [
        markup.text(value),
        markup.table([text], [[value]], more=text),
        markup.facts({text: value}),
        markup.bar(0.5, text),
        markup.preformatted(text),
        markup.folded(text, markup.text(value)),
        markup.card(text, value),
    ]
    for piece in pieces:
        check(piece)


def test_html_is_not_escaped_twice():
    assert markup.card("t", markup.bar(1, "full")).count("&lt;") == 0
    assert markup.text(markup.text("<b>")) == "&lt;b&gt;"


@pytest.mark.parametrize(("share", "width"), [(-1, "0"), (0.125, "12.5"), (7, "100")])
def test_bars_stay_within_their_frame(share, width):
    assert f"width:{width}%" in markup.bar(share, "")


def test_long_texts_are_cut():
    assert len(markup.text("x" * 10_000)) < 400


def test_amounts_are_worded_in_all_forms():
    mu_squared = dpsql.Budget(epsilon=1, delta=1e-9).mu_squared
    words = amount(mu_squared, up=True)
    assert words == "ρ = 0.0165575; μ = 0.181975; ε = 1 at δ = 1e-9"
    assert amount(0 * mu_squared, up=False) == "ρ = 0"
