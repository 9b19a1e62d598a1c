"""Keys that are computed of each row: every row has one cell, whatever it and others hold."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.engine import DuckDBEngine, scan
from dpsql.rows.cuts import ends, has_places
from dpsql.rows.expression import RowColumn, canonical
from dpsql.rows.key import MOST_VALUES, RowKey, line, looked_up_key, row_key
from dpsql.rows.known import RowBounds
from dpsql.rows.measure import measure
from dpsql.rows.typed import constant_of
from dpsql.rows.types import BIGINT, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema import Table
from dpsql.schema.units import ResolvedUnit
from dpsql.sql.lowering.few_values import bucket_key
from tests.rows.test_total import hostile_rows, there
from tests.rows.tools import TYPES, Random, benign, connect, create, insert, parse

TEXTS = [
    "i > 3", "x > 0.5", "x IS NULL", "s LIKE 'a%'", "regexp_matches(s, '^[a-c]+$')", "isnan(x)",
    "e IN ('red', 'green')", "CASE WHEN p < 10 THEN 'cheap' WHEN o THEN 'it''s' ELSE 'dear' END",
    "CASE WHEN x > 1 THEN 5 WHEN x > 0 THEN 1 END", "hour(t)", "date_part('dow', d)", "dayname(t)",
    "monthname(d)", "least(greatest(floor(x / 10), -2), 3)", "least(greatest(i // 100, 0), 4)",
    "h % 10", "coalesce(minute(t), -1)", "length(left(s, 3))", "sign(f)",
    "x = 1 / f AND s::DATE > d",
]  # fmt: skip

IN_TURN = [
    "CASE WHEN x < 0 THEN 0 WHEN x < 10 THEN 1 ELSE 0 END", "CASE WHEN i < 3 THEN 1 ELSE 1 END",
    "CASE WHEN x IS NULL THEN 2 WHEN i < 3 THEN 1 ELSE 0 END",
    "CASE WHEN x < 1 THEN CASE WHEN x < 0 THEN 'a' ELSE 'b' END ELSE 'a' END",
    "CASE WHEN x < 1 THEN 'a' ELSE CASE WHEN x < 0 THEN 'b' ELSE 'a' END END",
    "CASE WHEN x < 1 THEN 5 WHEN x < 2 THEN NULL WHEN p < 10 THEN 5 END",
    "CASE WHEN x >= 1 THEN true WHEN x < 0 THEN NULL ELSE false END",
    "CASE WHEN s IS NULL THEN 'NULL' WHEN s < 'b' THEN '0' ELSE 'b' END",
]  # fmt: skip
"""CASEs of constants of which some come back, or are NULL."""


@pytest.fixture(scope="module")
def rows():
    return hostile_rows() + benign(300, seed=3)


@pytest.fixture(scope="module")
def con(rows):
    con = connect()
    create(con, rows)
    return con


def keys_of(con, texts):
    found = (row_key(parse(con, text), TYPES) for text in texts)
    return {key.name: key for key in found if key is not None}


def table(keys, unit=None):
    plain = Table("r", {}, {"row_number": "INTEGER", **TYPES}, ("memory", "main", "r"), unit)
    domains = {name: key.domain for name, key in keys.items()}
    return plain.deriving(domains, {name: key.digest for name, key in keys.items()})


def counted(con, keys, wanted, unit=None):
    return DuckDBEngine(con).marginals(table(keys, unit), wanted, keys=keys)


def expected(con, text, key):
    """Place DuckDB's own values of the rows in cells."""
    sql = RowWriter(TYPES).write(parse(con, text)).sql
    values, counts = list(key.domain.values), np.zeros(key.domain.size, dtype=np.int64)
    for value, n in con.execute(f"SELECT {sql}, count(*) FROM r GROUP BY 1").fetchall():
        counts[-1 if value is None else values.index(value)] += n
    return counts


@pytest.mark.parametrize("text", TEXTS)
def test_rows_are_where_their_value_is(con, rows, text):
    keys = keys_of(con, [text])
    ((name, key),) = keys.items()
    found = counted(con, keys, [(name,)])[name,]
    assert found.sum() == len(rows)
    assert found.tolist() == expected(con, text, key).tolist()


