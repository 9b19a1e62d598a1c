"""Parts and units of times, and constants that strings stand for."""

from __future__ import annotations

from dpsql.errors import UnsupportedSqlError, printable
from dpsql.rows.expression import RowConstant
from dpsql.rows.functions import ALIASES, PARTS, UNITS
from dpsql.rows.types import BIGINT, DATE, DOUBLE, RowType
from dpsql.schema.names import folded

CLOCK = frozenset({"hour", "minute", "second", "millisecond", "microsecond", "epoch"})
"""Parts that a TIME has, too."""


def word(text: str, *, parts: bool) -> str:
    """Return the one name of a part or unit of time.

    Raises:
        UnsupportedSqlError: there is none.
    """
    known = frozenset(PARTS) if parts else UNITS
    found = ALIASES.get(folded(text), "")
    if found not in known:
        raise UnsupportedSqlError(
            f"{printable(text)[:60]!r} can't be taken from a time on rows.",
            hint=f"there are {', '.join(sorted(known))}.",
        )
    return found


def part_type(part: str) -> tuple[RowType, tuple[int, int] | None]:
    """Return the type of a part, and between what values it lies."""
    if part in {"epoch", "julian"}:
        return DOUBLE, None
    return BIGINT, PARTS[part] or BIGINT.limits


def meant(text: str, type_: RowType) -> RowConstant:
    """Return the constant that a string stands for beside values of a type.

    Raises:
        UnsupportedSqlError: the string stands for none.
    """
    kinds, spelled = [type_.name], text.strip()
    if type_.is_number:
        kinds = ["INTEGER", "DECIMAL", "DOUBLE"]
    elif type_.is_time:
        kinds = ["DATE", "TIMESTAMP"]
    for kind in kinds:
        try:
            found = RowConstant(kind, spelled if type_.is_time else folded(spelled))
        except UnsupportedSqlError:
            continue
        # Beside a day, DuckDB makes a day of it, and drops the time.
        return RowConstant("DATE", spelled[:10]) if type_ == DATE else found
    raise UnsupportedSqlError(
        f"{printable(text)[:60]!r} is no {type_.sql}, so it can't be compared with rows.",
        hint=f"write a {'TIMESTAMP' if type_.is_time and type_ != DATE else type_.sql}, or cast "
        "what it is compared with to VARCHAR.",
    )
