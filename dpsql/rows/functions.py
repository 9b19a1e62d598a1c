"""The functions that may run on private rows: a closed list, one record each, with the reason why.

A record says all that is known of a function, and nothing of it stands elsewhere. No field has a
default, and `tests/rows/test_functions.py` compares each with DuckDB.

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

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from dpsql.errors import InternalError

MANY = 1_000
"""Arguments that a function takes at most which takes any number."""
Shape = Literal[
    "absolute", "addition", "asked", "between", "bits", "bounded", "choice", "clock", "comparison",
    "extreme", "is_null", "join", "like", "logic", "membership", "named_part", "negative",
    "nullif", "part", "quotient", "real", "regex", "remainder", "rounded", "searched", "shift",
    "shown", "sign", "span", "subtext", "text", "truncated",
]  # fmt: skip
"""The types of arguments, and what is written of them: a method of the writer (`write.py`)."""
COUNTED = ("months", "days", "microseconds")
"""Units of the interval by which a time is moved."""
SYNTAX = "syntax"
"""An operation of `typed.py` and no call: each engine writes it."""


class Null(Enum):
    """The arguments for which a function is NULL."""

    NEVER = auto()
    ANY = auto()
    """Only where an argument is."""
    ALL = auto()
    """Only where all arguments are."""
    MAY = auto()
    """Perhaps where none is: it may fail, or have no value."""


class Finite(Enum):
    """The arguments for which a number is finite and of moderate size, and is no NaN."""

    ALWAYS = auto()
    BY_PART = auto()
    """Most parts of a time are."""
    SUM = auto()
    """Finite where the arguments are; it may be NaN elsewhere, as inf - inf is."""
    KEPT = auto()
    """Finite where the arguments are; it is NaN only where one of them is."""
    LEAST = auto()
    """Finite where the arguments are; it is NaN only where all of them are."""
    CHOSEN = auto()
    """It isn't said where; but it is NaN only where an argument is."""
    UNKNOWN = auto()


OF_FINITE = frozenset({Finite.SUM, Finite.KEPT, Finite.LEAST})
"""Functions whose value is finite where all arguments are."""


class Whole(Enum):
    """The arguments for which a number is a whole one, if it is finite."""

    ALWAYS = auto()
    BY_PART = auto()
    """Most parts of a time are."""
    KEPT = auto()
    """Whole where the arguments are."""
    ROUNDED = auto()
    """Without a number of places; with one, where the arguments are."""
    UNKNOWN = auto()


class Digits(Enum):
    """The number that all results are multiples of, by those of the arguments."""

    COMMON = auto()
    """The largest of which all of these are multiples."""
    PRODUCT = auto()
    UNKNOWN = auto()
    """One, of a whole number."""


class Cuts(Enum):
    """At which values of an ordered argument a function changes (`cuts.py`)."""

    PLACE = auto()
    """At constants that it is compared with."""
    PLACES = auto()
    """At each of a list."""
    NOWHERE = auto()
    """It is the same for all values but NULL."""
    INFINITY = auto()
    """At infinity and NaN, of a DOUBLE."""
    PERIODS = auto()
    """At the beginnings of periods of the calendar."""
    ARGUMENTS = auto()
    """Only where the arguments do, as it follows from them."""


@dataclass(frozen=True, slots=True)
class Grows:
    """Bounds of a function of the C library that grows, and is nothing below `start`."""

    function: Callable[[float], float]
    start: int | None = None