def lines(draw):
    """Lines of all columns that have places, cut at a few, at their ends for example."""
    for name, text in TYPES.items():
        type_ = row_type(text)
        if has_places(type_):
            least, most = ends(type_)
            beyond = [] if type_.is_time else [least + 1, most - 1, most]
            near = [place for place in sorted({-3, 0, 2, 60, *beyond}) if place > least]
            yield line(name, text, sorted(draw.sample(near, draw.randint(0, len(near)))),
                       nullable=True).key  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_conditions_lead_to_the_classes_that_values_are_in(con, seed, monkeypatch):
    """Of keys that are CASEs of constants a class is found without the value: it is that of it."""
    draw = random.Random(seed)  # noqa: S311
    keys = keys_of(con, [*TEXTS, *IN_TURN]) | {key.name: key for key in lines(draw)}
    cells = {name: table(keys).cells(name) for name in keys}
    drawn = {name: [draw.randrange(2) for _ in range(n)] for name, n in cells.items()}
    merged = {name: np.unique(of, return_inverse=True)[1] for name, of in drawn.items()}
    for some in ({}, merged):
        coding, blocks = Coding(table(keys), some, keys), {(name,): {} for name in keys}
        assert sum(coding.led(name) is not None for name in keys) >= 15
        found, _ = scan(coding, blocks).run(con)
        with monkeypatch.context() as without:
            without.setattr(RowKey, "leading_to", lambda *_: None)
            values, _ = scan(coding, blocks).run(con)
        for (name,), counts in values.items():
            assert found[name,].tolist() == counts.tolist(), name


@pytest.mark.parametrize("column", ["x", "d"])
def test_null_is_asked_for_of_the_few_rows_that_no_comparison_holds_for(column):
    """If it has a cell of its own; if it is in that of the last ELSE, it isn't asked for at all."""
    key = line(column, TYPES[column], [2, 60], nullable=True).key
    for classes, asked in ((range(4), 1), ([0, 1, 2, 2], 0), ([0, 1, 1, 0], 1)):
        led = key.leading_to([constant_of(str(c), BIGINT) for c in classes])
        assert led.sql.count(" IS NULL") == asked
        assert led.sql.find("<") < led.sql.find(" IS NULL") or not asked


@pytest.mark.parametrize("unit", [None, ResolvedUnit("row_number", "row_number", "INTEGER", (), 3)])
@pytest.mark.parametrize("classes", [[0, 1, 0], [1, 0, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0], None])
def test_what_is_true_is_added_up_in_cells_of_others(con, rows, classes, unit):
    """Beside other truths, and apart; where true has a cell of its own, and where it has not."""
    texts = ["x > 0.5", "x IS NULL", "i > 3", "sign(f)"]
    keys = keys_of(con, texts)
    large, absent, more, sign = keys
    merged = {} if classes is None else {large: np.array(classes)}
    if classes is not None:  # of −1, 0, 1 and NULL
        merged[sign] = np.array([*classes, classes[0]])
    wanted = [(large,), (sign, absent), (large, sign), (sign, more), (large, absent), (sign,)]
    found = DuckDBEngine(con).marginals(table(keys, unit), wanted, merged, keys=keys)
    values = con.execute(
        "SELECT "
        + ", ".join(f"({RowWriter(TYPES).write(parse(con, text)).sql})" for text in texts)
        + " FROM r"
    ).fetchall()
    for marginal in wanted:
        cells = np.zeros(found[marginal].shape, dtype=np.int64)
        for row in values:
            at = []
            for (name, key), value in zip(keys.items(), row, strict=True):
                cell = -1 if value is None else list(key.domain.values).index(value)
                of = merged.get(name, np.arange(key.domain.size))
                if name in marginal:
                    at.append((marginal.index(name), int(of[cell])))
            cells[tuple(place for _, place in sorted(at))] += 1
        assert found[marginal].tolist() == cells.tolist(), marginal


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(600))
def test_random_keys_have_a_cell_for_every_row(con, rows, seed):
    random_ = Random(seed, hostile=True)
    number = f"least(greatest(floor({random_.number(seed % 4)}), -3), 9)"
    text = [random_.any(seed % 5), random_.condition(seed % 5), number][seed % 3]
    keys = keys_of(con, [text])
    for name, key in keys.items():
        found = counted(con, keys, [(name,)])[name,]
        assert found.sum() == len(rows), text
        assert found.tolist() == expected(con, text, key).tolist(), text


ROUNDED = ["floor({})", "ceil({} / 7)", "round({}, -1)", "round({})", "trunc({} * 2)",
           "({})::INTEGER", "round({} / 3 - 4, -2)", "{} // 7"]  # fmt: skip


