"""What is written of a row means the same in all versions of DuckDB that may be installed.

What is expected here is computed without DuckDB, so that no version says what is right.
"""

from __future__ import annotations

import itertools
import math
import random
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from dpsql.errors import SqlLimitError
from dpsql.rows.measure import measure
from dpsql.rows.write import RowWriter
from tests.rows.tools import connect, create, of_each, parse, written

CONTEXT = Context(prec=800)
TEXTS = ["abc", "Abc", "ABC", "aéc", "xaBC", "straße", "a%b", "", None]
COLLATIONS = ["", "nocase", "noaccent", "nfc", "nocase.noaccent"]
LEAST = -(2**127)


def over(column, rows, text):
    con = connect()
    create(con, [{column: row} for row in rows])
    sql = written(con, text).sql
    return [v for (v,) in con.execute(f"SELECT {sql} FROM r ORDER BY row_number").fetchall()]


def doubles(count):
    rng = random.Random(7)  # noqa: S311
    yield from (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, 0.0, -0.0, None)
    yield from (8.45, -99.85, 1780.955, 0.285, 1.005, 2.5, -0.5, 4503599627370497.5)
    for _ in range(count):
        yield rng.randint(-(10**7), 10**7) / 10 ** rng.randint(0, 6)
        yield rng.uniform(-1, 1) * 10.0 ** rng.randint(-20, 300)


def nearest(value):
    """The whole number that is nearest to a double, of two the one farther from zero."""
    if not math.isfinite(value):
        return value
    return float(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP, CONTEXT))


def to_places(value, digits):
    if value is None:
        return None
    ten = 10.0 ** abs(digits)
    made = nearest(value * ten) / ten if digits > 0 else nearest(value / ten) * ten
    keeps = digits > 0 or not math.isfinite(value)
    return made if math.isfinite(made) else value if keeps else 0.0


@pytest.mark.parametrize("digits", [-6, -2, -1, 1, 2, 3, 6, 15])
def test_doubles_are_rounded_in_doubles(digits):
    """DuckDB 2.0.1 gives 8.4 for round(8.45, 1), which is a bit below 8.45, and 2.0.0 gives 8.5."""
    values = list(doubles(400))
    rows = [None if value is None else repr(value) for value in values]
    found = over("x", rows, f"round(x, {digits})")
    assert list(map(repr, found)) == [repr(to_places(value, digits)) for value in values]


def test_huge_integers_become_the_nearest_double():
    """In DuckDB 2.0.0 one in a hundred is the double beside it."""
    rng = random.Random(8)  # noqa: S311
    values = [LEAST, 2**127 - 1, 0, -1, -(2**63) - 1]
    values += [rng.choice((-1, 1)) * rng.getrandbits(rng.randint(1, 127)) for _ in range(2_000)]
    rows = list(map(str, values))
    assert over("h", rows, "CAST(h AS DOUBLE)") == list(map(float, values))
    assert over("h", rows, "h > 0.5e0") == [value > 0 for value in values]
    assert over("h", [None], "CAST(h AS DOUBLE)") == [None]


def numbers_as_text():
    for digits in (1, 2, 3, 8, 16, 17, 36):
        for power in (0, 1, 2, 3, 4, 8, 9, 13, 17, 18, 27, 28, 37, 38):
            for start in ("1.9", "3.27", "21.47", "-1.9", "0.003"):
                yield f"{start}{'9' * digits}e{power}"


@pytest.mark.parametrize(
    "type_", ["DECIMAL(4,2)", "DECIMAL(4,0)", "DECIMAL(9,2)", "DECIMAL(15,2)", "DECIMAL(38,10)",
              "DECIMAL(38,0)"])  # fmt: skip
