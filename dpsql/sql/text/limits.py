"""Bounds on the text, checked before any parser sees it.

The parser is recursive and takes about 0.1 ms for each token; these bounds keep it far from the
recursion limit and below a second.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Span, SqlError, SqlLimitError, SqlParseError
from dpsql.hints import first_that_works
from dpsql.schema.names import capitals
from dpsql.sql.text.edits import quote_closed
from dpsql.sql.text.spans import SourceText

MAX_STATEMENT_BYTES = 100_000
MAX_SCRIPT_BYTES = 1_000_000
MAX_STATEMENTS = 1_000
MAX_TOKENS = 10_000
MAX_PARENTHESES = 32
MAX_PREFIXES = 32
MAX_DEPTH = 100
MAX_CALLS = 12
"""Calls in calls: of some functions the parser copies arguments, in time exponential in them."""
MAX_TYPES = 6
"""Such calls that are named as a type, as `date(…)`: the parser reads each as one first."""
MAX_JOINS = 32
MAX_BARE_JOINS = 8
MAX_PARSING = 100_000
"""Each JOIN without a condition of its own doubles the times that what follows is read: so many
words and signs may be read, which takes about a second."""

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_GROUPING = {"ABS", "AND", "BETWEEN", "BY", "FROM", "IN", "NOT", "OR", "OVER", "SELECT", "WHERE"}
"""Words before a parenthesis that don't make it a call, and ABS, which is not a type."""
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE, TokenType.CASE}


def check_text(text: object, limit: int = MAX_STATEMENT_BYTES) -> str:
    """Return the text if it is short enough and made of ordinary characters.

    Raises:
        SqlLimitError: it is longer than `limit` bytes.
        SqlParseError: it isn't a string, or has control characters or lone surrogates.
    """
    if not isinstance(text, str):
        raise SqlParseError(
            f"The SQL is a {type(text).__name__}, not a string.",
            hint='for example "SELECT COUNT(*) FROM people".',
        )
    # The number of characters comes first: it costs nothing, however long the text is.
    if len(text) > limit or len(text.encode("utf-8", "surrogatepass")) > limit:
        raise SqlLimitError(
            f"The SQL is longer than {limit:,} bytes.",
            hint="shorten it, for example by a BETWEEN in place of a long list.",
        )
    for at, char in enumerate(text):
        if char in "\t\n\r" or (" " <= char <= "~"):
            continue
        if unicodedata.category(char) in {"Cc", "Cs"} or char == "\ufeff":
            raise SourceText(text.encode("utf-8", "replace").decode()).error(
                Span(at, at + 1),
                f"The SQL has the invisible character U+{ord(char):04X}.",
                "delete it; it often comes from copying or from the file's encoding.",
                SqlParseError,
            )
    return text


def tokenize(text: str) -> list[Token]:
    """Cut a text into tokens.

    Raises:
        SqlParseError: a string, quoted name or comment doesn't end.
    """
    try:
        return list(DuckDB().tokenize(text))
    except (SqlglotError, RecursionError, ValueError, IndexError, KeyError):
        raise SourceText(text).error(
            _last_quote(text),
            "The SQL can't be read: a string, a quoted name or a comment doesn't end.",
            first_that_works(quote_closed(text, _last_quote(text)), "close every ' and \" and /*."),
            SqlParseError,
        ) from None


def check_tokens(source: SourceText) -> None:
    """Refuse statements that are too large or too deeply nested to be parsed.

    Raises:
        SqlLimitError: too many tokens, joins, calls in calls, parentheses in parentheses, or
            prefix operators.
    """
    tokens = source.tokens
    if len(tokens) > MAX_TOKENS:
        raise _too_large(
            source, tokens[MAX_TOKENS], f"has more than {MAX_TOKENS:,} words and signs"
        )
    _check_joins(source)
    _check_calls(source)
    depth = prefixes = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if token.token_type is TokenType.CASE:
            depth += 1
        elif token.token_type is TokenType.END:
            depth -= 1
        if depth > MAX_PARENTHESES:
            message = f"nests more than {MAX_PARENTHESES} parentheses"
            raise _too_large(source, token, message)
        if prefixes > MAX_PREFIXES:
            raise _too_large(
                source, token, f"has more than {MAX_PREFIXES} prefix operators in a row"
            )


