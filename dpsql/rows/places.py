"""Values of an ordered type as whole numbers, their places, so that x < y says p(x) < p(y).

There is no value between two places that follow each other. So each condition `x < y`, `x <= y`,
and so on, is that the place of x is below some place, or not. NULL has none.
"""

from __future__ import annotations

import math
import struct
from datetime import date, datetime, timedelta
from fractions import Fraction

from dpsql.rows.expression import RowConstant
from dpsql.rows.types import DATE, DOUBLE, TIMESTAMP, RowType

_INT64 = 2**63
_DIGITS = 18
"""Of a DECIMAL whose places fit 64 bits."""
_EPOCH = datetime(1970, 1, 1)
_EXACT = 2**53
"""Whole numbers up to which doubles have all."""
_SHORT = 15
"""Decimal digits of which a double is the nearest one, however it was read."""
_INFINITE = 0x7FF << 52
"""The bits of infinity: those of all that is finite are smaller, and grow with it."""
_SECOND = timedelta(microseconds=1)


def has_places(type_: RowType) -> bool:
    """Whether the values of a type have places of 64 bits."""
    if type_.limits is not None:
        return type_.limits[0] >= -_INT64 and type_.limits[1] < _INT64
    if type_.name == "DECIMAL":
        return type_.width <= _DIGITS
    return type_ in (DOUBLE, DATE, TIMESTAMP)


def ends(type_: RowType) -> tuple[int, int]:
    """Return the least and the largest place. Those of times stand for infinite ones.

    NaN comes after infinity, as DuckDB compares it.
    """
    if type_.limits is not None:
        return type_.limits
    if type_.name == "DECIMAL":
        return 1 - 10**type_.width, 10**type_.width - 1
    return (-_INFINITE, _INFINITE + 1) if type_ == DOUBLE else (-_INT64, _INT64 - 1)


def place(constant: RowConstant, type_: RowType) -> int | None:
    """Return the place of a constant that is compared with values of a type: see `above` too.

    Returns:
        That of the least value that isn't below it; None if that can't be told for sure, as
        comparing rounds one of the two.
    """
    if type_.is_time:
        return _place_of_time(constant, type_)
    if constant.kind not in {"INTEGER", "DECIMAL", "DOUBLE"}:
        return None
    if type_ == DOUBLE:
        return _place_of_double(constant)
    value = _exact(constant, type_)
    return None if value is None else math.ceil(value * 10**type_.scale)


def above(constant: RowConstant, type_: RowType) -> int | None:
    """Return the place of the least value that is above a constant; None if it isn't known."""
    found = place(constant, type_)
    if found is None or type_ == DOUBLE or type_.is_time:
        return None if found is None else found + 1
    value = _exact(constant, type_)
    return None if value is None else math.floor(value * 10**type_.scale) + 1


def constant_at(where: int, type_: RowType) -> RowConstant:
    """Return the value at a place, as a constant."""
    if type_.limits is not None:
        return RowConstant("INTEGER", str(where))
    if type_.name == "DECIMAL":
        digits, sign = f"{abs(where):0{type_.scale + 1}}", "-" if where < 0 else ""
        before, after = digits[: len(digits) - type_.scale], digits[len(digits) - type_.scale :]
        return RowConstant("DECIMAL", f"{sign}{before}.{after}")
    if type_ == DOUBLE:
        return RowConstant("DOUBLE", repr(_double_at(where)))
    if type_ == DATE:
        return RowConstant("DATE", (_EPOCH + timedelta(days=where)).date().isoformat())
    moment = _EPOCH + where * _SECOND
    return RowConstant("TIMESTAMP", moment.isoformat(" "))


def number_at(where: int, type_: RowType) -> Fraction | None:
    """Return the number at a place; None for times, infinity and what isn't a number."""
    if type_.is_time or (type_ == DOUBLE and abs(where) >= _INFINITE):
        return None
    return Fraction(constant_at(where, type_).text)


def text_at(where: int, type_: RowType) -> str:
    """Return the value at a place, as a text that DuckDB casts to the type."""
    if type_.is_time and where in ends(type_):
        return "infinity" if where > 0 else "-infinity"
    return constant_at(where, type_).text


def place_of_moment(moment: datetime, type_: RowType) -> int:
    """Return the place of a moment; of a DATE, of its day."""
    since = moment - _EPOCH
    return since.days if type_ == DATE else since // _SECOND


def moment_at(where: int, type_: RowType) -> datetime | None:
    """Return the moment of a place; None if it is far from the present."""
    try:
        return _EPOCH + (timedelta(days=where) if type_ == DATE else where * _SECOND)
    except OverflowError:
        return None


def _exact(constant: RowConstant, type_: RowType) -> Fraction | None:
    """Return what an exact number is compared with, if no digit of either is lost for it."""
    if constant.kind == "DOUBLE":  # both are compared as doubles
        value = Fraction(float(constant.text)) if constant.text[-1] not in "fn" else None
        known = value is not None and type_.is_integer and abs(value) < _EXACT
        return value if known else None
    _, _, after = constant.text.partition(".")
    value = Fraction(constant.text)
    return value if len(after) <= _DIGITS // 2 and abs(value) < 10**_DIGITS else None


def _place_of_double(constant: RowConstant) -> int | None:
    digits = constant.text.lstrip("-").replace(".", "").lstrip("0")
    if constant.kind != "DOUBLE" and len(digits) > _SHORT:
        return None  # DuckDB casts it to a DECIMAL first, and that to a double
    value = float(constant.text)
    if math.isnan(value):
        return _INFINITE + 1
    bits = _bits(abs(value))
    return -bits if value < 0 else bits


def _double_at(where: int) -> float:
    if where > _INFINITE:
        return math.nan
    size = float(struct.unpack(">d", struct.pack(">q", abs(where)))[0])
    return -size if where < 0 else size


def _bits(value: float) -> int:
    return int(struct.unpack(">q", struct.pack(">d", value))[0])


def _place_of_time(constant: RowConstant, type_: RowType) -> int | None:
    # A DATE that is compared with a TIMESTAMP is cast, and far ones have none.
    if constant.kind not in {"DATE", "TIMESTAMP"} or (constant.kind, type_) == ("TIMESTAMP", DATE):
        return None
    if constant.kind == "DATE":
        day = date.fromisoformat(constant.text)
        return place_of_moment(datetime(day.year, day.month, day.day), type_)
    return place_of_moment(datetime.fromisoformat(constant.text), type_)
