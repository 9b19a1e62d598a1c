"""Spark's SQL of functions of texts, as DuckDB computes them; see `expressions.py`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import duckdb

from dpsql.engines.spark.sql.text import blob, call, let, refused, text, whole
from dpsql.errors import InternalError
from dpsql.rows.typed import RowValue, Writer

# ── Letters that DuckDB changes to lower or upper case: each to one, whatever is beside it ───────
#
# Spark's own functions look at words and at languages, and make two letters of some.


_RANGES = (1, 0xD800), (0xE000, 0x110000)
"""All characters."""


@cache
def mapped(function: str) -> tuple[str, str]:
    """Return all characters that a function changes, and what to.

    Raises:
        InternalError: it doesn't change them one by one.
    """
    if function not in {"lower", "upper"}:
        raise InternalError("no function of letters")
    pairs: list[tuple[str, str]] = []
    with duckdb.connect() as con:
        for ends in _RANGES:
            all_ = f"SELECT chr(i::INTEGER) AS c FROM range({ends[0]}, {ends[1]}) AS r(i)"
            asked = f"SELECT c, {function}(c) FROM ({all_}) WHERE {function}(c) <> c ORDER BY c"
            pairs += con.execute(asked).fetchall()
    if any(len(after) != 1 for _, after in pairs):
        raise InternalError("DuckDB makes two letters of one")
    return "".join(before for before, _ in pairs), "".join(after for _, after in pairs)


_BLANKS = " \u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u202f\u205f\u3000"
"""The blanks that `trim` takes off in DuckDB."""


def _joined(_: RowValue, parts: list[str]) -> str:
    return call("concat", *parts)


def _lettered(node: RowValue, parts: list[str]) -> str:
    before, after = mapped(node.text)
    return call("translate", parts[0], text(before), text(after))


def _trimmed(node: RowValue, parts: list[str]) -> str:
    if node.text == "trim":
        return call("btrim", parts[0], text(_BLANKS))
    return call(node.text, text(_BLANKS), parts[0])


def _length(node: RowValue, parts: list[str]) -> str:
    if node.text == "strlen":
        return f"CAST({call('octet_length', f'CAST({parts[0]} AS BINARY)')} AS BIGINT)"
    return f"CAST({call('char_length', parts[0])} AS BIGINT)"


def _part_of_text(node: RowValue, parts: list[str]) -> str:
    """Write a piece of a text, from its beginning or its end."""
    numbers = [int(part.text) for part in node.parts[1:]]
    x = parts[0]
    if min(numbers) < 0 or (node.text == "substring" and numbers[0] < 1):
        raise refused(f"{node.text} with such places", "count characters from 1, from the left.")
    if node.text == "left":
        numbers = [1, numbers[0]]
    if node.text == "right":
        gone = f"{call('char_length', 'v')} - {whole(numbers[0], 'INT')}"
        start = f"{call('greatest', gone, whole(0, 'INT'))} + {whole(1, 'INT')}"
        return let("v", x, call("substr", "v", start))
    return call("substr", x, *(whole(number, "INT") for number in numbers))


def _searched(node: RowValue, parts: list[str]) -> str:
    x, needle = parts
    if node.text == "instr":
        if not node.parts[1].text:
            raise refused("strpos of an empty text", "look for a text with characters.")
        return f"CAST({call('locate', needle, x)} AS BIGINT)"
    name = {"contains": "contains", "starts_with": "startswith", "suffix": "endswith"}[node.text]
    return call(name, f"CAST({x} AS BINARY)", f"CAST({needle} AS BINARY)")


def _like(node: RowValue, parts: list[str]) -> str:
    """Write LIKE by searches: of each text between two %, as early as can be.

    v is the text, p where a search goes on; 0 where something wasn't there.
    """
    pattern = _lowered(node.parts[1])
    if "_" in pattern:
        raise refused("LIKE with _", "write substring(…, 1, 2) = 'ab', or a pattern with % alone.")
    first, *rest = pattern.split("%")
    if not rest:
        return f"(CAST({parts[0]} AS BINARY) = {blob(first.encode())})"
    *inner, last = rest
    zero, begins = whole(0, "INT"), call("startswith", "v", text(first))
    place = f"CASE WHEN {begins} THEN {whole(len(first) + 1, 'INT')} ELSE {zero} END"
    for piece in filter(None, inner):
        after = f"CASE WHEN q > {zero} THEN q + {whole(len(piece), 'INT')} ELSE {zero} END"
        place = let("p", place, let("q", call("locate", text(piece), "v", "p"), after))
    room = f"{call('char_length', 'v')} + {whole(1 - len(last), 'INT')} >= p"
    ends = f"p > {zero} AND {room} AND {call('endswith', 'v', text(last))}"
    return let("v", parts[0], let("p", place, f"CASE WHEN v IS NOT NULL THEN {ends} END"))


def _lowered(pattern: RowValue) -> str:
    if pattern.operation == "call":
        before, after = mapped("lower")
        return pattern.parts[0].text.translate(dict(zip(map(ord, before), after, strict=True)))
    return pattern.text


STRINGS: Mapping[str, Writer] = {
    "letters": _lettered, "trimmed": _trimmed, "length": _length, "joined": _joined,
    "subtext": _part_of_text, "searched": _searched, "like": _like,
}  # fmt: skip
"""Rules that records of functions name (`dpsql/rows/functions.py`)."""
