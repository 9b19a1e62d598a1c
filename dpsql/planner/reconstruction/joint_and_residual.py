"""Reconstruction where a few attributes are known jointly and the others by residual spaces.

Measurements of earlier releases may be of a whole small domain J, whose estimates of the residual
spaces inside J are correlated. Then everything known about these spaces is one estimate x̂_J over
the joint cells of J (a `WholeReconstruction`); the other residual spaces have estimates of their
own. For a query q over the attributes B,

    q(x_B) = q_J(x_{B∩J}) + Σ_{A⊆B, A⊄J} q_A(x_A) ,

where q_J drops the axes of B∖J with their references: the sum of all q_A with A ⊆ J telescopes
(see `residuals.decompose`). Both parts rest on different measurements, so variances add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import Dense
from dpsql.planner.reconstruction.base import Aligned, CombinedReconstruction, Missing
from dpsql.planner.reconstruction.measured import OnlyIn, Space, Values
from dpsql.planner.reconstruction.residual import ResidualReconstruction
from dpsql.planner.reconstruction.whole import WholeReconstruction
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.structure import Product
from dpsql.workload import Block, Family


class MixedReconstruction(CombinedReconstruction):
    """How answers follow from an estimate over the cells of J and from other residual spaces."""

    def __init__(self, joint: WholeReconstruction, rest: ResidualReconstruction) -> None:
        self._inside = joint
        self.rest = rest
        """Spaces that are not inside J."""

    @property
    def references(self) -> Mapping[str, Reference]:
        """Attribute → its reference."""
        return self.rest.references

    @property
    def joint(self) -> Space:
        """What is known about J."""
        return self._inside.space

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured."""
        return (*self._inside.spaces, *self.rest.spaces)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        inside = [a for a in attributes if a in self._inside.names]
        known = LabeledArray(inside, self._inside.marginal(inside, values)).expand(attributes)
        for name in (a for a in attributes if a not in inside):
            weights = self.references[name].weights
            known = known * LabeledArray((name,), weights).expand(attributes)
        return np.asarray(known + self.rest.marginal(attributes, values))

    def with_total(self) -> Values | None:
        """Return what it is inside of J: the other spaces have no say in the total."""
        found = self._inside.with_total()
        return None if found is None else OnlyIn(found)

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        return np.asarray(
            self._inside.variances(self.joint_part(family)) + self.rest.variances(family)
        )

    def _large_extent(self, family: Family, domain: Mapping[str, int]) -> tuple[float, float]:
        """Add up: the largest of both parts need not be the same answer's."""
        inside = self._inside.extent(self.joint_part(family), domain)
        rest = self.rest.extent(family, domain)
        return inside[0] + rest[0], inside[1] + rest[1]

    def _covariances(self, first: Aligned, second: Aligned, sizes: tuple[int, ...]) -> Array:
        """Add up."""
        ours, theirs = (replace(s, family=self.joint_part(s.family)) for s in (first, second))
        inside = self._inside.covariances(ours, theirs, sizes)
        return np.asarray(inside + self.rest.covariances(first, second, sizes))

    def missing(self, family: Family, domain: Mapping[str, int]) -> Missing:
        """Look at J, and at every residual space that is not inside."""
        inside = self._inside.missing(self.joint_part(family), domain)
        rest = self.rest.missing(family, domain)
        return (*inside, *(space for space in rest if not set(space) <= set(self._inside.names)))

    def residual_error(self, terms: Sequence[Product], space: tuple[str, ...]) -> float:
        """Return the weighted sum of variances of what is asked of a space; 0 if unknown."""
        known = self._inside if set(space) <= set(self._inside.names) else self.rest
        return known.residual_error(terms, space)

    def joint_part(self, family: Family) -> Family:
        """Return q_J of every query, in the shape of the family."""
        return replace(family, blocks=tuple(self._dropped(block) for block in family.blocks))

    def _dropped(self, block: Block) -> Block:
        """Drop the axes outside of J; a block that has no others becomes a number for each row."""
        names = tuple(a for a in block.attributes if a in self._inside.names)
        if names == block.attributes:
            return block
        if not names:
            return Block((), (), Dense(self.rest.inverses().dropped(block)[:, None]))
        rows = block.queries.matrix.reshape(-1, *block.shape)
        table = LabeledArray(("", *block.attributes), rows)
        for name in (a for a in block.attributes if a not in names):
            table = table.apply(name, Dense(self.references[name].weights[None]))
        tensor = table.project(("", *names))
        return Block(names, tensor.shape[1:], Dense(tensor.reshape(len(tensor), -1)))
