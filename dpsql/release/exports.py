"""Answers taken elsewhere: folders with a file for each statement, frames of other libraries.

All of it follows from noisy answers alone. Beside the files stands `metadata.json`, which says what
was asked and charged, and what each column means.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from dpsql.calls import check_path_given
from dpsql.engines import write_answers, write_database
from dpsql.engines.answers import WrittenTable, WrittenTables, names_for
from dpsql.errors import ReleaseFormatError, printable
from dpsql.hints import option
from dpsql.release import metadata
from dpsql.release.disk import (
    check_target,
    created,
    digest_of,
    new_file,
    new_folder,
    plain_names,
    system_errors,
    write,
)
from dpsql.release.facts import Facts
from dpsql.release.forms import Written, pieces, write_csv, write_parquet
from dpsql.release.frames import Frames
from dpsql.release.marks import SupportedFrames, as_read
from dpsql.release.publication import Answered, Style, as_markdown, as_office_csv

if TYPE_CHECKING:
    import pandas
    import pyarrow

METADATA = "metadata.json"
MAX_METADATA = 2**26
Form = Literal["csv", "parquet", "md"]
_WRITERS: Mapping[str, Callable[[Frames, str, Path], Written]] = MappingProxyType(
    {"csv": write_csv, "parquet": write_parquet}
)


def write_files(facts: Facts, frames: Frames, path: Path, form: Form, *, overwrite: bool) -> Path:
    """Write a folder with a file for each statement, to be read again, and metadata.

    Raises:
        ReleaseFormatError: the folder exists, or can't be written. If it may be overwritten, it
            has something else than such files.
    """
    write_one = partial(_WRITERS[form], frames)
    return _write_folder(facts, frames, path, form, write_one, overwrite=overwrite)


def write_tables(
    facts: Facts, frames: SupportedFrames, path: Path, form: Form, *, overwrite: bool, style: Style
) -> Path:
    """Write such a folder with tables for people.

    Raises:
        ReleaseFormatError: see `write_files`.
    """
    write_one = partial(_published, facts, frames, style)
    return _write_folder(facts, frames, path, form, write_one, overwrite=overwrite)


def _write_folder(
    facts: Facts,
    frames: Frames,
    path: Path,
    form: Form,
    write_one: Callable[[str, Path], Written],
    *,
    overwrite: bool,
) -> Path:
    check_place(path, overwrite=overwrite)
    with new_folder(path, replaced=overwrite and not _is_free(path)) as draft:
        statements = {}
        for name, plain in plain_names(frames.names).items():
            file = f"{plain}.{form}"
            written = write_one(name, draft / file)
            statements[name] = {
                **metadata.of_file(file, written.rows, digest_of(draft / file)),
                **metadata.of_statement(facts, frames, name, written.types),
            }
        document = {**metadata.common(facts), "statements": statements}
        write(draft / METADATA, as_text(document).encode())
    return path


def _published(
    facts: Facts, frames: SupportedFrames, style: Style, name: str, path: Path
) -> Written:
    """Write an answer as a table for people."""
    read, marks = as_read(frames, name)
    answered = Answered(read, marks, frames.columns(name), facts.confidence)
    is_page = path.suffix == ".md"
    text = as_markdown(name, answered, style) if is_page else as_office_csv(answered)
    with created(path) as file:
        file.write(text.encode())
    return Written(read.height, read.schema)


def as_text(document: Mapping[str, Any]) -> str:
    """Write metadata as JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_place(path: Path, *, overwrite: bool = False) -> None:
    """Check that a folder of answers could be written, before anything is charged for them.

    Raises:
        ReleaseFormatError: it can't.
    """
    with system_errors(path):
        if not overwrite and _is_ours(path):
            raise ReleaseFormatError(
                f"{printable(str(path))} exists already.",
                hint="pass " + option("overwrite", True) + " if these answers may be replaced.",
            )
        if not overwrite or _is_free(path):
            check_target(path)
        elif not _is_ours(path):
            raise ReleaseFormatError(
                f"{printable(str(path))} has something other than answers that dpsql wrote there.",
                hint="name another folder, or remove this one yourself.",
            )


