"""Row expressions on whatever a row may hold: they never fail, and see no other row."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest

from dpsql.engines.duckdb.sums import RowSum
from dpsql.errors import DpsqlError
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    canonical,
)
from dpsql.rows.functions import FUNCTIONS
from dpsql.rows.measure import bounded_columns, condition, measure
from dpsql.rows.times import PARTS, UNITS
from dpsql.rows.types import DOUBLE, row_type
from dpsql.rows.write import RowWriter
from tests.rows.tools import (
    HOSTILE,
    TYPES,
    Random,
    benign,
    connect,
    create,
    insert,
    of_each,
    parse,
    written,
)

CONSTANTS = [
    RowConstant("INTEGER", "2"), RowConstant("INTEGER", "-1"), RowConstant("INTEGER", "0"),
    RowConstant("VARCHAR", "%a_b%"), RowConstant("VARCHAR", "s"), RowConstant("DECIMAL", "0.5"),
    RowConstant("DOUBLE", "1e300"), NOTHING,
]  # fmt: skip
COLUMNS = [RowColumn(name) for name in TYPES]
TYPES_TO = [
    "BOOLEAN", "TINYINT", "UBIGINT", "BIGINT", "HUGEINT", "DECIMAL(4,3)", "DECIMAL(38,30)", "FLOAT",
    "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP",
]  # fmt: skip


def hostile_rows():
    rng = random.Random(1)  # noqa: S311
    rows = [{}, *({column: value} for column, values in HOSTILE.items() for value in values)]
    mixed = [{column: rng.choice(values) for column, values in HOSTILE.items()} for _ in range(300)]
    return rows + mixed


@pytest.fixture(scope="module")
def con():
    con = connect()
    create(con, hostile_rows())
    return con


def calls(name):
    """Make calls of a function with all kinds of arguments."""
    rng = random.Random(name)  # noqa: S311
    least, most = FUNCTIONS[name].arguments
    for count in sorted({least, min(3, most)}):
        spaces = [COLUMNS + CONSTANTS] * count
        if name in {"date_part", "date_trunc", "date_diff"}:
            words = [RowConstant("VARCHAR", word) for word in sorted(set(PARTS) | UNITS)]
            spaces = [words, *[[RowColumn("d"), RowColumn("t")]] * (count - 1)]
        if name == "shift":
            spans = ("1 0 0", "-13 40 5", "0 0 -1", "120000 0 0", "0 -3660000 0", "0 0 1 0", "x")
            spaces = [[RowColumn("d"), RowColumn("t")], [RowConstant("VARCHAR", s) for s in spans]]
        if name == "strftime":
            texts = (
                "%Y-%m-%d %H:%M:%S.%f",
                "%a%A%b%B%p%j%%",
                "%U%W%w%u%y%I",
                "%-y%-m%-d%-j%-H%-I",
                "x",
            )
            shown = [RowConstant("VARCHAR", text) for text in (*texts, "%-M%-S", "", "%c", "%-p")]
            spaces = [[RowColumn("d"), RowColumn("t")], shown]
        for arguments in itertools.product(*spaces):
            if count < 3 or name == "date_diff" or rng.random() < 0.1:
                yield RowCall(name, arguments)


def accepted(expressions):
    writer, found = RowWriter(TYPES), []
    for expression in expressions:
        try:
            found.append((expression, writer.write(expression)))
        except DpsqlError:
            continue
    return found


@pytest.mark.parametrize("place", range(3))
def test_limits_are_those_of_all_that_may_be_chosen(place):
    """Sums of them would overflow, and tell of a row, if one result were left out."""
    results = [RowConstant("INTEGER", "1")] * 3
    results[place] = RowConstant("INTEGER", "1000000")
    *cases, otherwise = results
    condition = RowCall("is_null", (RowColumn("x"),))
    made = [RowCall(name, tuple(results)) for name in ("coalesce", "greatest", "least")]
    for chosen in (RowCase(tuple((condition, case) for case in cases), otherwise), *made):
        limits = RowWriter(TYPES).write(chosen).limits
        assert limits is not None
        assert limits[0] <= 1
        assert limits[1] >= 10**6


def check_total(con, cases):
    """Run all of it; look for the culprit only if something fails."""
    assert cases
    for start in range(0, len(cases), 50):
        chunk = cases[start : start + 50]
        listed = ", ".join(f"max(TRY_CAST({w.sql} AS VARCHAR))" for _, w in chunk)
        listed += "".join(
            f", min({w.sql})::VARCHAR, max({w.sql})::VARCHAR" for _, w in chunk if w.ends
        )
        (found,) = con.execute(f"SELECT {listed} FROM r").fetchall()
        extremes = iter(found[len(chunk) :])
        for expression, w in chunk:
            if w.ends:
                least, most = (
                    None if end is None else Fraction(end) * 10**w.type.scale
                    for end in (next(extremes), next(extremes))
                )
                known = least is None or w.ends[0] <= least <= most <= w.ends[1]
                assert known, canonical(expression)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "clock"])
def test_no_listed_function_fails_on_any_row(con, name):
    check_total(con, accepted(calls(name)))


def test_no_cast_fails_on_any_row(con):
    casts = [RowCast(column, row_type(to)) for column in COLUMNS for to in TYPES_TO]
    twice = [RowCast(cast, row_type(to)) for cast in casts for to in TYPES_TO]
    check_total(con, accepted(casts + twice))
    arithmetic = [RowCall(f, (a, b)) for f in "+-*" for a in casts[::5] for b in casts[::7]]
    check_total(con, accepted(arithmetic))


@pytest.mark.parametrize("text", [
    "b * b * b", "h * h", "h - h", "- h", "abs(h)", "h // -1", "w * w", "p * p * p", "a // a",
    "i % i", "round(q, 1)", "ceil(w)",
])  # fmt: skip
def test_overflow_is_null_for_its_row_only(con, text):
    sql = written(con, text).sql
    alone = con.execute(f"SELECT {sql} FROM r ORDER BY row_number").fetchall()
    for place in range(0, len(alone), 37):
        query = f"SELECT {sql} FROM (SELECT * FROM r WHERE row_number = {place})"
        assert con.execute(query).fetchall()[0][0] == alone[place][0]


def there(e):
    """Return NOT (e IS NULL OR isnan(CAST(e AS DOUBLE))), as keys say it."""
    nan = RowCall("isnan", (RowCast(e, DOUBLE),))
    return RowCall("not", (RowCall("or", (RowCall("is_null", (e,)), nan)),))


BOUNDS = [(-10, 1000, Fraction(1, 8)), (0, 0, Fraction(1)), (Fraction(-1, 3), 10**9, Fraction(1)),
          (5 * 10**11, 5 * 10**11 + 7, Fraction(1, 4))]  # fmt: skip


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(600))
def test_measures_and_conditions_of_random_expressions(con, seed):
    expression = parse(con, Random(seed).any(seed % 5))
    writer = RowWriter(TYPES)
    type_ = writer.write(expression).type
    conditions = [RowCall("is_null", (expression,))]
    if type_.is_number:
        low, high, step = BOUNDS[seed % len(BOUNDS)]
        if type_.is_exact and type_.scale <= 4 and seed % 2:  # added up in its own type
            low, high, step = -10, 1000, Fraction(1, 10**type_.scale)
        m = measure(expression, TYPES, (Fraction(low), Fraction(high)), step)
        conditions.append(RowCall("isnan", (expression,)))
        summed = RowSum.made(m)
        rows = f"SELECT *, {summed.computed('x_')} FROM r"
        shift, unit = m.offset, 10**m.type.scale
        pair = f"{summed.added('x_')}, ({summed.present('x_')}) IS NOT NULL"
        found = con.execute(f"SELECT {pair} FROM ({rows}) ORDER BY row_number").fetchall()
        assert all(present for w, present in found if w is not None)
        values = [int((w or 0) * unit) - shift for w, present in found if present]
        if m.there:  # of which it says that it is there in just the rows that add something
            assert m.there == canonical(expression)
            asked = condition(there(expression), TYPES).sql
            said = con.execute(f"SELECT {asked} FROM r ORDER BY row_number").fetchall()
            assert said == [(present,) for _, present in found]
        assert m.low * m.parts <= min(values, default=0)
        assert max(values, default=0) <= m.high * m.parts
        assert len(found) == len(hostile_rows())
        total = summed.total(f"sum({summed.added('x_')})", f"count({summed.present('x_')})")
        steps = math.floor(Fraction(sum(values), m.parts) + Fraction(1, 2))
        assert con.execute(f"SELECT {total} FROM ({rows})").fetchall() == [(steps,)]
        each = con.execute(f"SELECT min(v), max(v), count(v) FROM ({of_each(m, 'r')})").fetchall()
        ((least, most, count),) = each
        assert m.low <= least <= most <= m.high
        assert max(abs(least), abs(most)) <= m.bound
        assert count == len(hostile_rows())
    if type_.name == "BOOLEAN":
        conditions.append(expression)
    for asked in conditions:
        found = con.execute(f"SELECT DISTINCT {condition(asked, TYPES).sql} FROM r").fetchall()
        assert {value for (value,) in found} <= {True, False}


ENDS = {
    "p": (Fraction(-3), Fraction("1000.00")), "q": (Fraction(0), Fraction("0.105")),
    "w": (Fraction(-10), Fraction("99.5")), "i": (Fraction(-5), Fraction(300)),
    "a": (Fraction(-1000), Fraction(100)), "h": (Fraction(0), Fraction(10**6)),
    "x": (Fraction(0), Fraction(1)),
}  # fmt: skip
BOUNDED = {
    "p": Fraction(1, 100), "i": Fraction(1), "w": Fraction(1, 1000), "h": Fraction(1),
    "p * (1 - q)": Fraction(1, 10**4), "p * (1 - q) * (1 + q)": Fraction(1, 10**4),
    "p * p": Fraction(1, 100), "p * q - p * (2 - q)": Fraction(1, 10**4),
    "p * i": Fraction(1, 100), "p * a * q": Fraction(1, 10**3),
}  # fmt: skip


def made_bounded(con, text):
    """Return the measure of an expression over columns that are brought between `ENDS`, and it."""
    expression = bounded_columns(parse(con, text), TYPES, ENDS)
    ends = RowWriter(TYPES).write(expression).ends
    unit = 10 ** RowWriter(TYPES).write(expression).type.scale
    bounds = Fraction(ends[0], unit), Fraction(ends[1], unit)
    return measure(expression, TYPES, bounds, BOUNDED[text], centered=False)


@pytest.mark.parametrize("text", BOUNDED)
def test_what_is_made_of_bounded_columns_is_exact_on_any_row(con, text):
    """Also where it would overflow, if they weren't: it has no TRY of its own then."""
    made = made_bounded(con, text)
    assert made.inside
    assert "TRY(" not in made.value.sql
    summed = RowSum.made(made)
    rows = f"SELECT *, {summed.computed('x_')} FROM r"
    listed = f"p, q, w, i, a, h, {summed.added('x_')}, p IS NOT NULL"
    unit, total = 10**made.type.scale, 0
    for *row, w, _ in con.execute(f"SELECT {listed} FROM ({rows})").fetchall():
        values = {}
        for name, value in zip("pqwiah", row, strict=True):
            low, high = ENDS[name]
            if value is not None:  # 0.105 is no value of a DECIMAL(4,2)
                high = Fraction(math.floor(high * 100), 100) if name == "q" else high
                values[name] = min(max(Fraction(value), low), high)
        if set(text) & set("pqwiah") <= values.keys():
            expected = eval(text, {}, values)  # noqa: S307
            assert Fraction(w) == expected
            assert made.low * made.parts <= expected * unit <= made.high * made.parts
            total += int(expected * unit)
        else:
            assert w is None
    sums = summed.total(f"sum({summed.added('x_')})", "1")
    ((found,),) = con.execute(f"SELECT {sums} FROM ({rows})").fetchall()
    assert found == math.floor(Fraction(total, made.parts) + Fraction(1, 2))
    assert made.there == canonical(parse(con, text))
    asked = condition(there(parse(con, text)), TYPES).sql
    both = f"SELECT DISTINCT {asked}, ({summed.present('x_')}) IS NOT NULL FROM ({rows})"
    assert set(con.execute(both).fetchall()) == {(True, True), (False, False)}


