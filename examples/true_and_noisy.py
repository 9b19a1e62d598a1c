"""A picture of answers beside the exact ones: README's, of the Adult census extract.

    python -m examples.true_and_noisy docs/gallery/true-and-noisy.svg

The share of women with an income above 50,000 dollars, by level of education: bars are exact, dots
and their 95 % intervals are what dpsql publishes at ε = 1. Nobody but a public data set's users
may see both. The noise has a fixed seed, so that the picture is the same whenever it is made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import vl_convert

import dpsql
from examples import demo

STATEMENT = """
    SELECT education_num, 100.0 * AVG(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) AS percent
    FROM adult WHERE sex = 'Female' GROUP BY education_num ORDER BY education_num
"""
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)


def picture() -> str:
    """Release, and draw the answers beside the exact ones, as SVG."""
    con = duckdb.connect()
    demo.load_adult(con)
    exact = dict(con.execute(STATEMENT).fetchall())
    session = dpsql.Session(con)
    noisy = session.query(STATEMENT, budget=BUDGET, confidence=0.95)
    con.close()
    rows = [{**row, "exact": exact.get(row["education_num"], 0)} for row in noisy.to_dicts()]
    svg: str = vl_convert.vegalite_to_svg(json.dumps(chart(rows)))
    return svg


def chart(rows: list[dict[str, float]]) -> dict[str, object]:
    """Return bars, intervals and dots of Vega-Lite."""
    along = {
        "field": "education_num",
        "type": "ordinal",
        "title": "level of education, from none (1) to a doctorate (16)",
    }
    along["axis"] = {"labelAngle": 0}  # type: ignore[assignment]

    def up(field: str) -> dict[str, object]:
        return {
            "field": field, "type": "quantitative", "scale": {"domain": [0, 80], "clamp": True},
            "title": "% of women with over 50,000 $",
        }  # fmt: skip

    intervals = {"x": along, "y": up("percent_lower"), "y2": {"field": "percent_upper"}}
    bars = {"mark": {"type": "bar", "color": "#c9d8e8"}, "encoding": {"x": along, "y": up("exact")}}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": 560, "height": 240, "background": "white", "data": {"values": rows},
        "title": {
            "text": "Bars: exact, which nobody sees. Dots: published, with 95 % intervals.",
            "fontWeight": "normal", "anchor": "start",
        },
        "layer": [
            bars,
            {"mark": {"type": "rule", "color": "#1f6fb1"}, "encoding": intervals},
            {
                "mark": {"type": "point", "filled": True, "size": 45, "color": "#1f6fb1"},
                "encoding": {"x": along, "y": up("percent")},
            },
        ],
        "config": {"font": "sans-serif", "view": {"stroke": None}},
    }  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
    from site_parts.pictures import seeded

    with seeded():
        Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
