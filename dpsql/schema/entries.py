"""One column's domain, as a schema file writes it: `{ integers = [0, 115], nullable = true }`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.names import closest
from dpsql.schema.numbers import iso_date, shown
from dpsql.schema.sequences import CLOCK

Entry = Mapping[str, Any]
RULES = ("null", "drop", "clamp")
_PLACES = ("nullable", "outside")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of domain: how it is read, and what may stand beside it."""

    example: str
    read: Callable[[Any, Entry], Domain | NumberBounds]
    beside: tuple[str, ...] = _PLACES
    """The other keys that it may have."""
    ordered: bool = True
    """Whether it has ends that values can be clamped to."""


def read_domain(entry: object) -> Domain | NumberBounds:
    """Read one column's entry.

    Raises:
        SchemaError: it is not exactly one well-formed domain.
    """
    if not isinstance(entry, Mapping):
        raise SchemaError(
            f"The domain is {shown(entry)}.", hint="for example { integers = [0, 115] }."
        )
    named = [kind for kind in KINDS if kind in entry]
    if len(named) > 1:
        raise SchemaError(
            f"There are two kinds of domain, {named[0]} and {named[1]}.", hint="keep one of them."
        )
    for key in entry:
        _check_key(key, named)
    if not named:
        raise SchemaError(
            "The kind of the domain is missing.", hint=f"write one of {', '.join(KINDS)}."
        )
    _check_rules(entry, KINDS[named[0]])
    return KINDS[named[0]].read(entry[named[0]], entry)


def _check_key(key: str, named: list[str]) -> None:
    """Refuse a key that nothing has, or that the named kind doesn't have."""
    beside = KINDS[named[0]].beside if named else tuple(k for v in KINDS.values() for k in v.beside)
    if key in KINDS or key in beside:
        return
    shown_key = printable(key)[:60]
    if not named:
        hint = closest(key, dict.fromkeys((*KINDS, *beside)))
        raise SchemaError(f"There is no key {shown_key}.", hint=hint)
    raise SchemaError(f"There is no key {shown_key} beside {named[0]}.", hint=closest(key, beside))


def _check_rules(entry: Entry, kind: Kind) -> None:
    if type(entry.get("nullable", False)) is not bool:
        raise SchemaError(
            f"nullable can't be {shown(entry['nullable'])}.", hint="write true or false."
        )
    outside = entry.get("outside", "drop")
    if outside not in RULES:
        raise SchemaError(
            f"outside can't be {shown(outside)}.", hint='write "null", "drop" or "clamp".'
        )
    if outside == "null" and not entry.get("nullable", False):
        raise SchemaError(
            "A domain without NULL can't turn values outside it into NULL.",
            hint='add nullable = true, or write outside = "drop".',
        )
    if outside == "clamp" and not kind.ordered:
        raise SchemaError(
            "The domain has no ends to clamp values to.", hint='write outside = "drop".'
        )


def _rules(entry: Entry) -> dict[str, Any]:
    return {"nullable": entry.get("nullable", False), "outside": entry.get("outside")}


def _integers(given: object, entry: Entry) -> Domain:
    low, high = _pair(given, "integers", lambda v: type(v) is int)
    return Domain.integers(low, high, **_rules(entry))


def _values(given: object, entry: Entry) -> Domain:
    """Read listed whole numbers or days, for columns in which not all of a range occur."""
    listed = _list(given, "values")
    types = {type(v) for v in listed}
    if types not in ({int}, {date}):
        raise SchemaError(
            "The values are not all whole numbers, nor all dates.", hint=_example("values")
        )
    if types == {int} and not all(v in _INT64 for v in listed):
        raise SchemaError("A value does not fit a 64-bit integer.", hint="leave it out.")
    if entry.get("outside") == "clamp" and listed != sorted(listed):
        raise SchemaError("Only values in order have ends to clamp to.", hint="sort the values.")
    return Domain("BIGINT" if types == {int} else "DATE", tuple(listed), **_rules(entry))


