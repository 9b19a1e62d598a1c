"""Entries: what the owner declares of one column or expression, as text.

    { integers = [0, 115], nullable = true }              in a schema file
    dpsql.Domain.integers(0, 115, nullable=True)          in Python
    dpsql: {"integers": [0, 115], "nullable": true}       in a comment of the database

Comments are on tables, too, with all that is declared of rows:

    COMMENT ON TABLE visits IS 'dpsql: {"unit": "person_id", "max_rows": 3}';
    COMMENT ON TABLE orders IS 'dpsql: {"references": {"customer_id": "customers.id"}}';
    COMMENT ON TABLE sales IS 'dpsql: {"expressions": {"price * (1 - discount)": [0, 110000]}}';
    COMMENT ON COLUMN sales.price IS 'dpsql: {"number": [0, 200000]}';

A column's comment has the keys of its entry in a schema file. Other comments are left alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import Declaration, Domain, NumberBounds, UnknownBounds, UnknownKeys
from dpsql.schema.kinds import Part, declared, rules
from dpsql.schema.names import as_sql, closest, folded
from dpsql.schema.sequences import CLOCK, decimal_text, iso_date, shown

# ── Bounds of expressions of a row: what the owner knows beyond what follows from the columns ────
#
#     dpsql.Schema({}, expressions={"sales": {"price * (1 - discount)": (0, 110_000)}})
#
# A price may go up to 200,000 and a discount down to 0, and yet no product be above 110,000: what a
# row adds to a sum is then brought between these, and less noise is needed. Nothing private rests
# on their being true, as each row is brought between them, whatever it holds.
#
# Here the text is looked at only so far as to know its columns. It is read as statements are, into
# a tree (`dpsql/sql/frontend.py`), and found in statements by that tree, not by the text.


MAX_CHARACTERS = 10_000
"""Longer expressions are refused unread."""
MOST = 1_000
"""Expressions of one table."""
Declared = Mapping[str, NumberBounds]
"""Expression, as it is written → its bounds."""
_EXAMPLE = 'for example {"price * (1 - discount)": (0, 1000)}.'


class BoundedExpression(NamedTuple):
    """An expression of a row whose bounds may be declared, or found."""

    text: str
    """The expression, as it is written of the table's own columns."""
    columns: frozenset[str]


def read_expressions(table: str, given: object) -> Declared:
    """Read the bounds of expressions of a table, as Python, a file or a comment has them.

    Raises:
        SchemaError: they are malformed, or bounds are reversed or not finite.
    """
    if not isinstance(given, Mapping) or len(given) > MOST:
        raise SchemaError(
            f"The expressions of {printable(table)} are {shown(given)}.",
            hint=f"at most {MOST:,} expressions have bounds; {_EXAMPLE}",
        )
    found: dict[str, NumberBounds] = {}
    for text, bounds in given.items():
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_CHARACTERS:
            raise SchemaError(
                f"{shown(text)} is not an expression of {printable(table)}.", hint=_EXAMPLE
            )
        try:
            found[text] = _bounds(bounds)
        except SchemaError as error:
            message = f"The bounds of {_brief(text)} in {printable(table)}: {error.message}"
            raise SchemaError(message, hint=error.hint) from None
    return MappingProxyType(found)


def _bounds(given: object) -> NumberBounds:
    if isinstance(given, NumberBounds):
        return given
    if isinstance(given, Mapping) and set(given) == {"number"}:
        given = given["number"]
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise SchemaError(
            f"{shown(given)} is not a pair of bounds.",
            hint="write the least and the largest value.",
        )
    low, high = given
    return Domain.number(low, high)


def check_expressions(table: str, expressions: Declared, columns: Iterable[str]) -> None:
    """Check that each is an expression of columns that the table has.

    Raises:
        SchemaError: one isn't.
    """
    known = {folded(name): name for name in columns}
    for text in expressions:
        tree = _parsed(table, text)
        for column in tree.find_all(exp.Column):
            if folded(column.name) not in known:
                raise SchemaError(
                    f"The schema bounds {_brief(text)}, but {printable(table)} has no column "
                    f"{printable(column.name)}.",
                    hint=closest(column.name, known.values(), as_sql),
                )


