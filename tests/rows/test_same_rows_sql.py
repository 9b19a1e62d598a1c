"""DuckDB's SQL of columns of other rows, as relations are written: it changes where that is meant.

Of random databases and statements about them: what their rows have of those that they refer to, of
those that refer to them, and of rows beside them. Rows of units are reached by this SQL.
"""

from __future__ import annotations

import hashlib
import json
import random
from functools import partial
from pathlib import Path

import pytest

import dpsql
from dpsql.engines.duckdb.relations import kept_rows, rows_of_units
from dpsql.engines.others import stored_columns, unit_name
from dpsql.errors import DpsqlError
from dpsql.request import Request, named
from dpsql.rows.types import is_readable
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.release.test_private_joins import filled, units

WRITTEN = Path(__file__).with_name("duckdb_rows_sql.json")
BUDGET = dpsql.Budget(rho=1)
OVER = "OVER (PARTITION BY customer_id ORDER BY price DESC, status)"
OF = "(SELECT {} FROM items i WHERE i.order_id = o.id)"
COLUMNS = [
    f"LEAST(row_number() {OVER}, 3)", f"LEAST(ntile(2) {OVER}, 3)", f"cume_dist() {OVER} > 0.5",
    f"lag(price, 2, -5) {OVER} > 3",
    "nth_value(status, 2) OVER (PARTITION BY customer_id ORDER BY price "
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) = 'f'",
    f"LEAST(COUNT(DISTINCT status) {OVER}, 3)", f"MAX(status) {OVER} = 'o'",
    f"AVG(price) FILTER (WHERE status = 'o') {OVER} > 3", f"SUM(price) {OVER} > 900",
    "bool_and(price > 3) OVER (PARTITION BY customer_id, status)",
    "LEAST(COUNT(*) OVER (PARTITION BY customer_id ORDER BY price "
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW), 3)",
    f"LEAST({OF.format('COUNT(*)')}, 3)", f"LEAST({OF.format('COUNT(DISTINCT qty)')}, 3)",
    f"{OF.format('SUM(qty)')} > 3", f"{OF.format('AVG(qty)')} > 3", f"{OF.format('MAX(qty)')} > 3",
    "EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id AND i.qty > o.price)",
    "(SELECT MIN(p.status) FROM orders p WHERE p.customer_id = o.customer_id) = 'o'",
]  # fmt: skip


def written(con, schema, script):
    """Write what is read of each table that a script counts."""
    session = dpsql.Session(con, schema=schema, public=[])
    try:
        script = session._data.declared.compile(Request(named(script), BUDGET))
    except DpsqlError as error:
        yield type(error).__name__
        return
    for table in script.tables:
        made = bool(table.made_of)
        own = [name for name, type_ in table.undeclared.items() if is_readable(type_)]
        names = [*table.alone.columns, *own] if made else stored_columns(table)
        names = [*names, *table.computed]
        for parent in table.parents:
            names += [parent.matched, *parent.names.values()]
        yield kept_rows(table, names)
        yield rows_of_units(table, names, unit_name(table))


def at_random(seeds):
    for seed in seeds:
        rng = random.Random(seed)  # noqa: S311
        database = RandomDatabase(rng)
        script = RandomQuestions(rng, database.kinds).script()
        yield from written(database.connect(), database.schema, script)


def of_column(con, column):
    sql = f"SELECT k, COUNT(*) AS n FROM (SELECT {column} AS k FROM orders o) GROUP BY k"
    return written(con, units(), sql)


def texts():
    """Return what is digested, and how it is written: no case waits for all others."""
    con = filled()
    columns = {column: partial(of_column, con, column) for column in COLUMNS}
    starts = range(0, 60, 20)
    return columns | {
        f"random from {first}": partial(at_random, range(first, first + 20)) for first in starts
    }


def digest(found):
    listed = list(found)
    (error, *_) = listed
    return hashlib.sha256("\n".join(listed).encode()).hexdigest() if len(listed) > 1 else error


@pytest.fixture(scope="module")
def now():
    return texts()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("what", json.loads(WRITTEN.read_text(encoding="utf-8")))
def test_the_sql_is_as_it_was(now, what):
    assert digest(now[what]()) == json.loads(WRITTEN.read_text(encoding="utf-8"))[what]


def test_nothing_else_is_written(now):
    known = json.loads(WRITTEN.read_text(encoding="utf-8"))
    assert now.keys() == known.keys()
    assert sum(found.endswith("Error") for found in known.values()) < len(COLUMNS) / 4
