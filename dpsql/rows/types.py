"""The types that a row expression may have, under DuckDB's names.

Each operand is brought to one of them by a cast that is written out, so that DuckDB has nothing
to cast by itself: a cast that nobody wrote would be a scalar that can fail outside of any TRY.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial, reduce

from dpsql.errors import UnsupportedSqlError, printable
from dpsql.schema.domain import other_type
from dpsql.schema.names import capitals

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_INTEGERS = {name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in _BITS.items()} | {
    f"U{name}": (0, 2**bits - 1) for name, bits in _BITS.items() if bits < 128
}
_CALENDAR = ("DATE", "TIMESTAMP", "TIMESTAMP_NS")
"""Types that have a calendar day: of two of them DuckDB compares in the later one."""
COARSE = frozenset({"TIMESTAMP_S", "TIMESTAMP_MS"})
"""Types of columns that are read as TIMESTAMP, and stand nowhere else.

They have times that TIMESTAMP hasn't, of which DuckDB makes no text, and which it can't cast to
each other: it fails for good, also in TRY_CAST.
"""
_PLAIN = frozenset({"BOOLEAN", "FLOAT", "DOUBLE", "VARCHAR", *_CALENDAR, *COARSE, "TIME", "NULL"})
_ALIASES = {
    "INT": "INTEGER", "INT1": "TINYINT", "INT2": "SMALLINT", "INT4": "INTEGER", "INT8": "BIGINT",
    "SHORT": "SMALLINT", "LONG": "BIGINT", "SIGNED": "INTEGER", "BOOL": "BOOLEAN",
    "LOGICAL": "BOOLEAN", "FLOAT4": "FLOAT", "REAL": "FLOAT", "FLOAT8": "DOUBLE",
    "TEXT": "VARCHAR", "STRING": "VARCHAR", "CHAR": "VARCHAR", "BPCHAR": "VARCHAR",
    "DATETIME": "TIMESTAMP", "TIMESTAMP_US": "TIMESTAMP", "NUMERIC": "DECIMAL", "INT128": "HUGEINT",
}  # fmt: skip
_DECIMAL = re.compile(r"DECIMAL\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
MOST_DIGITS = 38
"""The most digits of a DECIMAL."""


@dataclass(frozen=True, slots=True)
class RowType:
    """A type, and of a DECIMAL how many digits it has, and how many of these after the point."""

    name: str
    width: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.name == "DECIMAL":
            good = 1 <= self.width <= MOST_DIGITS and 0 <= self.scale <= self.width
        else:
            good = self.name in _PLAIN or self.name in _INTEGERS
        if not good:
            raise _unknown_type(self.sql)

    @property
    def sql(self) -> str:
        """The type as it is written after AS in a cast."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.width},{self.scale})"
        return self.name

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the largest value of an integer type."""
        return _INTEGERS.get(self.name)

    @property
    def is_integer(self) -> bool:
        """Whether it is a type of integers."""
        return self.name in _INTEGERS

    @property
    def is_exact(self) -> bool:
        """Whether its values are exact numbers."""
        return self.is_integer or self.name == "DECIMAL"

    @property
    def is_float(self) -> bool:
        """Whether NaN and infinity are among its values."""
        return self.name in {"FLOAT", "DOUBLE"}

    @property
    def is_number(self) -> bool:
        """Whether it can be added up."""
        return self.is_exact or self.is_float

    @property
    def is_time(self) -> bool:
        """Whether it has a calendar day."""
        return self.name in _CALENDAR

    def as_decimal(self) -> RowType:
        """Return the narrowest DECIMAL that has all values, or as many as one can have."""
        if self.limits is None:
            return self
        return decimal(len(str(self.limits[1])), 0)

    @property
    def whole_digits(self) -> int:
        """The digits that an exact number has before its point."""
        return self.as_decimal().width - self.scale


BOOLEAN, BIGINT, HUGEINT = RowType("BOOLEAN"), RowType("BIGINT"), RowType("HUGEINT")
FLOAT, DOUBLE, VARCHAR = RowType("FLOAT"), RowType("DOUBLE"), RowType("VARCHAR")
DATE, TIMESTAMP, NULL = RowType("DATE"), RowType("TIMESTAMP"), RowType("NULL")
NANOSECONDS, TIME = RowType("TIMESTAMP_NS"), RowType("TIME")
NANOSECONDS_ENDS = (
    datetime(1677, 9, 21, 0, 12, 43, 145225),
    datetime(2262, 4, 11, 23, 47, 16, 854775),
)
"""The first and the last microsecond that a TIMESTAMP_NS can be."""


def decimal(width: int, scale: int) -> RowType:
    """Return a DECIMAL, with at most as many digits as there can be."""
    return RowType("DECIMAL", min(max(width, scale, 1), MOST_DIGITS), scale)


def is_enum(text: str) -> bool:
    """Whether a type is one of labels, whose order is its own; with these or without."""
    return capitals(text.strip()).partition("(")[0] == "ENUM"


def row_type(text: str, column: str = "") -> RowType:
    """Return the type of a name, for example of a column in DuckDB's catalog.

    Args:
        text: the name.
        column: the column that has it, if there is one.

    Raises:
        UnsupportedSqlError: values of this type can't stand in a row expression.
    """
    name = capitals(text.strip())
    if is_enum(name):
        return VARCHAR
    if name in COARSE:
        return TIMESTAMP
    name = _ALIASES.get(name, name)
    if name == "DECIMAL":
        return RowType("DECIMAL", 18, 3)
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        return RowType("DECIMAL", int(decimal[1]), int(decimal[2]))
    if name == "NULL" or (name not in _PLAIN and name not in _INTEGERS):
        raise _unknown_type(text, column)
    return RowType(name)


@lru_cache(maxsize=1000)  # of each column of each relation it is asked many times
def is_readable(text: str) -> bool:
    """Whether expressions on rows can read columns of a type."""
    try:
        row_type(text)
    except UnsupportedSqlError:
        return False
    return True


def is_integer(text: str) -> bool:
    """Whether a name is that of a type of integers, of all types that there are."""
    name = capitals(text.strip())
    return _ALIASES.get(name, name) in _INTEGERS


def common_type(types: Sequence[RowType], *, compared: bool = False) -> RowType | None:
    """Return the type to which values are brought that may stand for each other.

    As DuckDB has it, but that integers are of 64 bits or of 128: FLOAT goes before exact numbers,
    DOUBLE before all. Of DECIMALs that together have more digits than one can have, those after
    the point are rounded away; they stay beside an integer, and where values are only compared.

    Returns:
        None if there is none.
    """
    known = [type_ for type_ in types if type_ != NULL]
    if not known:
        return NULL
    if all(type_ == known[0] for type_ in known):
        return known[0]
    if all(type_.is_number for type_ in known):
        return reduce(partial(_common_number, compared=compared), known)
    if all(type_.is_time for type_ in known):
        return max(known, key=lambda type_: _CALENDAR.index(type_.name))
    return None


def _common_number(one: RowType, other: RowType, *, compared: bool) -> RowType:
    types = one, other
    if DOUBLE in types:
        return DOUBLE
    if FLOAT in types:
        return FLOAT
    if one.is_integer and other.is_integer:
        return BIGINT if _fits(one, BIGINT) and _fits(other, BIGINT) else HUGEINT
    scale, whole = max(one.scale, other.scale), max(one.whole_digits, other.whole_digits)
    if not (compared or one.is_integer or other.is_integer):
        scale = min(scale, MOST_DIGITS - whole)
    return decimal(whole + scale, scale)


def quotient_type(one: RowType, other: RowType) -> RowType:
    """Return the type of a quotient of two numbers, which isn't an integer."""
    return FLOAT if common_type([one, other]) == FLOAT else DOUBLE


