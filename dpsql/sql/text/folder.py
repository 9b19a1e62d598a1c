"""A folder of `.sql` files as one script: a statement a file, which is named as its file is.

That is how dbt keeps models. What is read doesn't depend on the order in which a file system lists
files. Links are not followed: statements come from analysts, and an error shows a line of them, so
a link must not bring a file of the owner's into one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path

from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import SqlError, SqlLimitError, SqlParseError, UnsupportedSqlError, printable
from dpsql.schema.names import folded
from dpsql.sql.text.limits import MAX_SCRIPT_BYTES, MAX_STATEMENTS, tokenize
from dpsql.sql.text.script import is_name, read_text, split_script

ENDING = ".sql"
MAX_ENTRIES = 20_000
"""Files and folders that are looked at: more are no folder of scripts."""
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags that open a file, but no link that has taken its place since it was looked at, and without
waiting for a pipe that has."""
_TEMPLATES = {("{", "{"), ("{", "%")}


def read_script_at(path: Path) -> list[tuple[str, str]]:
    """Read the statements of a script: of a file, or of all files in a folder.

    Raises:
        SqlError: it can't be split into named statements, or is too long.
        OSError: it can't be read.
    """
    if path.is_dir():
        return _read_folder(path)
    with path.open("rb") as file:
        return split_script(read_text(file))


def _read_folder(folder: Path) -> list[tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    size = 0
    for file in _files(folder):
        place = printable(file.relative_to(folder).as_posix())
        try:
            name, sql = _read_file(folder, file)
            size += len(sql.encode("utf-8", "surrogatepass"))
            if size > MAX_SCRIPT_BYTES:
                raise SqlLimitError(
                    f"The scripts are longer than {MAX_SCRIPT_BYTES:,} bytes in all.",
                    hint="release them in several parts.",
                )
            if folded(name) in found:
                raise SqlError(
                    f"Two files are named {name}, apart from folders and capital letters.",
                    hint="rename one of them: it names its statement.",
                )
        except SqlError as error:
            error.statement = place
            raise
        found[folded(name)] = name, sql
    return list(found.values())


def _files(folder: Path) -> list[Path]:
    """List the files of a folder, and of those in it, by their names.

    Raises:
        SqlParseError: there are none.
        SqlLimitError: there are too many.
    """
    listed = list(islice(_entries(folder), MAX_ENTRIES + 1))
    found = sorted(
        (path for path in listed if folded(path.name).endswith(ENDING) and not _is_folder(path)),
        key=lambda path: path.relative_to(folder).parts,
    )
    if len(listed) > MAX_ENTRIES or len(found) > MAX_STATEMENTS:
        raise SqlLimitError(
            f"The folder {printable(str(folder))} has more than {MAX_STATEMENTS:,} statements, or "
            f"{MAX_ENTRIES:,} files.",
            hint="name the folder that has the scripts alone, or release them in several parts.",
        )
    if not found:
        raise SqlParseError(
            f"The folder {printable(str(folder))} has no {ENDING} file.",
            hint="put each statement into a file of its own, for example by_sex.sql.",
        )
    return found


def _entries(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder and in those below it, but for what is hidden."""
    for place, folders, files in os.walk(folder, onerror=_raised):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(place, name) for name in folders)
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _is_folder(path: Path) -> bool:
    """Whether there is a folder, and no link to one."""
    return stat.S_ISDIR(path.lstat().st_mode)


def _read_plain(folder: Path, path: Path) -> str:
    """Read a file below a folder, that and all folders between being no links.

    Each is opened by way of the one before, so that nobody can put a link in its place meanwhile.

    Raises:
        SqlError: it is no plain file, but a link or a pipe, say.
        OSError: it can't be read.
    """
    *between, name = path.relative_to(folder).parts
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in between:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        is_plain = stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
        file = os.open(name, _PLAIN, dir_fd=at) if is_plain else -1
    finally:
        os.close(at)
    if file < 0:
        raise SqlError(
            "It is not a plain file.",
            hint="put the file itself into the folder: links are not followed.",
        )
    with open(file, "rb") as opened:
        return read_text(opened)


def _raised(error: OSError) -> None:
    raise error


def _read_file(folder: Path, path: Path) -> tuple[str, str]:
    """Read the one statement of a file.

    Raises:
        SqlError: it has not one, or one of another name; or the file's name can't be one.
    """
    name = path.name[: -len(ENDING)]
    if not is_name(name):
        raise SqlError(
            "The file has a name that is not an identifier.",
            hint="use letters, digits and underscores: by_sex.sql.",
        )
    text = _read_plain(folder, path)
    _check_plain(tokenize(text))
    statements = split_script(text)
    if len(statements) != 1:
        raise SqlError(
            f"The file has {len(statements):,} statements; in a folder each has one.",
            hint="write each to a file of its own, or release the file by itself.",
        )
    ((own, sql),) = statements
    if folded(own) not in {"query_1", folded(name)}:
        raise SqlError(
            f"The statement is named {own}, and its file {name}.",
            hint="remove the comment, or rename the statement or the file.",
        )
    return name, sql


def _check_plain(tokens: list[Token]) -> None:
    """Refuse templates: nothing is filled in here."""
    if any(token.token_type is TokenType.BLOCK_START for token in tokens) or any(
        (one.text, other.text) in _TEMPLATES for one, other in pairwise(tokens)
    ):
        raise UnsupportedSqlError(
            "The file is a template, with {{ … }} or {% … %}.",
            hint="compile it first: dbt compile writes plain SQL to target/compiled.",
        )
