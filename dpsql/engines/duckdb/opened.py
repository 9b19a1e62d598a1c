"""Files, folders and frames as private tables, on a connection of dpsql's own. Trusted.

    "people.csv", "trips/*.parquet", a frame, {"people": "people.csv", "trips": frame}

Each becomes a stored view or a table in a database in memory, and is asked as any other. What kind
a file is of is said by the end of its name, and its first bytes must not say otherwise.

Guarantees:
    1. *Nothing that is public about a file of CSV follows from its rows.* Its first line names the
       columns; what stands between them is found in that line alone. A column has the type that
       the owner declares by its domain or bounds, and is text without one. DuckDB looks for none
       of that.
    2. A line becomes a row or the file is refused, before anything is asked of it, by an error that
       says nothing of where and what. What a value becomes follows from its own text (`_typed`),
       and is NULL where that is none of its type.
    3. Such a file is copied once, right before the first counts, and a frame when it is opened.
       A file that is written meanwhile is refused (`frozen.py`). What is counted is the copy, which
       nobody else reaches: it has a name of chance, in a database that no statement can name.
    4. The account of files is what `frozen.py` and `privacy/place.py` say; rows of a frame are in
       no file, and in the account of those that were passed with it.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from dpsql.engines.base import Step
from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.files import list_files
from dpsql.engines.duckdb.frames import TABLE, copy_frame
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.engines.frozen import FrozenFiles, is_one_file, partitions_of
from dpsql.engines.public import is_frame, polars_frame
from dpsql.engines.source import RefusedViewError
from dpsql.errors import SchemaError, printable, shown
from dpsql.hints import Hint, option, word
from dpsql.privacy.place import CSV, PARQUET
from dpsql.schema import Schema, Table, Unit
from dpsql.schema.domain import (
    INTEGER_TYPES,
    ZONED,
    Declaration,
    Domain,
    NumberBounds,
    UnknownBounds,
    UnknownKeys,
)
from dpsql.schema.facts import Database
from dpsql.schema.keys import read_keys, references_for
from dpsql.schema.lookup import of_table
from dpsql.schema.names import folded, quoted_name, quoted_text, twins
from dpsql.schema.sequences import DecimalRange
from dpsql.schema.units import DeclaredUnit

_CSV = re.compile(rf"(?<=.)\.({CSV})(\.gz)?\Z", re.IGNORECASE | re.DOTALL)
_PACKED = re.compile(r"\.gz\Z", re.IGNORECASE)
_PARQUET = re.compile(rf"(?<=.)\.({PARQUET})\Z", re.IGNORECASE | re.DOTALL)
_PATTERN = re.compile(r"[*?\[{]")
_DELIMITERS = ",;\t|"
_HEAD_BYTES = 1 << 20
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_TYPES = {"BIGINT", "DOUBLE", "DATE", "TIMESTAMP", ZONED, "BOOLEAN"}
"""Types, besides text, that a column of CSV may have."""
_NO_NAME = re.compile(r"[\s\d.,:;/+\-]*|\d{4}-\d\d-\d\d.*|(true|false|nan|null|na)", re.IGNORECASE)
"""Texts that are values rather than names of columns."""
_YEAR = re.compile(r"(19|20)\d\d")
"""A year, which beside names is the name of a column with that year's numbers."""
_MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", ".", "-")
"""Texts that say in a column of another type that there is no value."""
_SAVE = "save it as CSV or Parquet; or pass the frame that Polars or pandas reads of it, in Python."
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"PAR1", "a Parquet file", "let its name end in .parquet."),
    (b"SQLite format 3\0", "an SQLite database", _SAVE),
    (b"PK\x03\x04", "a ZIP archive, as Excel workbooks are", _SAVE),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook of before 2007", _SAVE),
    (b"ARROW1", "an Arrow file (Feather)", _SAVE),
    (b"FEA1", "a Feather file", _SAVE),
    (b"ORC", "an ORC file", _SAVE),
    (b"Obj\x01", "an Avro file", _SAVE),
    (b"\x89HDF", "an HDF5 file", _SAVE),
    (b"<stata_dta>", "a Stata file", _SAVE),
    (b"$FL2", "an SPSS file", _SAVE),
    (b"\x1f\x8b", "a gzip file", "let its name end in .csv.gz, if it has CSV in it."),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "decompress it first."),
    (b"%PDF", "a PDF", _SAVE),
    (b"{", "JSON", _SAVE),
    (b"[", "JSON", _SAVE),
)
"""First bytes → what a file is, and what may be done."""
_DUCKDB = slice(8, 12), b"DUCK"