def test_texts_are_decimals_of_their_type_or_none(type_):
    """DuckDB 2.0.0 makes 199.90 of '1.999e2', as a DECIMAL(4,2)."""
    width, scale = map(int, type_[8:-1].split(","))
    texts = list(numbers_as_text())
    found = over("s", texts, f"CAST(s AS {type_})")
    most = 10 ** (width - scale)
    assert all(abs(Fraction(value)) < most for value in found if value is not None)
    inside = [abs(Fraction(text)) < most - 1 for text in texts]
    assert 20 < sum(inside) < len(texts) - 20
    for text, value, fits in zip(texts, found, inside, strict=True):
        assert (value is not None) == fits, text


@pytest.mark.parametrize("sign", "+-*")
def test_texts_that_are_too_large_for_a_decimal_fail_no_statement(sign):
    con = connect()
    create(con, [{"s": text} for text in numbers_as_text()])
    types = ["DECIMAL(4,0)", "DECIMAL(4,2)", "DECIMAL(5,0)", "DECIMAL(9,2)", "DECIMAL(18,2)"]
    for one in types:
        for other in types:
            sql = written(con, f"CAST(s AS {one}) {sign} CAST(s AS {other})").sql
            ((seen, rows),) = con.execute(f"SELECT count({sql}), count(*) FROM r").fetchall()
            assert 0 < seen < rows


def test_the_first_days_of_all_have_no_week():
    """DuckDB 2.0.0 has no first day of their year, from which it would count."""
    first = ["5877642-06-25 (BC)", "5877642-12-31 (BC)", "5877641-01-03 (BC)", "5877641-01-04 (BC)",
             "2020-12-31", "2021-01-03", "infinity", "-infinity", None]  # fmt: skip
    none = [None] * 3
    assert over("d", first, "week(d)") == [*none, 1, 53, 53, *none]
    assert over("d", first, "yearweek(d)") == [*none, -587764001, 202053, 202053, *none]
    assert over("d", first, "isoyear(d)") == [*none, -5877640, 2020, 2020, *none]
    shown = over("d", first, "strftime(d, '%%%U %W')")
    assert shown[:2] == [None, None]
    assert None not in shown[2:6]
    assert None not in over("d", first[:6], "strftime(d, '%%U %j')")
    assert None not in over("d", first[:6], "year(d)")


def test_nothing_is_left_of_the_least_integer_by_minus_one():
    assert over("h", [str(LEAST), "7", None], "h % -1") == [0, 0, None]
    con = connect()
    create(con, [{"h": str(LEAST), "a": "-1"}, {"h": "7", "a": "-1"}, {"h": "-7", "a": "3"}])
    sql = written(con, "h % a").sql
    assert con.execute(f"SELECT {sql} FROM r ORDER BY row_number").fetchall() == [(0,), (0,), (-1,)]


def test_no_double_is_the_least_integer():
    rows = [repr(float(LEAST)), repr(float(-(2**126))), "nan", "1e40", "2.5"]
    assert over("x", rows, "CAST(x AS HUGEINT)") == [None, -(2**126), None, None, 2]


SEARCHES = {
    "s LIKE 'A%'": lambda s: s.startswith("A"),
    "s LIKE '%B%'": lambda s: "B" in s,
    "s ILIKE 'a%'": lambda s: s.lower().startswith("a"),
    "contains(s, 'B')": lambda s: "B" in s,
    "starts_with(s, 'A')": lambda s: s.startswith("A"),
    "ends_with(s, 'C')": lambda s: s.endswith("C"),
    "strpos(s, 'B')": lambda s: s.find("B") + 1,
    "regexp_matches(s, '^A')": lambda s: s.startswith("A"),
    "regexp_full_match(s, 'A.*')": lambda s: s.startswith("A"),
    "s IN ('ABC', 'abd')": lambda s: s == "ABC",
    "s BETWEEN 'A' AND 'B'": lambda s: "A" <= s <= "B",
}


