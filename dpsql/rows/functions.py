"""The functions that may run on private rows: a closed list, each with the reason why.

Guarantees:
    Whatever is listed is a function of its arguments alone. It reads no other row, no file, no
    setting of the session, neither clock, time zone, locale nor catalog, draws no random number,
    keeps no state, prints and waits for nothing. Its result is not larger than its arguments by
    more than a constant, and its time is linear in their size. It is syntax with total operands,
    or arithmetic that its types prove to be total (`operands.py`), or it is written in a TRY of
    its own, whether it is known to fail or not: a row for which it fails gets NULL.

DuckDB's settings `ieee_floating_point_ops` and `error_on_division_by_zero` decide whether a
quotient by zero or a logarithm of zero is infinite, NULL or an error. The first is refused if it
isn't DuckDB's default (`engines/duckdb/settings.py`), and of an error TRY makes NULL.

What is not listed, for example: repeat, lpad, replace, concat (results may be much larger than what
they are made of); levenshtein, jaccard (quadratic time); printf, strptime (formats that fail);
regexp_replace, regexp_extract; now, random, current_setting, getvariable, nextval, error,
write_log, sleep_ms, query; anything of lists, JSON, BLOB; of TIMESTAMPTZ anything but `clock`,
which asks for no zone but the one that is written.
"""

from __future__ import annotations

from dataclasses import dataclass

