"""Contexts: references of an attribute that depend on which other attributes are kept.

Some attributes, the *pivots* P, have one reference each. The context of a residual space A is which
of them it keeps, K = A ∩ P, and every other attribute may have a reference ℓ_i^K for each context.

*Why queries still split.* Split a query q over B along its pivots first, as always: q is the sum,
over K ⊆ B ∩ P, of q_K, which is kept on K and dropped on the other pivots. Each q_K is then split
along the other attributes with the references of the context K, whatever these are. So

    q(x_B) = Σ_A q_A(x_A) ,   q_A kept on A and dropped on B∖A with the references of A ∩ P ,

and no set of attributes occurs twice: a context is told by the set. Each residual space is still
measured on its own, and all that is said of one (`decompose`) holds with the references of its
context.

*What it is good for.* By groups of one attribute running totals may be asked of another one, and
by groups of a third the same from the other end. One reference must then be a compromise between
two. A product of strategies for each set of attributes (HDMM's OPT_+) needs none, and could be
better; with references for each context it is not (`weights.contexts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from dpsql.planner.residuals.decompose import Subworkload, decompose
from dpsql.planner.residuals.equivalence import by_reference
from dpsql.planner.residuals.pieces import Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Workload

Context = frozenset[str]
"""The pivots that a residual space keeps."""


@dataclass(frozen=True, eq=False)
class References(Mapping[str, Reference]):
    """Attribute → its reference; and those that it has in some contexts instead."""

    usual: Mapping[str, Reference]
    pivots: frozenset[str] = frozenset()
    """The attributes that tell contexts apart. They have one reference each."""
    special: Mapping[tuple[str, Context], Reference] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """(attribute, context) → its reference there, in contexts that are not empty."""

    @classmethod
    def of(cls, references: Mapping[str, Reference]) -> References:
        """Return references that may be so already; others are the same in all contexts."""
        return references if isinstance(references, cls) else cls(references)

    def __getitem__(self, name: str) -> Reference:
        return self.usual[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.usual)

    def __len__(self) -> int:
        return len(self.usual)

    @cached_property
    def contexts(self) -> frozenset[Context]:
        """Those in which some attribute has a reference of its own, and the empty one."""
        return frozenset({frozenset[str](), *(context for _, context in self.special)})

    def context(self, space: Iterable[str]) -> Context:
        """Return the context of a residual space; the empty one where nothing is special."""
        kept = self.pivots.intersection(space)
        return kept if kept in self.contexts else frozenset()

    def within(self, context: Context) -> Mapping[str, Reference]:
        """Return attribute → its reference in a context."""
        own = {name: r for (name, where), r in self.special.items() if where == context}
        return {**self.usual, **own}

    def only(self, names: Iterable[str]) -> References:
        """Return those that matter for residual spaces of some attributes."""
        kept = frozenset(names)
        return References(
            {name: r for name, r in self.usual.items() if name in kept},
            self.pivots,
            {(a, k): r for (a, k), r in self.special.items() if {a, *k} <= kept},
        )

    def beside(self, joint: frozenset[str]) -> References:
        """Return references with which the spaces inside some joint cells are one estimate.

        An attribute outside then has the same reference for all of them. Measurements for which
        it had another one don't agree with these, and are left out.
        """
        kept = {(a, k): r for (a, k), r in self.special.items() if a in joint or not k <= joint}
        return References(self.usual, self.pivots, kept)

    def over(self, others: Mapping[str, Reference]) -> References:
        """Return these, and those of attributes and of contexts of which nothing is known here.

        There is one set of pivots. Where that of the others is another one, their usual references
        have to do.
        """
        more = References.of(others)
        special = dict(self.special)
        if not self.pivots or not more.pivots or self.pivots == more.pivots:
            known = frozenset(self.usual)
            special |= {(a, k): r for (a, k), r in more.special.items() if not {a, *k} <= known}
        pivots = self.pivots or more.pivots
        return References({**more.usual, **self.usual}, pivots, special)


def decomposed(
    workload: Workload, references: References
) -> Iterator[tuple[Splitter, Subworkload]]:
    """Yield what is asked of every residual space, with what made its pieces."""
    for context in sorted(references.contexts, key=sorted):
        within = references.within(context)
        own = {name: within[name] for name in workload.domain}
        coloring, colors = by_reference(own, workload.domain)
        splitter = Splitter(colors)
        for asked in decompose(workload, coloring, splitter.squares):
            spaces = tuple(s for s in asked.spaces if references.context(s) == context)
            if spaces:
                yield splitter, Subworkload(asked.terms, spaces)
