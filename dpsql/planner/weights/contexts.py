"""References for each context, where families ask an attribute for different things.

With the references of the pivots fixed, the residual spaces of different contexts have nothing in
common but what they ask, and

    Σ_A √E_A = Σ_K Σ_{A ∩ P = K} √E_A

is a sum of terms of which each depends on the references ℓ^K of its context alone. So each is
searched for by itself, from the common references on (`search`), and the sum can only fall.

*A union of products is not better.* Let b alone be asked for different things over different sets S
of attributes, and let every other attribute be asked for one thing, so that it has the same best
factor X_i = t_i·11ᵀ + K_i with K_i ℓ_i = 0 in all products (`product`). All attributes but b are
the pivots. Multiplied out over those, the product over S with its share c_S is a sum over K, each

    (⊗_{i∈K} K_i) ⊗ Y_S ,      Y_S = c_S ∏_{i∈S∖K∖b} t_i · X_b^S      (t_b·11ᵀ, if b is not in S)

which tells of the spaces K and K ∪ b. One strategy with Σ_S Y_S in place of all Y_S costs no more,
as the largest diagonal entry of a sum is at most the sum of these. It answers all at once what each
Y_S is asked, and no worse, as for X, Y ≻ 0

    tr G X⁻¹ + tr H Y⁻¹  >=  tr (G + H)(X + Y)⁻¹ ,      for (X + Y)⁻¹ ⪯ X⁻¹ and (X + Y)⁻¹ ⪯ Y⁻¹ .

And measured apart with the reference ℓ_b^K of Σ_S Y_S, the spaces K and K ∪ b tell as much at the
same cost. So some references by context are as good as the union.

Where several attributes are asked for different things, either they all depend on the others, or
one of them on all others: what promises most is taken.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dpsql.linalg.arrays import Array
from dpsql.planner.residuals.contexts import Context, References
from dpsql.planner.residuals.decompose import Subworkload
from dpsql.planner.residuals.equivalence import Coloring
from dpsql.planner.residuals.references import Reference
from dpsql.planner.weights.evaluation import TooMuchError
from dpsql.planner.weights.search import ReferenceSearch
from dpsql.workload import Workload

MOST_CONTEXTS = 64
MOST_SPACES = 2**12
"""Residual spaces up to which contexts are told apart."""
LITTLE = 1e-4
"""Gains below this, relatively, are not worth references of their own."""
FEW = 5
"""Evaluations after which a search ends that has found less."""


def choose_by_context(
    workload: Workload, search: ReferenceSearch, common: Mapping[str, Reference]
) -> References | None:
    """Search for references of each context that promise less error than common ones, if any do.

    Args:
        workload: what is asked.
        search: what searched for references that are the same in all contexts.
        common: the best of these.
    """
    torn = contested(workload, search.coloring) & search.free.keys()
    if sum(len(s.spaces) for s in search.subworkloads) > MOST_SPACES:
        return None
    sets = [torn, *({color} for color in torn if len(torn) > 1)] if torn else []
    contexts = _Contexts(workload, search, common)
    try:
        # A few evaluations show what promises most, and that mostly nothing does.
        tried = [(found, colors) for colors in sets if (found := contexts.tried(colors))]
        if not tried:
            return None
        best, colors = max(tried, key=lambda t: sum(part.gain for part in t[0].values()))
        return contexts.references(colors, {k: part.ended() for k, part in best.items()})
    except TooMuchError:
        return None


def contested(workload: Workload, coloring: Coloring) -> set[int]:
    """Return the colors of attributes of which families over other attributes ask other things.

    Where all ask the same of an attribute, its best reference is the same for each of them.
    """
    asked: dict[str, dict[frozenset[str], set[object]]] = defaultdict(lambda: defaultdict(set))
    for family in workload.families:
        for block in family.blocks if family.count else ():
            for axis, name in enumerate(block.attributes):
                asked[name][family.attributes].add((block.queries.key, axis))
    colors = dict(zip(workload.domain, coloring.colors, strict=True))
    return {
        colors[name]
        for name, by_set in asked.items()
        if len({frozenset(what) for what in by_set.values()}) > 1
    }


@dataclass(frozen=True, slots=True, eq=False)
class _ContextSearch:
    """What was found for the residual spaces of one context."""

    search: ReferenceSearch
    before: float
    """Σ √E with the common references."""
    after: float
    weights: list[Array]
    """The references that need this."""

    @property
    def gain(self) -> float:
        """By how much Σ √E falls."""
        return self.before - self.after

    def lowered(self, most: float) -> _ContextSearch:
        """Search on, with as many evaluations at most."""
        if not self.before:
            return self
        after, weights = self.search.descend(self.weights, self.before, most)
        return replace(self, after=after, weights=weights) if after < self.after else self

    def ended(self) -> _ContextSearch:
        """Search to the end, if that promises anything."""
        return self.lowered(math.inf) if self.gain > LITTLE * self.before else self


@dataclass(frozen=True, slots=True)
class _Contexts:
    workload: Workload
    whole: ReferenceSearch
    common: Mapping[str, Reference]

    def names(self, colors: set[int]) -> list[str]:
        """Return the attributes of some colors."""
        of = zip(self.workload.domain, self.whole.coloring.colors, strict=True)
        return [name for name, color in of if color in colors]

    def tried(self, colors: set[int]) -> dict[Context, _ContextSearch]:
        """Let attributes of some colors have references for each context of the others.

        Nothing is returned if hardly any context gains by that.
        """
        pivots = frozenset(self.workload.domain) - frozenset(self.names(colors))
        by_context = _by_context(self.whole.subworkloads, pivots)
        if not 1 < len(by_context) <= MOST_CONTEXTS:
            return {}
        start, found = self.whole.start(self._by_color()), dict[Context, _ContextSearch]()
        for context, spaces in by_context.items():
            part = self.whole.part(spaces, colors)
            if (before := part.objective(start)) is None:
                raise TooMuchError
            found[context] = _ContextSearch(part, before[0], before[0], start).lowered(FEW)
        total = math.fsum(part.before for part in found.values())
        return found if sum(part.gain for part in found.values()) > LITTLE * total else {}

    def references(
        self, colors: set[int], parts: Mapping[Context, _ContextSearch]
    ) -> References | None:
        """Return what was found; attributes keep their common references where that is little."""
        names, found = self.names(colors), dict[tuple[str, Context], Reference]()
        of = dict(zip(self.workload.domain, self.whole.coloring.colors, strict=True))
        for context, part in parts.items():
            if part.gain > LITTLE * part.before:
                rounded = part.search.rounded(part.weights)
                found |= {(name, context): rounded[of[name]] for name in names}
        usual = {n: found.get((n, frozenset()), r) for n, r in self.common.items()}
        special = {
            (name, context): reference
            for name in names
            for context in parts
            if context and any({name, *context} <= f.attributes for f in self.workload.families)
            if (reference := found.get((name, context), self.common[name])).key != usual[name].key
        }
        pivots = frozenset(self.workload.domain) - frozenset(names)
        return References(usual, pivots, special) if special else None

    def _by_color(self) -> list[Reference]:
        coloring, names = self.whole.coloring, list(self.workload.domain)
        firsts = [coloring.colors.index(c) for c in range(len(coloring.sizes))]
        return [self.common[names[first]] for first in firsts]


def _by_context(
    subworkloads: Sequence[Subworkload], pivots: frozenset[str]
) -> dict[Context, list[Subworkload]]:
    """Sort residual spaces by the pivots that they keep."""
    found: dict[Context, list[Subworkload]] = defaultdict(list)
    for asked in subworkloads:
        for context, spaces in _alike(asked.spaces, pivots):
            found[context].append(replace(asked, spaces=spaces))
    return dict(found)


def _alike(
    spaces: Sequence[tuple[str, ...]], pivots: frozenset[str]
) -> Iterator[tuple[Context, tuple[tuple[str, ...], ...]]]:
    groups: dict[Context, list[tuple[str, ...]]] = defaultdict(list)
    for space in spaces:
        groups[pivots.intersection(space)].append(space)
    yield from ((context, tuple(same)) for context, same in groups.items())