@pytest.mark.parametrize("default", COLLATIONS)
@pytest.mark.parametrize("own", COLLATIONS)
def test_texts_are_searched_as_they_are_whatever_collation_is_set(own, default):
    """DuckDB 2.0.1 searches by the collation that is set; 2.0.0 for some functions by the column's.

    What is found is compared with what the sandbox says of cells, where none is set.
    """
    con = connect()
    con.execute(f"CREATE TABLE r (n INTEGER, s VARCHAR {own and f'COLLATE {own}'})").fetchall()
    con.executemany("INSERT INTO r VALUES (?, ?)", list(enumerate(TEXTS)))
    con.execute(f"SET default_collation = '{default}'").fetchall()
    for text, of in SEARCHES.items():
        sql = written(con, text).sql
        found = [v for (v,) in con.execute(f"SELECT {sql} FROM r ORDER BY n").fetchall()]
        assert found == [None if s is None else of(s) for s in TEXTS], text


@pytest.mark.parametrize(
    "text", ["round({}, 2)", "CAST(CAST({} AS VARCHAR) AS DECIMAL(9,2))", "CAST({} AS HUGEINT)"]
)
def test_what_is_written_more_than_once_stays_short(text):
    con, deep = connect(), "x"
    with pytest.raises(SqlLimitError):  # noqa: PT012
        for _ in range(30):
            deep = text.format(f"CAST({deep} AS DOUBLE)")
            assert len(written(con, deep).sql) < 200_000


BEYOND = {
    "p": (4, 2, 17_770),
    "q": (5, 0, 214_740_000),
    "w": (4, 0, 21_470),
    "m": (18, 0, 9 * 10**18),
}
COMPUTED = """
    {a} + {b} | {a} - {b} | {a} * {b} | {a} % {b} | {a} / {b} | {a} < {b} | {a} = 0 | abs({a}) * {b}
    coalesce({a}, {b}) * {a} | least({a}, {b}) + {a} | nullif({a}, {b}) * {b} | round({a}, 1) * {b}
    {a} IN (1, {b}) | - {a} + {b} | CASE WHEN {a} > {b} THEN {a} ELSE {b} END * {b}
    CAST({a} AS DECIMAL(38,2)) + {b} | CAST({a} AS VARCHAR) || {b} | CAST({a} AS INTEGER) * {b}
"""


def beyond(con):
    """Make a table of DECIMALs that their types don't have, as DuckDB 2.0.0 stores some texts."""
    arrays = {}
    for name, (width, scale, most) in BEYOND.items():
        values = (most, -most, 3, most)
        bits = b"".join(value.to_bytes(16, "little", signed=True) for value in values)
        type_ = pa.decimal128(width, scale)
        arrays[name] = pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(bits)])
    con.register("given", pa.table(arrays))
    con.execute("CREATE TABLE r AS SELECT * FROM given").fetchall()
    con.unregister("given")


def test_decimals_that_their_types_have_not_fail_no_statement():
    con = connect()
    beyond(con)
    writer = RowWriter({name: f"DECIMAL({w},{s})" for name, (w, s, _) in BEYOND.items()})
    texts = [text.strip() for line in COMPUTED.strip().split("\n") for text in line.split(" | ")]
    assert len(texts) > 15
    for a, b in itertools.product(BEYOND, repeat=2):
        for text in texts:
            expression = parse(con, text.format(a=a, b=b))
            for sql in (writer.write(expression).sql, f"({writer.write(expression).sql}) IS NULL"):
                assert len(con.execute(f"SELECT {sql} FROM r").fetchall()) == 4
    sql = writer.write(parse(con, "p + w")).sql
    assert con.execute(f"SELECT {sql} FROM r").fetchall() == [
        (None,),
        (None,),
        (Decimal("3.03"),),
        (None,),
    ]


def test_such_decimals_are_added_up_between_the_bounds():
    con = connect()
    beyond(con)
    types = {name: f"DECIMAL({w},{s})" for name, (w, s, _) in BEYOND.items()}
    for text in ("p", "p * w", "m"):
        made = measure(parse(con, text), types, (Fraction(0), Fraction(50)), Fraction(1))
        found = [v for (v,) in con.execute(of_each(made, "r")).fetchall()]
        assert all(made.low <= v <= made.high for v in found), text
        assert len(set(found)) > 1
