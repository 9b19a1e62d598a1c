"""The way from a public call to the noise is short enough to be read."""

from __future__ import annotations

import pytest

from tests.benchmarks.frames import SAMPLERS, frames

MOST = 10


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_way_from_a_query_to_the_first_integer_of_noise(sampler):
    found = frames(sampler)
    assert found[-1] == sampler
    assert len(found) <= MOST, found
