"""Found values: what was found of a column, or of an expression of a row, as a domain."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import date, timedelta

import msgspec

from dpsql.rows.expression import RowColumn
from dpsql.rows.found import FoundExpression, name_of
from dpsql.schema.domain import INTEGER_TYPES, Domain

KeyValue = str | int | date
_EPOCH = date(1970, 1, 1)
Joined = tuple[KeyValue | None, ...]
"""Values of a row that were found together."""
Parts = tuple[tuple[str, str], ...]
"""Names, as a reader knows them, and types of several values that are found together."""


def parts_of(expression: FoundExpression | None) -> Parts:
    """Describe the values that an expression joins; none if it is one alone."""
    parts = () if expression is None else expression.parts
    return tuple((_name_of(part), part.type) for part in parts)


def _name_of(part: FoundExpression) -> str:
    """Return a column's name, or what an expression is."""
    alone = part.expression
    return alone.name if isinstance(alone, RowColumn) else part.label


def values_of(text: str, parts: Parts) -> Joined | None:
    """Return the values of a joined text; None if they are no values of their types."""
    from dpsql.rows.found import parted  # which few statements need

    texts = parted(text, len(parts))
    if texts is None:
        return None
    with suppress(ValueError, OverflowError):
        values = tuple(map(_part_of, texts, (type_ for _, type_ in parts)))
        return values if text_of(values) == text else None
    return None


def text_of(values: Joined) -> str:
    """Return the joined text of some values."""
    from dpsql.rows.found import joined_text  # which few statements need

    return joined_text([_text_of(value) for value in values])


def _text_of(value: KeyValue | None) -> str | None:
    if isinstance(value, date):
        return str((value - _EPOCH).days)
    return None if value is None else str(value)


def _part_of(text: str | None, type_: str) -> KeyValue | None:
    if text is None or type_ == "VARCHAR":
        return text
    if type_ in INTEGER_TYPES:
        return int(text)
    return _EPOCH + timedelta(days=int(text))


def domain_of(keys: Sequence[KeyValue], type_: str, other: str, *, filled: bool) -> Domain:
    """Return the domain of a column of which these are the keys.

    Args:
        keys: texts, whole numbers or days.
        type_: the column's type.
        other: the label for all other texts; other numbers and days count as NULL.
        filled: whether the column is never NULL.
    """
    if type_ == "VARCHAR":
        labels = [str(key) for key in keys]
        return Domain.labels([*labels, other], other=other, nullable=not filled)
    return Domain("BIGINT" if type_ in INTEGER_TYPES else "DATE", tuple(keys), nullable=True)


class FoundValues(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values that were found of an expression of a row, which no table has as a column."""

    expression: str
    """The expression that is computed, as a reader calls it."""
    keys: tuple[str, ...]
    """The values, as texts."""
    type: str
    """Their type: VARCHAR, BIGINT or DATE."""
    other: str
    filled: bool
    parts: Parts = ()
    """If each is the joined text of several values, what these are."""

    @classmethod
    def of(cls, computed: FoundExpression, domain: Domain, other: str) -> FoundValues:
        """Describe the values of an expression."""
        keys = tuple(str(key) for key in domain.values if key != domain.other)
        filled = not domain.nullable
        return cls(computed.label, keys, domain.type, other, filled, parts_of(computed))

    def of_key(self, name: str) -> str:
        """Return the name of the expression, of the name of the key that has its values."""
        return name_of(name, self.domain)

    @property
    def domain(self) -> Domain:
        """The domain.

        Raises:
            SchemaError, ValueError: there is none such.
        """
        if self.type not in {"VARCHAR", "BIGINT", "DATE"} or (
            self.filled and self.type != "VARCHAR"
        ):
            raise ValueError("no type of keys")
        if self.parts and None in (values_of(key, self.parts) for key in self.keys):
            raise ValueError("no joined values")
        keys = [_read(key, self.type) for key in self.keys]
        return domain_of(keys, self.type, self.other, filled=self.filled)


def _read(text: str, type_: str) -> KeyValue:
    if type_ == "VARCHAR":
        return text
    return int(text) if type_ == "BIGINT" else date.fromisoformat(text)
