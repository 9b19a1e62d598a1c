"""The support of a measure: said of a column that is added up by itself, and of nothing else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.rel.support import Support, supports_of
from dpsql.rows.cuts import ends
from dpsql.rows.expression import NOTHING, RowCall, RowCase, RowCast, RowColumn, RowConstant
from dpsql.rows.key import line, row_key
from dpsql.rows.measure import measure
from dpsql.rows.types import DOUBLE
from dpsql.schema import Table

X, Y, TEN = RowColumn("x"), RowColumn("y"), RowConstant("INTEGER", "10")
TYPES = {"x": "DOUBLE", "y": "DOUBLE", "d": "DECIMAL(9,2)", "n": "INTEGER"}
NAN = ends(DOUBLE)[1]


def present(of):
    nan = RowCall("isnan", (RowCast(of, DOUBLE),))
    return RowCall("not", (RowCall("or", (RowCall("is_null", (of,)), nan)),))


def key_of(expression):
    return row_key(expression, TYPES, frozenset())


def line_of(name, cuts, *, nullable=True):
    return line(name, TYPES[name], cuts, nullable=nullable).key


def summed(expression, **how):
    return measure(expression, TYPES, (Fraction(0), Fraction(100)), Fraction(1, 2**20), **how)


def found(measures, keys, merged=None):
    columns = {name: key.domain for name, key in keys.items()}
    table = Table("t", columns, TYPES, ("memory", "main", "t"), None, enforced=frozenset(columns))
    return supports_of(table, measures, keys, merged or {})


@pytest.mark.parametrize(
    ("key", "cells"),
    [
        (line_of("x", [NAN]), (True, False, False)),  # numbers, NaN, NULL
        (line_of("x", [5, NAN]), (True, True, False, False)),
        (line_of("x", [NAN], nullable=False), (True, False)),
        (key_of(present(X)), (False, True, False)),
    ],
)
def test_it_is_what_tells_whether_the_column_has_a_value(key, cells):
    assert found({"m": summed(X)}, {"k": key}) == (Support("m", "k", cells),)


def test_exact_numbers_are_there_if_they_are_not_null_and_doubles_may_be_nan():
    there = {name: RowCall("not", (RowCall("is_null", (RowColumn(name),)),)) for name in TYPES}
    for name in TYPES:
        said = found({"m": summed(RowColumn(name))}, {"k": key_of(there[name])})
        assert [s.cells for s in said] == ([(False, True)] if name in "dn" else [])


def test_classes_of_cells_have_it_where_one_of_them_has():
    key = line_of("x", [5, NAN])
    for classes, cells in (
        ([0, 0, 1, 1], (True, False)),
        ([0, 1, 1, 2], (True, True, False)),
        ([1, 0, 2, 2], (True, True, False)),
    ):
        (support,) = found({"m": summed(X)}, {"k": key}, {"k": np.array(classes)})
        assert support.cells == cells
    for everywhere in ([0, 0, 0, 0], [0, 1, 0, 1]):
        assert not found({"m": summed(X)}, {"k": key}, {"k": np.array(everywhere)})


@pytest.mark.parametrize(
    "expression",
    [
        RowCall("+", (X, TEN)),
        RowCall("*", (X, Y)),
        RowCall("coalesce", (X, TEN)),
        RowCase(((present(X), TEN),), TEN),
        RowCase(((present(Y), X),), NOTHING),
        Y,
    ],
)
def test_nothing_is_said_of_what_is_made_of_a_column_or_of_another_one(expression):
    """Not even where it would be true: the same may be NULL in one type, and not in another."""
    keys = {"k": line_of("x", [NAN]), "e": key_of(present(X))}
    assert not found({"m": summed(expression)}, keys)
    assert not found({"m": summed(X)}, {"k": key_of(present(expression))})


def test_nothing_is_said_of_keys_that_tell_no_presence():
    """As where numbers are in one cell with NaN, or all cells have numbers in them."""
    keys = {"near": line_of("x", [5]), "less": key_of(RowCall("<", (X, TEN)))}
    assert not found({"m": summed(X)}, keys)
    assert not found({"m": summed(RowColumn("n"))}, {"k": line_of("n", [5], nullable=False)})


def test_several_measures_of_a_column_have_one_each():
    measures = {"b": summed(X), "a": summed(X, centered=False), "d": summed(RowColumn("d"))}
    keys = {"k": line_of("x", [NAN]), "l": line_of("d", [])}
    said = [(s.measure, s.attribute) for s in found(measures, keys)]
    assert said == [("a", "k"), ("b", "k"), ("d", "l")]


def test_it_implies_what_says_less():
    some, more = Support("m", "k", (True, False, False)), Support("m", "k", (True, True, False))
    assert some.implies(some)
    assert some.implies(more)
    assert not more.implies(some)
    for other in (
        Support("n", "k", (True, False, False)),
        Support("m", "l", (True, False, False)),
        Support("m", "k", (True, False)),
    ):
        assert not some.implies(other)
        assert not other.implies(some)


@pytest.mark.parametrize("cells", [(), (False,), (False, False), (1, 0), (True, None)])
def test_some_cell_is_in_it(cells):
    with pytest.raises(InternalError, match="no support"):
        Support("m", "k", cells)


def test_it_is_renamed():
    support = Support("m", "k", (True, False))
    assert support.renamed("t {}".format) == Support("t m", "t k", (True, False))
