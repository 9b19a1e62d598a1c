"""Which tables and folders are read, at which state, and what is refused before anything is."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.spark.files import pinned
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import SchemaError, StaleSchemaError
from dpsql.schema import Domain, Schema, Unit

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROWS = pa.table(
    {
        "sex": pa.array(["F", "M", None, "F"] * 5),
        "age": pa.array(range(20), pa.int32()),
        "id": pa.array([i // 3 for i in range(20)], pa.int64()),
    }
)
COLUMNS = {"sex": Domain.labels(["F", "M"]), "age": Domain.integers(0, 19)}


def folder(path, *tables):
    path.mkdir(exist_ok=True, parents=True)
    for i, table in enumerate(tables):
        pq.write_table(table, path / f"{i}.parquet")
    return path


def counted(source, table, wanted=(("sex",), ("age",), ())):
    counting = source.engine().prepared(table, list(wanted))
    counting.check()
    return counting.run()


def described(source, *name, schema=None):
    key = ".".join(name)
    return source.describe(name, Schema({key: COLUMNS}) if schema is None else schema)


@pytest.fixture
def people(spark, tmp_path):
    """A table of the catalog, in a schema of its own."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS hr")
    spark.sql("DROP TABLE IF EXISTS hr.people")
    spark.createDataFrame(ROWS).write.saveAsTable("hr.people")
    yield "hr.people"
    spark.sql("DROP TABLE IF EXISTS hr.people")


def test_a_folder_is_counted(spark, tmp_path):
    path = folder(tmp_path / "rows", ROWS, ROWS.slice(3))
    source = SparkSource(spark)
    table = described(source, "parquet", str(path))
    counts = counted(source, table)
    assert counts["sex",].tolist() == [19, 9, 9]
    assert counts["age",].tolist() == [1] * 3 + [2] * 17 + [0]


def test_a_table_of_the_catalog_is_counted_by_any_of_its_names(spark, people):
    spark.catalog.setCurrentDatabase("hr")
    try:
        for name in (("people",), ("hr", "people"), ("spark_catalog", "hr", "people")):
            source = SparkSource(spark)
            table = described(source, *name, schema=Schema({"people": COLUMNS}))
            assert counted(source, table)["sex",].tolist() == [10, 5, 5]
    finally:
        spark.catalog.setCurrentDatabase("default")


def test_a_table_that_somebody_cached_is_counted(spark, people):
    """Of one that is cached, Spark names no files."""
    spark.table(people).cache().count()
    try:
        source = SparkSource(spark)
        table = described(source, "hr", "people")
        assert counted(source, table, [()])[()] == 20
    finally:
        spark.table(people).unpersist()


def test_domains_and_units_come_from_comments_too(spark):
    spark.sql("DROP TABLE IF EXISTS noted")
    spark.sql(
        'CREATE TABLE noted (sex STRING COMMENT \'dpsql: {"labels": ["F", "M"]}\', '
        "id BIGINT, b BOOLEAN NOT NULL) USING parquet"
    )
    spark.sql("INSERT INTO noted VALUES ('F', 1, true), ('M', 1, false), ('x', 2, true)")
    source = SparkSource(spark)
    table = source.describe(("noted",), None, Unit("id", 1))
    counts = counted(source, table, [("sex",), ("b",), ()])
    assert counts[()] == 2
    assert counts["sex",].sum() == 2
    assert len(counts["b",]) == 3  # NOT NULL isn't enforced for files from elsewhere
    spark.sql("DROP TABLE noted")


