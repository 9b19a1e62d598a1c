"""Measure how many noise values a CPU-second gives: python -m tests.benchmarks.noise_speed."""

from __future__ import annotations

import time

from dpsql.measurement.gaussian import rounded_gaussian
from dpsql.measurement.randomness import fresh_bits


def speed(sigma: int, count: int, repeats: int = 3) -> float:
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        rounded_gaussian(sigma**2, count, fresh_bits())
        best = max(best, count / (time.process_time() - start))
    return best


if __name__ == "__main__":
    rounded_gaussian(1, 1000, fresh_bits())
    for name, sigma, count in (
        ("1", 1, 10**6), ("10", 10, 10**6), ("1e4", 10**4, 10**6), ("1e9", 10**9, 10**6),
        ("2^40", 2**40, 5 * 10**5), ("2^49", 2**49, 10**4),
    ):  # fmt: skip
        print(f"σ = {name:>5}: {speed(sigma, count) / 1e6:8.2f} million per CPU-second")