def _decimals(given: object, entry: Entry) -> Domain:
    low, high = _pair(given, "decimals", lambda v: type(v) in {int, Decimal, str})
    if type(entry.get("step")) not in {int, Decimal, str}:
        what = "The step is missing" if "step" not in entry else "The step is not a number"
        raise SchemaError(f"{what}.", hint=_example("decimals"))
    return Domain.decimals(low, high, entry["step"], **_rules(entry))


def _dates(given: object, entry: Entry) -> Domain:
    grain, zone = entry.get("grain", "day"), entry.get("zone")
    if "zone" in entry and not isinstance(zone, str):
        raise SchemaError(f"zone can't be {shown(zone)}.", hint='write zone = "Europe/Berlin".')
    if isinstance(grain, str) and grain in CLOCK:
        first, last = _pair(given, "dates", lambda v: type(v) in {date, datetime, str})
    else:
        first, last = map(_day, _pair(given, "dates", lambda v: type(v) in {date, str}))
    return Domain.dates(first, last, grain, zone=zone, **_rules(entry))


def _day(given: object) -> date:
    try:
        return iso_date(given)
    except SchemaError as error:
        raise SchemaError(error.message, hint="write 2026-01-31.") from None


def _bins(given: object, entry: Entry) -> Domain:
    edges = _list(given, "bins")
    if len(edges) < 2:
        raise SchemaError("Bins need two edges or more.", hint=_example("bins"))
    return Domain.bins(edges, **_rules(entry))


def _labels(given: object, entry: Entry) -> Domain:
    labels = _list(given, "labels")
    if not all(type(v) is str for v in labels):
        raise SchemaError("The labels are not all texts.", hint="write each in quotes.")
    other = entry.get("other")
    if other is not None and "outside" in entry:
        raise SchemaError(
            "There are two rules for texts outside the labels, outside and other.",
            hint="keep one of them.",
        )
    if other is not None and other not in labels:
        raise SchemaError(
            f"The label {shown(other)} for other texts is not listed.", hint="add it to the labels."
        )
    return Domain.labels(labels, other=other, **_rules(entry))


def _boolean(given: object, entry: Entry) -> Domain:
    if given is not True:
        raise SchemaError(f"boolean can't be {shown(given)}.", hint="write boolean = true.")
    return Domain.boolean(nullable=entry.get("nullable", False))


def _number(given: object, entry: Entry) -> NumberBounds:
    low, high = _pair(given, "number", lambda v: type(v) in {int, Decimal, str})
    return Domain.number(low, high)


def _pair(given: object, kind: str, fits: Callable[[object], bool]) -> tuple[Any, Any]:
    if not isinstance(given, list) or len(given) != 2 or not all(map(fits, given)):
        raise SchemaError(
            f"{kind} can't be {shown(given)}: give the first and the last value.",
            hint=_example(kind),
        )
    return given[0], given[1]


def _list(given: object, kind: str) -> list[Any]:
    if not isinstance(given, list):
        raise SchemaError(f"{kind} must be a list, not {shown(given)}.", hint=_example(kind))
    return given


def _example(kind: str) -> str:
    return f"for example {KINDS[kind].example}."


KINDS = {
    "integers": Kind("integers = [0, 115]", _integers),
    "values": Kind("values = [1, 2, 3, 6]", _values),
    "decimals": Kind("decimals = [0, 99.95], step = 0.05", _decimals, ("step", *_PLACES)),
    "dates": Kind(
        'dates = [2026-01-01, 2026-12-31], grain = "month"', _dates, ("grain", "zone", *_PLACES)
    ),
    "bins": Kind("bins = [0, 10, 20, 50]", _bins),
    "labels": Kind('labels = ["a", "b"]', _labels, ("other", *_PLACES), ordered=False),
    "boolean": Kind("boolean = true", _boolean, ("nullable",), ordered=False),
    "number": Kind("number = [0, 1000]", _number, (), ordered=False),
}
"""The kinds of domain, by the key that tells them apart."""