@pytest.mark.sampled(80)
@pytest.mark.parametrize("text", ROUNDED)
@pytest.mark.parametrize("column", ["a", "i", "b", "u", "h", "p", "q", "w", "f", "x"])
@pytest.mark.parametrize("ends", [(0, 40), (-25, Fraction(7, 2)), (10**6, 10**6 + 5)])
def test_rounded_numbers_have_a_cell_for_every_row_be_their_bounds_true_or_not(
    con, rows, text, column, ends
):
    sql = text.format(column)
    bounds = RowBounds({column: (Fraction(ends[0]), Fraction(ends[1]))})
    key = bucket_key(parse(con, sql), TYPES, bounds)
    if "//" in text and column in "pqwfx":  # leaves a fraction
        assert key is None
        return
    (found,) = counted(con, {key.name: key}, [(key.name,)]).values()
    assert found.sum() == len(rows)
    values = list(key.domain.values)
    own = RowWriter(TYPES).write(parse(con, sql)).sql
    missing = f"({own}) IS NULL OR isnan(({own})::DOUBLE)"
    nearest = f"least(greatest({own}, {values[0]}), {values[-1]})"
    cells = np.zeros(key.domain.size, dtype=np.int64)
    counts = f"SELECT CASE WHEN {missing} THEN NULL ELSE {nearest} END, count(*) FROM r GROUP BY 1"
    for value, n in con.execute(counts).fetchall():
        cells[-1 if value is None else values.index(value)] += n
    assert found.tolist() == cells.tolist()


def test_what_is_not_rounded_has_no_buckets(con):
    bounds = RowBounds({"x": (Fraction(0), Fraction(100)), "i": (Fraction(0), Fraction(10**6))})
    none = ["x", "x + 1", "round(x, 1)", "floor(x * 1000)", "i", "i + 1", "floor(f)", "sqrt(x)",
            "floor(x) * 10", "floor(floor(x / 10) * 10)", "x // 10", "-floor(x)", "i // 100",
            "i::TINYINT + 0", "s"]  # fmt: skip
    assert all(bucket_key(parse(con, text), TYPES, bounds) is None for text in none)
    assert len(bucket_key(parse(con, "i // 101"), TYPES, bounds).domain.values) == 9_901


def test_a_row_changes_its_own_cell_and_no_other(rows):
    """One that changes what DuckDB knows of a column: its extremes, and whether it has NULL."""
    con = connect()
    create(con, benign(200, seed=5))
    absent = " OR ".join(f"{name} IS NULL" for name in TYPES)
    con.execute(f"DELETE FROM r WHERE {absent}").fetchall()
    cuts = {"x": (-1, 0, 1, 2**62), "i": (-3, 0, 4), "t": (0, 86_400_000_000), "p": (0, 10**9)}
    lines = [line(c, TYPES[c], at, nullable=True).key for c, at in cuts.items()]
    bounds = RowBounds({name: (Fraction(-5), Fraction(500)) for name in ("x", "i", "p")})
    texts = ("floor(x / 10)", "i // 3", "round(p, -1)", "(x * p / 1000)::INTEGER")
    rounded = [bucket_key(parse(con, text), TYPES, bounds) for text in texts]
    keys = keys_of(con, TEXTS) | {key.name: key for key in (*lines, *rounded)}
    names = list(keys)
    wanted = [(name,) for name in names] + list(zip(names[::2], names[1::2], strict=True))
    before = counted(con, keys, wanted)
    for row in random.Random(2).sample(rows, 16):  # noqa: S311
        con.execute("BEGIN").fetchall()
        insert(con, [row], first=10**6)
        after = counted(con, keys, wanted)
        con.execute("ROLLBACK").fetchall()
        for marginal in wanted:
            change = (after[marginal] - before[marginal]).ravel()
            assert sorted(change.tolist())[-2:] == [0, 1], marginal
            assert change.min() == 0, marginal


SUMMED = [
    "x", "p", "i", "f", "w", "h", "x * i", "p * (1 - q)", "w * w", "x / i", "sqrt(x)", "p // i",
    "CASE WHEN i > 0 THEN x END", "b * b * b", "abs(p)", "coalesce(x, p)",
]  # fmt: skip


@pytest.mark.parametrize("text", SUMMED)
@pytest.mark.parametrize("exact", [False, True])
def test_whether_something_is_there_is_counted_of_what_is_added_up(con, rows, text, exact):
    """The same as if each row were asked; be there NULL, NaN, what is infinite, or what fails."""
    e = parse(con, text)
    if text in {"x", "p", "i"}:
        cuts = [ends(row_type(TYPES[text]))[1]] if text == "x" else []
        key = line(text, TYPES[text], cuts, nullable=True).key
        classes = [0, 1, 1] if text == "x" else [0, 1]
    else:
        key, classes = row_key(there(e), TYPES), [0, 1, 0]
    type_ = RowWriter(TYPES).write(e).type
    step = Fraction(1, 10**type_.scale) if exact and type_.scale < 5 else Fraction(1, 2**10)
    made = measure(e, TYPES, (Fraction(-10), Fraction(1000)), step)
    both, without = both_ways(con, key, classes, made)
    assert both.sum() == len(rows)
    assert both.min() > 0
    assert without == (not made.there)
    assert made.there or (exact and type_.is_exact)


