"""Which files are the rows of an Iceberg snapshot, and which snapshots aren't read by their files.

The rows are read here by DuckDB, by the list of files alone, and compared with PyIceberg's own.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.iceberg import version_of
from dpsql.errors import SchemaError

pytest.importorskip("pyiceberg.catalog.sql")

from tests.helpers.iceberg import (
    catalog_in,
    ids,
    last_of,
    people,
    place_of,
    with_entry,
    written,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pyiceberg")


@pytest.fixture
def catalog(tmp_path):
    return catalog_in(tmp_path / "lake")


@pytest.fixture
def table(catalog):
    table = catalog.create_table("hr.people", schema=people().schema)
    table.append(people())
    return table


def rows_of(found):
    """Read the columns that a version has of its files, by their names."""
    columns = [field["name"] for field in json.loads(found.columns)["fields"]]
    if not found.files:
        return Counter()
    names = ", ".join(f'"{name}"' for name in columns)
    con = duckdb.connect()
    read = con.execute(
        f"SELECT {names} FROM read_parquet({list(found.files)}, union_by_name=true, "
        "hive_partitioning=false)"
    )
    return Counter(read.fetchall())


def rows_by_pyiceberg(table, version):
    read = table.scan(snapshot_id=int(version)).to_arrow()
    return Counter(tuple(row.values()) for row in read.to_pylist())


def test_each_snapshot_has_its_rows(table):
    table.append(people(7))
    table.delete("age < 5")  # writes files anew
    table.overwrite(people(3))
    table.delete("age >= 0")
    versions = ids(table)
    assert len(versions) >= 5
    sizes = []
    for version in versions:
        found = version_of(place_of(table), version)
        assert rows_of(found) == rows_by_pyiceberg(table, version)
        assert (found.version, found.uid) == (version, str(table.metadata.table_uuid))
        sizes.append(rows_of(found).total())
    assert {20, 27, 3, 0} <= set(sizes)
    last = version_of(table.metadata_location, None)
    assert last == version_of(place_of(table), versions[-1])


def test_a_snapshot_stays_while_others_write(table):
    before = version_of(place_of(table), last_of(table))
    table.append(people(5))
    table.overwrite(people(2))
    with table.update_schema() as update:
        update.rename_column("age", "years")
    assert version_of(place_of(table), before.version) == before
    assert rows_of(before).total() == 20


def test_before_its_first_snapshot_a_table_has_no_rows(catalog):
    table = catalog.create_table("hr.people", schema=people().schema)
    found = version_of(table.metadata_location, None)
    assert (found.files, found.version) == ((), "-1")
    table.append(people())
    assert version_of(place_of(table), "-1").files == ()
    assert len(version_of(table.metadata_location, None).files) == 1


def test_a_folder_whose_catalog_alone_knows_the_last_snapshot_is_refused_without_one(table):
    with pytest.raises(SchemaError, match="only its catalog knows") as caught:
        version_of(place_of(table), None)
    assert "version=" in caught.value.hint
    for place in (place_of(table), f"file://{place_of(table)}"):
        assert version_of(place, last_of(table)).version == last_of(table)
    hint = Path(place_of(table)) / "metadata" / "version-hint.text"
    hint.write_text(os.path.basename(table.metadata_location))
    assert version_of(place_of(table), None).version == last_of(table)


def test_a_table_is_named_by_its_catalog_too(table, tmp_path, monkeypatch):
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__TESTS__URI", f"sqlite:///{tmp_path}/lake/catalog.db")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    found = version_of("catalog://tests/hr.people", None)
    assert found == version_of(table.metadata_location, None)
    table.append(people())
    assert len(version_of("catalog://tests/hr.people", None).files) == 2
    assert version_of("catalog://tests/hr.people", found.version) == found
    for name in ("catalog://tests/hr.nobody", "catalog://theirs/hr.people", "catalog://"):
        with pytest.raises(SchemaError, match="no Iceberg table"):
            version_of(name, None)


@pytest.mark.parametrize("version", ["7", "x", "-2", "", "1_0", "٣", "9" * 30])
def test_a_snapshot_that_there_is_not_is_refused(table, version):
    with pytest.raises(SchemaError, match="no such snapshot") as caught:
        version_of(place_of(table), version)
    assert caught.value.hint


def test_a_snapshot_that_has_expired_is_refused(table):
    first = last_of(table)
    table.overwrite(people(4))
    table.maintenance.expire_snapshots().by_id(int(first)).commit()
    with pytest.raises(SchemaError, match="no such snapshot"):
        version_of(place_of(table), first)


@pytest.mark.parametrize("gone", ["metadata/snap-*.avro", "data/*.parquet"])
def test_a_snapshot_whose_files_are_gone_is_refused(table, gone):
    for path in Path(place_of(table)).glob(gone):
        path.unlink()
    with pytest.raises(SchemaError) as caught:
        version_of(place_of(table), last_of(table))
    assert "snapshot" in caught.value.hint
    assert caught.value.__cause__ is None


def test_a_file_that_was_written_again_is_refused(table):
    (path,) = Path(place_of(table)).glob("data/*.parquet")
    pq.write_table(people(3), path)
    with pytest.raises(SchemaError, match="not as the Iceberg table says"):
        version_of(place_of(table), last_of(table))


@pytest.mark.parametrize("content", [1, 2])
def test_rows_that_are_deleted_beside_the_files_are_refused(table, content):
    keys = {"equality_ids": [3]} if content == 2 else {}
    place = with_entry(table, content, file_path=f"file://{place_of(table)}/data/d.parquet", **keys)
    for version in (None, "7000000000000000000"):
        with pytest.raises(SchemaError, match="merge-on-read") as caught:
            version_of(place, version)
        assert "rewrite_data_files" in caught.value.hint
    assert rows_of(version_of(place, last_of(table))).total() == 20


def other_file(table, path, rows):
    """Put a file into a snapshot, with what is in it as it is."""
    pq.write_table(rows, path)
    size = os.path.getsize(path)
    return with_entry(table, file_path=f"file://{path}", file_size_in_bytes=size)


def with_ids(rows, *numbers):
    fields = [
        field.with_metadata({} if n is None else {"PARQUET:field_id": str(n)})
        for field, n in zip(rows.schema, numbers, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def test_files_that_are_not_parquet_alone_are_refused(table):
    from pyiceberg.manifest import FileFormat

    for changes, what in (
        ({"file_format": FileFormat.ORC}, "ORC"),
        ({"key_metadata": b"key"}, "encrypted"),
    ):
        with pytest.raises(SchemaError, match=what):
            version_of(with_entry(table, **changes), None)


def test_a_file_that_is_there_twice_is_refused(table):
    with pytest.raises(SchemaError, match="twice"):
        version_of(with_entry(table), None)


OTHERS = {
    "no ids": (lambda rows: rows, "name or id"),
    "another id": (lambda rows: with_ids(rows, 1, 9, 3), "name or id"),
    "another name": (
        lambda rows: with_ids(rows.rename_columns(["sex", "alter", "id"]), 1, 2, 3),
        "name or id",
    ),
    "names exchanged": (
        lambda rows: with_ids(rows.rename_columns(["sex", "id", "age"]), 1, 2, 3),
        "name or id",
    ),
    "a name twice": (
        lambda rows: with_ids(rows.append_column("AGE", rows["age"]), 1, 2, 3, 4),
        "name or id",
    ),
    "an id twice": (
        lambda rows: with_ids(rows.append_column("b", rows["age"]), 1, 2, 3, 2),
        "name or id",
    ),
    "another type": (
        lambda rows: with_ids(rows.set_column(1, "age", rows["age"].cast(pa.int64())), 1, 2, 3),
        "type",
    ),
    "an unsigned one": (
        lambda rows: with_ids(rows.set_column(1, "age", rows["age"].cast(pa.uint32())), 1, 2, 3),
        "type",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_a_file_whose_names_stand_for_other_columns_is_refused(table, tmp_path, kind):
    change, what = OTHERS[kind]
    place = other_file(table, tmp_path / "other.parquet", change(people()))
    with pytest.raises(SchemaError, match=what) as caught:
        version_of(place, None)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (pa.timestamp("us"), pa.timestamp("ms")),
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.float32(), pa.float16()),
    ],
    ids=str,
)
def test_columns_that_readers_may_fail_for_are_refused(catalog, tmp_path, right, wrong):
    """Not by their names in Iceberg: nothing else looks into files that are elsewhere."""
    rows = pa.table({"x": pa.nulls(3, right)})
    table = catalog.create_table("hr.typed", schema=rows.schema)
    table.append(rows)
    assert not version_of(table.metadata_location, None).unread
    other = with_ids(pa.table({"x": pa.nulls(3, wrong)}), 1)
    with pytest.raises(SchemaError, match="another type"):
        version_of(other_file(table, tmp_path / "other.parquet", other), None)


def test_a_file_with_columns_in_another_order_or_without_some_is_read(table, tmp_path):
    rows = with_ids(people().select(["id", "sex"]), 3, 1)
    found = version_of(other_file(table, tmp_path / "other.parquet", rows), None)
    expected = [(sex, None, id_) for id_, sex in zip(*rows.to_pydict().values(), strict=True)]
    assert rows_of(found) == rows_by_pyiceberg(table, last_of(table)) + Counter(expected)
    assert [path.name for path in found.roots] == ["people", "data", tmp_path.name][-3:] or {
        path.name for path in found.roots
    } == {"people", "data", tmp_path.name}


def test_a_column_that_was_renamed_is_refused_where_files_have_its_old_name(table):
    before = last_of(table)
    with table.update_schema() as update:
        update.rename_column("age", "years")
    with pytest.raises(SchemaError, match="altered after its last snapshot") as caught:
        version_of(table.metadata_location, None)
    assert f"version='{before}'" in caught.value.hint or before in caught.value.hint
    assert rows_of(version_of(place_of(table), before)) == rows_by_pyiceberg(table, before)
    table.append(people().rename_columns(["sex", "years", "id"]))
    with pytest.raises(SchemaError, match="years of the Iceberg table has another name"):
        version_of(table.metadata_location, None)
    table.overwrite(people().rename_columns(["sex", "years", "id"]))  # no old file is left
    found = version_of(table.metadata_location, None)
    assert rows_of(found) == rows_by_pyiceberg(table, last_of(table))


def test_a_column_that_was_dropped_and_added_again_is_refused(table):
    for alter in ("drop", "add"):
        with table.update_schema(allow_incompatible_changes=True) as update:
            if alter == "drop":
                update.delete_column("age")
            else:
                from pyiceberg.types import IntegerType

                update.add_column("age", IntegerType())
    table.append(people().select(["sex", "id", "age"]))
    with pytest.raises(SchemaError, match="age of the Iceberg table has another name or id"):
        version_of(table.metadata_location, None)


def test_columns_that_were_added_dropped_or_widened_are_read(table):
    from pyiceberg.types import LongType, StringType

    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("age", LongType())
        update.add_column("city", StringType())
        update.delete_column("id")
    rows = people().select(["sex", "age"]).append_column("city", pa.array(["Rome"] * 20))
    table.append(rows.set_column(1, "age", rows["age"].cast(pa.int64())))
    found = version_of(table.metadata_location, None)
    assert rows_of(found) == rows_by_pyiceberg(table, last_of(table))
    assert {type(age) for _, age, _ in rows_of(found)} == {int}


def test_comments_are_those_that_the_table_has_now(table):
    with table.update_schema() as update:
        update.update_column("sex", doc='dpsql: {"labels": ["F", "M"]}')
    for place, version in ((table.metadata_location, None), (place_of(table), last_of(table))):
        sex, age, _ = json.loads(version_of(place, version).columns)["fields"]
        assert sex["metadata"] == {"comment": 'dpsql: {"labels": ["F", "M"]}'}
        assert age["metadata"] == {}


def test_partitions_that_are_in_the_files_are_read_and_others_are_refused(catalog, tmp_path):
    from pyiceberg.transforms import IdentityTransform

    table = catalog.create_table("hr.parted", schema=people().schema)
    with table.update_spec() as update:
        update.add_field("sex", IdentityTransform(), "sex")
    table.append(people())
    found = version_of(table.metadata_location, None)
    assert any("sex=F" in path for path in found.files)
    assert rows_of(found) == rows_by_pyiceberg(table, last_of(table))
    assert {root.name for root in found.roots} == {"parted", "data"}
    rows = with_ids(people().select(["age", "id"]), 2, 3)
    with pytest.raises(SchemaError, match="in names of partitions alone"):
        version_of(other_file(table, tmp_path / "other.parquet", rows), None)


def test_a_column_with_a_default_is_refused_where_files_lack_it(table, tmp_path):
    rows = with_ids(people().select(["sex", "id"]), 1, 3)
    place = other_file(table, tmp_path / "other.parquet", rows)
    metadata = json.loads(Path(place).read_text())
    for schema in metadata["schemas"]:
        schema["fields"][1]["initial-default"] = 5
    with pytest.raises(SchemaError, match="has a default"):
        version_of(written(table, metadata), None)


def test_columns_of_types_that_are_not_read_are_told_and_pass(catalog):
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        DecimalType,
        FloatType,
        ListType,
        NestedField,
        TimestampType,
        TimestamptzType,
        TimeType,
    )

    types = {
        "d": DecimalType(9, 2), "f": FloatType(), "t": TimestampType(), "z": TimestamptzType(),
        "b": BinaryType(), "c": TimeType(),
    }  # fmt: skip
    fields = [NestedField(i + 1, n, t, required=False) for i, (n, t) in enumerate(types.items())]
    nested = ListType(20, TimeType(), element_required=False)
    schema = Schema(*fields, NestedField(10, "l", nested, required=False))
    table = catalog.create_table("hr.typed", schema=schema)
    table.append(pa.table({n: pa.nulls(2, t.type) for n, t in _arrow(table).items()}))
    found = version_of(table.metadata_location, None)
    columns = {one["name"]: one["type"] for one in json.loads(found.columns)["fields"]}
    assert columns == {
        "d": "decimal(9,2)", "f": "float", "t": "timestamp_ntz", "z": "timestamp",
        "b": "binary", "c": "binary", "l": "binary",
    }  # fmt: skip
    assert set(found.unread) == {"c", "l"}


def _arrow(table):
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return {field.name: field for field in schema_to_pyarrow(table.schema())}


def test_two_columns_with_one_name_in_any_case_are_refused(catalog):
    rows = pa.table({"a": [1], "A": [2]})
    table = catalog.create_table("hr.cased", schema=rows.schema)
    table.append(rows)
    with pytest.raises(SchemaError, match="two columns a"):
        version_of(table.metadata_location, None)


def test_a_table_that_is_made_anew_in_its_place_is_another_one(catalog, table):
    place, before = place_of(table), version_of(table.metadata_location, None)
    catalog.drop_table("hr.people")
    shutil.rmtree(place)
    again = catalog.create_table("hr.people", schema=people().schema)
    again.append(people())
    found = version_of(again.metadata_location, None)
    assert place_of(again) == place
    assert found.roots == before.roots
    assert found.uid != before.uid


def test_a_table_has_one_account_however_it_is_named(table, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "lake")
    place = place_of(table)
    names = [
        place, f"file://{place}", f"FILE:{place}", f"file://localhost{place}",
        str(link / Path(place).relative_to(tmp_path / "lake")), table.metadata_location,
        table.metadata_location.removeprefix("file://"),
    ]  # fmt: skip
    found = [version_of(name, last_of(table)) for name in names]
    assert all(one == found[0] for one in found)
    assert found[0].roots == (Path(place), Path(place) / "data")


@pytest.mark.parametrize("place", ["/nowhere/people", "people", "s3://\x00/x", "file:///"])
def test_what_is_no_table_is_refused(place):
    with pytest.raises(SchemaError, match="no Iceberg table") as caught:
        version_of(place, None)
    assert "catalog://" in caught.value.hint


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.catalog", None)
    with pytest.raises(SchemaError, match="pyiceberg") as caught:
        version_of("/nowhere/people", None)
    assert "dpsql[spark]" in caught.value.hint
