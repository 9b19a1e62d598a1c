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
one of them on all others. Slopes tell little of what comes of it: each is tried in a few steps, and
what gains most is searched to the end. At last all references move together, those of the pivots
among them, which were a compromise with what the others were before.
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
from dpsql.planner.weights.axes import FreeAxis
from dpsql.planner.weights.search import (
    EVALUATIONS,
    POLISHING_STEP,
    Descent,
    ReferenceSearch,
    Slopes,
    SolvedComponents,
    TooMuchError,
    add,
    summed,
)
from dpsql.workload import Workload

MOST_CONTEXTS = 64
MOST_SPACES = 2**12
"""Residual spaces up to which contexts are told apart."""
RACE = 0.5
"""Share of the work that is left to find out which attributes had best depend on others."""
FEW = 8
"""Evaluations for that, in each context."""
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
    ended = _race([at_common.searches(d) for d in divided], search)
    references = None if ended is None else ended.polished().references(common)
    return None if references is None else ContextChoice(references, at_common.total)


def _race(searches: Sequence[_ContextSearches], search: ReferenceSearch) -> _ContextSearches | None:
    """Search a little for each, first where most is promised; then on where most was found."""
    order, begun = sorted(searches, key=lambda s: -significant(s.promise)), list[_ContextSearches]()
    with search.limited(search.work_left * RACE):
        for number, descent in enumerate(order):
            with search.limited(search.work_left / (len(order) - number)):
                begun.append(descent.ended(FEW))
    best = max(begun, key=lambda descent: significant(descent.gain), default=None)
    return None if best is None or not best.gain else best.ended(EVALUATIONS)


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
    """The references that need this,"""
    start: list[Array]
    """and the common ones."""

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

    def ended(self, evaluations: int) -> _ContextSearch:
        """Search on for better references, in so many evaluations."""
        if not self.promise:  # the references that may move are for other spaces
            return self
        known = None if self.gain else (self.before, self.slopes)
        after, weights = self.search.descend(self.weights, self.before, known, evaluations)
        return self if after >= self.after else replace(self, after=after, weights=weights)


@dataclass(frozen=True, slots=True)
class _DividedByContext:
    """The queries in each context, if attributes of some colors have references for each."""

    colors: frozenset[int]
    asked: Mapping[Context, Mapping[int, Subworkload]]
    """Context → number of a subworkload → the same, for its spaces in this context."""

    @staticmethod
    def of(workload: Workload, whole: ReferenceSearch, colors: Set[int]) -> _DividedByContext:
        """Sort residual spaces by the pivots that they keep: attributes of all other colors."""
        of = zip(workload.domain, whole.coloring.colors, strict=True)
        pivots = frozenset(name for name, color in of if color not in colors)
        by_context: dict[Context, dict[int, Subworkload]] = defaultdict(dict)
        for number, subworkload in enumerate(whole.subworkloads):
            for context, spaces in _alike(subworkload.spaces, pivots):
                by_context[context][number] = replace(subworkload, spaces=spaces)
        return _DividedByContext(frozenset(colors), dict(by_context))