Bounds = tuple[int | None, int | None] | Grows | str
"""Ends; or how they follow from those of the arguments, a rule of `known.py`; empty if unknown."""


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function that may run on rows, and what is known of it.

    Args:
        shape: how it is typed and written.
        arguments: the least and the largest number of arguments.
        result: its type as DuckDB has it, if that is one; empty if it follows from the arguments.
        duckdb: DuckDB's name in `system.main`; empty if it is syntax.
        read: the names by which it is called in DuckDB's syntax tree, if it isn't syntax.
        spark: the rule by which Spark's SQL is written (`engines/spark/sql/`); empty if there is
            none, and Spark computes nothing of it.
        why: the argument for its being a function of its arguments, and fast.
        null: where it is NULL.
        finite: where it is a finite number, and no NaN.
        whole: where it is a whole number.
        digits: what its values are multiples of.
        bounds: between what its values lie.
        cuts: where it changes.
    """

    shape: Shape
    arguments: tuple[int, int]
    result: str
    duckdb: str
    read: str
    spark: str
    why: str
    null: Null
    finite: Finite
    whole: Whole
    digits: Digits
    bounds: Bounds
    cuts: Cuts


_LOGIC = "three-valued logic: a table of nine entries, on booleans"
_COMPARED = "both sides are of one type, strings are bytes; NaN is equal to itself, and the largest"
_ADDED = (
    "integers and DECIMALs are computed in a type that has all results of what they are made of; "
    "where there is none, and for DATE, in a TRY; doubles overflow to infinity"
)
_DIVIDED = "a divisor of zero is an error under some settings: a TRY makes it NULL"
_BITS = "a look at each bit of an integer of 64 at most, of a type that is written"
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
    "(`write.py`); RE2 matches in time linear in both, with bounded memory, and has no states "
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
_NO_NUMBER = (Finite.UNKNOWN, Whole.UNKNOWN, Digits.UNKNOWN)
_BOOLEAN, _COUNT, _UNIT = (0, 1), (0, None), (-1, 1)
_SIGNS = "= <> < <= > >="
COMPARISONS = frozenset(_SIGNS.split())
"""Comparisons that are NULL where one of their sides is."""
_COMPARE = f"{_SIGNS} is_distinct is_not_distinct"
_REALS: dict[str, Bounds] = {
    "sqrt": Grows(math.sqrt, 0), "cbrt": Grows(math.cbrt), "exp": Grows(math.exp),
    "ln": Grows(math.log, 0), "log10": Grows(math.log10, 0), "log2": Grows(math.log2, 0),
    "sin": _UNIT, "cos": _UNIT, "tan": "", "asin": (-2, 2), "acos": (0, 4),
    "atan": Grows(math.atan), "radians": Grows(math.radians), "degrees": Grows(math.degrees),
    "pow": "power", "atan2": (-4, 4),
}  # fmt: skip
_OF_TWO_REALS = {"pow": "pow power ** ^", "atan2": "atan2"}
"""Functions of two doubles, and the names by which they are read."""

FUNCTIONS: dict[str, RowFunction] = {
    # shape, arguments, result, duckdb, read, spark, why,
    #   null, finite, whole, digits, bounds, cuts
    **{name: RowFunction("logic", (1, MANY), "BOOLEAN", "", "", SYNTAX, _LOGIC,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.ARGUMENTS)
       for name in ("and", "or")},
    "not": RowFunction("logic", _ONE, "BOOLEAN", "", "", SYNTAX, _LOGIC,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.ARGUMENTS),
    **{name: RowFunction("comparison", _TWO, "BOOLEAN", "", "", SYNTAX, _COMPARED,
        Null.NEVER if name.startswith("is_") else Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.PLACE)
       for name in _COMPARE.split()},
    "between": RowFunction("between", (3, 3), "BOOLEAN", "", "", SYNTAX, _COMPARED,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.PLACE),
    "in": RowFunction("membership", (2, MANY), "BOOLEAN", "", "", SYNTAX, _COMPARED,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.PLACES),
    "is_null": RowFunction("is_null", _ONE, "BOOLEAN", "", "", SYNTAX,
        "a look at the bit that says so",
        Null.NEVER, *_NO_NUMBER, _BOOLEAN, Cuts.NOWHERE),
    "coalesce": RowFunction("choice", (1, MANY), "", "", "coalesce ifnull", SYNTAX, _CHOICE,
        Null.ALL, Finite.CHOSEN, Whole.KEPT, Digits.COMMON, "any", Cuts.ARGUMENTS),
    "nullif": RowFunction("nullif", _TWO, "", "", "nullif", SYNTAX, _CHOICE,
        Null.MAY, Finite.CHOSEN, Whole.KEPT, Digits.COMMON, "first", Cuts.ARGUMENTS),
    "least": RowFunction("extreme", (1, MANY), "", "least", "least", "extreme", _CHOICE,
        Null.ALL, Finite.LEAST, Whole.KEPT, Digits.COMMON, "extreme", Cuts.ARGUMENTS),
    "greatest": RowFunction("extreme", (1, MANY), "", "greatest", "greatest", "extreme", _CHOICE,
        Null.ALL, Finite.KEPT, Whole.KEPT, Digits.COMMON, "extreme", Cuts.ARGUMENTS),
    "bounded": RowFunction("bounded", (3, 3), "", "", "", SYNTAX,
        "an exact number, or the nearer of two constants",
        Null.MAY, *_NO_NUMBER, "", Cuts.ARGUMENTS),
    "+": RowFunction("addition", _TWO, "", "+", "+ add", "arithmetic", _ADDED,
        Null.MAY, Finite.SUM, Whole.KEPT, Digits.COMMON, "sum", Cuts.ARGUMENTS),
    "-": RowFunction("addition", _TWO, "", "-", "- subtract", "minus", _ADDED,
        Null.MAY, Finite.SUM, Whole.KEPT, Digits.COMMON, "difference", Cuts.ARGUMENTS),
    "*": RowFunction("addition", _TWO, "", "*", "* multiply", "arithmetic", _ADDED,
        Null.MAY, Finite.SUM, Whole.KEPT, Digits.PRODUCT, "product", Cuts.ARGUMENTS),
    "negative": RowFunction("negative", _ONE, "", "-", "", "minus", _ADDED,
        Null.MAY, Finite.KEPT, Whole.KEPT, Digits.COMMON, "negative", Cuts.ARGUMENTS),
    "/": RowFunction("quotient", _TWO, "", "/", "/", "quotient", _DIVIDED,
        Null.MAY, *_NO_NUMBER, "quotient", Cuts.ARGUMENTS),
    "//": RowFunction("remainder", _TWO, "", "//", "// divide", "remainder", _DIVIDED,
        Null.MAY, *_NO_NUMBER, "whole quotient", Cuts.ARGUMENTS),
    "%": RowFunction("remainder", _TWO, "", "%", "% mod", "remainder", _DIVIDED,
        Null.MAY, Finite.UNKNOWN, Whole.KEPT, Digits.UNKNOWN, "remainder", Cuts.ARGUMENTS),
    "abs": RowFunction("absolute", _ONE, "", "abs", "abs @", "absolute", _ADDED,
        Null.MAY, Finite.KEPT, Whole.KEPT, Digits.COMMON, "absolute", Cuts.ARGUMENTS),
    "sign": RowFunction("sign", _ONE, "TINYINT", "sign", "sign", "sign",
        "one of −1, 0, 1; NaN gives 0",
        Null.ANY, Finite.ALWAYS, Whole.ALWAYS, Digits.UNKNOWN, _UNIT, Cuts.ARGUMENTS),
    "bit_count": RowFunction("bits", _ONE, "TINYINT", "bit_count", "bit_count", "bits", _BITS,
        Null.ANY, Finite.ALWAYS, Whole.ALWAYS, Digits.UNKNOWN, (0, 64), Cuts.ARGUMENTS),
    "round": RowFunction("rounded", (1, 2), "", "round", "round", "rounded", _ROUNDED,
        Null.MAY, Finite.CHOSEN, Whole.ROUNDED, Digits.UNKNOWN, "rounded", Cuts.ARGUMENTS),
    **{name: RowFunction("rounded", _ONE, "", name, read, "rounded", _ROUNDED,
        Null.MAY, Finite.CHOSEN, Whole.ALWAYS, Digits.UNKNOWN, "rounded", Cuts.ARGUMENTS)
       for name, read in {"floor": "floor", "ceil": "ceil ceiling", "trunc": "trunc"}.items()},
    **{name: RowFunction("real", _TWO if name in _OF_TWO_REALS else _ONE, "DOUBLE",
        name, _OF_TWO_REALS.get(name, name), "plain" if name == "sqrt" else "", _REAL,
        Null.MAY, *_NO_NUMBER, bounds, Cuts.ARGUMENTS)
       for name, bounds in _REALS.items()},
    **{name: RowFunction("asked", _ONE, "BOOLEAN", name, name, spark, _REAL,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.INFINITY)
       for name, spark in {"isnan": "isnan", "isfinite": "isfinite", "isinf": "isfinite"}.items()},
    **{name: RowFunction("text", _ONE, "VARCHAR", name, read, "letters", _TEXT,
        Null.ANY, *_NO_NUMBER, "", Cuts.ARGUMENTS)
       for name, read in {"lower": "lower lcase", "upper": "upper ucase"}.items()},
    **{name: RowFunction("text", _ONE, "VARCHAR", name, name, "trimmed", _TEXT,
        Null.ANY, *_NO_NUMBER, "", Cuts.ARGUMENTS)
       for name in ("trim", "ltrim", "rtrim")},
    "length": RowFunction("text", _ONE, "BIGINT", "length",
        "length len char_length character_length", "length", _TEXT,
        Null.ANY, Finite.ALWAYS, Whole.ALWAYS, Digits.UNKNOWN, "length", Cuts.ARGUMENTS),
    "strlen": RowFunction("text", _ONE, "BIGINT", "strlen", "strlen", "length", _TEXT,
        Null.ANY, Finite.ALWAYS, Whole.ALWAYS, Digits.UNKNOWN, _COUNT, Cuts.ARGUMENTS),
    "||": RowFunction("join", _TWO, "VARCHAR", "||", "||", "joined", _JOINED,
        Null.ANY, *_NO_NUMBER, "", Cuts.ARGUMENTS),
    **{name: RowFunction("subtext", arguments, "VARCHAR", name, read, "subtext", _SUBTEXT,
        Null.ANY, *_NO_NUMBER, "", Cuts.ARGUMENTS)
       for name, arguments, read in (
         ("substring", (2, 3), "substring substr"), ("left", _TWO, "left"),
         ("right", _TWO, "right"))},
    **{name: RowFunction("searched", _TWO, "BOOLEAN", duckdb, read, "searched", _SEARCHED,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.ARGUMENTS)
       for name, duckdb, read in (
         ("contains", "contains", "contains"),
         ("starts_with", "starts_with", "starts_with prefix ^@"),
         ("ends_with", "suffix", "ends_with suffix"))},
    "strpos": RowFunction("searched", _TWO, "BIGINT", "instr", "strpos instr position",
        "searched", _SEARCHED,
        Null.ANY, Finite.ALWAYS, Whole.ALWAYS, Digits.UNKNOWN, _COUNT, Cuts.ARGUMENTS),
    **{name: RowFunction("like", _TWO, "BOOLEAN", "~~", read, "like", _LIKE,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.ARGUMENTS)
       for name, read in {"like": "~~", "ilike": "~~*"}.items()},
    **{name: RowFunction("regex", (2, 3), "BOOLEAN", name, name, "", _REGEX,
        Null.ANY, *_NO_NUMBER, _BOOLEAN, Cuts.ARGUMENTS)
       for name in ("regexp_matches", "regexp_full_match")},
    "date_part": RowFunction("part", _TWO, "", "date_part", "date_part datepart", "part", _CALENDAR,
        Null.MAY, Finite.BY_PART, Whole.BY_PART, Digits.UNKNOWN, "part", Cuts.PERIODS),
    **{name: RowFunction("named_part", _ONE, "VARCHAR", name, name, "named", _CALENDAR,
        Null.MAY, *_NO_NUMBER, "", Cuts.PERIODS)
       for name in ("dayname", "monthname")},
    "strftime": RowFunction("shown", _TWO, "VARCHAR", "strftime", "strftime", "", _SHOWN,
        Null.MAY, *_NO_NUMBER, "", Cuts.PERIODS),
    "date_trunc": RowFunction("truncated", _TWO, "TIMESTAMP", "date_trunc",
        "date_trunc datetrunc", "truncated", _SPAN,
        Null.MAY, *_NO_NUMBER, "truncated", Cuts.PERIODS),
    "date_diff": RowFunction("span", (3, 3), "BIGINT", "date_diff",
        "date_diff datediff", "span", _SPAN,
        Null.MAY, *_NO_NUMBER, "span", Cuts.ARGUMENTS),
    "shift": RowFunction("shift", _TWO, "TIMESTAMP", "+", "", SYNTAX, _SHIFTED,
        Null.MAY, *_NO_NUMBER, "shift", Cuts.ARGUMENTS),
    "clock": RowFunction("clock", _TWO, "TIMESTAMP", "", "", SYNTAX, _CLOCK,
        Null.MAY, *_NO_NUMBER, "clock", Cuts.ARGUMENTS),
}  # fmt: skip


def check_column(column: str, rules: set[str]) -> None:
    """Check that there is a rule for each word that stands in a column, and a word for each rule.

    Raises:
        InternalError: there isn't, so a function would be left without it.
    """
    words = {getattr(listed, column) for listed in FUNCTIONS.values()}
    odd = sorted({word for word in words if isinstance(word, str)} ^ rules)
    if odd:
        raise InternalError(f"no rule, or no function, for the {column} of rows: {odd}")


def of_shapes(*shapes: Shape) -> frozenset[str]:
    """Return the names of the functions of some shapes."""
    return frozenset(name for name, listed in FUNCTIONS.items() if listed.shape in shapes)
