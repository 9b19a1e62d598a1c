"""Iceberg tables for tests: a catalog in a folder, and snapshots that PyIceberg doesn't write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa


def catalog_in(folder: Path) -> Any:
    """Return a catalog whose tables are in a folder, with a namespace `hr`."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(parents=True, exist_ok=True)
    home = f"sqlite:///{folder}/catalog.db"
    catalog = SqlCatalog("tests", uri=home, warehouse=f"file://{folder}")
    catalog.create_namespace_if_not_exists("hr")
    return catalog


def place_of(table: Any) -> str:
    """Return the folder of a table."""
    return str(table.location()).removeprefix("file://")


def ids(table: Any) -> list[str]:
    """Return the ids of a table's snapshots, the oldest first."""
    return [str(snapshot.snapshot_id) for snapshot in table.snapshots()]


def last_of(table: Any) -> str:
    """Return the id of a table's last snapshot."""
    return str(table.current_snapshot().snapshot_id)


def with_entry(table: Any, content: int = 0, **changes: Any) -> str:
    """Write metadata with one more snapshot: the last one, and one file as it says of another.

    Args:
        table: the table, which stays as it is.
        content: what the file is of: 0 rows, 1 positions that are deleted, 2 keys that are.
        changes: what is said of the file in other words than of the first one.

    Returns:
        The file of metadata.
    """
    from pyiceberg.manifest import (
        DataFile,
        DataFileContent,
        ManifestContent,
        ManifestEntry,
        ManifestEntryStatus,
        ManifestWriterV2,
        write_manifest_list,
    )

    kind = ManifestContent.DELETES if content else ManifestContent.DATA

    class Writer(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return kind

    last, new = table.current_snapshot(), 7_000_000_000_000_000_000
    folder = Path(place_of(table)) / "metadata"
    first = next(iter(table.scan().plan_files())).file
    said = {
        "content": DataFileContent(content), "file_path": first.file_path,
        "file_format": first.file_format, "partition": first.partition,
        "record_count": first.record_count, "file_size_in_bytes": first.file_size_in_bytes,
        **changes,
    }  # fmt: skip
    output = table.io.new_output(f"file://{folder}/late-m0.avro")
    with Writer(table.spec(), table.schema(), output, new, "deflate") as writer:
        file = DataFile.from_args(_table_format_version=2, **said)
        file.spec_id = table.spec().spec_id
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=new, data_file=file
        )
        writer.add_entry(entry)
    output = table.io.new_output(f"file://{folder}/snap-late.avro")
    sequence = last.sequence_number + 1
    with write_manifest_list(2, output, new, last.snapshot_id, sequence, "deflate") as list_:
        list_.add_manifests([writer.to_manifest_file(), *last.manifests(table.io)])
    metadata = json.loads(table.metadata.model_dump_json())
    metadata["snapshots"].append(
        {
            "snapshot-id": new,
            "sequence-number": sequence,
            "schema-id": last.schema_id,
            "timestamp-ms": last.timestamp_ms + 1,
            "manifest-list": output.location,
            "summary": {"operation": "append"},
        }
    )
    metadata |= {"current-snapshot-id": new, "last-sequence-number": sequence}
    metadata["refs"]["main"]["snapshot-id"] = new
    return written(table, metadata)


def written(table: Any, metadata: dict[str, Any]) -> str:
    """Write metadata of a table beside its own, and return where they are."""
    path = Path(place_of(table)) / "metadata" / "09999-late.metadata.json"
    path.write_text(json.dumps(metadata))
    return str(path)


def people(n: int = 20) -> pa.Table:
    """Return some rows."""
    return pa.table(
        {
            "sex": pa.array((["F", "M", None, "F"] * n)[:n]),
            "age": pa.array([i % 20 for i in range(n)], pa.int32()),
            "id": pa.array([i // 3 for i in range(n)], pa.int64()),
        }
    )
