"""What a data user must know about a release besides its answers. All of it is public."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import polars as pl

from dpsql.planner.titles import OF_MARGINALS, QUERYSMASHER
from dpsql.privacy import Budget, Receipt
from dpsql.schema import Table

LIBRARIES = (
    "dpsql",
    "duckdb",
    "polars",
    "numpy",
    "scipy",
    "sqlglot",
    "python-flint",
    "cryptography",
)

GAUSSIAN_NOISE = (
    "round(N(0, sigma^2)) added to exact integers: the Gaussian mechanism, rounded afterwards; "
    "variance sigma^2 + 1/12; drawn exactly from AES-256 in counter mode, keyed by the system"
)
LAPLACE_NOISE = (
    "discrete Laplace noise, P(z) in proportion to exp(-|z|/b), added to exact integers: pure "
    "epsilon; variance 1/(2 sinh(1/(2b))^2); drawn exactly from AES-256 in counter mode, keyed by "
    "the system"
)


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier release on whose measurements answers rest as well."""

    seq: int
    """Its entry in the ledger."""
    request: str
    mu_squared: Fraction
    time: str


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What is public about a release."""

    table: Table
    statements: Mapping[str, str]
    """Name → SQL."""
    expected: pl.DataFrame
    """As `Plan.expected_error`."""
    budget: Budget | None
    """What it was charged; None if that was nothing."""
    guards: tuple[str, ...]
    """Columns in which a row must have a value of the domain to be counted."""
    privacy_cost: Fraction
    """What was measured costs that much, as μ²."""
    receipt: Receipt | None
    rmse: float | None
    """None if it isn't known, because what was measured depends on the data."""
    gap: float | None
    """The certified gap of the plan; None if nothing new was measured, or no bound is known."""
    spaces: int
    """How many residual spaces or marginals were measured; 1 for joint cells."""
    whole: bool
    objective: str
    vintage: str
    earlier: tuple[Earlier, ...]
    confidence: float | None
    nonnegative: bool
    integers: bool
    created: str
    """UTC, ISO 8601."""
    versions: Mapping[str, str]
    mechanism: str = QUERYSMASHER
    """The name of the mechanism that measured what is new."""

    @property
    def adaptive(self) -> bool:
        """Whether what was measured depends on the data, so that answers are biased."""
        return self.rmse is None

    @property
    def cells(self) -> bool:
        """Whether marginals were measured as they are, and not residual spaces."""
        return self.mechanism in OF_MARGINALS

    @property
    def noise(self) -> str:
        """What noise was added, in words."""
        pure = self.budget is not None and self.budget.pure
        return LAPLACE_NOISE if pure else GAUSSIAN_NOISE

    @property
    def neighbours(self) -> str:
        """In what data sets differ that can hardly be told apart."""
        return self.table.neighbours

    @property
    def adjusted(self) -> bool:
        """Whether there are adjusted columns."""
        return self.nonnegative or self.integers


def now() -> str:
    """Return the time, in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache  # reading what is installed takes longer than planning a small release
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the libraries that a release rests on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