@dataclass(frozen=True, slots=True)
class _Texts:
    """Files of CSV, with what their first lines say."""

    files: FrozenFiles
    columns: tuple[str, ...]
    delimiter: str

    def read(self, types: str) -> str:
        """Write the call that reads the files.

        Args:
            types: what is said of the types of columns, as an option.
        """
        paths = ", ".join(map(quoted_text, self.files.paths))
        packed = _PACKED.search(self.files.paths[0]) is not None
        return (
            f"system.main.read_csv(system.main.list_value({paths}), header = true, "
            f"delim = {quoted_text(self.delimiter)}, quote = '\"', escape = '\"', "
            f"compression = '{'gzip' if packed else 'none'}', hive_partitioning = false, "
            f"filename = false, union_by_name = false, ignore_errors = false, "
            f"null_padding = false, strict_mode = true, {types})"
        )

    @property
    def as_texts(self) -> str:
        """The call that reads them with all values as texts, and looks for nothing in rows."""
        each = ", ".join(f"{quoted_text(name)}: 'VARCHAR'" for name in self.columns)
        return self.read(f"auto_detect = false, columns = {{{each}}}")

    @property
    def as_guessed(self) -> str:
        """The call that reads them with types that all of their rows have."""
        names = ", ".join(map(quoted_text, self.columns))
        missing = ", ".join(map(quoted_text, _MISSING))
        return self.read(
            f"auto_detect = true, sample_size = -1, names = [{names}], nullstr = [{missing}]"
        )


