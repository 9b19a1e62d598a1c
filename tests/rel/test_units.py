"""The rows that DuckDB returns for a relation are those of each unit, as they are defined."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal

import duckdb
import pytest

from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.relations import DuckDBRelations
from dpsql.errors import UnsupportedSqlError
from dpsql.rel.check import check
from dpsql.rel.facts import Known
from dpsql.rel.nodes import Relation
from tests.rel.meaning import Meaning
from tests.rel.random_relations import Database, Relations, Shop

Rows = Mapping[object, Counter[tuple[object, ...]]]


def shown(value: object) -> object:
    """Return what tells a value from others: of numbers also the sign of zero, and no type."""
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return repr(value) if isinstance(value, float) else value


def by_sql(
    con: duckdb.DuckDBPyConnection,
    relation: Relation,
    writer: type[DuckDBRelations] = DuckDBRelations,
    columns: list[str] | None = None,
) -> Rows:
    """Return the rows of each unit as the database has them."""
    parameters = Parameters()
    query = writer(parameters).query(relation, columns)
    found = dict[object, Counter[tuple[object, ...]]]()
    for unit, *row in con.execute(query.sql, parameters.values).fetchall():
        id_ = unit.decode() if isinstance(unit, bytes) else unit
        found.setdefault(id_, Counter())[tuple(map(shown, row))] += 1
    return found


def by_meaning(database: Database, relation: Relation, rng: random.Random) -> Rows:
    """Return the rows of each unit as they are defined."""
    found = dict[object, Counter[tuple[object, ...]]]()
    for unit in database.units:
        rows = Meaning(database.of(unit), _hashed(unit), rng).rows(relation)
        if rows:
            found[unit] = Counter(tuple(map(shown, row.values())) for row in rows)
    return found


def _hashed(unit: object) -> str:
    """Return the text whose MD5 decides which rows of a unit are kept: a BLOB's, for a text."""
    if not isinstance(unit, str):
        return str(unit)
    return "".join(
        chr(b) if 32 <= b < 127 and b not in b"'\"\\" else f"\\x{b:02X}" for b in unit.encode()
    )


def cases(seed: int, trees: int):
    """Yield random relations with databases, and these without one of their units."""
    rng = random.Random(seed)  # noqa: S311
    texts = seed % 2 == 1
    shop = Shop("VARCHAR" if texts else "INTEGER")
    database = Database(rng, texts)
    gone = database.without(rng.choice(database.units))
    places = [(each, each.connection(shop)) for each in (database, gone)]
    for number in range(trees):
        relation = Relations(rng, shop).tree(1 + number % 5)
        try:
            check(relation)
        except UnsupportedSqlError:
            continue
        yield relation, places, rng


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_of_each_unit(seed: int) -> None:
    done = 0
    for relation, places, rng in cases(seed, 25):
        for database, con in places:
            assert by_sql(con, relation) == by_meaning(database, relation, rng)
            done += 1
    assert done > 25


@pytest.mark.parametrize("seed", range(12, 16))
def test_columns_that_nobody_asks_for_change_nothing(seed: int) -> None:
    """What is left out of the line of a table tells only rows apart that look the same."""
    for relation, ((database, con), _), rng in cases(seed, 25):
        names = list(Known().of(relation).columns)
        asked = rng.sample(names, rng.randint(0, len(names)))
        found = by_sql(con, relation, columns=asked)
        whole = by_meaning(database, relation, rng)
        places = [names.index(name) for name in asked]
        assert found == {unit: _chosen(rows, places) for unit, rows in whole.items()}


def _chosen(rows: Counter[tuple[object, ...]], places: list[int]) -> Counter[tuple[object, ...]]:
    found = Counter[tuple[object, ...]]()
    for row, count in rows.items():
        found[tuple(row[place] for place in places)] += count
    return found


def _facts_hold(relation: Relation, rows: list[Mapping[str, object]]) -> None:
    known = Known().of(relation)
    assert known.most is None or len(rows) <= known.most
    for key in known.unique:
        met = Counter(tuple(row[name] for name in sorted(key)) for row in rows)
        assert all(count == 1 for told, count in met.items() if None not in told)
    for columns, most in known.shared:
        met = Counter(tuple(row[name] for name in sorted(columns)) for row in rows)
        assert all(count <= most for count in met.values())
    for name, column in known.columns.items():
        assert column.nullable or all(row[name] is not None for row in rows)


@pytest.mark.parametrize("seed", range(6, 12))
def test_facts_are_true_of_the_rows_of_each_unit(seed: int) -> None:
    for relation, ((database, _), _), rng in cases(seed, 40):
        for unit in database.units:
            rows = Meaning(database.of(unit), _hashed(unit), rng).rows(relation)
            _facts_hold(relation, rows)