def test_partitions_are_columns_and_keep_their_types(spark):
    spark.sql("DROP TABLE IF EXISTS parted")
    spark.sql("CREATE TABLE parted (a INT, d DATE, s STRING) USING parquet PARTITIONED BY (d, s)")
    spark.sql(
        "INSERT INTO parted VALUES (1, DATE'2020-01-01', '01'), (2, DATE'2020-01-02', 'a b=%'),"
        "(3, NULL, NULL)"
    )
    source = SparkSource(spark)
    domains = {
        "d": Domain.dates("2020-01-01", "2020-01-02", nullable=True),
        "s": Domain.labels(["01", "1", "a b=%"]),
    }
    table = source.describe(("parted",), Schema({"parted": domains}))
    counts = counted(source, table, [("d",), ("s",)])
    assert counts["d",].tolist() == [1, 1, 1]
    assert counts["s",].tolist() == [1, 0, 1, 1]
    spark.sql("DROP TABLE parted")


def test_rows_that_others_add_are_counted_by_the_next_release(spark, people):
    source = SparkSource(spark)
    for rows in (20, 40):
        assert counted(source, described(source, "hr", "people"))[()] == rows
        more = f"{spark.conf.get('spark.sql.warehouse.dir').removeprefix('file:')}/hr.db/people"
        pq.write_table(ROWS, f"{more}/{rows}.parquet")  # behind the back of Spark


def test_the_callers_session_stays_as_it_is(spark, people):
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    spark.range(3).createOrReplaceTempView("people")
    try:
        source = SparkSource(spark)
        table = described(source, "hr", "people")
        assert counted(source, table)[()] == 20
        assert spark.conf.get("spark.sql.session.timeZone") == "America/Los_Angeles"
        assert spark.table("people").count() == 3
        assert spark.catalog.currentDatabase() == "default"
    finally:
        spark.catalog.dropTempView("people")
        spark.conf.unset("spark.sql.session.timeZone")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: pq.write_table(ROWS, path / "late.parquet"),
        lambda path: os.remove(path / "0.parquet"),
        lambda path: pq.write_table(ROWS.slice(5), path / "0.parquet"),
    ],
    ids=["appended", "removed", "written again"],
)
def test_files_that_change_meanwhile_give_no_counts(spark, tmp_path, change):
    path = folder(tmp_path / "rows", ROWS, ROWS)
    source = SparkSource(spark)
    table = described(source, "parquet", str(path))
    engine = source.engine()
    with engine.snapshot():
        counting = engine.prepared(table, [("sex",)])
        counting.check()
        change(path)
        with pytest.raises(Exception) as caught:
            counting.run()
    assert isinstance(caught.value, StaleSchemaError) or "NOT_FOUND" in str(caught.value)


def test_what_stands_beside_the_rows_is_not_read(spark, tmp_path):
    path = folder(tmp_path / "rows", ROWS)
    (path / "_temporary").mkdir()
    shutil.copy(path / "0.parquet", path / "_temporary" / "1.parquet")
    shutil.copy(path / "0.parquet", path / ".hidden.parquet")
    source = SparkSource(spark)
    assert counted(source, described(source, "parquet", str(path)))[()] == 20


