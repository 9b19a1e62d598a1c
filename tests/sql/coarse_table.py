"""A table in which cells stand for several values, and random expressions over it.

`private` holds what is stored. `seen` is the table of which the answers are: each column as its
values count, which went to the ends of a domain, to NULL or to the other label; as `…_stored`, of
which conditions are; and as `…_cell`, where a grid is grouped by, to the nearest of it.
"""

import random
from types import MappingProxyType

import duckdb
import sqlglot
from sqlglot import exp

import dpsql
from dpsql.answers.answers import Answers
from dpsql.answers.frames import AnsweredFrames
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import DpsqlError
from dpsql.sql import compile_script
from dpsql.sql.frontend import no_public_tables
from tests.helpers.described import read_table
from tests.sql.reference import close, plain

SCHEMA = dpsql.Schema(
    {
        "private": {
            "came": dpsql.Domain.dates("2020-02-27", "2020-03-03", outside="clamp"),
            "went": dpsql.Domain.dates("2019-11-01", "2020-04-30", "month", nullable=True),
            "day": dpsql.Domain.dates("2020-02-10", "2020-03-10", "week", nullable=True),
            "real": dpsql.Domain.bins([-10, 0, 0.7, 20, 50], nullable=True, outside="clamp"),
            "small": dpsql.Domain.bins([0, 0.1, 0.7, 2], nullable=True),
            "number": dpsql.Domain.bins([0, 10, 25, 40]),
            "money": dpsql.Domain.bins([0, 1.5, 2.25, 4], nullable=True),
            "share": dpsql.Domain.decimals("-1", "1", "0.25", nullable=True, outside="clamp"),
            "wage": dpsql.Domain.decimals("0", "3", "0.5", outside="clamp"),
            "tens": dpsql.Domain.decimals(0, 50, 10, outside="clamp"),
            "hit": dpsql.Domain.dates(
                "2020-02-28 18:00", "2020-03-02 06:00", "hour", nullable=True
            ),
            "met": dpsql.Domain.dates(
                "2020-03-02", "2020-03-08 12:00", "hour", zone="America/New_York", outside="clamp"
            ),
            "town": dpsql.Domain.labels(["Bonn", "rest", "Ulm"], other="rest", nullable=True),
        }
    }
)
CREATE = """
    CREATE TABLE private (
        came TIMESTAMP, went TIMESTAMP, day DATE, real DOUBLE, small FLOAT, number INTEGER,
        money DECIMAL(6,2), share DOUBLE, wage DECIMAL(6,2), tens INTEGER, town VARCHAR,
        size ENUM ('small', 'big', 'medium'), flag BOOLEAN, hit TIMESTAMP, met TIMESTAMPTZ
    )
"""
SEEN = """
    CREATE TABLE seen AS SELECT
        least(greatest(came, DATE '2020-02-27'), TIMESTAMP '2020-03-03 23:59:59.999999') AS came,
        CASE WHEN went >= '2019-11-01' AND went < '2020-05-01' THEN went END AS went,
        CASE WHEN day BETWEEN '2020-02-10' AND '2020-03-15' THEN day END AS day,
        CASE WHEN NOT isnan(real) THEN least(greatest(real, -10), 50) END AS real,
        CASE WHEN small BETWEEN 0 AND 2 THEN small END AS small,
        number,
        CASE WHEN money BETWEEN 0 AND 4 THEN money END AS money,
        CASE WHEN NOT isnan(share)
            THEN least(greatest(share, -1), 1) END AS share,
        CASE WHEN NOT isnan(share)
            THEN (floor(least(greatest(share, -1), 1) / 0.25 + 0.5) * 0.25)::DECIMAL(3,2)
        END AS share_cell,
        least(greatest(wage, 0), 3)::DECIMAL(6,2) AS wage,
        (floor(least(greatest(wage, 0), 3)::DOUBLE / 0.5 + 0.5) * 0.5)::DECIMAL(6,2) AS wage_cell,
        least(greatest(tens, 0), 50)::INTEGER AS tens,
        (floor(least(greatest(tens, 0), 50) / 10.0 + 0.5) * 10)::INTEGER AS tens_cell,
        came AS came_stored, CASE WHEN NOT isnan(real) THEN real END AS real_stored,
        CASE WHEN NOT isnan(share) THEN share END AS share_stored, wage AS wage_stored,
        tens AS tens_stored, town AS town_stored,
        met AT TIME ZONE 'America/New_York' AS met_stored,
        CASE WHEN town IN ('Bonn', 'Ulm') THEN town WHEN town IS NOT NULL THEN 'rest' END AS town,
        size, flag,
        CASE WHEN hit >= '2020-02-28 18:00:00' AND hit < '2020-03-02 07:00:00' THEN hit END AS hit,
        least(greatest(met AT TIME ZONE 'America/New_York', TIMESTAMP '2020-03-02 00:00:00'),
            TIMESTAMP '2020-03-08 12:59:59.999999') AS met
    FROM private
"""
_OF = ("real", "small", "number", "money", "share", "wage", "tens")
_AT = ("came", "went", "day", "hit", "met")
_CLOCKS = ("00:00:00", "00:00:00.000001", "11:59:59", "12:00:00", "18:30:00", "23:59:59.999999")


