"""Domains in plain JSON types, and the strict reading of such documents.

Whoever made a document, reading it runs nothing of it, and gives exactly what was written or a
`SchemaError`. Numbers are integers and finite floats; decimals are texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from dpsql.errors import SchemaError
from dpsql.schema.domain import INTEGER_TYPES, Domain, Value
from dpsql.schema.numbers import MAX_DIGITS, MAX_GRID, iso_date, type_range
from dpsql.schema.sequences import GRAINS, DateRange, DecimalRange, first_of

MAX_ITEMS = 10_000_000
"""A list has at most so many items."""
MAX_CHARACTERS = 1_000_000
"""A text has at most so many characters."""

_KEYS = {"type", "values", "nullable", "outside", "other", "column_type"}
_DECIMAL = re.compile(r"-?\d{1,40}(\.\d{1,40})?", re.ASCII)
_COLUMN_TYPE = re.compile(r"|DOUBLE|FLOAT|DATE|TIMESTAMP|DECIMAL\(\d\d?,\d\d?\)", re.ASCII)


def domain_to_json(domain: Domain) -> dict[str, Any]:
    """Write a domain so that `domain_from_json` gives an equal one."""
    return {
        "type": domain.type,
        "values": _values_to_json(domain),
        "nullable": domain.nullable,
        "outside": domain.outside,
        "other": domain.other,
        "column_type": domain.column_type,
    }


def domain_from_json(document: object) -> Domain:
    """Read a domain.

    Raises:
        SchemaError: it is not what `domain_to_json` writes.
    """
    found = fields(document, "domain", _KEYS)
    type_, column_type = text(found["type"], "type"), text(found["column_type"], "type")
    if column_type not in INTEGER_TYPES and not _COLUMN_TYPE.fullmatch(column_type):
        raise malformed("type")
    if type(found["nullable"]) is not bool:
        raise malformed("domain")
    values, uppers = _values_from_json(found["values"], type_)
    other = None if found["other"] is None else text(found["other"], "domain")
    outside: Any = text(found["outside"], "domain")  # which ones there are, the domain checks
    return Domain(type_, values, found["nullable"], outside, uppers, other, column_type)


# ── values ─────────────────────────────────────────────────────────────────────────────────


def _values_to_json(domain: Domain) -> dict[str, Any]:
    values = domain.values
    if isinstance(values, range):
        return {"kind": "integers", "low": values.start, "high": values.stop - 1}
    if isinstance(values, DecimalRange):
        ends = {"low": values.low, "high": values.high, "step": values.step}
        shown = {name: f"{Decimal(f'{n}E-{values.scale}'):f}" for name, n in ends.items()}
        return {"kind": "decimals", **shown, "scale": values.scale}
    if isinstance(values, DateRange):
        grain, length = values.grain, values.length
        return {"kind": "dates", "first": str(values.first), "length": length, "grain": grain}
    if domain.type == "BOOLEAN":
        return {"kind": "boolean"}
    if domain.type == "DOUBLE":
        return {"kind": "bins", "lowers": list(values), "uppers": list(domain.uppers or ())}
    plain = [str(v) if isinstance(v, date) else v for v in values]
    return {"kind": "listed", "items": plain}


def _values_from_json(
    document: object, type_: str
) -> tuple[Sequence[Value], Sequence[Value] | None]:
    """Read the values of a domain of some type, and the largest value of each cell."""
    if not isinstance(document, Mapping):
        raise malformed("domain")
    kind = document.get("kind")
    if kind == "integers":
        return _integers(document, type_), None
    if kind == "decimals":
        return _decimals(document), None
    if kind == "dates":
        days = _dates(document)
        return days, days.uppers
    if kind == "bins":
        found = fields(document, "bins", {"kind", "lowers", "uppers"})
        lowers, uppers = (
            tuple(map(_float, items(found[name], "bins"))) for name in ("lowers", "uppers")
        )
        return lowers, uppers
    if kind == "boolean":
        fields(document, "domain", {"kind"})
        return (False, True), None
    found = fields(document, "domain", {"kind", "items"})
    if kind != "listed":
        raise malformed("domain")
    return tuple(_item(item, type_) for item in items(found["items"], "values")), None


def _item(item: object, type_: str) -> Value:
    if type_ in INTEGER_TYPES:
        return whole(item, "value", *type_range(type_))
    if type_ == "DATE":
        return _day(item)
    return text(item, "label")


def _integers(document: object, type_: str) -> range:
    found = fields(document, "range", {"kind", "low", "high"})
    if type_ not in INTEGER_TYPES:
        raise malformed("range")
    low, high = (whole(found[name], "range", *type_range(type_)) for name in ("low", "high"))
    return range(low, high + 1)


def _decimals(document: object) -> DecimalRange:
    found = fields(document, "decimals", {"kind", "low", "high", "step", "scale"})
    scale = whole(found["scale"], "decimals", 0, MAX_DIGITS)
    low, high, step = (_scaled(found[name], scale) for name in ("low", "high", "step"))
    if step < 1 or high < low or (high - low) % step or (high - low) // step >= MAX_GRID:
        raise malformed("decimals")
    return DecimalRange(low, step, (high - low) // step + 1, scale)


def _scaled(value: object, scale: int) -> int:
    """Read a decimal times 10**scale, which must be whole."""
    written = text(value, "decimals")
    point = len(written.partition(".")[2])
    if not _DECIMAL.fullmatch(written) or point != scale:
        raise malformed("decimals")
    number = int(written.replace(".", ""))
    if abs(number) >= 10**MAX_DIGITS:
        raise malformed("decimals")
    return number


def _dates(document: object) -> DateRange:
    found = fields(document, "dates", {"kind", "first", "length", "grain"})
    first, grain = _day(found["first"]), text(found["grain"], "dates")
    if grain not in GRAINS or first_of(first, grain) != first:
        raise malformed("dates")
    days = DateRange(first, whole(found["length"], "dates", 1, date.max.toordinal()), grain)
    try:
        days.end  # noqa: B018  beyond the year 9999 it raises
    except (ValueError, OverflowError):
        raise malformed("dates") from None
    return days


def _day(value: object) -> date:
    return iso_date(text(value, "date"))


def _float(value: object) -> float:
    if type(value) not in {int, float}:
        raise malformed("bins")
    try:
        number = float(value)  # type: ignore[arg-type]  # just checked
    except OverflowError:
        raise malformed("bins") from None
    if not math.isfinite(number) or number != value:
        raise malformed("bins")
    return number


# ── strict reading ─────────────────────────────────────────────────────────────────────────


def malformed(what: str) -> SchemaError:
    """Word the error about a document that nobody writes by hand; no part of it is shown."""
    return SchemaError(
        f"The stored description of a table is damaged: its {what} can't be read.",
        hint="was the file changed, or written by another version of dpsql?",
    )


def fields(document: object, what: str, names: Collection[str]) -> Mapping[str, Any]:
    """Return an object that has exactly these names.

    Raises:
        SchemaError: it is something else.
    """
    if not isinstance(document, Mapping) or document.keys() != set(names):
        raise malformed(what)
    return document


def items(document: object, what: str, most: int = MAX_ITEMS) -> list[Any]:
    """Return a list of at most so many items.

    Raises:
        SchemaError: it is something else.
    """
    if not isinstance(document, list) or len(document) > most:
        raise malformed(what)
    return document


def text(value: object, what: str) -> str:
    """Return a text that can be written as UTF-8.

    Raises:
        SchemaError: it is something else, or too long.
    """
    if type(value) is not str or len(value) > MAX_CHARACTERS:
        raise malformed(what)
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise malformed(what)
    return value


def whole(value: object, what: str, least: int, most: int) -> int:
    """Return a whole number within bounds.

    Raises:
        SchemaError: it is something else.
    """
    if type(value) is not int or not least <= value <= most:
        raise malformed(what)
    return value