MANY = 1_000
"""Arguments that a function takes at most which takes any number."""


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function that may run on rows.

    Args:
        shape: how it is typed and written: a method of the writer (`write.py`).
        arguments: the least and the largest number of arguments.
        why: the argument for its being a function of its arguments, and fast.
        name: DuckDB's name in `system.main`; empty if it is syntax.
        gives: the result's type, where the shape leaves it open.
    """

    shape: str
    arguments: tuple[int, int]
    why: str
    name: str = ""
    gives: str = ""


_LOGIC = "three-valued logic: a table of nine entries, on booleans"
_COMPARED = "both sides are of one type, strings are bytes; NaN is equal to itself, and the largest"
_ADDED = (
    "integers and DECIMALs are computed in a type that has all results of what they are made of; "
    "where there is none, and for DATE, in a TRY; doubles overflow to infinity"
)
_DIVIDED = "a divisor of zero is an error under some settings: a TRY makes it NULL"
_ROUNDED = "doubles are total; a DECIMAL may have no digit left for the result: in a TRY"
_REAL = (
    "a function of one double (or two) of the C library, a few nanoseconds; outside of its range "
    "it is NaN, or an error under some settings: in a TRY"
)
_TEXT = (
    "one pass over the characters, which are those of valid UTF-8, by tables that are built in; "
    "the result is not longer than twice the argument"
)
_JOINED = (
    "two texts, or values as texts, one after the other; there are eight columns at most in it, so "
    "the result is not longer than eight times the longest of them, and the constants"
)
_SUBTEXT = "one pass over the text; places are constants of at most nine digits"
_SEARCHED = "search for a constant string in linear time, by its bytes; a boolean or a place"
_LIKE = (
    "the pattern is a constant; the time is linear in the text for each % of the pattern, which "
    "are matched from left to right, each as early as can be"
)
_REGEX = (
    "the pattern is a constant of at most 1,000 characters that is read, and refused, when the "
    "statement is bound, and not much longer if counted repetitions are written out "
    "(`patterns.py`); RE2 matches in time linear in both, with bounded memory, and has no states "
    "that outlive a row"
)
_CALENDAR = (
    "proleptic Gregorian calendar of a DATE or TIMESTAMP without time zone, or a TIME within a "
    "day; the part is a constant of a list; infinite times give NULL, "
    "and so do the ends of the type, where weeks overflow"
)
_SPAN = "the unit is a constant of a list; far times overflow: in a TRY"
_SHIFTED = (
    "the interval is a constant of at most ten thousand years; months are those of the proleptic "
    "Gregorian calendar; far times overflow: in a TRY"
)
_CLOCK = (
    "what a clock shows at an instant, in a zone that is a constant: a look at the table of the "
    "zone, which is the same for all rows; infinite where the instant is; in a TRY"
)
_SHOWN = (
    "the format is a constant of at most 100 characters, with signs of a list, which DuckDB writes "
    "in English, whatever the locale; infinite times give NULL; in a TRY"
)
_CHOICE = "chooses among its arguments, which are of one type"

_TWO, _ONE = (2, 2), (1, 1)


def _reals(names: str, count: tuple[int, int]) -> dict[str, RowFunction]:
    return {
        name: RowFunction("real", count, _REAL, name=name, gives="DOUBLE") for name in names.split()
    }


def _compared(names: str) -> dict[str, RowFunction]:
    return {name: RowFunction("comparison", _TWO, _COMPARED) for name in names.split()}


FUNCTIONS: dict[str, RowFunction] = {
    "and": RowFunction("logic", (1, MANY), _LOGIC),
    "or": RowFunction("logic", (1, MANY), _LOGIC),
    "not": RowFunction("logic", _ONE, _LOGIC),
    **_compared("= <> < <= > >="),
    "is_distinct": RowFunction("comparison", _TWO, _COMPARED),
    "is_not_distinct": RowFunction("comparison", _TWO, _COMPARED),
    "between": RowFunction("between", (3, 3), _COMPARED),
    "in": RowFunction("membership", (2, MANY), _COMPARED),
    "is_null": RowFunction("is_null", _ONE, "a look at the bit that says so"),
    "coalesce": RowFunction("choice", (1, MANY), _CHOICE),
    "nullif": RowFunction("nullif", _TWO, _CHOICE),
    "least": RowFunction("extreme", (1, MANY), _CHOICE, name="least"),
    "greatest": RowFunction("extreme", (1, MANY), _CHOICE, name="greatest"),
    "bounded": RowFunction("bounded", (3, 3), "an exact number, or the nearer of two constants"),
    "+": RowFunction("addition", _TWO, _ADDED, name="+"),
    "-": RowFunction("addition", _TWO, _ADDED, name="-"),
    "*": RowFunction("addition", _TWO, _ADDED, name="*"),
    "negative": RowFunction("negative", _ONE, _ADDED, name="-"),
    "/": RowFunction("quotient", _TWO, _DIVIDED, name="/"),
    "//": RowFunction("remainder", _TWO, _DIVIDED, name="//"),
    "%": RowFunction("remainder", _TWO, _DIVIDED, name="%"),
    "abs": RowFunction("absolute", _ONE, _ADDED, name="abs"),
    "sign": RowFunction("sign", _ONE, "one of −1, 0, 1; NaN gives 0", name="sign"),
    "round": RowFunction("rounded", (1, 2), _ROUNDED, name="round"),
    "floor": RowFunction("rounded", _ONE, _ROUNDED, name="floor"),
    "ceil": RowFunction("rounded", _ONE, _ROUNDED, name="ceil"),
    "trunc": RowFunction("rounded", _ONE, _ROUNDED, name="trunc"),
    **_reals("sqrt cbrt exp ln log10 log2 sin cos tan asin acos atan radians degrees", _ONE),
    **_reals("pow atan2", _TWO),
    "isnan": RowFunction("real", _ONE, _REAL, name="isnan", gives="BOOLEAN"),
    "isfinite": RowFunction("real", _ONE, _REAL, name="isfinite", gives="BOOLEAN"),
    "isinf": RowFunction("real", _ONE, _REAL, name="isinf", gives="BOOLEAN"),
    "lower": RowFunction("text", _ONE, _TEXT, name="lower", gives="VARCHAR"),
    "upper": RowFunction("text", _ONE, _TEXT, name="upper", gives="VARCHAR"),
    "trim": RowFunction("text", _ONE, _TEXT, name="trim", gives="VARCHAR"),
    "ltrim": RowFunction("text", _ONE, _TEXT, name="ltrim", gives="VARCHAR"),
    "rtrim": RowFunction("text", _ONE, _TEXT, name="rtrim", gives="VARCHAR"),
    "length": RowFunction("text", _ONE, _TEXT, name="length", gives="BIGINT"),
    "strlen": RowFunction("text", _ONE, _TEXT, name="strlen", gives="BIGINT"),
    "||": RowFunction("join", _TWO, _JOINED, name="||"),
    "substring": RowFunction("subtext", (2, 3), _SUBTEXT, name="substring"),
    "left": RowFunction("subtext", _TWO, _SUBTEXT, name="left"),
    "right": RowFunction("subtext", _TWO, _SUBTEXT, name="right"),
    "contains": RowFunction("searched", _TWO, _SEARCHED, name="contains", gives="BOOLEAN"),
    "starts_with": RowFunction("searched", _TWO, _SEARCHED, name="starts_with", gives="BOOLEAN"),
    "ends_with": RowFunction("searched", _TWO, _SEARCHED, name="suffix", gives="BOOLEAN"),
    "strpos": RowFunction("searched", _TWO, _SEARCHED, name="instr", gives="BIGINT"),
    "like": RowFunction("like", _TWO, _LIKE, name="~~"),
    "ilike": RowFunction("like", _TWO, _LIKE, name="~~"),
    "regexp_matches": RowFunction("regex", (2, 3), _REGEX, name="regexp_matches"),
    "regexp_full_match": RowFunction("regex", (2, 3), _REGEX, name="regexp_full_match"),
    "date_part": RowFunction("part", _TWO, _CALENDAR, name="date_part"),
    "dayname": RowFunction("named_part", _ONE, _CALENDAR, name="dayname", gives="VARCHAR"),
    "monthname": RowFunction("named_part", _ONE, _CALENDAR, name="monthname", gives="VARCHAR"),
    "strftime": RowFunction("shown", _TWO, _SHOWN, name="strftime", gives="VARCHAR"),
    "date_trunc": RowFunction("truncated", _TWO, _SPAN, name="date_trunc"),
    "date_diff": RowFunction("span", (3, 3), _SPAN, name="date_diff", gives="BIGINT"),
    "shift": RowFunction("shift", _TWO, _SHIFTED, name="+", gives="TIMESTAMP"),
    "clock": RowFunction("clock", _TWO, _CLOCK, gives="TIMESTAMP"),
}

PARTS: dict[str, tuple[int, int] | None] = {
    "year": None, "isoyear": None, "decade": None, "century": None, "millennium": None,
    "yearweek": None, "era": (0, 1), "quarter": (1, 4), "month": (1, 12), "week": (1, 53),
    "dayofyear": (1, 366), "day": (1, 31), "dayofweek": (0, 6), "isodow": (1, 7),
    "hour": (0, 23), "minute": (0, 59), "second": (0, 59), "millisecond": (0, 59_999),
    "microsecond": (0, 59_999_999), "julian": None, "epoch": None,
}  # fmt: skip
"""Parts of a time, and the least and the largest value."""

_UNITS = """
    microsecond millisecond second minute hour day week month quarter year decade century millennium