@dataclass(frozen=True, eq=False)
class OpenedSource(DuckDBSource):
    """Files, folders and frames, as tables of a connection of dpsql's own; see `DataSource`.

    Args:
        con: that connection.
        texts: name of a table → the files of CSV that it is a copy of.
        root: whose account is asked: a file or a folder; None if there are frames alone.
        hidden: the name of the database that has the copies.
    """

    owned: bool = field(default=True, init=False)
    texts: Mapping[str, _Texts] = field(default_factory=dict)
    root: Path | None = None
    hidden: str = ""
    _types: dict[str, dict[str, str]] = field(default_factory=dict, init=False)
    """Name of a table → the types of its columns, as they are now."""
    _filled: set[str] = field(default_factory=set, init=False)

    @cached_property
    def catalog(self) -> DuckDBCatalog:
        """The catalog: all that is public of its tables."""
        copies = {self._parts(name): each.files for name, each in self.texts.items()}
        return DuckDBCatalog(self.con, copies, by_path=True)

    def identity(self) -> Database:
        """Return the database in memory, with the file or folder that its account is beside."""
        return super().identity()._replace(file=self.root)

    def describe(
        self, name_parts: tuple[str, ...], declared: Schema | None = None, unit: DeclaredUnit = None
    ) -> Table:
        """Describe a table; see `DescribedTables.describe`. Reads no row."""
        if declared is not None or (isinstance(unit, Unit) and unit.references):
            for name, types in self._declared(declared, unit).items():
                self._store(name, types)
        return super().describe(name_parts, declared, unit)

    def _declared(self, declared: Schema | None, unit: DeclaredUnit) -> dict[str, dict[str, str]]:
        """Return the types of columns of texts: as declared, or as of what they refer to.

        What is declared to refer to whole numbers, or to be referred to by such, is whole numbers:
        nothing else is equal to one.
        """
        path = ("memory", "main", "")
        columns, free = dict[str, dict[str, str]](), set[tuple[str, str]]()
        for name, texts in self.texts.items():
            of = None if declared is None else of_table(self.catalog, declared, (*path[:2], name))
            types = {folded(column): _type_of(domain) for column, domain in (of or {}).items()}
            columns[name] = {
                column: types.get(folded(column), "VARCHAR") for column in texts.columns
            }
            free |= {(name, column) for column in texts.columns if folded(column) not in types}
        references = references_for(self.catalog, path, declared, unit) if free else {}
        if not references:
            return columns
        keys = read_keys(self.catalog.keys(path), path)
        sides = [tuple(map(keys.side, texts)) for texts in references.items()]
        equal = [
            {(side[0], column), (other[0], key)}
            for side, other in sides
            if side is not None and other is not None
            for column, key in zip(side[1], other[1], strict=False)
        ]
        for _ in equal:  # what is found of one side is known of the other one's other sides
            for pair in equal:
                types_of = {columns.get(t, keys.columns[t])[c] for t, c in pair}
                for table, column in pair & free if types_of & INTEGER_TYPES else ():
                    columns[table][column] = "BIGINT"
        return columns

    def undeclared_texts(
        self, declared: Schema | None, public: Collection[str] = ()
    ) -> Mapping[str, Sequence[str]]:
        """Return columns of CSV; see `DataSource.undeclared_texts`."""
        known = {folded(name.rpartition(".")[2]) for name in public}  # their rows give them types
        return {
            name: texts.columns
            for name, texts in self.texts.items()
            if folded(name) not in known
            and (
                declared is None
                or of_table(self.catalog, declared, ("memory", "main", name)) is None
            )
        }

    def how_to_declare(self, declared: Schema | None, public: Collection[str] = ()) -> Hint | None:
        """Name the command that drafts a schema, if a file of CSV has none: it has texts alone."""
        for name in self.undeclared_texts(declared, public):
            drafts = (
                f"Nothing is declared of {printable(name)}, whose columns are texts therefore: "
                f"dpsql schema {word(self.texts[name].files.paths[0])} > schema.toml drafts it, "
                "for "
            )
            return drafts + option("schema", "schema.toml") + "."
        return None

    @property
    def is_opened(self) -> bool:
        """Tell that no catalog declares anything; see `DraftedSource.is_opened`."""
        return True

    def guess_types(self) -> bool:
        """Give columns of texts the types that all of their rows have, for the owner's drafts.

        Whole numbers that are all 0 or 1 are BOOLEAN.

        Raises:
            SchemaError: a file can't be read.
        """
        for name, texts in self.texts.items():
            described = _run(self.con, f"DESCRIBE FROM {texts.as_guessed}", texts)
            types = {str(c): type_ if type_ in _TYPES else "VARCHAR" for c, type_, *_ in described}
            whole = [column for column, type_ in types.items() if type_ == "BIGINT"]
            if whole:
                asked = ", ".join(f"bool_and({quoted_name(c)} IN (0, 1))" for c in whole)
                (truths,) = _run(self.con, f"SELECT {asked} FROM {texts.as_guessed}", texts)
                types |= {c: "BOOLEAN" for c, yes in zip(whole, truths, strict=True) if yes}
            self._store(name, types)
        return bool(self.texts)

    def values_found(self, table: Table) -> Mapping[str, Domain | NumberBounds]:
        """Return what rows tell of columns; see `DuckDBSource.values_found`."""
        self.fill()
        return super().values_found(table)

    def _store(self, name: str, types: dict[str, str]) -> None:
        """Make the table of a copy, without rows, and the view of it."""
        if self._types.get(name) == types:
            return
        copy = self._copy(name)
        columns = ", ".join(f"{quoted_name(column)} {type_}" for column, type_ in types.items())
        self.con.execute(f"CREATE OR REPLACE TABLE {copy} ({columns})").fetchall()
        view = f"CREATE OR REPLACE VIEW main.{quoted_name(name)} AS FROM {copy}"
        self.con.execute(view).fetchall()
        self._types[name] = types
        self._filled.discard(name)
        self.catalog.forget()

    def _parts(self, name: str) -> tuple[str, ...]:
        return self.hidden, "main", name

    def _copy(self, name: str) -> str:
        return ".".join(map(quoted_name, self._parts(name)))

    def engine(self, on_step: Step | None = None) -> DuckDBEngine:
        """Return what counts rows; files of CSV are copied now, where they weren't.

        Raises:
            SchemaError: a line of one is no row; nothing was charged.
            StaleSchemaError: one was written since it was opened.
        """
        self.fill()
        return super().engine(on_step)

    def fill(self) -> None:
        """Copy the files of CSV that weren't yet; see `engine`.

        Texts are stored before they are made values of their types: DuckDB 2.0 has its reader make
        them where both are asked at once, and fails then for one that is none, in a TRY_CAST too.
        """
        between = f"{quoted_name(self.hidden)}.main.{quoted_name(f'{self.hidden}_texts')}"
        for name, texts in self.texts.items():
            texts.files.check()
            if name in self._filled:
                continue
            types = self._types[name]
            values = ", ".join(_typed(quoted_name(c), types[c], texts) for c in texts.columns)
            _run(self.con, f"CREATE OR REPLACE TABLE {between} AS FROM {texts.as_texts}", texts)
            texts.files.check()
            _run(self.con, f"INSERT INTO {self._copy(name)} SELECT {values} FROM {between}", texts)
            _run(self.con, f"DROP TABLE {between}", texts)
            self._filled.add(name)

    def public_rows(self, name_parts: Sequence[str], most: int) -> pl.DataFrame | None:
        """Read a table that is declared public; of CSV with the types that all rows have."""
        texts = next(
            (t for n, t in self.texts.items() if folded(n) == folded(name_parts[-1])), None
        )
        if texts is None:
            return super().public_rows(name_parts, most)
        rows_of_file = f"FROM {texts.as_guessed} LIMIT {most + 1}"
        _run(self.con, f"CREATE OR REPLACE TEMP TABLE public_rows AS {rows_of_file}", texts)
        frame = self.con.sql("FROM temp.main.public_rows").pl()
        self.con.execute("DROP TABLE temp.main.public_rows").fetchall()
        return None if frame.height > most else frame


