"""Key joins: each row on the left meets at most one row of its unit. Trusted.

Guarantees:
    Where `meets_one` is true, a row on the left meets at most one row on the right.

    *Proof.* Rows on the right that it meets agree in the columns that are equal to columns on the
    left, as values of their types are equal only if they are the same. On the way down from there,
    a `Filter` leaves rows out, and a `Project` passes columns on, so that rows which agree above
    agree below in the columns that these are passed on from. At the end stands a `Scan` of a table
    of which no two rows agree in such columns, as the database sees to it (`StoredRows.unique`),
    and of which each is there once for a unit; or a `Group` with no other keys, of which there is
    one row for each combination. ∎

Such a row has the columns of the right by what it is itself, and by the rows of its unit. So it
stays where it stands in line (`engines/relations.py`).
"""

from __future__ import annotations

from dpsql.rel.facts import Known, equalities
from dpsql.rel.nodes import Filter, Group, Id, Join, Project, Relation, Scan
from dpsql.rows.expression import RowColumn
from dpsql.rows.types import COARSE, TIME, row_type
from dpsql.schema.names import capitals


def meets_one(join: Join, known: Known) -> bool:
    """Whether each row on the left meets at most one row on the right; see the module."""
    left, right = known.of(join.left), known.of(join.right)
    same = (
        b for a, b in equalities(join.on, left, right) if is_exact(left.types[a], right.types[b])
    )
    return _is_unique(join.right, frozenset(same))


def is_exact(left: str, right: str) -> bool:
    """Whether values of two types are equal only if they are the same.

    The zeros of a float are not. Times in other units than microseconds, and times of day, are read
    as what a TIMESTAMP or TIME has, so that some are equal that are stored as different ones.
    """
    type_ = row_type(left)
    read_otherwise = capitals(left) in COARSE or type_ == TIME
    return left == right and not type_.is_float and not read_otherwise


def _is_unique(relation: Relation, names: frozenset[Id]) -> bool:
    """Whether no two rows of a unit agree in some columns of a relation."""
    match relation:
        case Filter():
            return _is_unique(relation.of, names)
        case Project():
            passed = (
                value.name
                for name, value in relation.columns
                if name in names and isinstance(value, RowColumn)
            )
            return _is_unique(relation.of, frozenset(passed))
        case Scan():
            keys = relation.source.unique
            return any({relation.prefix + name for name in key} <= names for key in keys)
        case Group():
            return {name for name, _ in relation.keys} <= names
        case _:
            return False
