"""The purpose of a charge, and the proof that the charge was made. Trusted.

Guarantees:
    A `Purpose` holds digests and nothing else, so that neither SQL nor names of people's columns
    get into a ledger.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from dpsql.errors import LedgerError

_DIGEST = re.compile(r"[0-9a-f]{1,128}")
EACH_ROW = hashlib.sha256(b'"each row"').hexdigest()
"""The digest of the unit where each row is protected by itself."""


Accepted = bool | Set[str]
"""Whether tables may have another schema than before, all of them or these, by their digests."""


class ChargedTable(NamedTuple):
    """A table whose rows are charged for. All fields are lower-case hexadecimal digests."""

    table: str
    """Its identity."""
    schema: str
    """Its public declarations."""
    unit: str
    """The unit whose rows are protected together."""
    vintage: str
    """The state of the data, by the label that its owner gave it."""

    @property
    def rows(self) -> tuple[str, str, str]:
        """The table that is charged for, and the state of its rows, whatever the schema."""
        return self.table, self.unit, self.vintage

    def is_accepted(self, accept_schema: Accepted) -> bool:
        """Tell whether it may have another schema than before."""
        return accept_schema if isinstance(accept_schema, bool) else self.table in accept_schema


@dataclass(frozen=True, slots=True)
class Purpose:
    """The purpose of a charge. All fields are lower-case hexadecimal digests.

    Where the rows of several tables are charged for at once, the first of them has the fields of
    its own, and the `others` follow. One amount is charged for all of them: it is what a unit with
    rows in each of them costs.

    Raises:
        LedgerError: a field is not such a digest; a table is named twice, or one of several has no
            units.
    """

    plan: str
    """The plan of what will be measured."""
    script: str
    """The question: the same again may be handed the same release."""
    table: str
    """The table's identity."""
    schema: str
    """Its public declarations."""
    unit: str
    """The unit whose rows are protected together."""
    vintage: str
    """The state of the data, by the label that its owner gave it."""
    others: tuple[ChargedTable, ...] = ()
    """The other tables, if they are several."""

    def __post_init__(self) -> None:
        for digest in (self.plan, self.script, *(d for table in self.tables for d in table)):
            check_digest(digest)
        several = len(self.tables) > 1
        if len({table.table for table in self.tables}) < len(self.tables) or (
            several and EACH_ROW in {table.unit for table in self.tables}
        ):
            raise LedgerError(
                "A charge names each table once, and several tables only if each has a unit.",
                hint="name each table once, with the unit whose rows it has.",
            )

    @property
    def tables(self) -> tuple[ChargedTable, ...]:
        """All tables whose rows are charged for."""
        first = ChargedTable(self.table, self.schema, self.unit, self.vintage)
        return (first, *self.others)

    def of(self, table: str) -> ChargedTable | None:
        """Return what is charged for of one table; None if that is nothing."""
        return next((each for each in self.tables if each.table == table), None)

    def same_question(self, other: Purpose) -> bool:
        """Tell whether the same was asked of the same data, by whatever plan."""
        return (self.script, self.tables) == (other.script, other.tables)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of a charge: which ledger recorded it, where, and what for."""

    ledger: str
    seq: int
    request: str
    mu_squared: Fraction
    """The charge: at least what was asked for, by less than 10^−30."""
    purpose: Purpose
    delta: Fraction = Fraction(0)
    """The δ that was charged besides: at least what was asked for, by less than 10^−60."""

    @property
    def plan(self) -> str:
        """Digest of the plan that was paid for."""
        return self.purpose.plan


def check_digest(digest: object) -> None:
    """Refuse anything but lower-case hexadecimal digits.

    Raises:
        LedgerError: it is something else.
    """
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise LedgerError(
            "A ledger keeps only digests of what charges are for.",
            hint="pass lower-case hexadecimal digits.",
        )
