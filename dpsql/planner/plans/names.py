"""Mechanisms by name."""

from __future__ import annotations

from types import MappingProxyType

QUERYSMASHER = "querysmasher"
AIM = "aim"

TITLES = MappingProxyType(
    {
        QUERYSMASHER: "QuerySmasher",
        "residualplanner": "ResidualPlanner",
        "residualplanner+": "ResidualPlanner+",
        "fourier": "Weighted Fourier Factorization",
        "hdmm": "HDMM",
        "gaussian": "Gaussian mechanism",
        "laplace": "Laplace mechanism",
        AIM: "AIM with GReM",
    }
)
"""Name, as in `mechanism=`, → how it is called in texts."""

OF_MARGINALS = frozenset({"hdmm", "gaussian", "laplace"})
"""Mechanisms that measure marginals as they are, and not residual spaces."""