def _parsed(table: str, text: str) -> exp.Expr:
    """Parse an expression. What may run on rows is decided where it is read as statements are."""
    try:
        tree = sqlglot.parse_one(text, read="duckdb")
    except (SqlglotError, RecursionError):
        tree = None
    columns = [] if tree is None else list(tree.find_all(exp.Column))
    if tree is None or not isinstance(tree, exp.Condition) or not columns:
        raise SchemaError(
            f"{_brief(text)} is not an expression of a row of {printable(table)}.", hint=_EXAMPLE
        )
    if any(tree.find_all(exp.Query, exp.AggFunc, exp.Window)):
        raise SchemaError(
            f"{_brief(text)} is not of one row of {printable(table)} alone.",
            hint="leave out subqueries, aggregates and windows: bounds are for what is added up "
            "in each row.",
        )
    if any(column.table for column in columns):
        raise SchemaError(
            f"{_brief(text)} names a column with its table.",
            hint=f"all columns are those of {printable(table)}: write their names alone.",
        )
    return tree


def _brief(text: str) -> str:
    return printable(text if len(text) <= 80 else f"{text[:80]}…")


Entry = Mapping[str, Any]
RULES = ("null", "drop", "clamp")
_PLACES = ("nullable", "outside")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of domain: how it is read, and what may stand beside it."""

    example: str
    read: Callable[[Any, Entry], Declaration]
    beside: tuple[str, ...] = _PLACES
    """Keys that may stand beside it."""
    ordered: bool = True
    """Whether it has ends that values can be clamped to."""


def read_domain(entry: object) -> Declaration:
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


def _check_rules(entry: Entry, kind: Reader) -> None:
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


def _number(given: object, entry: Entry) -> NumberBounds | UnknownBounds:
    if given is True:
        return UnknownBounds()
    low, high = _pair(given, "number", lambda v: type(v) in {int, Decimal, str})
    return Domain.number(low, high)


def _keys(given: object, entry: Entry) -> UnknownKeys:
    if given is not True:
        raise SchemaError(f"keys can't be {shown(given)}.", hint="write keys = true.")
    return UnknownKeys(**{name: entry[name] for name in ("other",) if name in entry})


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
    "integers": Reader("integers = [0, 115]", _integers),
    "values": Reader("values = [1, 2, 3, 6]", _values),
    "decimals": Reader("decimals = [0, 99.95], step = 0.05", _decimals, ("step", *_PLACES)),
    "dates": Reader(
        'dates = [2026-01-01, 2026-12-31], grain = "month"', _dates, ("grain", "zone", *_PLACES)
    ),
    "bins": Reader("bins = [0, 10, 20, 50]", _bins),
    "labels": Reader('labels = ["a", "b"]', _labels, ("other", *_PLACES), ordered=False),
    "boolean": Reader("boolean = true", _boolean, ("nullable",), ordered=False),
    "number": Reader("number = [0, 1000]", _number, (), ordered=False),
    "keys": Reader("keys = true", _keys, ("other",), ordered=False),
}
"""The kinds of domain, by the key that tells them apart."""


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────

WIDTH = 100
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_FLOAT_DIGITS = 15
"""Other programs read a decimal as a float, which keeps so many digits."""


def as_entry(name: str, domain: Declaration) -> str:
    """Write a column's entry in a schema file."""
    kind, parts, beside = declared(domain)
    written = [_toml(part) for part in parts]
    values = f"{kind} = [{', '.join(written)}]" if parts else f"{kind} = true"
    if isinstance(parts, list):
        values = listed(kind, written)
    more = (f"{key} = {_toml(part)}" for key, part in {**beside, **rules(domain)}.items())
    return f"{toml_key(name)} = {{ {', '.join([values, *more])} }}"


def as_code(domain: Declaration) -> str:
    """Write bounds, or a domain but for one of listed numbers or days, in Python."""
    kind, parts, beside = declared(domain)
    written = ", ".join(map(_code, parts))
    values = [f"[{written}]" if isinstance(parts, list) else written] if parts else []
    more = [f"{key}='{_plain(part)}'" for key, part in beside.items()]
    more += [f"{key}={_code(part)}" for key, part in rules(domain).items()]
    return f"dpsql.Domain.{kind}({', '.join([*values, *more])})"


def _toml(part: Part) -> str:
    """Spell a part in a schema file: in quotes, too, what other programs would round."""
    if part is True:
        return "true"
    text = _plain(part)
    quoted = isinstance(part, str | datetime)  # TOML has datetimes only with seconds
    if isinstance(part, Decimal):
        quoted = len(part.as_tuple().digits) > _FLOAT_DIGITS
    elif isinstance(part, Fraction):
        quoted = len(text.strip("-").replace(".", "")) > _FLOAT_DIGITS
    return toml_text(text) if quoted else text


