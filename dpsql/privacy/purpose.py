"""What a charge is for, and the proof that it was made. Trusted.

Guarantees:
    A `Purpose` holds digests and nothing else, so that neither SQL nor names of people's columns
    get into a ledger.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import astuple, dataclass
from fractions import Fraction

from dpsql.errors import LedgerError

_DIGEST = re.compile(r"[0-9a-f]{1,128}")
EACH_ROW = hashlib.sha256(b'"each row"').hexdigest()
"""The digest of the unit where each row is protected by itself."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a charge is for. All fields are lower-case hexadecimal digests.

    Raises:
        LedgerError: a field is not such a digest.
    """

    plan: str
    """What will be measured."""
    script: str
    """What was asked: the same again may be handed the same release."""
    table: str
    """The table's identity."""
    schema: str
    """Its public declarations."""
    unit: str
    """Whose rows are protected together."""
    vintage: str
    """The state of the data, by the label that its owner gave it."""

    def __post_init__(self) -> None:
        for digest in astuple(self):
            check_digest(digest)

    def same_rows(self, other: Purpose) -> bool:
        """Tell whether both are for the same state of the same table, by whatever schema."""
        ours, theirs = ((p.table, p.unit, p.vintage) for p in (self, other))
        return ours == theirs

    def same_question(self, other: Purpose) -> bool:
        """Tell whether the same was asked of the same data, by whatever plan."""
        return astuple(self)[1:] == astuple(other)[1:]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of a charge: which ledger recorded it, where, and what for."""

    ledger: str
    seq: int
    request: str
    mu_squared: Fraction
    """What was charged: at least what was asked for, by less than 10^−30."""
    purpose: Purpose

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
            "A ledger keeps digests of what charges are for, nothing else.",
            hint="pass lower-case hexadecimal digits.",
        )