def connect(rows=400, seed=0):
    """Make the two tables."""
    rng = random.Random(seed)  # noqa: S311
    con = duckdb.connect()
    con.execute(CREATE).fetchall()

    def maybe(value):
        return None if rng.random() < 0.08 else value

    def moment(low, high):
        day = f"DATE '2020-03-01' + {rng.randint(low, high)}"
        return f"({day})::TIMESTAMP + INTERVAL '{rng.choice(_CLOCKS)}'"

    def text(value):
        return "NULL" if value is None else value

    reals = (-99, -10, -0.0, 0.0, 0.69, 0.7, 0.70001, 19.9, 20, 35, 50, 1e9, "'inf'", "'nan'")
    for _ in range(rows):
        row = [
            moment(-5, 5),
            maybe(moment(-140, 80)),
            maybe(f"DATE '2020-03-01' + {rng.randint(-25, 20)}"),
            maybe(f"{rng.choice(reals)}::DOUBLE"),
            maybe(f"{rng.choice([0, 0.1, 0.05, 0.69, 0.7, 0.71, 1.5, 2, 3])}::FLOAT"),
            str(rng.choice([0, 5, 9, 10, 24, 25, 39, 40, 41, -1])),
            maybe(str(rng.choice([0, 1.49, 1.5, 2.24, 2.25, 3, 4, 4.01]))),
            maybe(f"{rng.choice([-7, -1, -0.13, -0.12, -0.0, 0.1, 0.125, 0.3, 0.99, 5])}::DOUBLE"),
            str(rng.choice([-1, 0.24, 0.25, 0.26, 1, 2.74, 2.75, 3, 99])),
            str(rng.choice([-5, 0, 4, 5, 6, 10, 20, 34, 50, 77])),
            maybe(rng.choice(["'Bonn'", "'Ulm'", "'ulm'", "'Ulm '", "''", "'rest'"])),
            maybe(rng.choice(["'small'", "'big'", "'medium'"])),
            maybe(rng.choice(["true", "false"])),
            maybe(moment(-3, 2)),
            f"({moment(0, 8)} + INTERVAL {rng.randint(0, 23)} HOUR) AT TIME ZONE 'UTC'",
        ]
        con.execute(f"INSERT INTO private VALUES ({', '.join(map(text, row))})").fetchall()
    con.execute(SEEN).fetchall()
    return con


