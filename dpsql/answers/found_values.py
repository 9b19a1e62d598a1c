"""Found values: what was found of a column, or of an expression of a row, as a domain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from dpsql.schema.domain import INTEGER_TYPES, Domain

KeyValue = str | int | date


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


class FoundValues(msgspec.Struct, frozen=True):
    """The values that were found of an expression of a row, which no table has as a column."""

    expression: str
    """What is computed, as a reader calls it."""
    keys: tuple[str, ...]
    """The values, as texts."""
    type: str
    """Their type: VARCHAR, BIGINT or DATE."""
    other: str
    filled: bool

    @classmethod
    def of(cls, expression: str, domain: Domain, other: str) -> FoundValues:
        """Describe the values of a domain."""
        keys = tuple(str(key) for key in domain.values if key != domain.other)
        return cls(expression, keys, domain.type, other, not domain.nullable)

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
        keys = [_read(key, self.type) for key in self.keys]
        return domain_of(keys, self.type, self.other, filled=self.filled)


def _read(text: str, type_: str) -> KeyValue:
    if type_ == "VARCHAR":
        return text
    return int(text) if type_ == "BIGINT" else date.fromisoformat(text)
