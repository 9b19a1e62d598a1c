"""The unit that the rows of a table belong to, as a comment on it says."""

from __future__ import annotations

from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint
from dpsql.schema.comments import is_ours, read_comment, references_of
from dpsql.schema.units import EACH_ROW, EachRow, Unit


def of_comment(
    table: str, comment: str | None, declared: Unit | EachRow | None
) -> Unit | EachRow | None:
    """Return what goes before a table's comment, or what the comment says.

    `EACH_ROW` of a session is passed for all tables that it asks, and meant for those without a
    unit. So it doesn't go before a comment that names one.

    Raises:
        SchemaError: the comment is needed and not understood, or names a unit of such a table.
    """
    if isinstance(declared, Unit):
        return declared
    noted = from_comment(table, comment)
    if declared is not None and isinstance(noted, Unit):
        raise SchemaError(
            f"The comment on the table {printable(table)} says that its rows belong to units, of "
            f"{printable(noted.key)}, so they can't be protected one by one.",
            hint="leave "
            + Hint("dpsql.EACH_ROW", "--each-row")
            + " out for this table; or, if the comment is wrong, change that.",
        )
    return declared or noted


def from_comment(table: str, comment: str | None) -> Unit | EachRow | None:
    """Read a unit from a table's comment; None if the comment is not meant for dpsql.

    Raises:
        SchemaError: it is meant for dpsql and not understood.
    """
    if not is_ours(comment):
        return None
    found = read_comment(comment)
    if isinstance(found, dict):
        references_of(table, comment)
        others = [found.pop(key, None) for key in ("expressions", "references")]
        if not found and others != [None, None]:
            return None
    if isinstance(found, dict) and set(found) == {"each_row"} and found["each_row"] is True:
        return EACH_ROW
    further = {"max_rows", "max_groups", "max_rows_per"}
    if not isinstance(found, dict) or found.keys() - further != {"unit"}:
        raise SchemaError(
            f"The comment on the table {table} is not understood.",
            hint='write COMMENT ON TABLE … IS \'dpsql: {"unit": "person_id", "max_rows": 3}\'.',
        )
    return Unit(found.pop("unit"), **found)
