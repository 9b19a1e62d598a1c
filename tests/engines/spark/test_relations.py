"""The rows that Spark returns for a relation are those of each unit, as they are defined."""

from __future__ import annotations

import random
import re
import uuid
from collections import Counter
from contextlib import nullcontext
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet
import pytest

from dpsql.engines.spark.relations import SparkRelations, kept_rows
from dpsql.engines.spark.sessions import own_session
from dpsql.engines.spark.sql.text import quoted
from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rel.check import check
from dpsql.rel.facts import Known
from dpsql.rel.nodes import Scan, StoredRows, Window
from dpsql.rows.types import is_integer
from dpsql.rows.windows import WindowCall
from dpsql.schema.grain import stored_type
from dpsql.schema.table import Table
from dpsql.schema.units import ResolvedUnit
from tests.engines.spark.conftest import OneFile
from tests.rel import test_mutants as mutants
from tests.rel.random_relations import TABLES, Database, Relations, Shop
from tests.rel.test_units import by_meaning, shown

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]

ARROW = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "VARCHAR": pa.string(),
    "DECIMAL(6,2)": pa.decimal128(6, 2), "BOOLEAN": pa.bool_(), "DOUBLE": pa.float64(),
    "UUID": pa.binary(),
}  # fmt: skip
SPREAD = {
    "spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.coalescePartitions.enabled": "false",
}  # fmt: skip
"""Rows are in several pieces, however few they are."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}  # fmt: skip
"""Of few rows, to compile a query takes most of the time."""


def apply(session, settings):
    for name, value in settings.items():
        session.conf.set(name, value)


class StoredDatabase:
    """The tables of a random database, each in several files, of which rows come in any order."""

    def __init__(self, spark, folder, database, shop, settings=SPREAD):
        self.session, self.folder, self._frames = own_session(spark), folder, {}
        apply(self.session, settings)
        for name in TABLES:
            stored = shop.source(name).table
            columns = {column: stored_type(stored, column) for column in stored.order}
            rows = database.rng.sample(database.rows[name], len(database.rows[name]))
            (folder / name).mkdir(parents=True)
            for i in range(3):
                table = pa.table(
                    {
                        column: pa.array([_stored(row[column]) for row in rows[i::3]], ARROW[type_])
                        for column, type_ in columns.items()
                    }
                )
                pa.parquet.write_table(table, folder / name / f"{i}.parquet")

    def snapshot(self):
        return nullcontext()

    def rows(self, table):
        return self.at(table.path, {})

    def at(self, path, types):
        name = path[-1]
        if name not in self._frames:
            found = self.session.read.parquet(str(self.folder / name))
            columns = (collated(field) for field in found.schema.fields)
            self._frames[name] = found.selectExpr(*columns)
        return self._frames[name]

    def check_unchanged(self, path):
        pass


def collated(field):
    """Read a text under a collation that takes ids for the same."""
    name, is_text = quoted(field.name), field.dataType.simpleString() == "string"
    return f"collate({name}, 'UTF8_LCASE') AS {name}" if is_text else name


def _stored(value):
    return value.bytes if isinstance(value, uuid.UUID) else value


def _read(value, type_):
    if isinstance(value, Decimal) and is_integer(type_):
        return int(value)
    return uuid.UUID(bytes=value) if value is not None and type_ == "UUID" else shown(value)


def by_spark(tables, relation, writer=SparkRelations, columns=None):
    """Return the rows of each unit as Spark has them."""
    written, known = writer(tables), Known().of(relation).types
    query = written.query(relation, columns)
    types = [known[name] for name in query.columns]
    found = dict[object, Counter[tuple[object, ...]]]()
    rows = written.rows(query.sql).toArrow()
    for unit, *row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        id_ = unit.decode() if isinstance(unit, bytes) else unit
        found.setdefault(id_, Counter())[tuple(map(_read, row, types))] += 1
    return found


def assert_rows_are_looked_at_by_unit(tables, relation):
    """No window is over all rows, as a number of these would be: parts of a job run again."""
    sql = SparkRelations(tables).query(relation).sql
    assert not re.search(r"OVER \((?!PARTITION BY u\b)|increasing|rand|uuid", sql)


def cases(seed, trees):
    """Yield random relations, and the two databases of them all: the second has a unit less."""
    rng = random.Random(seed)  # noqa: S311
    texts = seed % 2 == 1
    shop = Shop("VARCHAR" if texts else "INTEGER", enforced=False)
    database = Database(rng, texts)
    databases = database, database.without(rng.choice(database.units))
    relations = []
    for number in range(trees):
        relation = Relations(rng, shop).tree(1 + number % 5)
        try:
            check(relation)
        except UnsupportedSqlError:
            continue
        relations.append(relation)
    return relations, databases, shop, rng


def compared(spark, folder, seed, trees, settings):
    """Compare the rows of random relations; return how many were, and how many were refused."""
    relations, databases, shop, rng = cases(seed, trees)
    places = [
        (StoredDatabase(spark, folder / f"{seed}_{i}", each, shop, settings), each)
        for i, each in enumerate(databases)
    ]
    done = Counter()
    for relation in relations:
        for tables, database in places:
            try:
                found = by_spark(tables, relation)
            except UnsupportedSqlError:
                done["refused"] += 1
                continue
            assert found == by_meaning(database, relation, rng)
            done["same"] += 1
            assert_rows_are_looked_at_by_unit(tables, relation)
    return done


@pytest.mark.parametrize(
    ("seeds", "trees", "settings"),
    [
        (range(1, 3), 4, SPREAD),
        (range(3, 5), 10, SPREAD | INTERPRETED),
        pytest.param(range(5, 30), 15, SPREAD | INTERPRETED, marks=pytest.mark.long),
    ],
    ids=["compiled", "interpreted", "many"],
)
def test_rows_are_those_of_each_unit(spark, tmp_path, seeds, trees, settings):
    """So a unit that goes takes its own with it, and changes no other's."""
    done = Counter()
    for seed in seeds:
        done += compared(spark, tmp_path, seed, trees, settings)
    assert done["same"] > 10 * done["refused"]