def test_a_condition_leaves_what_is_bounded_inside(con):
    value = bounded_columns(parse(con, "p * (1 - q)"), TYPES, ENDS)
    held = RowCase(((parse(con, "s LIKE '%a%' OR x > 0"), value),), NOTHING)
    bounds = Fraction(-3), Fraction(1000)
    made = measure(held, TYPES, bounds, Fraction(1, 10**4), centered=False)
    assert made.inside
    assert not measure(held, TYPES, (Fraction(0), Fraction(1)), made.step, centered=False).inside
    found = con.execute(f"SELECT min(v), max(v) FROM ({of_each(made, 'r')})").fetchall()[0]
    assert made.low <= found[0] < 0 < found[1] <= made.high


@pytest.mark.parametrize(
    ("text", "high", "most"),
    [("w", 10**28, 10**38 - 1), ("q", 10**28, 9999), ("h", 10**38 - 1, 10**38 - 1)],
)
def test_bounds_beyond_a_type_are_those_of_the_type(con, text, high, most):
    """With all of its digits: more than a Decimal has by default."""
    wide = {text: (Fraction(-(10**38 - 1)), Fraction(high))}
    expression = bounded_columns(parse(con, text), TYPES, wide)
    written = RowWriter(TYPES).write(expression)
    assert written.ends[1] == most
    assert written.ends[0] < 0
    unit = 10**written.type.scale
    for stored, value in con.execute(f"SELECT {text}, {written.sql} FROM r").fetchall():
        if stored is None:
            assert value is None
        else:
            given = int(Fraction(stored) * unit)
            assert Fraction(value) * unit == min(max(given, written.ends[0]), written.ends[1])


