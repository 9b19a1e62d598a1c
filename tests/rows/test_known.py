"""What is known of an expression without any row, against DuckDB's values."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dpsql.rows.known import RowBounds, is_nullable, known_values, type_bounds
from dpsql.rows.write import RowWriter
from tests.rows.test_total import hostile_rows
from tests.rows.tools import TYPES, Random, benign, connect, create, parse

KNOWN = {
    "a": (-9, 9), "i": (-1000, 1000), "b": (-1000, 10**6), "u": (0, 10**6), "h": (-1000, 1000),
    "p": (-1000, 10**5), "q": (0, 10), "w": (-1000, 1000), "f": (-125, 125),
    "x": (-15625, 15625), "o": (0, 1),
}  # fmt: skip
BOUNDS = {name: (Fraction(low), Fraction(high)) for name, (low, high) in KNOWN.items()}


@pytest.fixture(scope="module")
def con():
    con = connect()
    create(con, benign(300))
    create(con, hostile_rows(), "odd")
    return con


@pytest.mark.sampled(200)
@pytest.mark.parametrize("seed", range(2000))
def test_bounds_hold_for_random_rows(con, seed):
    expression = parse(con, Random(seed).number(seed % 5))
    low, high = RowBounds(BOUNDS).of(expression)
    sql = RowWriter(TYPES).write_double(expression).sql
    query = f"SELECT v FROM (SELECT {sql} AS v FROM r) WHERE NOT isnan(v)"
    for (value,) in con.execute(query).fetchall():
        slack = 1e-9 * (1 + abs(value)) if math.isfinite(value) else 0
        assert low is None or value >= float(low) - slack
        assert high is None or value <= float(high) + slack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q * (1 - q)", (-90, 10)), ("i * i", (0, 10**6)), ("least(s::INT, 5)", (-(2**31), 5)),
        ("least(greatest(x * y, 3), 7)", (3, 7)), ("greatest(least(y, 7), 3)", (3, 7)),
        ("least(y, 5)", (None, 5)), ("least(greatest(sqrt(i), -10), 50)", (-10, 50)),
        ("greatest(least(sqrt(i), 7), 3)", (3, 7)),
        ("least(q, y)", (None, None)), ("abs(a - 3)", (0, 12)),
        ("i / 10", (-100, 100)), ("i / q", (None, None)), ("i / (q + 1)", (-1000, 1000)),
        ("CASE WHEN o THEN q END", (0, 10)), ("CASE WHEN o THEN q ELSE -1 END", (-1, 10)),
        ("coalesce(q, 20)", (0, 20)), ("round(p / 7)", (-143, 14286)), ("floor(f)", (-125, 125)),
        ("sqrt(q + 6)", (Fraction(24494, 10000), 4)), ("pow(a, 2)", (0, 81)), ("hour(t)", (0, 23)),
        ("year(t)", (None, None)), ("exp(a)", (0, 8104)), ("ln(q)", (None, Fraction(23026, 10000))),
        ("i % 7", (-7, 7)), ("u % 7", (0, 7)), ("- q", (-10, 0)), ("i // 7", (-143, 143)),
        ("y::TINYINT", (-128, 127)), ("p * 0", (0, 0)), ("o::INTEGER", (0, 1)),
        ("trunc(f / 10)", (-12, 12)),
        ("length(left(s, 3))", (0, 3)), ("0 / (q + 1)", (0, 0)), ("date_part('week', d)", (1, 53)),
    ],
)  # fmt: skip
def test_bounds_are_tight(con, text, expected):
    found = RowBounds(BOUNDS).of(parse(con, text))
    for end, wanted in zip(found, expected, strict=True):
        assert (end is None) == (wanted is None)
        assert wanted is None or abs(float(end) - float(wanted)) < 1e-3 * (1 + abs(float(wanted)))


def test_columns_that_lack_bounds_are_named(con):
    bounds = RowBounds(BOUNDS)
    for text, lacking in {
        "q * y": ("y",), "y + z": ("y", "z"), "least(greatest(z, 0), 5) * y": ("y",), "q": (),
        "CASE WHEN z > 3 THEN y END": ("y",), "length(s) + y": ("y",),
    }.items():  # fmt: skip
        assert bounds.lacking(parse(con, text)) == lacking, text


@pytest.mark.parametrize(
    ("text", "values", "nullable"),
    [
        ("i > 3", [False, True], True), ("x IS NULL", [False, True], False),
        ("s LIKE 'a%'", [False, True], True), ("o", [False, True], True),
        ("CASE WHEN x > 3 THEN 'high' WHEN x > 1 THEN 'low' END", ["high", "low"], True),
        ("CASE WHEN x > 3 THEN 'high' ELSE 'low' END", ["high", "low"], False),
        ("hour(t)", list(range(24)), True), ("date_part('isodow', d)", list(range(1, 8)), True),
        ("least(greatest(floor(x / 10), -2), 3)", [-2, -1, 0, 1, 2, 3], False),
        ("greatest(least(floor(x / 10), 3), -2)", [-2, -1, 0, 1, 2, 3], False),
        ("least(greatest(i // 100, 0), 4)", [0, 1, 2, 3, 4], False),
        ("least(floor(x), 5)", None, None), ("floor(x)", None, None), ("s", None, None),
        ("greatest(floor(x), 0)", None, None), ("a", list(range(-128, 128)), True),
        ("i", None, None),
        ("length(left(s, 3))", [0, 1, 2, 3], True), ("sign(x)", [-1, 0, 1], True),
        ("coalesce(hour(t), -1)", list(range(-1, 24)), False), ("p / 3", None, None),
        ("(i > 3)::INTEGER", [0, 1], True), ("i IN (1, 2)", [False, True], True),
        ("CASE WHEN o THEN 1 ELSE 2.5 END", [1, Fraction(5, 2)], False), ("NULL", [], True),
        ("CASE WHEN o THEN month(d) ELSE 0 END", list(range(13)), True),
        ("h % 10", list(range(-9, 10)), True),
        ("least(greatest(ln(x) * 0 / 0, 1), 2)", None, None), ("h % 3 = 1", [False, True], True),
        ("round(least(greatest(x, 0), 1))", [0, 1], True),
    ],
)  # fmt: skip
def test_known_values(con, text, values, nullable):
    found = known_values(parse(con, text), TYPES)
    if values is None:
        assert found is None
        return
    assert sorted(found.values, key=str) == sorted(values, key=str)
    assert found.nullable is nullable


@pytest.mark.sampled(150)
@pytest.mark.parametrize("seed", range(1500))
def test_no_row_has_another_value(con, seed):
    """Not the oddest one either."""
    random = Random(seed)
    text = random.any(seed % 4)
    if seed % 3 == 0:
        text = f"least(greatest(floor({random.number(seed % 4)}), -3), 9)"
    expression = parse(con, text)
    found = known_values(expression, TYPES)
    if found is None:
        return
    sql = RowWriter(TYPES).write(expression).sql
    for (value,) in con.execute(f"SELECT DISTINCT {sql} FROM odd").fetchall():
        assert value in found.values if value is not None else found.nullable, text


def test_columns_that_are_never_null(con):
    filled = frozenset({"i", "s"})
    for text, nullable in {
        "i > 3": False, "i > a": True, "s LIKE 'a'": False, "coalesce(a, i)": False,
        "i + 1": True, "CASE WHEN a > 1 THEN 1 ELSE 2 END": False, "s::INTEGER": True,
        "i::VARCHAR": False, "least(a, i)": False, "nullif(i, 3)": True,
    }.items():  # fmt: skip
        assert is_nullable(parse(con, text), filled) is nullable, text
    assert type_bounds(TYPES)["a"] == (-128, 127)


@pytest.mark.parametrize("divisor", [3, -3, 1, 7])
@pytest.mark.parametrize("name", [n for n, of in TYPES.items() if of in {"BIGINT", "INTEGER"}])
def test_what_is_left_of_a_division_is_smaller_than_the_divisor(con, name, divisor):
    """By -1 the least number of a type is divided in a larger one."""
    found = known_values(parse(con, f"{name} % {divisor}"), TYPES)
    most = abs(divisor) - 1
    assert found.values == tuple(range(-most, most + 1))
    assert found.type.name == "BIGINT"
    quotient = RowWriter(TYPES).write(parse(con, f"{name} // {divisor}"))
    assert quotient.type.name == "BIGINT"
    sql = RowWriter(TYPES).write(parse(con, f"{name} % {divisor}")).sql
    asked = f"SELECT count(*) FROM odd WHERE ({sql}) IS DISTINCT FROM ({name} % {divisor})"
    assert con.execute(asked).fetchone() == (0,)