def remainder_type(one: RowType, other: RowType) -> RowType:
    """Return the type of what is left of a division: DOUBLE, where no DECIMAL has all digits."""
    common = common_type([one, other]) or DOUBLE
    if common.name != "DECIMAL":
        return common
    scale, whole = max(one.scale, other.scale), max(one.whole_digits, other.whole_digits)
    return common if whole + scale <= MOST_DIGITS else DOUBLE


def _fits(type_: RowType, into: RowType) -> bool:
    inner, outer = type_.limits, into.limits
    return inner is not None and outer is not None and outer[0] <= inner[0] <= inner[1] <= outer[1]


def lossless(type_: RowType, into: RowType) -> bool:
    """Whether each value of a type can be cast, so that a plain cast can't fail."""
    if type_ in (into, NULL):
        return True
    if type_.is_exact and into.is_float:
        return True
    if type_ == FLOAT and into == DOUBLE:
        return True
    if type_.is_integer and into.is_integer:
        return _fits(type_, into)
    if type_.is_exact and into.name == "DECIMAL":
        # HUGEINT has 39 digits: no DECIMAL holds it.
        inner = len(str(type_.limits[1])) if type_.limits else type_.width - type_.scale
        return inner <= into.width - into.scale and type_.scale <= into.scale
    if type_ == NANOSECONDS and into == TIMESTAMP:  # rounded
        return True
    return type_ == BOOLEAN and into.is_integer


def _unknown_type(text: str, column: str = "") -> UnsupportedSqlError:
    stored = other_type("…", column, text, altered=True) if column else ""
    return UnsupportedSqlError(
        f"Values of type {printable(text)[:60]} can't be used in an expression on rows.",
        hint=f"store it with a type that can: {stored}"
        if stored
        else "types that can: BOOLEAN, integers, DECIMAL, FLOAT, DOUBLE, VARCHAR, ENUM, DATE, "
        "TIME, TIMESTAMP without time zone.",
    )