def _code(part: Part) -> str:
    """Spell a part in Python: in quotes, too, decimals and dates."""
    if isinstance(part, str):
        return toml_text(part)  # Python reads its escapes, too
    whole = isinstance(part, Fraction) and part.denominator == 1
    return _plain(part) if whole or isinstance(part, int | float) else f"'{_plain(part)}'"


def _plain(part: Part) -> str:
    if isinstance(part, Fraction):
        return decimal_text(part)
    if isinstance(part, Decimal):
        return f"{part:f}"
    if isinstance(part, datetime):
        return part.isoformat(" ", "minutes")
    return repr(part).removesuffix(".0") if isinstance(part, float) else str(part)


def listed(kind: str, values: Iterable[str]) -> str:
    """Write a list of a schema file, over several lines if it is long."""
    lines = [""]
    for value in values:
        if len(lines[-1]) + len(value) > WIDTH - len(kind):
            lines.append("")
        lines[-1] += f"{value}, "
    if len(lines) == 1:
        return f"{kind} = [{lines[0].removesuffix(', ')}]"
    return f"{kind} = [\n" + "".join(f"    {line.rstrip()}\n" for line in lines) + "]"


def toml_key(name: str) -> str:
    """Write a name as a key: in quotes if it needs them."""
    return name if _BARE.fullmatch(name) else toml_text(name)


def toml_text(text: str) -> str:
    """Write a text in quotes; whatever can't be seen is escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    return c if c.isprintable() else f"\\U{ord(c):08X}"


# ── Comments ──────────────────────────────────────────────────────────────────────────────────────

PREFIX = "dpsql:"


def read_comment(comment: str | None) -> object:
    """Return what a comment for dpsql says, as JSON; None if it is not JSON.

    Nor if it is for others.
    """
    if not is_ours(comment) or comment is None:
        return None
    try:
        return json.loads(comment.strip().removeprefix(PREFIX), parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def is_ours(comment: str | None) -> bool:
    """Whether a comment is meant for dpsql."""
    return comment is not None and comment.strip().startswith(PREFIX)


def expressions_of(table: str, comment: str | None) -> Declared:
    """Return the bounds of expressions that a table's comment declares.

    Raises:
        SchemaError: they are malformed.
    """
    return read_expressions(table, _said_of("expressions", comment))


def references_of(table: str, comment: str | None) -> dict[str, str]:
    """Return what a table's comment says that its rows refer to.

    Raises:
        SchemaError: it is malformed.
    """
    return references_from(table, _said_of("references", comment))


def _said_of(key: str, comment: str | None) -> object:
    entry = read_comment(comment)
    return entry.get(key, {}) if isinstance(entry, Mapping) else {}


def references_from(table: str, given: object) -> dict[str, str]:
    """Read references that are declared of a table: its own columns need no name before them.

    Raises:
        SchemaError: they are malformed.
    """
    if not is_of_texts(given):
        raise SchemaError(
            f"{printable(table)}: references map columns to the columns that they refer to.",
            hint='for example {"customer_id": "customers.id"}; of several, "shop, nr": '
            '"orders.shop, orders.nr".',
        )
    return {
        ", ".join(f"{table}.{column.strip()}" for column in columns.split(",")): key
        for columns, key in given.items()
    }


def is_of_texts(given: object) -> TypeGuard[Mapping[str, str]]:
    """Whether something maps texts to texts, none of which is empty."""
    return isinstance(given, Mapping) and all(
        isinstance(text, str) and text.strip() for pair in given.items() for text in pair
    )


def domains_of(table: str, columns: Iterable[tuple[str, str | None]]) -> dict[str, Declaration]:
    """Return the domains and bounds that comments on columns declare.

    Args:
        table: whose columns they are.
        columns: the name and the comment of each.

    Raises:
        SchemaError: a comment is meant for dpsql and not understood.
    """
    return {name: _domain(table, name, comment) for name, comment in columns if is_ours(comment)}


def _domain(table: str, name: str, comment: str | None) -> Declaration:
    entry: Any = read_comment(comment)
    try:
        if not isinstance(entry, Mapping):
            raise SchemaError(
                "It is not JSON.",
                hint="write COMMENT ON COLUMN … IS 'dpsql: {\"number\": [0, 9]}'.",
            )
        return read_domain(entry)
    except SchemaError as error:
        message = f"The comment on the column {printable(table)}.{printable(name)} is not "
        raise SchemaError(f"{message}understood: {error.message}", hint=error.hint) from None