def both_ways(con, key, classes, made):
    """Count a key, and check that it is so also where each row is asked; say if it always is."""
    by = keys_of(con, ["i > 3"])
    keys = {**by, key.name: key}
    wanted = [(*by, key.name), (key.name,), (*by, "s"), ("s",), tuple(by)]
    merged, found = {key.name: np.array(classes)}, []
    for measured in (made, replace(made, there="")):
        ready = DuckDBEngine(con).prepared(table(keys), wanted, merged, {"s": measured}, keys)
        assert len(ready.needed) == 1
        asked = "THEN CAST('1' AS INTEGER) END" in ready.needed[0].sql
        found.append((ready.run(), asked))
    (one, asked), (other, always) = found
    assert always
    for marginal in wanted:
        assert one[marginal].tolist() == other[marginal].tolist()
    return one[key.name,], asked


@pytest.mark.parametrize(
    ("name", "cuts", "classes"),
    [("p", [500], [0, 1, 1]), ("p", [500], [1, 0, 1]), ("x", [5], [0, 0, 1]), ("x", [], [0, 1]),
     ("x", [5, 0x7FF << 52 | 1], [0, 1, 1, 1]), ("x", [0x7FF << 52 | 1], [1, 0, 1])],
)  # fmt: skip
def test_what_else_a_line_tells_is_asked_of_each_row(con, rows, name, cuts, classes):
    key = line(name, TYPES[name], cuts, nullable=True).key
    made = measure(RowColumn(name), TYPES, (Fraction(-10), Fraction(1000)), Fraction(1, 2**10))
    both, asked = both_ways(con, key, classes, made)
    assert made.there
    assert asked
    assert both.sum() == len(rows)


def test_only_what_says_just_that_tells_whether_something_is_there(con):
    nan = "isnan(CAST({} AS DOUBLE))"
    one = row_key(parse(con, f"NOT (x * i IS NULL OR {nan.format('x * i')})"), TYPES)
    assert one.presence.of == canonical(parse(con, "x * i"))
    assert one.presence.values == {True}
    for other in ("x * i IS NOT NULL", f"x * i IS NULL OR {nan.format('x * i')}",
                  f"NOT (x * i IS NULL OR {nan.format('x')})",
                  "NOT (x * i IS NULL OR isnan(x * i))",
                  f"NOT (x * i IS NULL AND {nan.format('x * i')})",
                  f"NOT (x * i IS NULL OR {nan.format('x * i')} OR x > 3)",
                  f"NOT (x * i IS NULL OR NOT {nan.format('x * i')})"):  # fmt: skip
        assert row_key(parse(con, other), TYPES).presence is None
    last = ends(row_type("DOUBLE"))[1]
    assert line("x", "DOUBLE", [], nullable=True).key.presence is None
    assert line("x", "DOUBLE", [5], nullable=True).key.presence is None
    assert line("x", "DOUBLE", [5, last], nullable=False).key.presence.values == {0, 1}
    assert line("p", TYPES["p"], [5], nullable=True).key.presence.values == {0, 1}


def test_no_name_of_the_database_takes_another_place(rows):
    con = connect()
    create(con, benign(100))
    con.execute(
        "ALTER TABLE r RENAME x TO k0; ALTER TABLE r RENAME s TO n; ALTER TABLE r RENAME i TO key;"
    ).fetchall()
    types = {{"x": "k0", "s": "n", "i": "key"}.get(n, n): type_ for n, type_ in TYPES.items()}
    texts = ["k0 > 1", "n LIKE 'a%'", "key > 3", "least(greatest(floor(k0 / 10), 0), 4)"]
    found = [row_key(parse(con, text), types) for text in texts]
    keys = {key.name: key for key in found}
    plain = Table("r", {}, types, ("memory", "main", "r"))
    own = plain.deriving({n: k.domain for n, k in keys.items()}, dict.fromkeys(keys, ""))
    wanted = [tuple(keys)]
    before = DuckDBEngine(con).marginals(own, wanted, keys=keys)
    for name in ("least(a, b)", "greatest(a, b)", "floor(a)", "encode(a)", "list_position(a, b)"):
        con.execute(f"CREATE MACRO {name} AS 0").fetchall()
    for operator in ("~~", "+", "-", "/", "*"):
        con.execute(f'CREATE MACRO "{operator}"(a, b) AS 0').fetchall()
    after = DuckDBEngine(con).marginals(own, wanted, keys=keys)
    assert before[wanted[0]].sum() == 100
    assert (before[wanted[0]] == after[wanted[0]]).all()