def _run(con: duckdb.DuckDBPyConnection, sql: str, texts: _Texts) -> list[tuple[Any, ...]]:
    """Run a statement that reads files of CSV.

    Raises:
        SchemaError: it fails. Its text quotes nothing of a file.
    """
    try:
        return con.execute(sql).fetchall()
    except duckdb.InterruptException:
        raise
    except duckdb.Error:
        pass
    name = printable(Path(texts.files.paths[0]).name)
    raise SchemaError(  # outside the handler, whose error quotes a line
        f"{name} can't be read as CSV: somewhere a line has more or fewer values than the first "
        "one has names, a quote isn't closed, or a character isn't UTF-8.",
        hint="values with separators, quotes or line breaks stand in quotes. To see where, if you "
        "may see rows: duckdb.sql(\"FROM read_csv('…', store_rejects = true)\"), and then FROM "
        "reject_errors.",
    )


# ── what is given ──────────────────────────────────────────────────────────────────────────


def opened(given: object) -> DuckDBSource | None:
    """Open a file, a folder, a frame, or several by their names; None if it is nothing of that.

    Raises:
        SchemaError: it can't be, and why.
    """
    if isinstance(given, str | os.PathLike):
        return opened_files(os.fsdecode(given))
    if isinstance(given, Mapping):
        return _opened(given)
    return _opened({TABLE: given}) if _is_frame(given) else None


def opened_files(given: str | Mapping[str, str]) -> DuckDBSource:
    """Open a file, a folder, or several by their names.

    Raises:
        SchemaError: it can't be, and why.
    """
    if not isinstance(given, str):
        return _opened(given)
    path = _path(given)
    if is_database(path):
        return DuckDBSource(connect_database(path), owned=True)
    return _opened({_table_name(path): path})


def _is_frame(given: object) -> bool:
    return is_frame(given) and not isinstance(given, duckdb.DuckDBPyRelation)


def _without_objects(frame: Any) -> Any:
    """Make texts of columns of objects, of which pandas finds no type but by looking at rows."""
    types: Any = getattr(frame, "dtypes", None) if hasattr(frame, "astype") else None
    if not hasattr(types, "items"):
        return frame
    objects = [name for name, type_ in types.items() if type_ == object]  # noqa: E721
    return frame.astype(dict.fromkeys(objects, "string")) if objects else frame