class Expressions:
    """Draws expressions; most of what they ask of coarse columns is possible, by far not all."""

    def __init__(self, rng):
        self._rng = rng

    def _one(self, *choices):
        """Choose one."""
        return self._rng.choice(choices)

    def condition(self, depth=2):
        """Draw a condition."""
        if depth and self._rng.random() < 0.4:
            form = self._one("{} AND {}", "{} OR {}", "NOT ({})", "({}) IS TRUE", "({}) = ({})",
                             "CASE WHEN {} THEN {} ELSE {} END", "coalesce({}, {})")  # fmt: skip
            return form.format(*(f"({self.condition(depth - 1)})" for _ in range(form.count("{}"))))
        return self._compared(*self._kind())

    def _kind(self):
        return self._one(
            (self.moment, self._moments), (self.moment, self._moments), (self._day, self._days),
            (self._bins, self._numbers), (self._grid, self._decimals), (self._text, self._texts),
        )  # fmt: skip

    def _compared(self, value, literal):
        a = value()
        if self._rng.random() < 0.1:
            return f"{a} IS {self._one('', 'NOT ')}NULL"
        if self._rng.random() < 0.15:
            return f"{a} BETWEEN {literal()} AND {literal()}"
        if self._rng.random() < 0.15:
            return f"{a} {self._one('', 'NOT ')}IN ({literal()}, {literal()})"
        sign = self._one("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")
        return f"{a} {sign} {literal()}"

    def moment(self):
        """Draw a timestamp, or a date of one."""
        t = self._one("came", "went", "hit", "met")
        return self._one(
            t, t, t, f"{t}::DATE", f"date_trunc('day', {t})", f"date_trunc('month', {t})",
            f"date_trunc('week', {t})", f"date_trunc('hour', {t})", f"last_day({t})",
            f"({t} + INTERVAL {self._shift()})",
            f"({t} + INTERVAL {self._shift()})::DATE", f"coalesce({t}, TIMESTAMP '2020-03-01')",
            f"coalesce({t}, DATE '2020-03-01')::DATE", f"{t}::TIMESTAMP::DATE",
            f"(CASE WHEN flag THEN {t} ELSE DATE '2020-03-02' END)::DATE",
            f"make_date(year({t}), month({t}), 1)",
            f"strptime(strftime({t}, '{self._one('%Y-%m-%d', '%Y-%m-%d %H')}'), '%Y-%m-%d')",
        )  # fmt: skip

    def _shift(self):
        return self._one(
            "1 DAY", "2 WEEK", "1 MONTH", "6 HOUR", "1 HOUR", "90 MINUTE", "1 YEAR", "'-3' DAY"
        )

    def _moments(self):
        day = f"2020-{self._one('02', '03')}-0{self._rng.randint(1, 8)}"
        clock = self._one(*_CLOCKS)
        return self._one(
            f"DATE '{day}'", f"DATE '{day}'", f"TIMESTAMP '{day} {clock}'", f"'{day}'",
            f"'{day} {clock}'", "DATE '2020-02-01'", "DATE '2020-03-01'",
            f"(DATE '{day}' + INTERVAL {self._shift()})",
        )  # fmt: skip

    def _day(self):
        part = self._one("day", "month", "dow", "week", "isodow", "doy", "quarter", "year", "hour")
        t = self._one("came", "went", "day", "hit", "met")
        return self._one(
            f"extract({part} FROM {t})", f"date_part('{part}', {t})", f"yearweek({t})",
            f"date_diff('{self._one('day', 'week', 'month', 'hour')}', DATE '2020-02-20', {t})",
            "date_diff('day', came, went)", f"week({t})", f"month({t}) * 2",
            "(day - DATE '2020-03-01')", f"epoch({t})", f"length({t}::VARCHAR)", f"minute({t})",
            f"hour({t}) // 24", f"CASE WHEN {t} >= {self._moments()} THEN 1 ELSE 7 END",
        )  # fmt: skip

    def _days(self):
        return str(self._one(0, 1, 2, 3, 5, 7, 9, 10, 12, 24, 60, 2020, 202009))

    def _bins(self):
        x = self._one("real", "small", "number", "money")
        return self._one(x, x, x, x, f"abs({x})", f"{x} + 1", f"round({x})", f"({x})")

    def _numbers(self):
        return str(self._one(
            -10, 0, 0.1, 0.7, 1.5, 2, 2.25, 4, 10, 20, 25, 40, 50, "0.7::DOUBLE", "0.1::FLOAT",
            "9.5", "24.999", "1.499", "2.2501", "'inf'::DOUBLE", "-0.0", "10::DECIMAL(4,1)",
        ))  # fmt: skip

    def _grid(self):
        x = self._one("share", "wage", "tens")
        return self._one(
            x, x, f"{x} * 2", f"{x} + 0.25", f"round({x}, 1)", f"floor({x})", f"abs({x})", f"-{x}",
            f"{x} / 4", f"{x} // 2", f"{x} % 0.5", f"{x}::INTEGER", f"{x} * {x}", f"sqrt(abs({x}))",
            f"{x}::DECIMAL(9,1)", f"greatest({x}, wage)", f"CASE WHEN flag THEN {x} END",
        )  # fmt: skip

    def _decimals(self):
        return str(self._one(-1, -0.25, 0, 0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 10, 20, 50, 0.375))

    def _text(self):
        s = self._one("town", "size", "wage", "tens", "flag")
        return self._one(
            f"upper({s}::VARCHAR)", f"{s}::VARCHAR", f"left({s}::VARCHAR, 2)",
            f"length({s}::VARCHAR)::VARCHAR", f"({s}::VARCHAR || '!')", f"trim({s}::VARCHAR)",
            f"replace({s}::VARCHAR, 's', '')",
        )  # fmt: skip

    def _texts(self):
        return self._one("'ULM'", "'Ulm'", "'rest'", "'re'", "'m'", "''", "'0.50'", "'1.00'",
                         "'10'", "'small'", "'big'", "'4'", "'true'", "'Ulm '")  # fmt: skip

    def value(self):
        """Draw something to group by; a coarse column itself gives the beginnings of its cells."""
        kind = self._one(self.moment, self._day, self._grid, self._text, self.condition)
        return kind()

    def statement(self):
        """Draw a statement."""
        key = self.value()
        while key in {"came", "went", "hit", "met"}:
            key = self.value()
        table = "SELECT COUNT(*) AS n FROM private"
        public = f"{self._public()} v(t, x, s)"
        grouped = f"SELECT {key} AS k, COUNT(*) AS n FROM private"
        met = self._met()
        listed = f"SELECT v.{self._one('x', 'x', 't', 's')} FROM {public}"
        column = self._one(*(_OF if ".x" in listed else _AT if ".t" in listed else ("town",)))
        return self._one(
            f"{table} WHERE {self.condition()}",
            f"SELECT COUNT(*) FILTER (WHERE {self.condition()}) AS n FROM private "
            f"WHERE {self.condition(1)}",
            f"{grouped} GROUP BY k",
            f"{grouped} WHERE {self.condition(1)} GROUP BY k",
            f"SELECT SUM({self._one(self._day, self._grid)()}) AS n FROM private",
            f"SELECT COUNT({key}) AS n FROM private",
            f"{table} JOIN {public} ON {met}",
            f"{table} JOIN {public} ON {met}",
            f"{table} LEFT JOIN {public} ON flag WHERE {met} OR v.x IS NULL",
            f"{table} LEFT JOIN {public} ON {met}",
            f"{table} WHERE {self._one('', 'NOT ')}EXISTS (SELECT 1 FROM {public} WHERE {met})",
            f"{table} WHERE {column} {self._one('', 'NOT ')}IN ({listed})",
            f"{table} WHERE {column} {self._sign()} ({listed} ORDER BY 1 LIMIT 1)",
            f"SELECT CASE WHEN {column} IN ({listed}) THEN 1 ELSE 0 END AS k, COUNT(*) AS n "
            "FROM private GROUP BY k",
        )

    def _public(self):
        """Draw public rows."""
        rows = [f"({self._at()}, {self._numbers()}, {self._texts()})" for _ in "ab"]
        return f"(VALUES {', '.join(rows)}, (NULL, NULL, NULL))"

    def _at(self):
        day = f"2020-{self._one('02', '03')}-0{self._rng.randint(1, 8)}"
        return self._one(f"DATE '{day}'", f"TIMESTAMP '{day} {self._one(*_CLOCKS)}'")

    def _sign(self):
        return self._one("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")

    def _met(self):
        """Draw a condition on public rows."""
        x, t, sign = self._one(*_OF), self._one(*_AT), self._sign()
        return self._one(
            "came >= v.t", "went::DATE = v.t::DATE", "real >= v.x", f"{x} {sign} v.x",
            f"{x} {sign} v.x", f"{t} {sign} v.t", f"{t} {sign} v.t", "town = v.s",
            f"upper(town) {self._one('=', '<>')} v.s", f"{x} = v.x AND {t} < v.t",
            f"{x} BETWEEN v.x AND v.x + 5", f"v.x BETWEEN {x} AND 20", f"{x} + 1 {sign} v.x",
            f"{x} {sign} coalesce(v.x, 5)", f"hour({t}) {sign} v.x OR town = v.s",
            f"({t} + INTERVAL 1 DAY) {sign} v.t",
        )  # fmt: skip