@dataclass(frozen=True, slots=True)
class _ContextSearches:
    """The findings about all contexts, if attributes of some colors have references for each."""

    workload: Workload
    whole: ReferenceSearch
    colors: frozenset[int]
    """The colors of these attributes."""
    parts: Mapping[Context, _ContextSearch]

    @property
    def promise(self) -> float:
        """About proportional to the gain that there is to find."""
        return math.fsum(part.promise for part in self.parts.values())

    @property
    def gain(self) -> float:
        """By how much Σ √E falls."""
        return math.fsum(part.gain for part in self.parts.values())

    def ended(self, evaluations: int) -> _ContextSearches:
        """Search in every context, first where most is promised: time may end before."""
        promised = {key: significant(part.promise) for key, part in self.parts.items()}
        order = sorted(self.parts, key=lambda context: -promised[context])
        return replace(self, parts={c: self.parts[c].ended(evaluations) for c in order})

    def polished(self) -> _ContextSearches:
        """Search on for all references together, those of the pivots among them.

        The common references of the pivots are a compromise with those that others had then.
        """
        together = _Together.of(self)
        before = math.fsum(part.after for part in self.parts.values())
        after, _ = together.descend(together.start, before, first_step=POLISHING_STEP)
        return self if after >= before else replace(self, parts=together.best(self.parts))

    def references(self, common: Mapping[str, Reference]) -> References | None:
        """Return what was found; attributes keep their common references where that is little."""
        if self.gain <= LITTLE * math.fsum(part.before for part in self.parts.values()):
            return None
        of = dict(zip(self.workload.domain, self.whole.coloring.colors, strict=True))
        names = tuple(name for name, color in of.items() if color in self.colors)
        others = self._rounded_pivots(common, of)
        chosen = dict[tuple[str, Context], Reference]()
        for context, part in self.parts.items():
            if others == common and part.gain <= LITTLE * part.before:
                continue
            weights = list(part.weights)
            for name in others.keys() - set(names):
                weights[of[name]] = self.whole.cut(of[name], others[name])
            rounded = part.search.rounded(weights)
            moved = {name for name in names if weights[of[name]] is not part.start[of[name]]}
            chosen |= {(name, context): rounded[of[name]] for name in moved}
        usual = {n: chosen.get((n, frozenset()), r) for n, r in others.items()}
        special = {
            (name, context): reference
            for name in names
            for context in self.parts
            if context and any({name, *context} <= f.attributes for f in self.workload.families)
            if (reference := chosen.get((name, context), others[name])).key != usual[name].key
        }
        return References(usual, frozenset(of) - frozenset(names), special) if special else None

    def _rounded_pivots(
        self, common: Mapping[str, Reference], of: Mapping[str, int]
    ) -> dict[str, Reference]:
        """Return the references of all attributes in integers, where pivots have moved theirs."""
        part = next(iter(self.parts.values()))
        moved = {
            color
            for color in set(of.values()) - self.colors
            if part.weights[color] is not part.start[color]
        }
        rounded = self.whole.rounded(list(part.weights)) if moved else []
        return {n: rounded[of[n]] if of[n] in moved else r for n, r in common.items()}


class _Together(Descent):
    """A search for the references of pivots, and for those of others in each context."""

    def __init__(
        self,
        parts: Mapping[Context, ReferenceSearch],
        places: Mapping[Context, list[int]],
        start: list[Array],
        moved: Mapping[int, FreeAxis],
    ) -> None:
        self._parts, self._places, self.start, self._moved = parts, places, start, moved
        self._least = math.inf
        self._best = dict[Context, tuple[float, list[Array]]]()

    @classmethod
    def of(cls, searches: _ContextSearches) -> _Together:
        """Give each reference a number: pivots have one each, others one for each context."""
        numbers, start, moved = dict[tuple[int, Context | None], int](), list[Array](), {}
        places = dict[Context, list[int]]()
        for context, part in searches.parts.items():
            places[context] = []
            for color, weights in enumerate(part.weights):
                is_searched = color in searches.colors
                number = numbers.setdefault((color, context if is_searched else None), len(start))
                places[context].append(number)
                start += [weights] if number == len(start) else []
                slope = part.slopes.get(color)
                if color in part.search.free and slope is not None and slope.any():
                    moved[number] = part.search.free[color]
        parts = {c: part.search.polishing() for c, part in searches.parts.items()}
        return cls(parts, places, start, moved)

    def objective(self, weights: list[Array]) -> tuple[float, Slopes] | None:
        """Add up the contexts. Components that are the same in several are solved once."""
        solved, slopes = SolvedComponents(), dict[int, Array]()
        values = dict[Context, tuple[float, list[Array]]]()
        for context, part in self._parts.items():
            here = [weights[number] for number in self._places[context]]
            evaluated = part.objective(here, solved=solved)
            part.forget_pieces()
            if evaluated is None:
                return None
            values[context] = evaluated[0], here
            by_number = {self._places[context][color]: s for color, s in evaluated[1].items()}
            add(slopes, by_number)
        total = math.fsum(value for value, _ in values.values())
        if total < self._least:
            self._least, self._best = total, values
        return total, slopes

    def forget_pieces(self) -> None:
        """Keep none: each step moves nearly all references of each context."""
        for part in self._parts.values():
            part.forget_pieces()

    def best(self, parts: Mapping[Context, _ContextSearch]) -> dict[Context, _ContextSearch]:
        """Return each context with the references that needed the least in all of them together."""
        return {
            context: replace(part, after=self._best[context][0], weights=self._best[context][1])
            for context, part in parts.items()
        }


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
            parts[context] = _ContextSearch(part, before, slopes, before, self.start, self.start)
        return _ContextSearches(self.workload, self.whole, divided.colors, parts)


def _alike(
    spaces: Sequence[tuple[str, ...]], pivots: frozenset[str]
) -> Iterator[tuple[Context, tuple[tuple[str, ...], ...]]]:
    groups: dict[Context, list[tuple[str, ...]]] = defaultdict(list)
    for space in spaces:
        groups[pivots.intersection(space)].append(space)
    yield from ((context, tuple(same)) for context, same in groups.items())