def _check_joins(source: SourceText) -> None:
    """Refuse many joins, and of those that have no condition before the next one fewer."""
    tokens = source.tokens
    joins = [token for token in tokens if token.token_type is TokenType.JOIN]
    if len(joins) > MAX_JOINS:
        raise _too_large(source, joins[MAX_JOINS], f"has more than {MAX_JOINS} joins")
    bare = _bare_joins(tokens)
    most = min(MAX_BARE_JOINS, int(math.log2(MAX_PARSING / max(len(tokens), 1))))
    if len(bare) > most:
        place = Span(bare[most].start, bare[most].end + 1)
        what = f"The statement has more than {most} joins without a condition."
        hint = "write CROSS JOIN where there is none, and else ON or USING after each JOIN."
        raise source.error(place, what, hint, SqlLimitError)


def _bare_joins(tokens: Sequence[Token]) -> list[Token]:
    """Return the joins that are followed by another, and not by a condition, in their brackets."""
    bare: list[Token] = []
    waiting: list[Token | None] = [None]
    """In each bracket that is open the last join, until its condition comes."""
    before = TokenType.SELECT
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            waiting.append(None)
        elif kind in _CLOSING and len(waiting) > 1:
            bare += filter(None, [waiting.pop()])
        elif kind in (TokenType.ON, TokenType.USING):
            waiting[-1] = None
        elif kind in (TokenType.JOIN, TokenType.SELECT):
            bare += filter(None, [waiting[-1]])
            starts = kind is TokenType.JOIN and before is not TokenType.CROSS
            waiting[-1] = token if starts else None
        before = kind
    return [*bare, *filter(None, waiting)]


def _check_calls(source: SourceText) -> None:
    calls: list[tuple[bool, bool]] = []
    before, kind = "", TokenType.SELECT
    types = DuckDB.Parser.TYPE_TOKENS
    for token in source.tokens:
        if token.token_type is TokenType.L_PAREN:
            word = before.replace("_", "a").isalnum() and before not in _GROUPING
            calls.append((word, word and kind in types and kind is not TokenType.INTERVAL))
            if sum(call for call, _ in calls) > MAX_CALLS:
                raise _too_large(source, token, f"nests more than {MAX_CALLS} function calls")
            if sum(typed for _, typed in calls) > MAX_TYPES:
                message = f"nests more than {MAX_TYPES} calls that are named as types"
                raise _too_large(source, token, message)
        elif token.token_type is TokenType.R_PAREN and calls:
            calls.pop()
        quoted = token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}
        before, kind = "" if quoted else capitals(token.text), token.token_type


def too_long(node: exp.Expr, source: SourceText) -> SqlError:
    """Refuse an expression that grows too long where names are replaced by what they stand for.

    Each query around another may use its columns twice: 32 of them would make 2^32 parts of one.
    """
    what = (
        f"The expression has more than {MAX_TOKENS:,} parts, with the columns of inner queries and "
        "the names of the SELECT list replaced by what they stand for."
    )
    hint = "use each of them fewer times."
    return source.error(node, what, hint, SqlLimitError)


def _too_large(source: SourceText, token: Token, what: str) -> SqlError:
    place = Span(token.start, token.end + 1)
    hint = "write it more simply, or as several statements."
    return source.error(place, f"The statement {what}.", hint, SqlLimitError)


def _last_quote(text: str) -> Span:
    at = max(text.rfind("'"), text.rfind('"'), text.rfind("/*"), 0)
    return Span(at, min(at + 1, len(text)))
