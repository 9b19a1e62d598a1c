"""The site is built without a warning, all of its links lead somewhere, and it asks nobody else."""

from __future__ import annotations

import re
import sys

import pytest

import dpsql
from tests.docs.pages import PAGES, ROOT
from tests.docs.site import problems

pytest.importorskip("sphinx", reason="the site needs pip install 'dpsql[docs]'")
sys.path.append(str(ROOT / "docs"))

from site_parts.docstrings import as_restructured_text
from site_parts.files import described, table, with_files
from site_parts.words import linked


@pytest.mark.slow
def test_the_site_has_all_pages_and_its_links_lead_somewhere(site):
    assert list(problems(site)) == []
    for page in PAGES:
        if ROOT / "docs" in page.parents:
            assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    names = (site / "reference" / "docstrings.html").read_text(encoding="utf-8")
    for name in dpsql.__all__:
        home = "dpsql.errors." if name.endswith("Error") else "dpsql."
        assert f'id="{home}{name}"' in names, name
    drawn = (site / "gallery" / "adult.html").read_text(encoding="utf-8")
    assert drawn.count('<figure class="picture"') == 4
    assert "<!-- picture" not in drawn
    assert "The Adult census extract" in (site / "demo-report.html").read_text(encoding="utf-8")
    rooms = (site / "explanation" / "architecture.html").read_text(encoding="utf-8")
    assert "<!-- files" not in rooms
    for path, _ in described(ROOT / "dpsql" / "answers"):
        assert path.name in rooms


def test_pages_list_files_as_they_are(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "__init__.py").write_text('"""A folder."""', encoding="utf-8")
    (tmp_path / "a.py").write_text('"""Sums | and counts.\n\nMore."""', encoding="utf-8")
    (tmp_path / "b" / "c.py").write_text('"""Noise."""', encoding="utf-8")
    rows = ["| `a.py` | Sums \\| and counts |", "| `b/c.py` | Noise |"]
    assert table(tmp_path).splitlines() == ["| File | Noun |", "|---|---|", *rows]
    for page in PAGES:
        text = [page.read_text(encoding="utf-8")]
        with_files(None, page.stem, text)
        assert "<!-- files:" not in text[0], page
    with pytest.raises(ValueError, match="no files"):
        table(tmp_path / "nowhere")


def test_what_is_wrong_with_a_site_is_found(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="there.html#part">fine</a> <a href="there.html#no">x</a> <a href="gone.html">x</a>'
        '<script src="https://cdn.example/a.js"></script> <link rel="stylesheet" href="gone.css">'
        '<link rel="canonical" href="https://example.org/"> <a href="https://example.org/">fine</a>',
        encoding="utf-8",
    )
    (tmp_path / "there.html").write_text('<p id="part">', encoding="utf-8")
    (tmp_path / "a.css").write_text(
        '@import "https://fonts.example/b"; a { src: url(//fonts.example/c) url(d.woff) }',
        encoding="utf-8",
    )
    assert list(problems(tmp_path)) == [
        "index.html fetches https://cdn.example/a.js",
        "index.html fetches gone.css, which isn't there",
        "index.html links to there.html#no, which has no such place",
        "index.html links to gone.html, which isn't there",
        "a.css fetches https://fonts.example/b",
        "a.css fetches //fonts.example/c",
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("`a b` and `Budget`s", r"``a b`` and ``Budget``\ s"),
        ("a `long\nname`", "a ``long name``"),
        ("|x − y|", r"\|x − y\|"),
        ("Do:\n\n    code()\n\nArgs:\n    x: y", "Do:\n\n::\n\n    code()\n\nArgs:\n    x: y"),
        ("So::\n\n    code()", "So::\n\n    code()"),
    ],
)
def test_docstrings_are_written_as_sphinx_reads_them(written, read):
    lines = written.splitlines()
    as_restructured_text(None, "function", "f", None, None, lines)
    assert lines == read.splitlines()


def test_words_of_the_glossary_are_linked_where_a_page_first_uses_them():
    words = {"ledger": "The account.", "ε": "The <loss>.", "plan": "A list."}
    page = "# A ledger\n\nA [ledger\nfile](x) and `ledger`, the Ledger, a ledger, ε = 1.\n\n| ε |\n"
    leads = '<a class="word" href="g.html#word-{0}" title="{1}">{2}</a>'
    assert linked(f"{page}```sql\nε\n```\nplan", words, "g.html") == (
        "# A ledger\n\nA [ledger\nfile](x) and `ledger`, the "
        + leads.format("ledger", "The account.", "Ledger") + ", a ledger, "
        + leads.format("ε", "The &lt;loss&gt;.", "ε") + " = 1.\n\n| ε |\n```sql\nε\n```\nplan"
    )  # fmt: skip


def test_the_picture_of_the_readme_is_drawn_from_what_is_released_now():
    from site_parts.pictures import seeded

    from examples.true_and_noisy import picture

    with seeded():
        made = picture()
    kept = (ROOT / "docs" / "gallery" / "true-and-noisy.svg").read_text(encoding="utf-8")
    number = re.compile(r"-?\d+(?:\.\d+)?")
    assert number.sub("0", made) == number.sub("0", kept)
    places = [[float(found) for found in number.findall(svg)] for svg in (made, kept)]
    assert places[0] == pytest.approx(places[1], abs=0.5)  # in pixels
