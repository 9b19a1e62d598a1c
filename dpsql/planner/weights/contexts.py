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
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import significant
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import Coloring, Context, References, Subworkload
from dpsql.planner.weights.search import ReferenceSearch, Slopes, TooMuchError, summed
from dpsql.workload import Workload

MOST_CONTEXTS = 64
MOST_SPACES = 2**12
"""Residual spaces up to which contexts are told apart."""
LITTLE = 1e-4
"""Gains below this, relatively, are not worth references of their own."""


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """References by context that promise less error than common ones."""

    references: References
    common_roots: float
    """A lower bound on Σ_A √E_A with the common references."""


def choose_by_context(
    workload: Workload, search: ReferenceSearch, common: Mapping[str, Reference]
) -> ContextChoice | None:
    """Search for references of each context that promise less error than common ones, if any do.

    Args:
        workload: what is asked.
        search: what searched for references that are the same in all contexts.
        common: the best of these.
    """
    torn = contested(workload, search.coloring) & search.free.keys()
    if sum(len(s.spaces) for s in search.subworkloads) > MOST_SPACES:
        return None
    sets = [torn, *({color} for color in sorted(torn) if len(torn) > 1)] if torn else []
    divided = [_DividedByContext.of(workload, search, colors) for colors in sets]
    divided = [d for d in divided if 1 < len(d.asked) <= MOST_CONTEXTS]
    try:
        at_common = _CommonRoots.of(workload, search, common) if divided else None
    except TooMuchError:
        return None
    if at_common is None:
        return None
    searches = [at_common.searches(d) for d in divided]
    # What promises most is taken, unless nothing comes of it.
    for found in sorted(searches, key=lambda s: -significant(s.promise)):
        if (references := found.ended().references(common)) is not None:
            return ContextChoice(references, at_common.total)
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
    """The findings about the residual spaces of one context."""

    search: ReferenceSearch
    before: float
    """Σ √E with the common references,"""
    slopes: Slopes
    """and its slopes."""
    after: float
    weights: list[Array]
    """The references that need this, at first the common ones."""

    @property
    def gain(self) -> float:
        """By how much Σ √E falls."""
        return self.before - self.after

    @property
    def promise(self) -> float:
        """About proportional to the gain that there is to find.

        A value f with the slope g, curved by κf/|ℓ|², falls by |g|²|ℓ|²/2κf at most; κ says how
        many percent one percent of ℓ is worth, and differs little between contexts.
        """
        steep = self.search.steepness(self.weights, self.slopes)
        return steep / self.before if self.before else 0.0

    def ended(self) -> _ContextSearch:
        """Search for better references."""
        if not self.promise:  # the references that may move are for other spaces
            return self
        known = self.before, self.slopes
        after, weights = self.search.descend(self.weights, self.before, known)
        return replace(self, after=after, weights=weights)


@dataclass(frozen=True, slots=True)
class _DividedByContext:
    """The queries in each context, if attributes of some colors have references for each."""

    colors: frozenset[int]
    names: tuple[str, ...]
    """The attributes of these colors."""
    asked: Mapping[Context, Mapping[int, Subworkload]]
    """Context → number of a subworkload → the same, for its spaces in this context."""

    @staticmethod
    def of(workload: Workload, whole: ReferenceSearch, colors: Set[int]) -> _DividedByContext:
        """Sort residual spaces by the pivots that they keep: attributes of all other colors."""
        of = zip(workload.domain, whole.coloring.colors, strict=True)
        names = tuple(name for name, color in of if color in colors)
        pivots = frozenset(workload.domain) - frozenset(names)
        found: dict[Context, dict[int, Subworkload]] = defaultdict(dict)
        for number, subworkload in enumerate(whole.subworkloads):
            for context, spaces in _alike(subworkload.spaces, pivots):
                found[context][number] = replace(subworkload, spaces=spaces)
        return _DividedByContext(frozenset(colors), names, dict(found))


