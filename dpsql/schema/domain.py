"""A column's public domain: the values that it may take, known without looking at any row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.errors import SchemaError

INTEGER_TYPES = frozenset(
    {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
)
"""The DuckDB types that an integer domain may have."""

Value = int | str | bool


@dataclass(frozen=True, slots=True)
class Domain:
    """The values of one column, in order; the i-th value has code i.

    A nullable domain has one more cell, the last, for NULL. A row whose value lies outside the
    domain is treated as NULL: it falls in the NULL cell of a nullable domain, and is left out of
    the release altogether if the domain has none. The rule is the same for all data and silent,
    because a warning would tell something about the rows.

    Use the constructors `integers`, `labels` and `boolean`.
    """

    type: str
    """The column's DuckDB type: an integer type, `BOOLEAN`, `VARCHAR` or `ENUM`."""
    values: Sequence[Value]
    """All values but NULL, in order: a `range` or a tuple."""
    nullable: bool = False

    def __post_init__(self) -> None:
        if self.type in INTEGER_TYPES:
            ok = isinstance(self.values, range) or all(type(v) is int for v in self.values)
        elif self.type == "BOOLEAN":
            ok = tuple(self.values) == (False, True)
        elif self.type in {"VARCHAR", "ENUM"}:
            ok = all(type(v) is str for v in self.values)
        else:
            raise SchemaError(
                f"A domain can't have the type {self.type}.",
                hint="use an integer type, BOOLEAN, VARCHAR or ENUM.",
            )
        if not ok:
            raise SchemaError(
                f"A domain of type {self.type} has values of another type.",
                hint="integers for integer types, strings for VARCHAR and ENUM.",
            )
        if not isinstance(self.values, range):
            values = tuple(self.values)
            if len(set(values)) != len(values):
                raise SchemaError(
                    "A domain lists a value twice.", hint="list every value exactly once."
                )
            object.__setattr__(self, "values", values)
        if not self.values:
            raise SchemaError("A domain has no values.", hint="list at least one value.")

    @classmethod
    def integers(cls, low: int, high: int, *, nullable: bool = False) -> Domain:
        """All integers from `low` to `high`, both included."""
        for bound in (low, high):
            if type(bound) is not int:
                raise SchemaError(
                    f"Integer bounds must be whole numbers, not {bound!r}.",
                    hint="for example Domain.integers(0, 120).",
                )
            if not -(2**63) <= bound < 2**63:
                raise SchemaError(
                    f"The bound {bound} does not fit a 64-bit integer.",
                    hint="declare a smaller range.",
                )
        if low > high:
            raise SchemaError(
                f"The range {low}..{high} is empty.", hint=f"did you mean {high}..{low}?"
            )
        return cls("BIGINT", range(low, high + 1), nullable)

    @classmethod
    def labels(cls, labels: Sequence[str], *, nullable: bool = False) -> Domain:
        """List the strings that may occur, in order."""
        if isinstance(labels, str):
            raise SchemaError(
                "Labels must be a list of strings, not one string.",
                hint=f"write Domain.labels([{labels!r}]).",
            )
        if not isinstance(labels, Sequence):
            raise SchemaError(
                f"Labels must be a list of strings, not a {type(labels).__name__}: their order "
                "is the order of the answers.",
                hint="write Domain.labels(sorted(labels)).",
            )
        return cls("VARCHAR", tuple(labels), nullable)

    @classmethod
    def boolean(cls, *, nullable: bool = False) -> Domain:
        """Declare false and true."""
        return cls("BOOLEAN", (False, True), nullable)

    @property
    def size(self) -> int:
        """The number of cells, the NULL cell included."""
        values = self.values
        count = values.stop - values.start if isinstance(values, range) else len(values)
        return count + self.nullable

    def as_type(self, type_: str) -> Domain:
        """Give the same values for a column of another DuckDB type."""
        return replace(self, type=type_)

    def __str__(self) -> str:
        shown = [str(v) for v in self.values[:3]]
        if isinstance(self.values, range):
            text = f"{self.values.start}..{self.values.stop - 1}"
        else:
            text = ", ".join(shown) + (", …" if len(self.values) > 3 else "")
        return f"{self.type} {{{text}}}" + (" or NULL" if self.nullable else "")
