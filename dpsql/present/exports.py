"""Answers taken elsewhere: tables for people, folders of files, frames of other libraries.

All of it follows from noisy answers alone. Beside the files stands `metadata.json`, which says what
was asked and charged, and what each column means.
"""

from __future__ import annotations

import csv
import io
import json
import math
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from dpsql.answers.facts import Facts
from dpsql.answers.frames import DIVIDED, NOISE, SUPPRESSED, Frames, SupportedFrames, as_read
from dpsql.answers.noise import CONFIDENCE
from dpsql.calls import check_path_given
from dpsql.charts.specs import MOST_ACROSS, Grid
from dpsql.engines import write_answers, write_database
from dpsql.engines.answers import WrittenTable, WrittenTables, names_for
from dpsql.errors import ArgumentError, ReleaseFormatError, printable, shown
from dpsql.hints import option
from dpsql.markup import plain
from dpsql.present import formats
from dpsql.present.disk import (
    as_json,
    check_target,
    created,
    digest_of,
    new_file,
    new_folder,
    plain_names,
    system_errors,
    write,
)
from dpsql.present.formats import Written, pieces, write_csv, write_parquet
from dpsql.present.page import ERROR, Cell, Column, Shown
from dpsql.present.pictures import Drawable, Labels, grid_of, ordered, with_marks, word
from dpsql.present.shown import NOT_KNOWN, error_of, number_of, shown_rows

if TYPE_CHECKING:
    import pandas
    import pyarrow


# ── Tables for people: an answer in plain or in office style, row by row or side by side ─────────
#
# In plain style each value stands beside its standard error and its interval. In the style of a
# statistics office the standard error is in brackets behind it, flags are those of Eurostat, values
# that say nothing are not shown, and footnotes say what all that means. Both are texts: of answers,
# their marks, and what is public of them.


Style = Literal["plain", "office"]
STYLES: tuple[Style, ...] = ("plain", "office")
LONGEST_TEXT = 120
"""Characters of a cell."""
FLAGS: Mapping[str | None, str] = {None: "", NOISE: "u", DIVIDED: ":u", SUPPRESSED: ":c"}
"""Mark → how an office writes it; what begins with a colon stands in place of the value."""
MISSING = ":"
_FOOTNOTES: Mapping[str, str] = {
    "()": "in brackets: the standard error of the noise that protects people",
    "[]": "in square brackets: the {share} % interval",
    "u": "low reliability: less than its own standard error from zero",
    ":u": "not shown: divided by a number that may be zero but for noise",
    ":c": "not shown: rests on too few rows",
    MISSING: "not available",
}


