"""Scores of keys that nobody knows beforehand: what units have which values of a column. Trusted.

Guarantees:
    The scores of a column, with weights w_1, …, w_K, are sums over units: of its values a unit has
    t ≤ K, which follow from its own rows, and adds w_t to the score of each of these, 1 to the
    number of its units, and nothing to any other. So adding or removing a unit with all of its rows
    changes that and nothing else. Values are told apart by their bytes.

    *Proof.* With units, pairs are those of `key_pairs`, and `rel/check.py` looks at the tree: the
    relation of a database is the sum of [R](u) over all units, and [R](u) is made of the rows of u
    alone (`rel/nodes.py`). `Group` leaves one row of each value, which is checked to be unique of a
    unit, and `Bound` at most K of them (`check_kept`). What is taken out is the same for all units.
    `Window` says t, the number of rows that are left of the unit. Each step of the way from a row
    to its unit is enforced by the database, so a row is of one unit at most, and no unit brings or
    takes along rows of another one. Without units each row is one, with one value at most: K is 1.
    An engine adds up what each pair says (`KeyScores`). ∎

    Values are columns, or what is computed of some by the closed list of `rows/`, so functions of
    the row; days of times are a cast. `rows/write.py` has them written so that nothing fails for
    what a row says. A text of more than `MOST_BYTES` bytes is no key, which is a condition on the
    row. Texts with a collation are none, as it may hold two for equal that have other bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.engines import table_relations
from dpsql.engines.arrow import numbers
from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rel.facts import Known
from dpsql.rel.nodes import Bound, Filter, Group, Id, Relation, Window
from dpsql.rows.expression import (
    RowCall,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    all_of,
    columns,
    replaced,
)
from dpsql.rows.functions import MANY
from dpsql.rows.typed import RowValue
from dpsql.rows.types import DATE
from dpsql.rows.windows import WindowCall
from dpsql.rows.write import RowWriter
from dpsql.schema.domain import COLLATED
from dpsql.schema.drafts import KEY_TYPES
from dpsql.schema.grain import declared_type
from dpsql.schema.table import Table
from dpsql.schema.units import ResolvedUnit

if TYPE_CHECKING:
    from pyarrow import Array

MOST_BYTES = 1_000
"""The most bytes of a text that may be a key."""
KEY, COUNT = "key.", "key.count"
_FILTERED = 4
"""Lists of values that are left out in one step."""


@dataclass(frozen=True, slots=True)
class ScoredKeys:
    """Some keys with their scores, as exact as they are private.

    Args:
        units: how many units have each of them.
        scores: what these add up to.
        pick: returns those at some places, as bytes of their texts.
    """

    units: NDArray[np.int64]
    scores: NDArray[np.int64]
    pick: Callable[[NDArray[np.int64]], list[bytes]]

    def __repr__(self) -> str:
        return "<ScoredKeys>"  # never what they are


def scored_keys(keys: Array[Any], units: Array[Any], scores: Array[Any]) -> ScoredKeys:
    """Return keys with their scores, as a database hands them out: bytes, and BIGINTs."""

    def pick(places: NDArray[np.int64]) -> list[bytes]:
        return [keys[place].as_py() for place in places.tolist()]

    return ScoredKeys(numbers(units, np.int64), numbers(scores, np.int64), pick)


class KeyScores(Protocol):
    """Statements that score the keys of an expression; see the module for what a score is."""

    @property
    def weights(self) -> Sequence[int]:
        """The number that a unit with 1, 2, … keys adds to the score of each."""

    def check(self) -> None:
        """Make sure that `run` can score them, as far as no row is needed to know.

        Raises:
            InternalError: the database would refuse the statement.
        """

    def run(self, known: Collection[bytes] = ()) -> Iterator[ScoredKeys]:
        """Score all keys that occur, each once, in pieces of any size and order.

        Args:
            known: keys that are taken out of those of every unit, as far as they can be written.

        It may fail with any exception whatever, and the text of that may quote values.
        """


@dataclass(frozen=True, slots=True)
class KeyPairs:
    """Pairs of a unit and a key, as a relation.

    Args:
        relation: the relation.
        charged: the table, with how many of a unit's rows there may be in it.
        key: its column of keys.
        count: its column of how many keys the unit has; None if it has one.
    """

    relation: Relation
    charged: Table
    key: Id
    count: Id | None

    @property
    def columns(self) -> tuple[Id, ...]:
        """The columns that are read."""
        return (self.key,) if self.count is None else (self.key, self.count)


def key_pairs(
    table: Table, key: RowExpression, most: int, known: Collection[bytes] = ()
) -> KeyPairs:
    """Return which keys units have, each once, and at most so many of a unit.

    Args:
        table: the table, whose rows have units.
        key: a column of it, or what is computed of some, of one of `KEY_TYPES`.
        most: how many.
        known: those that are left out.

    Raises:
        InternalError: a row may be of several units, or a unit have more keys, or one twice.
    """
    unit = table.unit
    if unit is None or not all(join.enforced for join in unit.joins):
        raise InternalError("keys are found of rows that are each of one unit")
    type_ = key_type(table, key)
    rows = table_relations.rows_of_units(table, sorted(columns(key)))
    of = _renamed(key, rows.id_of)
    there = Filter(rows.relation, is_key(of, type_))
    relation: Relation = Group(there, ((KEY, key_value(of, type_)),))
    relation = _without(relation, type_, known)
    relation = Bound(relation, most)
    if not Known().of(relation).is_unique({KEY}):
        raise InternalError("a unit may have a key twice")
    if most > 1:
        relation = Window(relation, ((COUNT, WindowCall("count")),))
    charged = Table(table.name, {}, path=table.path, unit=_bounded(table, most))
    return KeyPairs(relation, charged, KEY, COUNT if most > 1 else None)


def key_type(table: Table, key: RowExpression) -> str:
    """Return the type of a column, or of what is computed of some, whose values may be keys.

    Raises:
        InternalError: they can't be.
    """
    types, no_keys = _types(table, key), InternalError("values of this type are no keys")
    if any(COLLATED in type_ for type_ in types.values()):
        raise no_keys
    type_ = types[key.name] if isinstance(key, RowColumn) else RowWriter(types).write(key).type.sql
    if type_ not in KEY_TYPES:
        raise no_keys
    return type_


def _types(table: Table, key: RowExpression) -> dict[str, str]:
    return {name: declared_type(table, name) for name in columns(key)}


def _renamed(node: RowExpression, id_of: Callable[[str], Id]) -> RowExpression:
    """Put ids of a relation in the place of columns."""
    if isinstance(node, RowColumn):
        return RowColumn(id_of(node.name))
    return replaced(node, lambda part: _renamed(part, id_of))


def key_of_row(
    table: Table, key: RowExpression, weights: Sequence[int]
) -> tuple[RowValue, RowValue]:
    """Return the key of a row that is a unit itself, and the condition that it has one.

    Raises:
        InternalError: values of this type are no keys, or a unit would have several.
    """
    if len(weights) != 1:
        raise InternalError("a row has one key")
    type_, writer = key_type(table, key), RowWriter(_types(table, key))
    return writer.write(key_value(key, type_)), writer.write(is_key(key, type_))


def is_key(value: RowExpression, type_: str) -> RowExpression:
    """Return the condition that a row has a key: a value, that is no text of many bytes."""
    there = RowCall("not", (RowCall("is_null", (key_value(value, type_),)),))
    if type_ != "VARCHAR":
        return there
    short = RowCall("<=", (RowCall("strlen", (value,)), RowConstant("INTEGER", str(MOST_BYTES))))
    return all_of([there, short])


def key_value(value: RowExpression, type_: str) -> RowExpression:
    """Return the key of a row: the value, or the day of a time."""
    return RowCast(value, DATE) if type_ == "TIMESTAMP" else value


def _without(relation: Relation, type_: str, known: Collection[bytes]) -> Relation:
    """Leave keys out that are known; those that can't be written stay, and are found again."""
    written = [
        constant for text in sorted(known) if (constant := _constant(text, type_)) is not None
    ]
    lists = [written[i : i + MANY - 1] for i in range(0, len(written), MANY - 1)]
    for i in range(0, len(lists), _FILTERED):
        conditions = [_is_none_of(values) for values in lists[i : i + _FILTERED]]
        relation = Filter(relation, all_of(conditions))
    return relation


def _is_none_of(keys: Sequence[RowConstant]) -> RowExpression:
    return RowCall("not", (RowCall("in", (RowColumn(KEY), *keys)),))


def _constant(key: bytes, type_: str) -> RowConstant | None:
    """Return a key as a constant of a relation, if it can be one."""
    kinds = {"VARCHAR": "VARCHAR", "DATE": "DATE", "TIMESTAMP": "DATE"}
    try:
        return RowConstant(kinds.get(type_, "INTEGER"), key.decode())
    except (UnicodeDecodeError, UnsupportedSqlError):
        return None


def _bounded(table: Table, most: int) -> ResolvedUnit | None:
    return table.unit and replace(table.unit, max_rows=most, limits=())