def _opened(given: Mapping[Any, Any]) -> OpenedSource:
    if not given or not all(isinstance(name, str) and name.strip() for name in given):
        raise SchemaError(
            "Tables are given as name → file, folder or frame.",
            hint='for example {"people": "people.csv", "trips": "trips/*.parquet"}.',
        )
    same = twins([*given])
    if same is not None:
        raise SchemaError(
            f"There are two tables {printable(same[0])}.", hint="SQL ignores case: rename one."
        )
    con = duckdb.connect(":memory:")
    try:
        con.execute("SET TimeZone = 'UTC'").fetchall()
        hidden = f"copies_{uuid.uuid4().hex}"
        con.execute(f"ATTACH ':memory:' AS {hidden}").fetchall()
        return _Opening(con, hidden).of(given)
    except BaseException:
        con.close()
        raise


class _Opening:
    """Makes the tables of what is given, one by one."""

    def __init__(self, con: duckdb.DuckDBPyConnection, hidden: str) -> None:
        self._con, self._hidden = con, hidden
        self._catalog = DuckDBCatalog(con)
        self._texts: dict[str, _Texts] = {}
        self._read: dict[str, str] = {}
        """Path of a file → the table that has it."""
        self._roots: list[Path] = []

    def of(self, given: Mapping[str, Any]) -> OpenedSource:
        """Return the source of all."""
        for name, value in given.items():
            if isinstance(value, str | os.PathLike):
                self._path(name, _path(value))
            elif _is_frame(value):
                copy_frame(self._con, polars_frame(name, _without_objects(value)), name)
            else:
                raise SchemaError(
                    f"{shown(value)}, given as {printable(name)}, is neither a path nor a frame.",
                    hint="a connection is passed alone: dpsql.Session(con).",
                )
        root = self._roots[0] if self._roots else None
        source = OpenedSource(self._con, texts=self._texts, root=root, hidden=self._hidden)
        for name, texts in self._texts.items():
            source._store(name, dict.fromkeys(texts.columns, "VARCHAR"))
        return source

    def _path(self, name: str, path: str) -> None:
        if is_database(path):
            file = Path(os.path.realpath(path))
            connect_database(path).close()  # so that what can't be opened is told in our words
            attach = f"ATTACH {quoted_text(str(file))} AS {quoted_name(name)} (READ_ONLY)"
            try:
                self._con.execute(attach).fetchall()
            except duckdb.Error:
                raise SchemaError(
                    f"A database can't be called {printable(name)} here.", hint="choose another."
                ) from None
            self._roots.append(file)
            return
        pattern = path
        if os.path.isdir(path):
            pattern = self._pattern_of(path)
        try:
            partitioned = bool(_PARQUET.search(pattern))
            files = list_files(self._catalog.fetch, [pattern], partitioned=partitioned)
            files = files.by_path() if is_one_file([pattern]) else files
        except RefusedViewError as error:
            raise SchemaError(
                f"{printable(path)} can't be released from: {error.message}.", hint=error.hint
            ) from None
        for one in files.paths:
            if one in self._read:
                raise SchemaError(
                    f"{printable(Path(one).name)} is given twice, as {printable(self._read[one])}"
                    f" and as {printable(name)}.",
                    hint="name each file once.",
                )
            self._read[one] = name
        self._roots += files.roots
        if all(map(_CSV.search, files.paths)):
            self._texts[name] = _texts(files)
        elif all(map(_PARQUET.search, files.paths)):
            hive = "true" if partitions_of(files) else "false"
            _check_bytes(files)
            self._con.execute(
                f"CREATE VIEW main.{quoted_name(name)} AS FROM read_parquet("
                f"{quoted_text(pattern)}, hive_partitioning = {hive})"
            ).fetchall()
        else:
            raise _other_kind(path, files.paths)

    def _pattern_of(self, folder: str) -> str:
        """Return the pattern of the files of a folder, which are of one kind."""
        patterns = []
        for ends in ("parquet", "parq", "pq", "csv", "csv.gz", "tsv"):
            pattern = os.path.join(folder, "**", f"*.{ends}")
            listed = self._catalog.fetch(f"SELECT 1 FROM glob({quoted_text(pattern)}) LIMIT 1")
            patterns += [pattern] if listed else []
        if len(patterns) == 1:
            return patterns[0]
        why = "has files of several kinds" if patterns else "has neither Parquet nor CSV files"
        raise SchemaError(
            f"The folder {printable(folder)} {why}.",
            hint="give a pattern, for example "
            + printable(os.path.join(folder, "*.parquet"))
            + ", in quotes on the command line.",
        )


