"""Statements in which rows of the same unit meet: these are translated into relations."""

from __future__ import annotations


class NeedsRelationsError(Exception):
    """A signal that a statement is over rows of units, which only relations can say.

    It never leaves the front end, and says nothing of what the statement means: `sql/algebra`
    finds that out, and refuses what is not of one unit.
    """
