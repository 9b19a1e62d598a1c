"""A release: named frames, made from one set of noisy measurements."""

from dpsql.release.rehearse import rehearse
from dpsql.release.release import Release, build_release

__all__ = ["Release", "build_release", "rehearse"]
