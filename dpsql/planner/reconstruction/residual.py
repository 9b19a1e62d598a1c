"""Reconstruction from residual spaces.

On the residual space V_A, the measurements y = B_A x_A + z give the estimate t_A = C_A B_A⁺ y
over the cells of A, where C_A = ⊗(I − ℓ1ᵀ) lets a query on t_A count what it keeps. Spread over
the other attributes of B as their references say and added up, the estimates make a marginal
over B,

    x̂_B = Σ_{A⊆B} t_A ⊗ (ℓ_i for i in B∖A) ,

and every query q over B that was planned for has q(x̂_B) = Σ_A q_A(t_A): exactly unbiased, with

    variance = Σ_A (σ_A² + 1/12) ‖q_A B_A⁺‖² .

The norms are products over groups of blocks and factors, see `inverses`. Measurements of different
residual spaces are independent, so that covariances add up over the spaces, too; see `inner`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import MAX_ENTRIES
from dpsql.linalg.sets import subsets
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.base import Aligned, CombinedReconstruction, Missing
from dpsql.planner.reconstruction.inner_products import InnerProducts, rows_at_once
from dpsql.planner.reconstruction.inverses import Inverses, spans
from dpsql.planner.reconstruction.largest import largest_variance
from dpsql.planner.reconstruction.measured import OnlyIn, Space, Values
from dpsql.planner.residuals.contexts import Context, References, decomposed
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.structure import Product, products
from dpsql.workload import Family, Workload
from dpsql.workload.workload import boxes


class ResidualReconstruction(CombinedReconstruction):
    """How answers and variances follow from measurements of residual spaces."""

    def __init__(self, spaces: Iterable[Space], references: Mapping[str, Reference]) -> None:
        self._spaces: dict[frozenset[str], list[Space]] = {}
        for space in spaces:
            self._spaces.setdefault(frozenset(space.attributes), []).append(space)
        self._touched = {name for space in self._spaces for name in space}
        self._references = References.of(references)
        self._inverses: dict[Context, Inverses] = {}

    @property
    def references(self) -> References:
        """Attribute → its reference, in each context."""
        return self._references

    def inverses(self, space: Iterable[str] = ()) -> Inverses:
        """Return what queries become of measurements of a residual space."""
        context = self._references.context(space)
        if context not in self._inverses:
            self._inverses[context] = Inverses(self._references.within(context))
        return self._inverses[context]

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured. Estimates of one residual space add up, as their variances do."""
        return tuple(chain.from_iterable(self._spaces.values()))

    def marginal(
        self,
        attributes: Sequence[str],
        values: Values,
    ) -> Array:
        """Return x̂_B from the noisy measurements of each residual space.

        Axis by axis (Fuentes et al., "Fast private adaptive query answering for large data
        domains", 3): of two tables that differ in one attribute, the one without it is spread
        along that axis and added to the other. So it takes time in the cells of the marginal, and
        hardly more for each of its 2^k residual spaces.
        """
        tables: dict[frozenset[str], Array] = {}
        for space in self.inside(attributes):
            _add(tables, frozenset(space.attributes), self._placed(space, values, attributes))
        # Pivots last: what they keep tells along which references others are spread. Else axes of
        # few cells first, which make the other tables the least larger.
        cells = {name: len(self.references[name].weights) for name in attributes}
        for name in sorted(cells, key=lambda a: (a in self.references.pivots, cells[a])):
            merged = dict[frozenset[str], Array]()
            for kept, table in tables.items():
                if name not in kept:
                    table = table * self._along(name, kept, attributes)
                _add(merged, kept - {name}, table)
            tables = merged
        if not tables:
            return np.zeros([cells[a] for a in attributes])
        (result,) = tables.values()
        return result

    def with_total(self) -> Values | None:
        """Return what the noise of the total's own space is: no other has a say in it."""
        found = OnlyIn()
        for space in self._measured(()):
            shape = [factor.measurements for factor in space.factors]
            units = np.eye(math.prod(shape)).reshape(-1, *shape)
            parts = [self.inverses().estimate(space, unit) for unit in units]
            found[space] = space.noise * np.array(parts, dtype=np.float64).reshape(shape)
        return found or None

    def _placed(self, space: Space, values: Values, attributes: Sequence[str]) -> Array:
        """Return the estimate of a residual space along the axes of a marginal."""
        names = [a for f in space.factors for a in space.of(f)]
        estimate = self.inverses(space.attributes).estimate(space, values[space])
        return LabeledArray(names, estimate).expand(attributes)

    def _along(self, name: str, kept: Iterable[str], attributes: Sequence[str]) -> Array:
        """Return the reference of an attribute along its axis, where others are kept."""
        weights = self.inverses(kept).references[name].weights
        return LabeledArray((name,), weights).expand(attributes)

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        family.check_held()
        total = np.zeros(family.shape)
        for space in self._inside_of(family):
            squares = self.inverses(space.attributes).squares(family.blocks, space)
            total += space.noise * squares
        return total

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Take what the planner knows as the error of the family alone, and search the largest."""
        alone = Workload.of(domain, [family])
        total = math.fsum(error for _, error in self.errors(alone)) / family.weight
        spaces = list(self._inside_of(family))
        return total, largest_variance(self.inverses, spaces, family)

    def errors(self, workload: Workload) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the weighted sum of variances that the noise in each residual space gives."""
        known = {name: n for name, n in workload.domain.items() if name in self.references}
        for space, terms in self._asked(Workload.of(known, workload.families)):
            if self._measured(space):  # not so inside of joint cells that are known at once
                yield space, self.error_of(terms, space)

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Add up over the residual spaces inside both families' attributes."""
        total = np.zeros(sizes)
        most = min(rows_at_once(side.family, MAX_ENTRIES) for side in (first, second))
        if most < total.size:
            for box in boxes(sizes, most):
                here = tuple(s.stop - s.start for s in box)
                ours, theirs = first.cut(box, sizes), second.cut(box, sizes)
                total[box] = self._covariances(ours, theirs, here)
            return total
        both = first.family.attributes & second.family.attributes
        for space in self.inside([a for a in self.references if a in both]):
            inner = InnerProducts(self.inverses(space.attributes), space, sizes)
            total += space.noise * inner.of(first, second)
        return total

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Look at every residual space of which something is asked."""
        known = {n: domain[n] for n in domain if n in self.references or n in family.attributes}
        asked = self._asked(Workload.of(known, [family])) if family.count else ()
        return tuple(space for space, terms in asked if not self._determines(terms, space))

    def _asked(self, workload: Workload) -> Iterator[tuple[tuple[str, ...], Sequence[Product]]]:
        """Yield what is asked of every residual space."""
        for splitter, subworkload in decomposed(workload, self.references):
            terms = products(subworkload, splitter)
            for space in subworkload.spaces:
                yield space, terms

    def _determines(self, terms: Sequence[Product], space: tuple[str, ...]) -> bool:
        return any(spans(terms, s) for s in self._measured(space))

    def residual_error(self, terms: Sequence[Product], space: tuple[str, ...]) -> float:
        """Return the weighted sum of variances of what is asked of a space; 0 if unknown."""
        return self.error_of(terms, space) if self._determines(terms, space) else 0.0

    def error(self, terms: Sequence[Product], block: BlockStrategy) -> float:
        """Return the weighted sum of variances that a block gives to the terms of its spaces."""
        return len(block.spaces) * self.error_of(terms, block.spaces[0])

    def error_of(self, terms: Sequence[Product], attributes: Sequence[str]) -> float:
        """Return the weighted sum of variances that one space gives to the terms asked of it."""
        found = self._measured(attributes)
        inverses = self.inverses(attributes)
        return math.fsum(inverses.error(terms, attributes, space) for space in found)

    def _measured(self, attributes: Iterable[str]) -> Sequence[Space]:
        """Return the measurements of a residual space; none if it was not measured."""
        return self._spaces.get(frozenset(attributes), ())

    def _inside_of(self, family: Family) -> Iterator[Space]:
        return self.inside(family.names)

    def inside(self, attributes: Sequence[str]) -> Iterator[Space]:
        """Yield the residual spaces whose attributes are all among some."""
        measured = [a for a in attributes if a in self._touched]
        if 1 << len(measured) > len(self._spaces):
            inside = set(measured)
            for names, spaces in self._spaces.items():
                if names <= inside:
                    yield from spaces
            return
        for subset in subsets(measured):
            yield from self._spaces.get(frozenset(subset), ())


def _add(tables: dict[frozenset[str], Array], key: frozenset[str], table: Array) -> None:
    tables[key] = tables[key] + table if key in tables else table
