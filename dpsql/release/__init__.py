"""A release: named frames, made from noisy measurements, in memory or on disk."""

from dpsql.release.assembly import Before, from_before, from_plan
from dpsql.release.release import Release

__all__ = ["Before", "Release", "from_before", "from_plan"]
