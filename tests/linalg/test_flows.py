"""Largest flows, and cuts that say that they are: brute force, and SciPy's matchings of copies."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from dpsql.linalg.flows import NOBODY, taken


def checked(edges, sizes, capacity):
    """Return how many are taken, after a look at all that is said of it."""
    (left, right), found = edges, taken(edges, sizes, capacity)
    own = np.flatnonzero(found.by != NOBODY)
    assert {*zip(found.by[own].tolist(), own.tolist(), strict=True)} <= {
        *zip(left.tolist(), right.tolist(), strict=True)
    }
    assert np.bincount(found.by[own], minlength=1).max() <= capacity
    assert (found.left[left] | found.right[right]).all()
    assert len(own) == capacity * found.left.sum() + found.right.sum()
    return len(own)


def random_edges(rng, lefts, rights):
    return np.nonzero(rng.random((lefts, rights)) < rng.random())


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_takes_more(seed):
    rng = np.random.default_rng(seed)
    lefts, rights, capacity = rng.integers(1, 4), rng.integers(1, 6), int(rng.integers(1, 4))
    left, right = random_edges(rng, lefts, rights)
    choices = [[NOBODY, *left[right == node].tolist()] for node in range(rights)]
    most = max(
        sum(one != NOBODY for one in chosen)
        for chosen in product(*choices)
        if all(chosen.count(one) <= capacity for one in range(lefts))
    )
    assert checked((left, right), (lefts, rights), capacity) == most


@pytest.mark.parametrize("seed", range(40))
def test_copies_of_those_on_the_left_are_matched_as_often(seed):
    rng = np.random.default_rng(100 + seed)
    lefts, rights, capacity = rng.integers(1, 30), rng.integers(1, 60), int(rng.integers(1, 5))
    left, right = random_edges(rng, lefts, rights)
    copies = np.concatenate([left + lefts * i for i in range(capacity)])
    there = (copies, np.tile(right, capacity))
    graph = csr_matrix((np.ones(len(copies)), there), shape=(lefts * capacity, rights))
    most = int((maximum_bipartite_matching(graph, perm_type="column") != -1).sum())
    assert checked((left, right), (lefts, rights), capacity) == most


def test_of_nothing_nothing_is_taken():
    none = np.zeros(0, dtype=np.int64)
    assert checked((none, none), (0, 0), 3) == 0
    assert checked((none, none), (4, 2), 1) == 0


def test_a_chain_is_taken_off_from_its_end():
    """Each is easy as soon as the one before it is; no round takes off two."""
    n = 200
    left = np.repeat(np.arange(n), 2)[1:]
    right = np.repeat(np.arange(n), 2)[:-1]
    assert checked((left, right), (n, n), 1) == n