"""
UNITS = frozenset(_UNITS.split())
"""What `date_trunc` cuts to, and `date_diff` counts."""

ALIASES = {
    "year": "year", "years": "year", "yr": "year", "y": "year", "yrs": "year",
    "month": "month", "months": "month", "mon": "month", "mons": "month",
    "day": "day", "days": "day", "d": "day", "dayofmonth": "day",
    "hour": "hour", "hours": "hour", "hr": "hour", "hrs": "hour", "h": "hour",
    "minute": "minute", "minutes": "minute", "min": "minute", "mins": "minute", "m": "minute",
    "second": "second", "seconds": "second", "sec": "second", "secs": "second", "s": "second",
    "millisecond": "millisecond", "milliseconds": "millisecond", "ms": "millisecond",
    "microsecond": "microsecond", "microseconds": "microsecond", "us": "microsecond",
    "week": "week", "weeks": "week", "w": "week", "weekofyear": "week",
    "quarter": "quarter", "quarters": "quarter", "decade": "decade", "decades": "decade",
    "century": "century", "centuries": "century", "millennium": "millennium",
    "millennia": "millennium", "dayofyear": "dayofyear", "doy": "dayofyear",
    "dayofweek": "dayofweek", "dow": "dayofweek", "weekday": "dayofweek", "isodow": "isodow",
    "isoyear": "isoyear", "yearweek": "yearweek", "era": "era", "epoch": "epoch",
    "julian": "julian",
}  # fmt: skip
"""Words for parts and units as DuckDB takes them."""

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
