"""Of what all values of an expression are whole multiples."""

from fractions import Fraction

import pytest

from dpsql.rows.measure import chosen_step, last_digit
from dpsql.rows.read import read_expression
from dpsql.sql.sandbox.database import Sandbox

TYPES = {"n": "INTEGER", "d": "DECIMAL(9,2)", "x": "DOUBLE"}


@pytest.fixture(scope="module")
def sandbox():
    return Sandbox()


@pytest.mark.parametrize(
    ("sql", "step"),
    [
        ("n", 1),
        ("d", Fraction(1, 100)),
        ("n * 500", 500),
        ("1000 - n * 1500", 500),
        ("floor(d / 3 + 0.5) * 7", 7),
        ("n * 2 - d", Fraction(1, 100)),
        ("d * 0.25 + 1", Fraction(1, 400)),
        ("CASE WHEN n > 1 THEN 6 WHEN n > 0 THEN -4 END", 2),
        ("CASE WHEN n > 1 THEN 6 ELSE 0 END", 6),
        ("least(greatest(n * 4, 6), 10)", 2),
        ("x * 2", None),
    ],
)
def test_a_step_divides_all_values(sandbox, sql, step):
    assert last_digit(read_expression(sandbox.tree(sql)), TYPES) == step


def test_nothing_but_zeros_are_multiples_of_anything(sandbox):
    assert chosen_step(read_expression(sandbox.tree("n * 0")), TYPES, Fraction(1)) == 1