@dataclass(frozen=True, slots=True)
class _ContextSearches:
    """The findings about all contexts, if attributes of some colors have references for each."""

    workload: Workload
    coloring: Coloring
    names: tuple[str, ...]
    """These attributes."""
    parts: Mapping[Context, _ContextSearch]

    @property
    def promise(self) -> float:
        """About proportional to the gain that there is to find."""
        return math.fsum(part.promise for part in self.parts.values())

    def ended(self) -> _ContextSearches:
        """Search in every context, first where most is promised: time may end before."""
        promised = {key: significant(part.promise) for key, part in self.parts.items()}
        order = sorted(self.parts, key=lambda context: -promised[context])
        return replace(self, parts={context: self.parts[context].ended() for context in order})

    def references(self, common: Mapping[str, Reference]) -> References | None:
        """Return what was found; attributes keep their common references where that is little."""
        found = dict[tuple[str, Context], Reference]()
        of = dict(zip(self.workload.domain, self.coloring.colors, strict=True))
        total = math.fsum(part.before for part in self.parts.values())
        if math.fsum(part.gain for part in self.parts.values()) <= LITTLE * total:
            return None
        for context, part in self.parts.items():
            if part.gain > LITTLE * part.before:
                rounded = part.search.rounded(part.weights)
                found |= {(name, context): rounded[of[name]] for name in self.names}
        usual = {n: found.get((n, frozenset()), r) for n, r in common.items()}
        special = {
            (name, context): reference
            for name in self.names
            for context in self.parts
            if context and any({name, *context} <= f.attributes for f in self.workload.families)
            if (reference := found.get((name, context), common[name])).key != usual[name].key
        }
        pivots = frozenset(self.workload.domain) - frozenset(self.names)
        return References(usual, pivots, special) if special else None


@dataclass(frozen=True, slots=True)
class _CommonRoots:
    """The costs of each space with the common references, from where all contexts set out."""

    workload: Workload
    whole: ReferenceSearch
    start: list[Array]
    """The common references."""
    roots: list[tuple[float, Slopes]]
    """√E and its slopes, for a space of each subworkload."""

    @staticmethod
    def of(
        workload: Workload, search: ReferenceSearch, common: Mapping[str, Reference]
    ) -> _CommonRoots | None:
        """Evaluate them; None if one can't be solved.

        Raises:
            TooMuchError: that takes too long.
        """
        names, colors = list(workload.domain), search.coloring.colors
        firsts = [colors.index(c) for c in range(len(search.coloring.sizes))]
        start = search.start([common[names[first]] for first in firsts])
        roots = search.roots(start)
        return None if roots is None else _CommonRoots(workload, search, start, roots)

    @property
    def total(self) -> float:
        """Σ √E over all spaces, or a little less."""
        spaces = (len(s.spaces) for s in self.whole.subworkloads)
        return math.fsum(n * root for n, (root, _) in zip(spaces, self.roots, strict=True))

    def searches(self, divided: _DividedByContext) -> _ContextSearches:
        """Return a search for each context, before its first step."""
        parts = {}
        for context, asked in divided.asked.items():
            counted = ((len(s.spaces), self.roots[number]) for number, s in asked.items())
            before, slopes = summed(counted)
            part = self.whole.part(asked, divided.colors)
            parts[context] = _ContextSearch(part, before, slopes, before, self.start)
        return _ContextSearches(self.workload, self.whole.coloring, divided.names, parts)


def _alike(
    spaces: Sequence[tuple[str, ...]], pivots: frozenset[str]
) -> Iterator[tuple[Context, tuple[tuple[str, ...], ...]]]:
    groups: dict[Context, list[tuple[str, ...]]] = defaultdict(list)
    for space in spaces:
        groups[pivots.intersection(space)].append(space)
    yield from ((context, tuple(same)) for context, same in groups.items())