def _is_free(path: Path) -> bool:
    return not path.is_symlink() and (
        not path.exists() or (path.is_dir() and not any(path.iterdir()))
    )


def _is_ours(path: Path) -> bool:
    """Whether a folder has what `write_files` wrote, and nothing else."""
    document = path / METADATA
    if path.is_symlink() or not path.is_dir() or not document.exists():
        return False
    named = document.lstat()
    if not stat.S_ISREG(named.st_mode) or named.st_size > MAX_METADATA:
        return False
    try:
        said = json.loads(document.read_bytes())
        files = {METADATA, *(str(each["file"]) for each in said["statements"].values())}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False
    there = {each.name for each in path.iterdir()}
    return said.get("what") == metadata.WHAT and there <= files


def to_duckdb(
    facts: Facts, frames: Frames, con: object, schema: str | None, *, overwrite: bool
) -> dict[str, str]:
    """Write a table for each statement: statement → how SQL finds it; see `Release.to_duckdb`.

    Raises:
        ReleaseFormatError: a name is taken, or it can't be written.
    """
    names, tables = _table_names(frames), _tables(facts, frames)
    if isinstance(con, (str, Path)):
        found = _to_file(Path(con), tables, schema, overwrite=overwrite)
    else:
        found = write_answers(con, tables, schema, overwrite=overwrite)
    return {statement: found[name] for statement, name in names.items()}


def _to_file(
    path: Path, tables: WrittenTables, schema: str | None, *, overwrite: bool
) -> dict[str, str]:
    """Write a database of its own, which appears whole or not at all, or replace tables in one."""
    check_path_given(con=path)
    if schema is not None:
        raise ReleaseFormatError(
            "Tables of a new database file can't be put into another schema.",
            hint="leave schema= out, or pass a connection.",
        )
    with system_errors(path):
        there = overwrite and path.is_file()
        if not overwrite and path.is_file():
            raise ReleaseFormatError(
                f"{printable(str(path))} exists already.",
                hint="pass " + option("overwrite", True) + " to have tables replaced there that "
                "were written so, and others left alone; or name a new file.",
            )
    if there:
        found = write_database(path, tables)
    else:
        with new_file(path) as draft:
            found = write_database(draft, tables)
    return {name: where.partition(".")[2] for name, where in found.items()}  # without the database


def _table_names(frames: Frames) -> dict[str, str]:
    return names_for(plain_names(frames.names))


def _tables(facts: Facts, frames: Frames) -> WrittenTables:
    names, about = _table_names(frames), metadata.common(facts)
    made = (_table(facts, frames, about, *each) for each in names.items())
    mark = json.dumps({"what": metadata.WHAT}).removesuffix("}")
    return WrittenTables(list(names.values()), mark, made)


def _table(
    facts: Facts, frames: Frames, about: Mapping[str, Any], statement: str, name: str
) -> WrittenTable:
    rows = pieces(frames, statement)
    first = next(rows)
    said = metadata.of_statement(facts, frames, statement, first.schema)
    columns = [(c["column"], c["type"], c["meaning"]) for c in said["columns"]]
    comment = json.dumps({**about, "statements": {statement: said}}, ensure_ascii=False)
    return WrittenTable(name, columns, comment, chain((first,), rows))


def to_arrow(frames: Frames) -> dict[str, pyarrow.Table]:
    """Return all frames as Arrow tables."""
    return {name: frames.frame(name).to_arrow() for name in frames.names}


def to_pandas(frames: Frames) -> dict[str, pandas.DataFrame]:
    """Return all frames as frames of pandas, whose types tell NULL from other values.

    Raises:
        ReleaseFormatError: pandas is not installed.
    """
    try:
        import pandas as pd
        import pyarrow as pa
    except ImportError:
        raise ReleaseFormatError(
            "pandas is not installed.", hint='pip install "dpsql[pandas]"'
        ) from None
    numbers = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }

    def kept(kind: pyarrow.DataType) -> object:
        """Name the type of a column; None leaves floats, texts, times and ENUMs to pandas."""
        exact = pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind)
        return pd.ArrowDtype(kind) if exact or pa.types.is_nested(kind) else numbers.get(kind)

    return {name: table.to_pandas(types_mapper=kept) for name, table in to_arrow(frames).items()}
