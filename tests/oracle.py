"""A dense, slow and obvious matrix mechanism over the full domain, for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dpsql.answers.answers import reconstruct
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.measurement.strategy import BlockStrategy
from dpsql.workload import Family


def over_full_domain(matrix, attributes, domain: Mapping[str, int]) -> np.ndarray:
    """Spread queries over the cells of `attributes` to queries over all cells of the domain."""
    names = list(domain)
    shape = [domain[a] for a in attributes]
    tensor = np.asarray(matrix).reshape(-1, *shape)
    order = sorted(range(len(attributes)), key=lambda i: names.index(attributes[i]))
    tensor = tensor.transpose(0, *(i + 1 for i in order))
    spread = [domain[a] if a in attributes else 1 for a in names]
    tensor = tensor.reshape(-1, *spread)
    full = np.broadcast_to(tensor, (tensor.shape[0], *domain.values()))
    return full.reshape(tensor.shape[0], -1)


def family_matrix(family: Family, domain: Mapping[str, int]) -> np.ndarray:
    """Write a family out: shape (queries, cells of the full domain)."""
    matrix, attributes = np.ones((1, 1)), []
    for block in family.blocks:
        matrix = np.kron(matrix, block.queries.matrix)
        attributes += block.attributes
    return over_full_domain(matrix, attributes, domain)


def every_space(blocks):
    """Yield each block with each of its spaces, in the order in which they are measured."""
    return [(block, space) for block in blocks for space in block.spaces]


def space_matrix(block: BlockStrategy, space, domain: Mapping[str, int]) -> np.ndarray:
    """Write the integer measurements of one space of a block out over the full domain."""
    matrix, attributes = np.ones((1, 1), dtype=object), []
    for factor in block.factors:
        matrix = np.kron(matrix, factor.matrix.astype(object))
        attributes += [space[axis] for axis in factor.axes]
    return over_full_domain(matrix, attributes, domain)


def exact_cost(blocks, domain: Mapping[str, int]) -> Fraction:
    """The squared change that one record makes, in units of noise, maximized over its cell."""
    total = [Fraction(0)] * math.prod(domain.values())
    for block, space in every_space(blocks):
        matrix = space_matrix(block, space, domain)
        for cell in range(matrix.shape[1]):
            squared = sum(int(v) ** 2 for v in matrix[:, cell])
            total[cell] += Fraction(squared, block.law.width)
    return max(total)


def generalized_least_squares(workload, blocks):
    """Return (estimator, noise variances, bias) of the best linear unbiased estimate.

    The estimator has shape (queries, measurements). `bias` is how far the workload is from the
    row space of the measurements.
    """
    domain = workload.domain
    queries = np.vstack([family_matrix(f, domain) for f in workload.families])
    rows, noise = [], []
    for block, space in every_space(blocks):
        matrix = space_matrix(block, space, domain).astype(float)
        rows.append(matrix)
        noise += [block.law.variance] * len(matrix)
    # Scaled to unit noise, so that the pseudo-inverse is the least-squares estimate.
    scaled = np.vstack(rows) / np.sqrt(noise)[:, None]
    estimator = queries @ np.linalg.pinv(scaled, rcond=1e-12)
    bias = np.abs(estimator @ scaled - queries).max()
    return estimator / np.sqrt(noise), np.array(noise), bias


def answers_of(plan, measured, family) -> np.ndarray:
    return reconstruct(plan, NoisyMeasurements(plan.certified, measured), family)


def planned_estimator(plan) -> np.ndarray:
    """The matrix that a plan's reconstruction applies to noisy answers, found by unit vectors.

    What a coarse law keeps of a noisy answer counts `unit`.
    """
    blocks = plan.certified.blocks
    shapes = {frozenset(s): [f.measurements for f in b.factors] for b, s in every_space(blocks)}
    columns = []
    for block, measured_space in every_space(blocks):
        for index in range(block.measurements):
            measured = {space: np.zeros(shape) for space, shape in shapes.items()}
            measured[frozenset(measured_space)].flat[index] = 1 / block.law.unit
            answers = [answers_of(plan, measured, f).ravel() for f in plan.workload.families]
            columns.append(np.concatenate(answers))
    return np.array(columns).T


def assert_best_and_as_stated(plan) -> np.ndarray:
    """A plan's answers are unbiased and as good as least squares; return the variances it states.

    Shape (queries,), in the order of the families.
    """
    estimator, noise, bias = generalized_least_squares(plan.workload, plan.certified.blocks)
    assert bias < 1e-6
    # The same estimator has the same covariance, not only the same variances.
    covariance = (estimator * noise) @ estimator.T
    ours = planned_estimator(plan)
    scale = np.abs(covariance).max()
    np.testing.assert_allclose((ours * noise) @ ours.T, covariance, atol=1e-6 * scale)
    stated = np.concatenate([v.ravel() for v in plan.variances])
    np.testing.assert_allclose(stated, covariance.diagonal(), rtol=1e-6, atol=1e-9 * scale)
    return stated
