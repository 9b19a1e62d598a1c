"""Footers of Parquet files by which times are the numbers that they are stored as.

A footer says of each column how its values are stored, and what they stand for. Here it is found
which of its bytes make times of numbers of 32 and 64 bits. If they are changed, no place and no
length is another.

Guarantees:
    1. Which bytes these are depends on the columns and their types alone, which are public. Nothing
       that comes after them in a footer is looked at, such as the least and largest values.
    2. Any bytes are read in time that grows as their number does, or refused by a ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

PROTOCOL = "dpsql-numbers"
"""Protocol of the paths of files whose times are to be numbers; see `numbered.py`."""

# How a footer is written: the format is called Thrift's compact protocol. A struct is a list of
# fields, each with a header, which has the kind of its value and how much larger its number is
# than that of the field before; a byte of 0 ends it.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_NUMBERS = range(4, 7)
_MANY = 15
"""A list with so many values or more has their number on its own."""

# The numbers of fields in Parquet, see `parquet.thrift` of its specification.
_COLUMNS = 2
_CONVERTED, _LOGICAL = 6, 10
_TIME, _TIMESTAMP, _UNKNOWN = 7, 8, 9
"""Kinds of a column; nobody knows the last, so that it is as if none were said."""
_UNIT, _MILLIS = 2, 1
_INT_32, _INT_64 = 17, 18
_STORED_AS = {7: _INT_32, 8: _INT_64, 9: _INT_64}
"""TIME_MILLIS, TIME_MICROS and TIMESTAMP_MILLIS, of the older way to say it → a number."""
_DEEPEST = 16
_BITS = 64
"""Bits of the largest number."""


class _Field(NamedTuple):
    number: int
    kind: int
    place: int
    """Place of its header."""


def times_in(footer: bytes) -> dict[int, int]:
    """Find what makes times of numbers: times of day, and times in milliseconds.

    Returns:
        place → the byte to write there, so that they are numbers.

    Raises:
        ValueError: it isn't a footer as it is usually written.
    """
    reader = _Reader(footer)
    try:
        for field in reader.fields():
            if field.number == _COLUMNS and field.kind == _LIST:
                kind, size = reader.list()
                if kind != _STRUCT:
                    break
                return {place: byte for _ in range(size) for place, byte in _of_column(reader)}
            reader.skip(field.kind)
    except IndexError:
        raise ValueError("a footer ends before its columns do") from None
    raise ValueError("a footer names no columns")


def _of_column(reader: _Reader) -> Iterator[tuple[int, int]]:
    for field in reader.fields():
        place = reader.place
        if field.number == _CONVERTED and field.kind in _NUMBERS:
            value = reader.number()
            if value in _STORED_AS:
                reader.check_usual(reader.place - place == 1)
                yield place, 2 * _STORED_AS[value]
        elif field.number == _LOGICAL and field.kind == _STRUCT:
            kinds = [(field, _is_in_millis(reader, field)) for field in reader.fields()]
            for kind, in_millis in kinds:
                if kind.kind == _STRUCT and (kind.number == _TIME or in_millis):
                    short = len(kinds) == 1 and reader.content[kind.place] >> 4 == kind.number
                    reader.check_usual(short)
                    yield kind.place, _UNKNOWN << 4 | _STRUCT
        else:
            reader.skip(field.kind)


def _is_in_millis(reader: _Reader, kind: _Field) -> bool:
    """Read past what is said of a kind: whether it is of times in milliseconds."""
    if kind.number != _TIMESTAMP or kind.kind != _STRUCT:
        reader.skip(kind.kind)
        return False
    in_millis = False
    for field in reader.fields():
        if field.number == _UNIT and field.kind == _STRUCT:
            for unit in reader.fields():
                in_millis |= unit.number == _MILLIS
                reader.skip(unit.kind)
        else:
            reader.skip(field.kind)
    return in_millis


class _Reader:
    """Reader of a footer, from its beginning on."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    @staticmethod
    def check_usual(usual: bool) -> None:
        """Check something that is so of a footer as it is usually written.

        Raises:
            ValueError: it isn't so.
        """
        if not usual:
            raise ValueError("a footer isn't written as usual")

    def byte(self) -> int:
        """Read a byte."""
        self.place += 1
        return self.content[self.place - 1]

    def natural(self) -> int:
        """Read a number that isn't negative, of 7 bits in each byte."""
        value = shift = 0
        while (byte := self.byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            self.check_usual(shift < _BITS)
        return value | byte << shift

    def number(self) -> int:
        """Read a number that may be negative."""
        value = self.natural()
        return value >> 1 ^ -(value & 1)

    def fields(self) -> Iterator[_Field]:
        """Read the headers of a struct, each of whose values is read before the next."""
        number = 0
        while True:
            place = self.place
            header = self.byte()
            if not header:
                return
            number = number + (header >> 4) if header >> 4 else self.number()
            yield _Field(number, header & 15, place)

    def list(self) -> tuple[int, int]:
        """Read the kind of the values of a list, and how many there are."""
        header = self.byte()
        size = header >> 4
        return header & 15, size if size < _MANY else self.natural()

    def skip(self, kind: int, depth: int = 0) -> None:
        """Read past a value.

        Raises:
            ValueError: it can't be told where it ends.
        """
        if kind in _NUMBERS:
            self.natural()
        elif kind in {_BYTE, _DOUBLE, _BINARY}:
            size = self.natural() if kind == _BINARY else 1 if kind == _BYTE else 8
            self.place += size
            self.check_usual(self.place <= len(self.content))
        elif kind in {_LIST, _SET} and depth < _DEEPEST:
            inner, size = self.list()
            for _ in range(size):
                self.skip(_BYTE if inner in {_TRUE, _FALSE} else inner, depth + 1)
        elif kind == _STRUCT and depth < _DEEPEST:
            for field in self.fields():
                self.skip(field.kind, depth + 1)
        else:
            self.check_usual(kind in {_TRUE, _FALSE})