def test_a_key_that_nothing_enforces_is_taken_for_none(tmp_path):
    shop = Shop("INTEGER")
    for scan in (
        Scan(shop.source("customers"), "c."),
        Scan(shop.source("items"), "i.", ((shop.source("orders"), "o."),)),
    ):
        with pytest.raises(InternalError, match="sees to no key"):
            SparkRelations(StoredDatabase).query(scan)


class TurnedLine:
    """Keeps as many rows of a unit, but others."""

    def kept(self, of, rows, line, agree=()):
        return super().kept(of, rows, line[::-1], agree)


class WithCollations(SparkRelations):
    """Passes texts on with their collations, which is not wrong: they are told apart by bytes."""

    def stored(self, row, column, type_):
        return super().stored(row, column, "")


WRONG = [
    mutants.JoinsOtherUnits, mutants.WindowsOverAll, mutants.NoLine, mutants.LineWithoutSigns,
    mutants.LineOfOneColumn, mutants.LosesRows, mutants.KeepsOfAll, mutants.LimitsOverAll,
    mutants.LimitsForgotten, TurnedLine, mutants.CollatedTexts, mutants.CollatedLine,
]  # fmt: skip


def is_wrong(tables, relation, wrong, database, rng):
    """Whether a writer that says something else of a relation has other rows of it."""
    right = WithCollations(tables).query(relation).sql
    try:
        if wrong(tables).query(relation).sql == right:
            return False
        return by_spark(tables, relation, wrong) != by_meaning(database, relation, rng)
    except UnsupportedSqlError:
        return False
    except Exception as error:
        return "AnalysisException" in type(error).__name__


def is_found(spark, folder, wrong):
    for seed in range(40):
        relations, (database, _), shop, rng = cases(seed, 25)
        tables = StoredDatabase(spark, folder / f"{seed}", database, shop, SPREAD | INTERPRETED)
        if any(is_wrong(tables, relation, wrong, database, rng) for relation in relations):
            return True
    return False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("writer", WRONG)
def test_a_wrong_writer_is_found(spark, tmp_path, writer):
    assert is_found(spark, tmp_path, type(writer.__name__, (writer, WithCollations), {}))


NAMES = ("a`b", "{rows0}", "{0}", "}}", "${x}", 'c"d', "--e", "select", "u", "c0", "n0", "rows0")


def test_names_of_columns_are_names_and_nothing_else(connected, spark, tmp_path):
    unit = ResolvedUnit("people", "unit", "INTEGER", (), None)
    path = ("", "", "people")
    table = Table("people", {}, {"unit": "INTEGER", **dict.fromkeys(NAMES, "INTEGER")}, path, unit)
    rows = pa.table({"unit": [1, 1, 2], **{n: [i, i, i] for i, n in enumerate(NAMES)}})
    pa.parquet.write_table(rows, tmp_path / "people.parquet")
    scan = Scan(StoredRows(table, ("people", ("unit",))), "p.")
    numbered = Window(scan, (("n", WindowCall("row_number")),))
    asked = [*(f"p.{name}" for name in NAMES), "n"]
    for session in (spark, connected):
        tables = OneFile(session, tmp_path / "people.parquet")
        writer = SparkRelations(tables)
        found = writer.rows(writer.query(numbered, asked).sql).collect()
        ids = range(len(NAMES))
        assert sorted(map(tuple, found)) == [(1, *ids, 1), (1, *ids, 2), (2, *ids, 1)]
        assert not tables.session.catalog.listTables()


TWO = (("a", "VARCHAR"), ("b", "INTEGER"))


def test_ids_of_several_columns_are_told_apart(spark, tmp_path):
    unit = ResolvedUnit("people", *TWO[0], (), 3, further=TWO[1:])
    names = {**dict(TWO), "x": "INTEGER"}
    table = Table("people", {}, names, ("", "", "people"), unit)
    ids = [("a", 1), ("A", 1), ("a", 2), (None, 1), ("a", None)]
    rows = [(*id_, number) for number in range(9) for id_ in ids]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    pa.parquet.write_table(pa.table(columns), tmp_path / "people.parquet")
    kept = kept_rows(OneFile(spark, tmp_path / "people.parquet"), table, [*names]).collect()
    assert Counter((row["a"], row["b"]) for row in kept) == dict.fromkeys(ids[:3], 3)
    assert len({*kept}) == 3 * 3