def test_no_product_without_room_goes_without_a_try(con):
    wide = {"w": (Fraction(-(10**28)), Fraction(10**28)), "q": (Fraction(0), Fraction(99))}
    assert bounded_columns(parse(con, "w * q"), TYPES, wide) == parse(con, "w * q")


def test_columns_are_bounded_first_only_where_that_spares_something(con):
    for text in ("i * a", "x", "x * p", "p + 1", "sqrt(p)", "p * b", "CASE WHEN i > 1 THEN p END"):
        assert bounded_columns(parse(con, text), TYPES, ENDS) == parse(con, text)


@pytest.mark.parametrize("parts", [1, 2, 10, 10**7])
def test_sums_in_steps_move_by_no_more_than_their_parts(parts):
    con = connect()
    step = Fraction(parts, 100)
    bounds = Fraction(-(2**20)), Fraction(2**20)
    made = measure(RowColumn("p"), TYPES, bounds, step, centered=False)
    assert made.parts == parts
    near = [k * parts // 2 + d for k in range(-5, 6) for d in (-1, 0, 1)]
    sums = sorted({*near, *(s * 2**60 + d for s in (-1, 1) for d in near)})
    values = ", ".join(f"('{Decimal(s).scaleb(-2):f}'::DECIMAL(38,2))" for s in sums)
    query = f"SELECT {RowSum.made(made).total('s', '1')} FROM (VALUES {values}) t(s)"
    found = [v for (v,) in con.execute(query).fetchall()]
    assert found == [math.floor(Fraction(s, parts) + Fraction(1, 2)) for s in sums]


def test_nan_and_null_add_nothing_and_infinity_counts_as_the_bound():
    con = connect()
    create(con, [{"x": v} for v in ("nan", None, "inf", "-inf", "1e308", "3.3", "-3.4", "9.99")])
    m = measure(RowColumn("x"), TYPES, (Fraction(-5), Fraction(10)), Fraction(1, 10))
    found = con.execute(of_each(m, "r") + " ORDER BY row_number").fetchall()
    found = [(v + m.middle,) for (v,) in found]
    middle, (low, high) = m.middle, (-50, 100)
    assert [v for (v,) in found] == [middle, middle, high, low, high, 33, -34, 100]


ABSORBED = [
    "k_ >= 0 OR CAST(s AS INTEGER) = 5",
    "NOT (k_ < 0 AND CAST(s AS INTEGER) = 5)",
    "CASE WHEN k_ >= 0 THEN 1 ELSE CAST(s AS INTEGER) END",
    "CASE WHEN k_ IS NULL THEN CAST(s AS INTEGER) ELSE 7 END",
    "k_ BETWEEN 0 AND 300 OR CAST(s AS INTEGER) BETWEEN 1 AND 5",
    "k_ IN (1, 2, 3, 4, 5, 6, 7, 8, 9) OR CAST(s AS DATE) > DATE '2020-01-01'",
    "CAST(k_ AS UTINYINT) IS NOT NULL OR CAST(s AS INTEGER) = 5",
    "coalesce(k_, CAST(s AS INTEGER))",
    "coalesce(k_ * 1000, CAST(s AS INTEGER))",
    "TRY(k_ >= 0 OR CAST(s AS INTEGER) = 5)",
    "k_ // (k_ + 1) IS NULL OR CAST(s AS INTEGER) = 5",
    "least(k_, CAST(s AS INTEGER))",
    "sqrt(k_) IS NULL OR CAST(s AS INTEGER) = 5",
    "k_ + 2147483640 > 0",
    "k_ * k_ * k_ * k_ * 1000000000 IS NOT NULL",
    "CAST(k_ * 40 AS TINYINT) IS NULL",
    "p * p * p > 1 OR s = 'x'",
    "date_trunc('month', d) IS NULL OR CAST(s AS DATE) IS NULL",
    "d + k_ > d OR CAST(s AS INTEGER) = 5",
    "round(q, 1) > 50 OR round(w, 2) < 0",
    "s LIKE '%b_' OR CAST(s AS BIGINT) = 5",
    "if(o, 1 // (k_ - k_), k_)",
]
"""Statistics of the columns decide which of the operands DuckDB evaluates: `k_` is one of several
columns."""


def neighbours():
    """Rows in which each column in turn has a new least or largest value, or its first NULL."""
    usual = next(row for row in benign(50, 2) if None not in row.values())
    yield dict.fromkeys(TYPES)
    for column, values in HOSTILE.items():
        yield from ({**usual, column: value} for value in [None, *values[:2]])
        if column in "aibuh":
            yield {**dict.fromkeys(TYPES), column: "-1" if column != "u" else "9"}
    yield {**usual, "i": "-1", "a": "-1", "s": "1"}
    yield {**usual, "i": None, "a": None, "s": "1"}


def test_one_more_row_moves_no_other():
    """The referee's example among them: with TRY around the whole it moves all rows."""
    con, expressions, measures = connect(), [], []
    usual = next(row for row in benign(50, 2) if None not in row.values())
    base = [{**usual, "a": str(k % 9 + 1), "i": str(k % 9 + 1), "b": str(k % 9 + 1), "s": "abc"}
            for k in range(40)]  # fmt: skip
    texts = [text.replace("k_", "aib"[k % 3]) for k, text in enumerate(ABSORBED)]
    texts += [Random(seed).any(1 + seed % 2) for seed in range(12)]
    for text in texts:
        expression = parse(con, text)
        type_ = RowWriter(TYPES).write(expression).type
        expressions.append((written(con, text).sql, type_.name == "BOOLEAN"))
        if type_.is_number:
            bounds = (Fraction(-10), Fraction(1000))
            steps = [Fraction(1, 8), *([Fraction(1, 10**type_.scale)] if type_.is_exact else [])]
            measures += [measure(expression, TYPES, bounds, step) for step in steps]
    measures += [made_bounded(con, text) for text in BOUNDED]

    def results(rows):
        create(con, base, "n")
        insert(con, rows, "n", first=-1)
        listed = ", ".join(f"CAST({sql} AS VARCHAR)" for sql, _ in expressions)
        seen = f"SELECT {listed} FROM n WHERE row_number >= 0 ORDER BY row_number"
        counts = [
            con.execute(f"SELECT count(*) FROM n WHERE row_number >= 0 AND {sql}").fetchall()
            for sql, flag in expressions[::3]
            if flag
        ]
        added = [
            con.execute(of_each(m, "n", ", row_number") + " ORDER BY row_number").fetchall()
            for m in measures
        ]
        return con.execute(seen).fetchall(), counts, [v[len(rows) :] for v in added]

    expected = results([])
    for row in neighbours():
        assert results([row]) == expected, row


def test_the_plain_way_would_move_others():
    """So that the test above could fail."""
    con = connect()
    usual = next(row for row in benign(50, 2) if None not in row.values())
    create(con, [{**usual, "i": "3", "s": "abc"}] * 40)
    count = "SELECT count(*) FROM r WHERE TRY(i >= 0 OR CAST(s AS INT) = 5) AND row_number >= 0"
    before = con.execute(count).fetchall()
    insert(con, [{**usual, "i": "-1", "s": "1"}], first=-1)
    assert before == [(40,)]
    assert con.execute(count).fetchall() == [(0,)]


def test_cases_nest_without_failing(con):
    inner = RowColumn("h")
    for _ in range(6):
        inner = RowCase(((RowCall("<", (inner, RowColumn("w"))), inner),), RowColumn("b"))
    check_total(con, accepted([inner]))


def test_what_two_calls_share_stays_in_its_try(con):
    """DuckDB computes once what two expressions share. 2.0.0 takes it out of a TRY for that.

    So of TRY(CAST(s AS INT) + 1), TRY(CAST(s AS INT) + 2) it makes an error, and 2.0.1 doesn't.
    """
    shared = ["u - CAST(w AS DECIMAL(38,30))", "u + CAST(w AS DECIMAL(38,30))",
              "CAST(s AS INTEGER) + 1", "CAST(s AS INTEGER) + 2", "u * w", "u - w", "w % u",
              "h % w",
              "least(u, CAST(w AS DECIMAL(38,30)))", "u < CAST(w AS DECIMAL(38,30))"]  # fmt: skip
    check_total(con, accepted([parse(con, text) for text in shared]))