def test_a_unit_changes_its_own_rows_only(rows):
    con = connect()
    create(con, rows)
    con.execute("UPDATE r SET row_number = row_number % 90").fetchall()
    unit = ResolvedUnit("row_number", "row_number", "INTEGER", (), 3)
    keys = keys_of(con, TEXTS[:6])
    wanted = [tuple(keys)[:3], tuple(keys)[3:]]
    before = counted(con, keys, wanted, unit)
    assert before.contributions == 3
    for person in range(0, 90, 9):
        con.execute("BEGIN").fetchall()
        con.execute(f"DELETE FROM r WHERE row_number = {person}").fetchall()
        after = counted(con, keys, wanted, unit)
        con.execute("ROLLBACK").fetchall()
        for marginal in wanted:
            change = before[marginal] - after[marginal]
            assert change.min() >= 0
            assert 1 <= change.sum() <= 3


@pytest.mark.parametrize("text", [
    "s", "o", "a", "floor(x)", "year(t)", "p / 3", "CASE WHEN o THEN 0.5 ELSE 1 END", "NULL + i",
    "CASE WHEN o THEN DATE '2020-01-01' END", "least(greatest(i, 0), 1000)", "i % 1000",
])  # fmt: skip
def test_what_is_no_key(con, text):
    assert row_key(parse(con, text), TYPES) is None
    assert MOST_VALUES == 1000


def test_a_name_says_all_that_a_key_is(con):
    def name(text, types=TYPES, filled=frozenset()):
        return row_key(parse(con, text), types, filled).name

    names = [name("i > 3"), name("i > 4"), name("i >= 3"), name("b > 3"), name("s = 'i > 3'")]
    names += [name("i > 3", filled=frozenset({"i"})), name("i > 3", TYPES | {"i": "BIGINT"})]
    names += [name("CASE WHEN o THEN 'a, b' ELSE 'c' END"), name("s LIKE 'a'"), name("s LIKE 'A'")]
    names += [name("CASE WHEN o THEN 'a' ELSE 'b, c' END"), name("hour(t)"), name("minute(t)")]
    assert len(set(names)) == len(names)
    assert name("(i) > 3") == name("i > 3")


LOOKED_UP = [name for name, type_ in TYPES.items() if type_ == "VARCHAR" or type_.endswith("INT")]


@pytest.mark.parametrize("others", [0, 200])
@pytest.mark.parametrize("name", [*LOOKED_UP, "i"])
def test_values_that_are_looked_up_have_cells_and_all_others_that_of_null(con, rows, name, others):
    column = RowColumn(name)
    stored = con.execute(f"SELECT {name}, count(*) FROM r GROUP BY 1 ORDER BY 1").fetchall()
    known = [v for v, _ in stored if isinstance(v, int) or (v and v.isprintable())]
    values = [v for v in known[::2] if isinstance(v, str) or -(2**63) <= v < 2**63]
    texts = isinstance(values[0], str)
    values += [f"other {i}" if texts else 10**7 + 3 * i for i in range(others)]
    key = looked_up_key(column, TYPES, sorted(set(values)))
    assert key is not None
    counts = np.zeros(key.domain.size, dtype=np.int64)
    for value, n in stored:
        counts[list(key.domain.values).index(value) if value in key.domain.values else -1] += n
    found = counted(con, {key.name: key}, [(key.name,)])[key.name,]
    assert found.sum() == len(rows)
    assert found.tolist() == counts.tolist()


def test_keys_that_are_looked_up_among_other_values_are_others():
    column, values = RowColumn("i"), list(range(0, 900, 3))
    one = looked_up_key(column, TYPES, values)
    other = looked_up_key(column, TYPES, [*values[:-1], 10**6])
    assert one is not None
    assert other is not None
    assert one.name != other.name
    assert one.digest != other.digest


def test_values_of_another_type_are_not_looked_up():
    assert looked_up_key(RowColumn("i"), TYPES, ["1", "2"]) is None
    assert looked_up_key(RowColumn("s"), TYPES, [1, 2]) is None
    assert looked_up_key(RowColumn("x"), TYPES, [1, 2]) is None
    assert looked_up_key(RowColumn("i"), TYPES, []) is None
