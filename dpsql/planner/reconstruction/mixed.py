"""Recovery where a few attributes are known jointly and the others by residual spaces.

Measurements of earlier releases may be of a whole small domain J, whose estimates of the residual
spaces inside J are correlated. Then everything known about these spaces is one estimate x̂_J over
the joint cells of J (a `WholeRecovery`); the other residual spaces have estimates of their own. For
a query q over the attributes B,

    q(x_B) = q_J(x_{B∩J}) + Σ_{A⊆B, A⊄J} q_A(x_A) ,

where q_J drops the axes of B∖J with their references: the sum of all q_A with A ⊆ J telescopes
(see `divide.decompose`). Both parts rest on different measurements, so variances add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpsql.planner.reconstruction.marginals import MarginalRecovery
from dpsql.planner.reconstruction.measured import Noisy, Space, Values, read
from dpsql.planner.reconstruction.residual import Recovery
from dpsql.planner.reconstruction.whole import WholeRecovery
from dpsql.workload import Block, Family
from dpsql.workload.queries import DenseQueries

Array = NDArray[np.float64]


class MixedRecovery:
    """How answers follow from an estimate over the cells of J and from other residual spaces."""

    def __init__(self, joint: WholeRecovery, rest: Recovery) -> None:
        self.joint = joint
        self.rest = rest
        """Spaces that are not inside J."""
        self.references = rest.references

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What is measured."""
        return (*self.joint.spaces, *self.rest.spaces)

    def values(self, noisy: Noisy) -> Values:
        """Return what answers are made of, from the noisy integers of every space."""
        return read(self.spaces, noisy)

    def marginal(self, attributes: Sequence[str], values: Values) -> Array:
        """Return the noisy marginal over some attributes."""
        inside = [a for a in attributes if a in self.joint.names]
        spread = self.joint.marginal(inside, values)
        for i, name in enumerate(attributes):
            if name not in inside:
                spread = np.multiply.outer(spread, self.references[name].weights)
                spread = np.moveaxis(spread, -1, i)
        return np.asarray(spread + self.rest.marginal(attributes, values))

    def variances(self, family: Family) -> Array:
        """Return the variance of every answer, in the shape of the family.

        Raises:
            ResourceLimitError: there are too many to be held at once.
        """
        return np.asarray(
            self.joint.variances(self.joint_part(family)) + self.rest.variances(family)
        )

    def joint_part(self, family: Family) -> Family:
        """Return q_J of every query, in the shape of the family."""
        return replace(family, blocks=tuple(self._dropped(block) for block in family.blocks))

    def _dropped(self, block: Block) -> Block:
        """Drop the axes outside of J; a block that has no others becomes a number for each row."""
        kept = tuple(a in self.joint.names for a in block.attributes)
        if all(kept):
            return block
        if not any(kept):
            return Block((), (), DenseQueries(self.rest.dropped(block)[:, None]))
        tensor = block.queries.matrix.reshape(-1, *block.shape)
        for axis in reversed(range(len(kept))):
            if not kept[axis]:
                weights = self.references[block.attributes[axis]].weights
                tensor = np.tensordot(tensor, weights, (axis + 1, 0))
        names = tuple(a for a, keep in zip(block.attributes, kept, strict=True) if keep)
        return Block(names, tensor.shape[1:], DenseQueries(tensor.reshape(len(tensor), -1)))


CombinedRecovery = Recovery | WholeRecovery | MixedRecovery
"""What becomes of measurements of several releases, put together."""
AnyRecovery = CombinedRecovery | MarginalRecovery