REFUSED = {
    "a view": "CREATE VIEW refused AS SELECT sex, rand() AS r FROM hr.people",
    "another format": "CREATE TABLE refused USING json AS SELECT sex FROM hr.people",
    "padded texts": "CREATE TABLE refused (sex CHAR(3)) USING parquet",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_tables_are_refused(spark, people, kind):
    spark.sql(REFUSED[kind])
    source = SparkSource(spark)
    try:
        schema = Schema({"refused": {"sex": COLUMNS["sex"]}})
        with pytest.raises(SchemaError) as caught:
            counted(source, source.describe(("refused",), schema), [("sex",)])
        assert caught.value.hint
    finally:
        spark.sql(f"DROP {'VIEW' if 'VIEW' in REFUSED[kind] else 'TABLE'} refused")


@pytest.mark.parametrize("name", ["[a]", "a*", "nothing"])
def test_folders_that_cannot_be_listed_are_refused(spark, tmp_path, name):
    path = tmp_path / name
    if name != "nothing":
        folder(path, ROWS)
    source = SparkSource(spark)
    with pytest.raises(SchemaError):
        described(source, "parquet", str(path))


def test_a_version_of_a_delta_table_is_counted(spark, tmp_path):
    import deltalake

    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, ROWS)
    deltalake.write_deltalake(path, ROWS, mode="append")
    deltalake.DeltaTable(path).optimize.compact()
    for version, rows in ((None, 40), ("0", 20), ("1", 40), ("2", 40)):
        source = SparkSource(spark, version=version)
        counts = counted(source, described(source, "delta", path))
        assert counts[()] == rows
        np.testing.assert_array_equal(counts["sex",], [rows // 2, rows // 4, rows // 4])
    with pytest.raises(SchemaError):
        described(SparkSource(spark, version="9"), "delta", path)


def test_a_version_stays_while_others_write(spark, tmp_path):
    import deltalake

    path = str(tmp_path / "delta")
    deltalake.write_deltalake(path, ROWS)
    source = SparkSource(spark)
    table = described(source, "delta", path)
    engine = source.engine()
    with engine.snapshot():
        counting = engine.prepared(table, [()])
        counting.check()
        deltalake.write_deltalake(path, ROWS, mode="append")
        deltalake.DeltaTable(path).optimize.compact()
        assert counting.run()[()] == 20
    assert counted(source, table)[()] == 20  # as it was when it was described
    assert counted(source, described(source, "delta", path))[()] == 40


LEFT_OUT = ["_0.parquet", ".0.parquet", "_metadata", "0.parquet._COPYING_", "0:1.parquet"]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_files_that_spark_leaves_out_are_refused(spark, tmp_path, name):
    """It reads none of such a name, also where it is told to: their rows were not counted."""
    import deltalake

    path, links = tmp_path / "delta", tmp_path / "links"
    deltalake.write_deltalake(str(path), ROWS)
    (file,), (log,) = path.glob("*.parquet"), path.glob("_delta_log/*.json")
    (path / "in").mkdir()
    file.rename(path / "in" / name)
    log.write_text(log.read_text().replace(file.name, f"in/{name}"))
    links.mkdir()
    pq.write_table(ROWS, tmp_path / name)
    (links / "0.parquet").symlink_to(tmp_path / name)
    for kind, place in (("delta", path), ("parquet", links)):
        with pytest.raises(SchemaError, match="doesn't read") as caught:
            described(SparkSource(spark), kind, str(place))
        assert caught.value.hint


def test_a_delta_table_is_counted_whatever_its_folder_is_called(spark, tmp_path):
    import deltalake

    path = tmp_path / "a b, ü#'\";`+"
    deltalake.write_deltalake(str(path), ROWS)
    source = SparkSource(spark)
    assert counted(source, described(source, "delta", str(path)))[()] == 20


def test_times_of_delta_tables_elsewhere_are_not_read(spark, tmp_path, monkeypatch):
    """A log says nothing of how files have them, and of those in milliseconds one could fail."""
    import deltalake

    from dpsql.engines.spark import files

    path = tmp_path / "delta"
    rows = pa.table({"sex": ["F"], "at": pa.array([0], pa.timestamp("us"))})
    deltalake.write_deltalake(str(path), rows)
    assert pinned(spark, "delta", str(path)).types == {"sex": "VARCHAR", "at": "TIMESTAMP"}
    monkeypatch.setattr(files, "on_machine", lambda place: "")
    found = pinned(spark, "delta", str(path)).types
    assert found == {"sex": "VARCHAR", "at": "TIMESTAMP of a file elsewhere"}


def test_delta_tables_with_more_than_files_tell_are_refused(spark, tmp_path):
    import deltalake

    mapped, parted = str(tmp_path / "mapped"), str(tmp_path / "parted")
    deltalake.write_deltalake(parted, ROWS, partition_by=["sex"])
    deltalake.write_deltalake(
        mapped, ROWS.slice(0, 3), configuration={"delta.enableDeletionVectors": "true"}
    )
    for path in (parted, mapped):
        with pytest.raises(SchemaError) as caught:
            described(SparkSource(spark), "delta", path)
        assert caught.value.hint
