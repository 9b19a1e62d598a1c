"""Key joins: each row on the left meets at most one row of its unit. Trusted.

Guarantees:
    Where `meets_one` is true, a row on the left meets at most one row on the right; and each of
    `same_rows` is at the root at most once.

    *Proof.* Rows on the right that it meets agree in the columns that are equal to columns on the
    left, as values of their types are equal only if they are the same (`equal_columns`). On the way
    down from there, a `Filter` leaves rows out, and a `Project` passes columns on, so that rows
    which agree above agree below in the columns that these are passed on from. At the end stands a
    `Scan` of a table of which no two rows agree in such columns, as the database sees to it
    (`StoredRows.unique`), and of which each is there once for a unit; or a `Group` with no other
    keys, of which there is one row for each combination. ∎

Such a row has the columns of the right by what it is itself, and by the rows of its unit. So it
stays where it stands in line (`engines/relations.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.rel.facts import Known, RelationFacts, conjuncts, equalities
from dpsql.rel.nodes import (
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    Project,
    Relation,
    Scan,
    Window,
)
from dpsql.rows.expression import RowCall, RowCase, RowColumn, RowConstant, RowExpression
from dpsql.schema.keys import comparable


def meets_one(join: Join, known: Known) -> bool:
    """Whether each row on the left meets at most one row on the right; see the module."""
    pairs, _ = equal_columns(join.on, known.of(join.left), known.of(join.right))
    return _is_unique(join.right, frozenset(b for _, b in pairs))


def same_rows(relation: Relation, known: Known) -> Iterator[Relation]:
    """Yield a relation, and those below it of which it has each row at most once.

    *Proof.* A `Filter` leaves rows out, a `Project`, a `Window` and a `GroupJoin` have each row (on
    the left) once, and so has a `Join` in which a row meets one at most. ∎
    """
    node: Relation | None = relation
    while node is not None:
        yield node
        match node:
            case Filter() | Project() | Window():
                node = node.of
            case GroupJoin():
                node = node.left
            case Join() if meets_one(node, known):
                node = node.left
            case _:
                node = None


def equal_columns(
    on: RowExpression | None, left: RelationFacts, right: RelationFacts
) -> tuple[tuple[tuple[Id, Id], ...], tuple[RowExpression, ...]]:
    """Return the columns of two rows that a condition says are equal, and what else it says.

    They are of types whose values are equal only if they are the same, so they can be told apart by
    what is stored: texts by their bytes, and values that expressions can't read, too. The zeros of
    a float are no such values, nor are times that expressions read in another unit.
    """
    pairs, rest = list[tuple[Id, Id]](), list[RowExpression]()
    for part in conjuncts(on):
        equal = equalities(part, left, right)
        if equal and all(comparable(left.types[a], right.types[b]) for a, b in equal):
            pairs += equal
        else:
            rest.append(part)
    return tuple(pairs), tuple(rest)


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


_ZERO, _NAN = RowConstant("DOUBLE", "0.0"), RowConstant("DOUBLE", "nan")


def with_one_zero(value: RowExpression) -> RowExpression:
    """Return a DOUBLE of which values that are equal are the same: zero and NaN have no sign."""
    same = ((RowCall("=", (value, constant)), constant) for constant in (_ZERO, _NAN))
    return RowCase(tuple(same), value)


def has_one_zero(value: RowExpression) -> bool:
    """Whether a value is one that `with_one_zero` has made."""
    return isinstance(value, RowCase) and value == with_one_zero(value.otherwise)