def _path(given: str | os.PathLike[str]) -> str:
    """Return the absolute path or pattern that is given."""
    path = os.fsdecode(given)
    if not path or "\0" in path:
        raise SchemaError(f"{shown(given)} is not a path.", hint='for example "people.csv".')
    if "://" in path:
        raise SchemaError(
            f"{printable(path)} is on another machine: its rows could change unnoticed.",
            hint="copy it to a folder here.",
        )
    path = os.path.abspath(os.path.expanduser(path))
    if not os.path.exists(path) and not _PATTERN.search(path):
        raise SchemaError(
            f"There is no file {printable(path)}.",
            hint="check the path; one that doesn't begin with / begins where this process runs.",
        )
    return path


def _table_name(path: str) -> str:
    """Return the name of the table: that of the file, or of the folder that has the files."""
    parts = [part for part in Path(path).parts if not _PATTERN.search(part)]
    name = Path(path).name
    if _PATTERN.search(path):
        return parts[-1] if len(parts) > 1 else "rows"
    if os.path.isdir(path):
        return name or "rows"
    for ends in (_CSV, _PARQUET):
        name = ends.sub("", name)
    return name


def is_database(path: str) -> bool:
    """Whether a path is to be opened by DuckDB: what isn't rows by the end of its name."""
    return os.path.isfile(path) and not (_CSV.search(path) or _PARQUET.search(path))