def check_style(style: object) -> None:
    """Refuse a style that there isn't.

    Raises:
        ArgumentError: it is none.
    """
    if style not in STYLES:
        raise ArgumentError(
            f"style is 'plain' or 'office', not {shown(style)[:60]}.",
            hint="for example " + option("style", "office") + ".",
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, as it is read."""

    frame: pl.DataFrame
    marks: pl.DataFrame
    described: pl.DataFrame
    """Its columns, see `Release.columns`."""
    confidence: float | None
    """The confidence of its intervals, if there are any."""

    @property
    def share(self) -> str:
        """The number of a hundred intervals that hold the exact value."""
        return f"{100 * (self.confidence or CONFIDENCE):g}"

    @property
    def roles(self) -> dict[str, str]:
        """Column → whether it is a key or a value."""
        return dict(self.described.select("column", "role").rows())

    def beside(self, value: str) -> tuple[str, str, str]:
        """Return what the columns beside a value are called, if they are there: else nothing."""
        own, roles = set(self.frame.columns), self.roles
        error, *ends = (f"{value}_{end}" for end in ("variance", "lower", "upper"))
        has = [each in own and each not in roles for each in (error, *ends)]
        low, high = ends if has[1] and has[2] else ("", "")
        return error if has[0] else "", low, high

    def table(self, style: Style, most: int | None = None, total: int | None = None) -> Shown:
        """Lay out the first rows.

        Args:
            style: how.
            most: rows; all by default.
            total: how many rows the answer has; None if that isn't known.
        """
        head = self.frame if most is None else self.frame.head(most)
        rows, marks = shown_rows(head), self.marks.head(head.height)
        at = {name: i for i, name in enumerate(head.columns)}
        columns: list[Column] = []
        made: list[Sequence[Cell]] = []
        for name, role in self.roles.items():
            if name not in at:
                continue
            own = [row[at[name]] for row in rows]
            if role == "key":
                columns.append(Column(_cut(word(name)), is_key=True))
                made.append([Cell(_cut(word(value))) for value in own])
                continue
            said = marks[name].to_list() if name in marks.columns else [None] * head.height
            error, low, high = self.beside(name)
            errors = _errors(head[error]) if error and not head[error].is_null().all() else None
            ends = [(row[at[low]], row[at[high]]) for row in rows] if low else None
            number = all(not isinstance(value, str) for value in own)
            if style == "office":
                columns.append(Column(_cut(word(name)), numeric=True))
                made.append([_office(*each) for each in _together(own, errors, ends, said)])
            else:
                beside = [*([ERROR] if errors else []), *([f"{self.share} % interval"] * bool(low))]
                columns.append(Column(_cut(word(name)), numeric=number, beside=tuple(beside)))
                made.append([_plain(*each) for each in _together(own, errors, ends, said)])
        if style == "plain":
            columns, made = _once(columns, made)
        return Shown(columns, list(zip(*made, strict=True)), total)

    def footnotes(self, table: Shown) -> list[str]:
        """Say what signs in a table of office style mean."""
        texts = [cell.text for row in table.rows for cell, c in zip(row, table.columns, strict=True)
                 if c.numeric]  # fmt: skip
        signs = {text.rpartition(" ")[2] for text in texts}
        signs |= {"()"} if any("(" in text for text in texts) else set()
        signs |= {"[]"} if any("[" in text for text in texts) else set()
        return [
            said.format(share=self.share) if sign in ("()", "[]") else f"{sign}  {said}"
            for sign, said in _FOOTNOTES.items()
            if sign in signs
        ]

    def sides(self) -> tuple[Shown, str] | None:
        """Lay out two keys side by side in office style, and say their standard errors once.

        Returns:
            The table and what is said of it; None if the answer has no two keys, or too many
            labels of both.
        """
        grid = self._grid()
        if grid is None or not grid.tells_errors:
            return None
        (value,) = self._named("value")
        marks = self.marks[value].to_list()
        cells = {
            (square.row, square.column): _flagged(square.text, mark)
            for square, mark in zip(grid.squares, marks, strict=True)
        }
        errors = ["standard error"] if grid.beside else []
        made = [
            [Cell(row), *(Cell(cells.get((row, c), MISSING)) for c in grid.across)]
            + [Cell(f"({grid.beside[row]})") for _ in errors]
            for row in grid.down
        ]
        if grid.below:
            said = (Cell(f"({grid.below[column]})") for column in grid.across)
            made.append([Cell("standard error"), *said])
        head = [Column(label, numeric=True) for label in [*grid.across, *errors]]
        head.insert(0, Column(f"{grid.rows} \\ {grid.columns}", is_key=True))
        name = f"{grid.value}{f', {grid.each}' if grid.each else ''}"
        return Shown(head, made, len(made)), name

    def _named(self, role: str) -> list[str]:
        """Return the columns of a role."""
        return [name for name, own in self.roles.items() if own == role]

    def _grid(self) -> Grid | None:
        """Return the value by two keys, if that is what the answer has, and a page has room."""
        keys, values = self._named("key"), self._named("value")
        if len(keys) != 2 or len(values) != 1 or not self.frame[values[0]].dtype.is_numeric():
            return None
        down, over = sorted(keys, key=lambda key: -self.frame[key].n_unique())
        is_wide = self.frame[over].n_unique() > MOST_ACROSS
        if is_wide or self.frame.select(keys).is_duplicated().any():
            return None
        known = Drawable(frozenset(self.roles), self.confidence)
        rows, columns = (Labels(ordered(self.frame[key]), LONGEST_TEXT) for key in (down, over))
        frame = with_marks(self.frame, self.marks)
        return grid_of(frame, (down, over), values[0], known, (rows, columns))


def as_markdown(title: str, answered: Answered, style: Style) -> str:
    """Write an answer as a page of Markdown."""
    table, said = _in_style(answered, style)
    lines = [f"# {_markdown(title)}", "", *([_markdown(said), ""] if said else [])]
    head = [_markdown(each) for each in _header(table)]
    lines.append(f"| {' | '.join(head)} |")
    rules = ("---:" if column.numeric else "---" for column in table.columns)
    lines.append(f"| {' | '.join(rules)} |")
    lines += [f"| {' | '.join(_markdown(whole(cell)) for cell in row)} |" for row in table.rows]
    notes = answered.footnotes(table) if style == "office" else []
    return "\n".join([*lines, *([""] if notes else []), *(f"- {_markdown(n)}" for n in notes), ""])


def as_office_csv(answered: Answered) -> str:
    """Write an answer in office style as CSV, with its footnotes below it."""
    table, said = _in_style(answered, "office")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_header(table))
    writer.writerows([whole(cell) for cell in row] for row in table.rows)
    notes = [*([said] if said else []), *answered.footnotes(table)]
    writer.writerows([[]] * bool(notes) + [[note] for note in notes])
    return text.getvalue()


def _in_style(answered: Answered, style: Style) -> tuple[Shown, str]:
    sides = answered.sides() if style == "office" else None
    return sides or (answered.table(style, total=answered.frame.height), "")


def _header(table: Shown) -> list[str]:
    return [" ".join((column.name, *column.beside)) for column in table.columns]


def whole(cell: Cell) -> str:
    """Write a value with all that stands beside it."""
    return " ".join((cell.text, *cell.beside, *([f"[{cell.mark}]"] if cell.mark else [])))


def _markdown(text: str) -> str:
    """Escape what Markdown and the HTML in it would read otherwise."""
    for sign in "\\`*_[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _together(
    own: Sequence[object],
    errors: Sequence[str] | None,
    ends: Sequence[tuple[object, object]] | None,
    marks: Sequence[str | None],
) -> list[tuple[object, str | None, tuple[object, object] | None, str | None]]:
    nothing: list[None] = [None] * len(own)
    return list(zip(own, errors or nothing, ends or nothing, marks, strict=True))


def _errors(variances: pl.Series) -> list[str]:
    """Write standard errors; few are different."""
    errors: dict[float | None, str] = {}
    known = variances.cast(pl.Float64).to_list()
    for each in known:
        if each not in errors:
            errors[each] = error_of(None if each is None or each < 0 else math.sqrt(each))
    return [errors[each] for each in known]


def _plain(
    value: object, error: str | None, ends: tuple[object, object] | None, mark: str | None
) -> Cell:
    beside = [] if error is None else [error if error == NOT_KNOWN else f"± {error}"]
    if ends is not None:
        beside.append(NOT_KNOWN if None in ends else " to ".join(map(worded, ends)))
    return Cell(worded(value), mark or "", tuple(beside))


def _office(
    value: object, error: str | None, ends: tuple[object, object] | None, mark: str | None
) -> Cell:
    text = worded(value) if value is not None else ""
    if text and error is not None and error != NOT_KNOWN:
        text += f" ({error})"
    elif text and ends is not None and None not in ends:
        text += f" [{' to '.join(map(worded, ends))}]"
    return Cell(_flagged(text, mark))


def _flagged(text: str, mark: str | None) -> str:
    """Put the flag of a mark behind a value, or in its place."""
    flag = FLAGS[mark]
    if flag.startswith(":"):
        return flag
    return f"{text} {flag}".strip() if text else MISSING


def _once(
    columns: list[Column], made: list[Sequence[Cell]]
) -> tuple[list[Column], list[Sequence[Cell]]]:
    """Say the standard error of values side by side once, if it is the same in each row."""
    values = [i for i, column in enumerate(columns) if column.beside[:1] == (ERROR,)]
    same = len(values) > 1 and all(
        len({made[i][row].beside[0] for i in values}) == 1 for row in range(len(made[0]))
    )
    if not same:
        return columns, made
    errors = [Cell(cell.beside[0].removeprefix("± ")) for cell in made[values[0]]]
    for i in values:
        columns[i] = Column(columns[i].name, columns[i].numeric, beside=columns[i].beside[1:])
        made[i] = [Cell(cell.text, cell.mark, cell.beside[1:]) for cell in made[i]]
    return [*columns, Column("standard error of each", numeric=True)], [*made, errors]


def worded(value: object) -> str:
    """Write a value, with its thousands apart."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return number_of(value)
    return "none" if value is None else _cut(plain(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


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
    write_one = partial(_written_table, facts, frames, style)
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
                **formats.of_file(file, written.rows, digest_of(draft / file)),
                **formats.of_statement(facts, frames, name, written.types),
            }
        document = {**formats.common(facts), "statements": statements}
        write(draft / METADATA, as_json(document).encode())
    return path


def _written_table(
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
    return said.get("what") == formats.WHAT and there <= files


def to_duckdb(
    facts: Facts, frames: Frames, con: object, schema: str | None, *, overwrite: bool
) -> dict[str, str]:
    """Write a table for each statement: statement → how SQL finds it; see `Release.to_duckdb`.

    Raises:
        ReleaseFormatError: a name is taken, or it can't be written.
    """
    names, tables = _table_names(frames), _tables(facts, frames)
    if isinstance(con, (str, Path)):
        written = _to_file(Path(con), tables, schema, overwrite=overwrite)
    else:
        written = write_answers(con, tables, schema, overwrite=overwrite)
    return {statement: written[name] for statement, name in names.items()}


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
        written = write_database(path, tables)
    else:
        with new_file(path) as draft:
            written = write_database(draft, tables)
    return {
        name: where.partition(".")[2] for name, where in written.items()
    }  # without the database


def _table_names(frames: Frames) -> dict[str, str]:
    return names_for(plain_names(frames.names))


def _tables(facts: Facts, frames: Frames) -> WrittenTables:
    names, about = _table_names(frames), formats.common(facts)
    made = (_table(facts, frames, about, *each) for each in names.items())
    mark = json.dumps({"what": formats.WHAT}).removesuffix("}")
    return WrittenTables(list(names.values()), mark, made)


def _table(
    facts: Facts, frames: Frames, about: Mapping[str, Any], statement: str, name: str
) -> WrittenTable:
    rows = pieces(frames, statement)
    first = next(rows)
    said = formats.of_statement(facts, frames, statement, first.schema)
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
