"""Facts about each mechanism, before any of them is loaded: its names and abilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

QUERYSMASHER = "querysmasher"
"""The name of the mechanism that plans where none is asked for."""
LAPLACE = "laplace"
"""The name of the one for pure budgets."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of a mechanism that users and other rooms must know, whatever it plans."""

    name: str
    """The word that users write as `mechanism=`, and that ledgers and releases keep."""
    title: str
    """The name in texts for people."""
    comment: str = ""
    """Words behind the title in the summary of a release."""
    is_adaptive: bool = False
    """Whether it chooses what it measures by the data."""
    is_biased: bool = False
    """Whether it answers by tables without negative cells, which are biased: no variances."""
    measures_marginals: bool = False
    """Whether it measures marginals as they are, and not residual spaces: checked by planning.

    Answers of a saved release follow in one way or in the other.
    """
    reuses_measurements: bool = False
    """Whether it plans on earlier measurements."""
    meets_targets: bool = False
    """Whether it searches the least budget for given errors."""
    minimizes_largest: bool = False
    """Whether it can make the largest variance small, in place of the total."""
    takes: frozenset[str] = frozenset()
    """The options that no other mechanism has."""

    @property
    def can_adjust(self) -> bool:
        """Whether one table can be fitted to all that it measures, for adjusted columns."""
        return not (self.is_biased or self.measures_marginals)


MECHANISMS: Mapping[str, Traits] = MappingProxyType(
    {
        traits.name: traits
        for traits in (
            Traits(
                QUERYSMASHER,
                "QuerySmasher",
                ", a Gaussian matrix mechanism",
                reuses_measurements=True,
                meets_targets=True,
                minimizes_largest=True,
            ),
            Traits(
                "residualplanner",
                "ResidualPlanner",
                minimizes_largest=True,
                takes=frozenset({"loss"}),
            ),
            Traits("residualplanner+", "ResidualPlanner+", takes=frozenset({"bases"})),
            Traits("fourier", "Weighted Fourier Factorization"),
            Traits("hdmm", "HDMM", measures_marginals=True),
            Traits("gaussian", "Gaussian mechanism", measures_marginals=True),
            Traits(LAPLACE, "Laplace mechanism", measures_marginals=True),
            Traits("pairs", "Pairs of columns", is_biased=True),
            Traits("aim", "AIM with GReM", is_adaptive=True, is_biased=True),
        )
    }
)
"""Name → what is known of the mechanism, in the order in which they are shown."""
