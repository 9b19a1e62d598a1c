"""Scripts: `.sql` files that are cut into named statements, and folders of such files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import BinaryIO

from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import (
    Span,
    SqlError,
    SqlLimitError,
    SqlParseError,
    UnsupportedSqlError,
    printable,
)
from dpsql.schema.names import capitals, folded
from dpsql.sql.text.limits import MAX_SCRIPT_BYTES, MAX_STATEMENTS, check_text, tokenize
from dpsql.sql.text.spans import SourceText

_NAMING = re.compile(r"\s*name\s*:(.*)", re.DOTALL)
_CREATING = {"OR", "REPLACE", "TEMP", "TEMPORARY", "TABLE", "VIEW"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def is_name(text: str) -> bool:
    """Whether a statement can be named so: by letters, digits and underscores."""
    return _NAME.fullmatch(text) is not None


def read_text(file: BinaryIO) -> str:
    """Read the SQL of a file, and no more of it than the longest script has.

    Raises:
        SqlLimitError: it is longer.
        SqlParseError: it is not UTF-8.
        OSError: it can't be read.
    """
    data = file.read(MAX_SCRIPT_BYTES + 1)
    if len(data) > MAX_SCRIPT_BYTES:
        raise SqlLimitError(
            f"The script is longer than {MAX_SCRIPT_BYTES:,} bytes.",
            hint="split it into several scripts.",
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise SqlParseError("The SQL is not UTF-8 text.", hint="save the file as UTF-8.")


def split_script(text: str) -> list[tuple[str, str]]:
    """Split a script at its semicolons.

    A comment `-- name: by_sex` above a statement names it, or `CREATE TABLE by_sex AS` before the
    SELECT, which is then left out: nothing is created. The k-th statement is called `query_k` if
    neither does. Comments outside of the statements are left out.

    Returns:
        Name and text of each statement, in order.

    Raises:
        SqlParseError: no statement, or a text that can't be cut into tokens.
        SqlLimitError: the script is too long.
        SqlError: a name that is not an identifier, or is given twice.
    """
    text = check_text(text, MAX_SCRIPT_BYTES)
    pieces = _pieces(tokenize(text))
    if not pieces:
        raise SqlParseError(
            "The script has no statement.", hint="for example SELECT COUNT(*) FROM people;"
        )
    if len(pieces) > MAX_STATEMENTS:
        raise SqlLimitError(
            f"The script has more than {MAX_STATEMENTS:,} statements.",
            hint="release it in several parts.",
        )
    statements: list[tuple[str, str]] = []
    taken: set[str] = set()
    after = 0
    for number, (comments, tokens) in enumerate(pieces, start=1):
        span = Span(tokens[0].start, tokens[-1].end + 1)
        created, tokens = _created(tokens)
        name = _name(comments, created, text, span, after) or f"query_{number}"
        if folded(name) in taken:
            raise SourceText(text).error(
                span,
                f"Two statements are named {name}.",
                "give each its own name by a comment above it: -- name: by_sex",
            )
        taken.add(folded(name))
        after = span.end
        statements.append((name, text[tokens[0].start : tokens[-1].end + 1]))
    return statements


def _pieces(tokens: list[Token]) -> list[tuple[list[str], list[Token]]]:
    """Group tokens by statement, each with the comments that stand before it."""
    pieces: list[tuple[list[str], list[Token]]] = []
    comments: list[str] = []
    current: list[Token] = []
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            if current:
                pieces.append((comments, current))
            # The tokenizer hangs a comment behind a semicolon on the semicolon.
            comments, current = list(token.comments), []
            continue
        if not current:
            comments = comments + list(token.comments)
        current.append(token)
    if current:
        pieces.append((comments, current))
    return pieces


def _created(tokens: list[Token]) -> tuple[str | None, list[Token]]:
    """Take `CREATE [OR REPLACE] [TEMP] TABLE|VIEW name AS` off a statement.

    Returns:
        The name, None if there is none, and the tokens behind it.
    """
    words = ["" if t.token_type is TokenType.STRING else capitals(t.text) for t in tokens]
    if words[0] != "CREATE" or "AS" not in words:
        return None, tokens
    end = words.index("AS")
    middle = [word for word in words[1:end] if word not in _CREATING]
    if len(middle) != 1 or end + 1 == len(tokens) or words[end - 1] in _CREATING:
        return None, tokens
    return tokens[end - 1].text, tokens[end + 1 :]


def _name(
    comments: list[str], created: str | None, text: str, span: Span, after: int
) -> str | None:
    """Return the name that a statement is given; `after` is where the one before it ends."""
    naming = [match for match in map(_NAMING.fullmatch, comments) if match]
    names = [match[1].strip() for match in naming]
    names += [created] if created is not None else []
    if not names:
        return None
    if len(names) > 1 or not _NAME.fullmatch(names[0]):
        problem = "has two names" if len(names) > 1 else "has a name that is not an identifier"
        if naming:  # tokens keep the text of a comment, and not its place
            at = text.find(naming[-1].string, after)
            span = span if at < 0 else Span(at, at + len(naming[-1].string.rstrip()))
        raise SourceText(text).error(
            span,
            f"The statement {problem}.",
            f"use one comment with letters, digits and underscores: -- name: {_plain(names)}",
        )
    return names[0]


def _plain(names: list[str]) -> str:
    """Make a good name of a bad one."""
    words = folded(re.sub(r"[^A-Za-z0-9]+", "_", names[0]).strip("_"))[:60]
    return words if _NAME.fullmatch(words) else "by_sex"


# ── A folder of `.sql` files as one script: a statement a file, which is named as its file is ────
#
# That is how dbt keeps models. What is read doesn't depend on the order in which a file system
# lists files. Links are not followed: statements come from analysts, and an error shows a line of
# them, so a link must not bring a file of the owner's into one.


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
    statements: dict[str, tuple[str, str]] = {}
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
            if folded(name) in statements:
                raise SqlError(
                    f"Two files are named {name}, apart from folders and capital letters.",
                    hint="rename one of them: it names its statement.",
                )
        except SqlError as error:
            error.statement = place
            raise
        statements[folded(name)] = name, sql
    return list(statements.values())


def _files(folder: Path) -> list[Path]:
    """List the files of a folder, and of those in it, by their names.

    Raises:
        SqlParseError: there are none.
        SqlLimitError: there are too many.
    """
    listed = list(islice(_entries(folder), MAX_ENTRIES + 1))
    files = sorted(
        (path for path in listed if folded(path.name).endswith(ENDING) and not _is_folder(path)),
        key=lambda path: path.relative_to(folder).parts,
    )
    if len(listed) > MAX_ENTRIES or len(files) > MAX_STATEMENTS:
        raise SqlLimitError(
            f"The folder {printable(str(folder))} has more than {MAX_STATEMENTS:,} statements, or "
            f"{MAX_ENTRIES:,} files.",
            hint="name the folder that has the scripts alone, or release them in several parts.",
        )
    if not files:
        raise SqlParseError(
            f"The folder {printable(str(folder))} has no {ENDING} file.",
            hint="put each statement into a file of its own, for example by_sex.sql.",
        )
    return files


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
