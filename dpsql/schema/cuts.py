"""The cuts of a column into intervals, as they stand in descriptions of what was measured.

Measuring along more cuts tells all that measuring along some of them does: each interval lies
within one of the coarser ones. So measurements along different cuts of one column go together,
over all of the cuts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

DERIVED = "row:"
"""How the hash of a derived key begins where columns are described."""
MOST_CUTS = 1_000
"""Of one column, by several releases."""
_CUT = "cut at"
"""How the description of a line begins, in place of a hash."""
CUT_AT = rf"{_CUT}(?: -?[0-9]{{1,20}}){{0,{MOST_CUTS}}}"
"""What it looks like."""
_WRITTEN = re.compile(CUT_AT)

Cuts = tuple[int, ...]
"""The first place of each interval but the first, in ascending order."""


def cut_at(cuts: Sequence[int]) -> str:
    """Describe a line by where it is cut."""
    return " ".join([_CUT, *map(str, cuts)])


def cuts_of(description: str) -> Cuts | None:
    """Return where a column is cut; None of another description.

    Raises:
        ValueError: the cuts don't ascend.
    """
    if _WRITTEN.fullmatch(description) is None:
        return None
    cuts = tuple(map(int, description.removeprefix(_CUT).split()))
    if list(cuts) != sorted(set(cuts)):
        raise ValueError
    return cuts


def lines_of(descriptions: Mapping[str, str]) -> dict[str, Cuts]:
    """Return the cuts of those derived keys that are lines, given what each is.

    Raises:
        ValueError: the cuts don't ascend.
    """
    found = {name: cuts_of(text.removeprefix(DERIVED)) for name, text in descriptions.items()}
    return {name: cuts for name, cuts in found.items() if cuts is not None}


def together(lines: Iterable[Mapping[str, Cuts]]) -> dict[str, Cuts]:
    """Return all cuts of each column."""
    found: dict[str, set[int]] = {}
    for each in lines:
        for name, cuts in each.items():
            found.setdefault(name, set()).update(cuts)
    return {name: tuple(sorted(cuts)) for name, cuts in found.items()}


def coarser(fine: Cuts, coarse: Cuts, *, nullable: bool) -> list[int]:
    """Return in which interval of fewer cuts each one of more cuts lies.

    Args:
        fine: all cuts.
        coarse: some of them.
        nullable: whether there is a last cell, of NULL.
    """
    found = [0, *(bisect_right(coarse, cut) for cut in fine)]
    return [*found, len(coarse) + 1] if nullable else found