def answered_without_domains(con, sql):
    """Whether a statement would be answered if no column had a domain that is declared."""
    try:
        exact(con, sql, dpsql.Schema({}))
    except DpsqlError:
        return False
    return True


def exact(con, sql, schema=SCHEMA):
    """Answer a statement without noise."""
    script = compile_script(
        [("q", sql)], lambda parts: read_table(con, parts, schema), no_public_tables
    )

    def marginal(names):
        of_rows = script.measures, script.keys
        counted = DuckDBEngine(con).marginals(script.table, [names], script.merged, *of_rows)
        return counted[names].astype(float)

    return AnsweredFrames(script.statements, Answers(script.workload, None, marginal)).frame("q")


_COUNTED = "(SELECT * FROM seen WHERE number BETWEEN 0 AND 40) AS seen"
"""Rows outside of a column without a place for them don't count where the column is named."""


_MOVED = frozenset({"came", "real", "share", "wage", "tens", "town", "met"})
_GRIDS = frozenset({"share", "wage", "tens"})


def _of_seen(sql, names):
    """Write a statement so that conditions are on what is stored, and values are what counts."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    for place in list(tree.find_all(exp.Column)):
        if place.name in _MOVED and not place.table:
            suffix = "_stored" if _is_asked(place) else ""
            if place.name in _GRIDS and isinstance(place.parent, exp.Alias):
                suffix = "_cell"
            place.set("this", exp.to_identifier(names.get(place.name, place.name + suffix)))
    return tree.sql(dialect="duckdb")


def _is_asked(place):
    """Whether a column stands in a condition."""
    part = place
    while part.parent is not None:
        if part.arg_key == "this" and isinstance(part.parent, (exp.If, exp.Where)):
            return True
        if part.arg_key == "on":
            return True
        part = part.parent
        if isinstance(part, exp.Predicate):
            return True
    return False


def differences(con, sql, names=MappingProxyType({})):
    """Compare an answer with DuckDB's on the table that is seen; groups without rows are empty.

    Args:
        con: has both tables.
        sql: the statement.
        names: columns of the table that is seen, of those that are to be named otherwise.
    """
    frame = exact(con, sql)
    keys = [name for name in frame.columns if name == "k"]
    ours = {}
    for row in frame.rows(named=True):
        place = tuple(plain(row[k]) for k in keys)
        ours[place] = ours.get(place, 0.0) + row["n"]
    table = _COUNTED if "number" in sql else "seen"
    cursor = con.execute(_of_seen(sql, names).replace("private", table))
    names = [d[0] for d in cursor.description]
    theirs = {}
    for row in cursor.fetchall():
        found = dict(zip(names, map(plain, row), strict=True))
        theirs[tuple(found[k] for k in keys)] = found["n"]
    return [
        f"{place}: {ours.get(place)} in place of {theirs.get(place)}"
        for place in ours.keys() | theirs.keys()
        if not close(float(ours.get(place, 0.0)), theirs.get(place, 0.0))
    ]
