"""Hypothesis strategies for small workloads."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import References
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Suffix, Total, Workload

NAMES = ("a", "b", "c")

RESIDUALS = st.sampled_from(["weighted", "uniform", "none"])
"""What plans may be made of."""


def some(examples: int) -> settings:
    """Return settings for so many examples, the same in every run."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


@st.composite
def references(draw, domain) -> References:
    """Some references, and others in some contexts of some pivots."""

    def one(name: str) -> Reference:
        entries = st.lists(st.integers(0, 3), min_size=domain[name], max_size=domain[name])
        return Reference.of_integers(np.array(draw(entries.filter(any)), dtype=np.int64))

    names = list(domain)
    pivots = frozenset(draw(st.lists(st.sampled_from(names), max_size=2)))
    contexts = [frozenset({p}) for p in pivots] + ([pivots] if len(pivots) > 1 else [])
    special = {
        (name, context): one(name)
        for name in names
        for context in contexts
        if name not in pivots and draw(st.booleans())
    }
    return References({name: one(name) for name in names}, pivots, special)


@st.composite
def workloads(draw) -> Workload:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    workload = Workload(dict(zip(NAMES, sizes, strict=False)))
    for _ in range(draw(st.integers(1, 4))):
        _add_family(draw, workload)
    return workload


def _add_family(draw, workload: Workload) -> None:
    names = draw(st.permutations(list(workload.domain)))
    names = names[: draw(st.integers(0, len(names)))]
    groups = _groups(draw, names)
    factors = [_factor(draw, math.prod(workload.domain[a] for a in g)) for g in groups]
    workload.add(groups, factors, weight=draw(st.sampled_from([0.25, 1.0, 3.0])))


def _groups(draw, names):
    groups = []
    while names:
        size = draw(st.integers(1, min(2, len(names))))
        groups.append(tuple(names[:size]))
        names = names[size:]
    return groups


def _factor(draw, cells: int):
    kinds = [Identity(), Total(), Prefix(), Suffix(), AllRange(), "binary", "integer", "real"]
    kind = draw(st.sampled_from(kinds))
    if not isinstance(kind, str):
        return kind
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 5)), cells)
    if kind == "binary":
        return Matrix(rng.integers(0, 2, shape))
    if kind == "integer":
        return Matrix(rng.integers(-3, 4, shape))
    return Matrix(rng.normal(size=shape))
