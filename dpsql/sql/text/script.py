"""Cut a `.sql` file into named statements."""

from __future__ import annotations

import re
from typing import BinaryIO

from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Span, SqlLimitError, SqlParseError
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
