"""Pictures by Vega-Lite as parts of a page: nothing but shapes and texts, in the page's colors.

`drawn` turns a chart into SVG, in this process and without a network. `inline` reads that as XML
and writes anew what is on its lists: no script, no address, no style sheet, and no names that
another picture has, too. Charts have the colors of `INKS`, each of which stands for a property of
the page's style sheet, so that one picture fits light and dark pages; where there is no style
sheet, for one of `BARE`, which fit both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from xml.etree import ElementTree as Xml

from dpsql.errors import InternalError, printable

INKS: Mapping[str, str] = MappingProxyType(
    {
        "#101112": "--ink",
        "#606162": "--dim",
        "#c0c1c2": "--line",
        "#fefdfc": "--paper",
        "#1f6fb1": "--one",
        "#c15a11": "--two",
        "#2f7d32": "--three",
        "#7b4ea1": "--four",
        "#a01c48": "--five",
        "#55606a": "--six",
    }
)
"""Color in a chart → the property of the page that it becomes."""

PAGE: Mapping[str, str] = MappingProxyType({ink: f"var({name})" for ink, name in INKS.items()})
"""Color in a chart → the page's own."""
BARE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(INKS, "currentColor"),
        "#606162": "#808080",
        "#c0c1c2": "#80808059",
        "#fefdfc": "none",
        "#1f6fb1": "#4c8fca",
        "#c15a11": "#d9702b",
        "#2f7d32": "#46994a",
        "#7b4ea1": "#a07cc0",
        "#a01c48": "#d0587f",
    }
)
"""Color in a chart → one of its own, that can be seen on light and on dark."""

_SHAPES = "svg g path text tspan rect line circle defs clipPath linearGradient radialGradient stop"
_LOOKS = """
viewBox width height x y x1 y1 x2 y2 dx dy cx cy r rx ry d id transform fill fill-opacity stroke
stroke-width stroke-opacity stroke-dasharray stroke-linecap stroke-linejoin stroke-miterlimit
opacity text-anchor font-family font-size font-weight font-style clip-path offset stop-color
gradientUnits
"""
_ELEMENTS, _ATTRIBUTES = frozenset(_SHAPES.split()), frozenset(_LOOKS.split())
"""What pictures may be made of."""
_COLORED = ("fill", "stroke", "stop-color")
_REFERENCE = re.compile(r"url\(#([A-Za-z0-9_-]+)\)")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What XML can't have."""
_HARMLESS = re.compile(r"[A-Za-z0-9#(),.%\s+\-_'\"]*")


def drawn(chart: Mapping[str, Any]) -> str:
    """Draw a chart of Vega-Lite as SVG."""
    import vl_convert  # slow to import, and part of an extra: see `needed`

    svg: str = vl_convert.vegalite_to_svg(json.dumps(chart), allowed_base_urls=[])
    return svg


def inline(svg: str, prefix: str, colors: Mapping[str, str] = PAGE) -> str:
    """Write a picture so that it can stand in a page.

    Args:
        svg: the picture, as the library drew it.
        prefix: what the names in it begin with, for each picture another one.
        colors: color in the chart → what stands for it.

    Raises:
        InternalError: it is no picture.
    """
    if "<!DOCTYPE" in svg or "<!ENTITY" in svg:
        raise InternalError("a picture declares entities")
    try:
        root = Xml.fromstring(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", svg))  # noqa: S314 (what this process drew, without entities)
    except Xml.ParseError:
        raise InternalError("a picture is not XML") from None
    made = _kept(root, prefix, colors)
    if made is None or made.tag != "svg":
        raise InternalError("a picture is not SVG")
    made.set("xmlns", "http://www.w3.org/2000/svg")
    made.set("aria-hidden", "true")  # what it shows is said beside it
    made.set("focusable", "false")
    made.set("overflow", "visible")  # letters may be a little wider where it is looked at
    return Xml.tostring(made, encoding="unicode")


def _kept(element: Xml.Element, prefix: str, colors: Mapping[str, str]) -> Xml.Element | None:
    tag = _local(element.tag)
    if tag not in _ELEMENTS:
        return None
    made = Xml.Element(tag)
    for name, value in element.attrib.items():
        if _local(name) in _ATTRIBUTES and _HARMLESS.fullmatch(value):
            made.set(_local(name), _attribute(_local(name), value, prefix, colors))
    if tag in {"text", "tspan"}:
        made.text = printable(element.text or "")
    for child in element:
        kept = _kept(child, prefix, colors)
        if kept is not None:
            made.append(kept)
    return made


def _attribute(name: str, value: str, prefix: str, colors: Mapping[str, str]) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name in _COLORED and value.lower() in colors:
        return colors[value.lower()]
    return _REFERENCE.sub(rf"url(#{prefix}-\1)", value)


def _local(name: object) -> str:
    """Return a name without its name space."""
    return str(name).rpartition("}")[2]