def connect_database(path: str | os.PathLike[str]) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB file for reading.

    Its bytes are looked at only where DuckDB can't open it: to close a file drops the locks that
    this process has on it.

    Raises:
        SchemaError: it can't be opened, and why.
    """
    file, is_open = os.fsdecode(path), False
    name = printable(file)
    try:
        return duckdb.connect(file, read_only=True)
    except duckdb.Error as error:
        is_open = isinstance(error, duckdb.ConnectionException)
    if is_open:
        raise SchemaError(
            f"{name} is open for writing in this process.",
            hint="pass that connection, dpsql.Session(con), or open it with read_only=True.",
        )
    head = _first_bytes(file)
    where, magic = _DUCKDB
    if head[where] == magic:
        raise SchemaError(
            f"{name} is a DuckDB file that can't be opened for reading.",
            hint="if another process has it open for writing, close it there, or open it there by "
            f"duckdb.connect({name!r}, read_only=True), as many as you like; else a later version "
            "of DuckDB wrote it.",
        )
    raise _other_kind(file, [file])


def _first_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(64)
    except OSError:
        pass
    raise SchemaError(f"{printable(path)} can't be read.", hint="check its permissions.")


def _other_kind(path: str, files: Sequence[str]) -> SchemaError:
    """Say of what kind a file is that nothing can be released from."""
    odd = next(file for file in files if not _PARQUET.search(file))
    head = _first_bytes(odd)
    name = printable(os.path.basename(odd) if odd != path else path)
    for magic, kind, hint in _KINDS:
        if head.startswith(magic):
            return SchemaError(f"{name} is {kind}, which can't be released from so.", hint=hint)
    return SchemaError(
        f"{name} can't be opened: it is neither a DuckDB file nor, by its ending, CSV or Parquet.",
        hint="let its name end in .csv, .tsv, .csv.gz or .parquet, if it is one.",
    )


def _check_bytes(files: FrozenFiles) -> None:
    for file in files.paths[:1]:
        head = _first_bytes(file)
        if head.startswith(b"PAR1"):
            continue
        kind = next((kind for magic, kind, _ in _KINDS if head.startswith(magic)), "something else")
        raise SchemaError(
            f"{printable(Path(file).name)} is no Parquet file, but {kind}.", hint="rename it."
        )


# ── CSV ────────────────────────────────────────────────────────────────────────────────────


def _texts(files: FrozenFiles) -> _Texts:
    """Read the first lines of files of CSV.

    Raises:
        SchemaError: they aren't names of columns, or differ.
    """
    heads = [_head(path) for path in files.paths]
    (first, delimiter), *others = heads
    for path, head in zip(files.paths[1:], others, strict=True):
        if head != heads[0]:
            raise SchemaError(
                f"The first lines of {printable(Path(files.paths[0]).name)} and "
                f"{printable(Path(path).name)} differ.",
                hint="a table is made of files with the same columns, in the same order.",
            )
    return _Texts(files, first, delimiter)


def _head(path: str) -> tuple[tuple[str, ...], str]:
    """Read the names in the first line of a file, and what stands between them."""
    name, line = printable(Path(path).name), b""
    try:
        with gzip.open(path) if _PACKED.search(path) else open(path, "rb") as file:
            line = file.readline(_HEAD_BYTES)
    except (OSError, EOFError):
        raise SchemaError(
            f"{name} can't be read.", hint="check its permissions, and that it is whole."
        ) from None
    for magic, kind, hint in _KINDS:
        if line.startswith(magic) and kind != "JSON":
            raise SchemaError(f"{name} is no CSV, but {kind}.", hint=hint)
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        of = "UTF-16" if line.startswith(_UTF_16) else "WINDOWS-1252"
        raise SchemaError(
            f"The first line of {name} isn't UTF-8.",
            hint=f"write it anew: iconv -f {of} -t UTF-8 {name} > utf8.csv.",
        ) from None
    delimiter = max(_DELIMITERS, key=re.sub(r'"(?:[^"]|"")*"', "", text).count)
    try:
        (row,) = csv.reader([text], delimiter=delimiter, strict=True) if text else ([],)
    except (csv.Error, ValueError):
        row = []
    names = tuple(cell.strip() for cell in row)
    # The labels of rows that pandas and R write before the others have no name.
    names = ("column0", *names[1:]) if names[:1] == ("",) and len(names) > 1 else names
    odd = [column for column in names if _NO_NAME.fullmatch(column) or "\0" in column]
    if not names or names[:1] == (*odd[:1],) or not all(map(_YEAR.fullmatch, odd)):
        raise SchemaError(
            f"The first line of {name} doesn't name the columns.",
            hint="add a first line with their names: names are taken to be public, and rows are "
            "not.",
        )
    same = twins(names)
    if same is not None:
        raise SchemaError(
            f"{name} has two columns {printable(same[0])}.", hint="SQL ignores case: rename one."
        )
    return names, delimiter


def _type_of(declared: Declaration) -> str:
    """Return the type of a column of which something is declared."""
    if isinstance(declared, UnknownKeys):
        return "VARCHAR"
    if isinstance(declared, NumberBounds | UnknownBounds) or isinstance(
        declared.values, DecimalRange
    ):
        return "DOUBLE"
    if declared.type in INTEGER_TYPES:
        return "BIGINT"
    if declared.zone is not None:
        return ZONED
    known = {"DATE", "TIMESTAMP", "DOUBLE", "BOOLEAN"}
    return declared.type if declared.type in known else "VARCHAR"


def _typed(column: str, type_: str, texts: _Texts) -> str:
    """Write the value of a type that a text is; NULL if it is none.

    DuckDB's casts take 3.7 for 4, which is no whole number, and don't know days as they are written
    in offices, 31.12.2020. Where semicolons stand between values, 3,7 is a number.
    """
    if type_ == "VARCHAR":
        return column
    if type_ in INTEGER_TYPES:
        exact = f"TRY_CAST({column} AS DECIMAL(38, 9))"
        number = f"TRY_CAST({column} AS {type_})"
        return f"CASE WHEN {exact} = {number} THEN {number} END"
    if type_ == "DOUBLE" and texts.delimiter == ";":
        comma = f"replace({column}, ',', '.')"
        return f"COALESCE(TRY_CAST({column} AS DOUBLE), TRY_CAST({comma} AS DOUBLE))"
    if type_ in {"DATE", "TIMESTAMP"}:
        formats = "['%d.%m.%Y', '%d.%m.%Y %H:%M', '%d.%m.%Y %H:%M:%S']"
        other = f"TRY_CAST(TRY_STRPTIME({column}, {formats}) AS {type_})"
        return f"COALESCE(TRY_CAST({column} AS {type_}), {other})"
    return f"TRY_CAST({column} AS {type_})"
