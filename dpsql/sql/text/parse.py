"""A statement as a syntax tree: read from text, and written again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Span, SqlError, SqlLimitError, SqlParseError, printable
from dpsql.hints import first_that_works, instead, never, remedies_of
from dpsql.schema.names import capitals, folded, nearest, quoted_name, quoted_text
from dpsql.sql.text.edits import closed, unlisted
from dpsql.sql.text.limits import MAX_DEPTH, check_text, check_tokens, tokenize
from dpsql.sql.text.spans import SourceText

_WORDS = """
    ABORT ALTER ANALYZE ATTACH BEGIN CALL CHECKPOINT COMMENT COMMIT CONNECT COPY CREATE DEALLOCATE
    DELETE DESC DESCRIBE DETACH DROP EXECUTE EXPLAIN EXPORT FORCE GRANT IMPORT INSERT INSTALL LOAD
    MERGE PIVOT PRAGMA PREPARE REFRESH RENAME REPLACE RESET REVOKE ROLLBACK SET SHOW START
    SUMMARIZE TABLE TRUNCATE UNPIVOT UPDATE UPSERT USE VACUUM VALUES
"""
_OTHER_STATEMENTS = frozenset(_WORDS.split())
_QUERIES = {"VALUES", "PIVOT", "UNPIVOT"}
"""Queries that may stand in parentheses."""
_HINT = re.compile(r"\+\s*weight\s*\(\s*(\d{1,9}(?:\.\d{1,9})?)\s*\)\s*", re.IGNORECASE)
_STRANGE = frozenset(
    kind
    for kind in TokenType
    if kind.name.endswith("_STRING") or kind in {TokenType.BLOCK_START, TokenType.BLOCK_END}
)
"""Strings like $$a$$, E'a' and X'a', which the parser would take for names, too."""
_MAX_BRACKETS = 2
"""Lists in lists: the parser may try each opening as a type first, in time exponential in them."""
_OF_UNITS = {"DATE_TRUNC", "DATETRUNC", "DATE_DIFF", "DATEDIFF"}
_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
IN_LIST = 'a list of values is written IN (1, 2), and a quoted name "age".'
ONLY_SELECT = never("the only statement is SELECT, and nothing is ever written.")
_EXAMPLE = "SELECT sex, COUNT(*) FROM people GROUP BY sex"


class _Grammar(DuckDB.Parser):  # type: ignore[valid-type, misc]  # it is found when it is asked for
    """DuckDB's grammar, in which functions that have one value only in theory are not one function.

    Of log2(x) the parser would make log(2, x), which is a quotient to DuckDB, and another number.
    """

    FUNCTIONS: ClassVar = {
        name: build
        for name, build in DuckDB.Parser.FUNCTIONS.items()
        if name not in {"LOG2", "LOG10"}
    }


@dataclass(frozen=True, slots=True)
class Parsed:
    """One query: its syntax tree and its text."""

    query: exp.Query
    source: SourceText
    weight: float = 1.0
    """The number that `/*+ weight(5) */` says."""


def parse_statement(sql: str) -> Parsed:
    """Parse a text that must be exactly one query: a SELECT, with whatever is around it.

    Raises:
        SqlParseError: the text is empty or not well-formed.
        SqlError: it holds more than one statement.
        UnsupportedSqlError: it is another kind of statement.
        SqlLimitError: it is too long or too deep.
    """
    check_text(sql)
    source = _only_statement(sql)
    check_tokens(source)
    _check_first_word(source)
    _check_signs(source)
    tree = parse_tokens(source)
    _check_nothing_is_left_out(tree, source)
    if isinstance(tree, exp.Pivot):
        tree = _selected(tree)
    _check_depth(tree, source)
    if not isinstance(tree, (exp.Select, exp.SetOperation, exp.Subquery)):
        raise source.error(
            source.whole(), "This is not a SELECT statement.", _EXAMPLE, SqlParseError
        )
    return Parsed(tree, source, _weight(source))


def _selected(pivot: exp.Pivot) -> exp.Select:
    """Write the statement `PIVOT q ON …` as `SELECT * FROM (PIVOT q ON …)`."""
    clause = pivot.args.pop("with_", None)
    inner = exp.Subquery(this=pivot)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner), with_=clause)


def _only_statement(sql: str) -> SourceText:
    """Take the tokens of the one statement, without the semicolons behind it."""
    tokens = tokenize(sql)
    ends = [i for i, token in enumerate(tokens) if token.token_type is TokenType.SEMICOLON]
    inside = [token for token in tokens if token.token_type is not TokenType.SEMICOLON]
    if not inside:
        raise SourceText(sql).error(
            Span(0, len(sql)),
            "There is no statement here.",
            f"for example {_EXAMPLE}",
            SqlParseError,
        )
    first_end = next((i for i in ends if i > tokens.index(inside[0])), len(tokens))
    second = [t for t in tokens[first_end:] if t.token_type is not TokenType.SEMICOLON]
    if second:
        only = instead("", of=(tokens[first_end].start, len(sql)))
        raise SourceText(sql).error(
            Span(second[0].start, second[-1].end + 1),
            "There must be exactly one statement here, but a second one follows.",
            "pass a list of statements, or a .sql script, to release several together; or leave "
            "out what follows the first semicolon" + only + ".",
        )
    return SourceText(sql, inside)


def _weight(source: SourceText) -> float:
    """Read `/*+ weight(5) */`, the one hint there is.

    Raises:
        UnsupportedSqlError: it is another hint.
    """
    hints = [c for token in source.tokens for c in token.comments if c.startswith("+")]
    hints = hints if "/*+" in source.sql else []
    if not hints:
        return 1.0
    match = _HINT.fullmatch(hints[0])
    if len(hints) > 1 or match is None or not 1e-6 <= float(match[1]) <= 1e6:
        start = max(source.sql.find("/*+"), 0)
        end = source.sql.find("*/", start)
        span = Span(start, end + 2 if end >= 0 else len(source.sql))
        hint = "the only one is " + instead("/*+ weight(5) */") + "."
        if len(hints) > 1:
            more = (source.sql.find("/*+", end), source.sql.rfind("*/") + 2)
            hint = (
                "one is for the whole statement, behind its first SELECT: leave the other out"
                + instead("", of=more)
                + "."
            )
        raise source.unsupported(span, "This hint is not supported.", hint)
    return float(match[1])


def _check_first_word(source: SourceText) -> None:
    """Tell other kinds of statements by their first word; the parser accepts too many."""
    word = source.word(0)
    first = Span(source.tokens[0].start, source.tokens[0].end + 1)
    if word in {"SELECT", "WITH", "FROM", "(", "PIVOT", "UNPIVOT"}:
        return
    if word in _OTHER_STATEMENTS:
        raise source.unsupported(
            first,
            f"{word} is not supported: the only statement is SELECT, and nothing is ever written.",
            never("of a table, only numbers of rows are, and what is computed of such."),
        )
    example: str = f"for example {_EXAMPLE}"
    if nearest(word, ["SELECT"]) is not None:
        example = "write " + instead("SELECT", of=first) + f", {example}"
    raise source.error(first, "A statement begins with SELECT.", example, SqlParseError)


def _check_signs(source: SourceText) -> None:
    """Refuse what leaves no trace in the syntax tree, or takes the parser exponential time."""
    brackets = 0
    for at, token in enumerate(source.tokens):
        if token.token_type is TokenType.L_BRACKET:
            brackets += 1
            hint = _list_hint(source, at) if brackets <= _MAX_BRACKETS else IN_LIST
            if hint is not None:
                message = "A list in brackets is not supported here."
                if not remedies_of(hint):
                    hint = first_that_works(unlisted(source, _span(token)), hint)
                raise source.unsupported(_span(token), message, hint)
        if token.token_type is TokenType.R_BRACKET:
            brackets -= 1
        if token.token_type is TokenType.STRING:
            _check_string(source, at)
        if source.word(at) in _OTHER_STATEMENTS - _QUERIES:
            _check_reads(source, at)
        if source.word(at) in _OF_UNITS:
            _check_unit(source, at)
        _check_foreign(source, at)


def _span(token: Token) -> Span:
    return Span(token.start, token.end + 1)


def _check_string(source: SourceText, at: int) -> None:
    """Refuse a string beside a string, and the text of an interval that would be read in part."""
    before, token = source.tokens[at - 1] if at else None, source.tokens[at]
    if before is not None and before.token_type is TokenType.STRING:
        between = source.sql[before.end + 1 : token.start]
        if between.strip() or "\n" not in between:  # else they are one string, as in DuckDB
            joined = quoted_text(printable(before.text + token.text))
            hint = "write one string, " + instead(joined, of=(before.start, token.end + 1)) + "."
            message = "A string beside a string has no meaning."
            raise source.unsupported(_span(token), message, hint)
    if before is not None and source.word(at - 1) == "INTERVAL":
        _check_interval(source, _span(token), token.text)


def _check_reads(source: SourceText, at: int) -> None:
    """Refuse a query by a name that is a statement which writes: the parser would log its text."""
    before = [source.word(i) for i in range(max(at - 2, 0), at)]
    if before in (["AS", "("], ["MATERIALIZED", "("]):
        message = "A statement that writes is not supported."
        raise source.unsupported(_span(source.tokens[at]), message, ONLY_SELECT)


def _check_foreign(source: SourceText, at: int) -> None:
    """Refuse signs of other dialects and of templates."""
    token = source.tokens[at]
    after = source.tokens[at + 1].token_type if at + 1 < len(source.tokens) else None
    if token.token_type in _STRANGE:
        hint = "write a whole or decimal number, or a string in single quotes."
        message = "A literal of this form is not supported."
        raise source.unsupported(_span(token), message, hint)
    if token.token_type is after is TokenType.L_BRACE:
        raise _template(source, at)
    if source.word(at) == "TOP" and after is TokenType.NUMBER:
        raise _top(source, at)
    if token.text == "`":
        raise _backtick(source, at)
    if token.token_type is TokenType.NOT and token.text == "!":
        written = "write " + instead("NOT ") + "."
        raise source.unsupported(_span(token), "The operator ! is not supported.", written)


def _check_unit(source: SourceText, at: int) -> None:
    """Refuse a name for a unit of time, which the parser takes for the text, whatever it names."""
    kinds = [token.token_type for token in source.tokens[at + 1 : at + 4]]
    if kinds[:1] != [TokenType.L_PAREN] or kinds[2:] != [TokenType.COMMA]:
        return
    unit = source.tokens[at + 2]
    if unit.token_type is not TokenType.STRING:
        known = unit.text if nearest(unit.text, _UNITS) else "month"
        hint = "write one unit for all rows, " + instead(quoted_text(known), of=_span(unit)) + "."
        message = f"The unit of {printable(source.tokens[at].text)} is a text."
        raise source.unsupported(_span(unit), message, hint)


_COUNTED = re.compile(r"-?[0-9]+(?:\.[0-9]+)?\s*[a-zA-Z]+")
"""A number and a unit, as the parser looks for them in the text of an interval."""


def _check_interval(source: SourceText, span: Span, text: str) -> None:
    """Refuse the text of an interval of which the parser would leave something out.

    It takes the one number and the one unit that it finds for all of it: of '3 days ago' and
    '1 day 02:00' just the days. A text with several of them it leaves as it is.

    Raises:
        UnsupportedSqlError: it has one, and more beside it.
    """
    parts = _COUNTED.findall(text)
    if len(parts) == 1 and text.strip() != parts[0]:
        message = "An interval may be one number and one unit here, and nothing else."
        hint = f"write CAST({quoted_text(text)} AS INTERVAL) in place of INTERVAL and its text."
        raise source.unsupported(span, message, hint)


def _list_hint(source: SourceText, at: int) -> str | None:
    """Say what to write in place of the list that begins at a token; None if it may stand there."""
    tokens, end = source.tokens, at
    while end < len(tokens) - 1 and tokens[end].token_type is not TokenType.R_BRACKET:
        end += 1
    call = source.call_around(at)
    word = "" if call is None else source.word(call)
    levels = [t.text for t in tokens[at:end] if t.token_type is TokenType.NUMBER]
    if call is not None and word.startswith(("QUANTILE", "PERCENTILE")) and levels:
        before = source.sql[tokens[call].start : tokens[at].start]
        columns = ", ".join(f"{before}{level})" for level in levels[:3])
        list_ = Span(tokens[call].start, tokens[min(end + 1, len(tokens) - 1)].end + 1)
        return "write a column for each: " + instead(columns, of=list_) + "."
    if word == "COLUMNS":
        return "name the columns, one aggregate for each."
    words = [source.word(i) for i in range(max(at - 2, 0), at)]
    if words[-1:] == ["IN"] and end > at:
        inner = source.sql[tokens[at].end + 1 : tokens[end].start]
        return (
            "write parentheses: "
            + instead(f"({inner})", of=(tokens[at].start, tokens[end].end + 1))
            + "."
        )
    of_type = at > 1 and tokens[at - 2].token_type is TokenType.DCOLON
    return IN_LIST if of_type or words[-1:] == ["IN"] else None


def _template(source: SourceText, at: int) -> SqlError:
    """Say what to write in place of a template."""
    tokens = source.tokens
    last = next(
        (i for i in range(len(tokens) - 1, at, -1) if tokens[i].token_type is TokenType.R_BRACE), at
    )
    span = Span(tokens[at].start, tokens[last].end + 1)
    names = [t.text for t in tokens[at:last] if t.token_type is TokenType.STRING]
    name = names[-1] if names else "people"
    hint = f"write what it stands for, such as {printable(name)}, or pass rendered SQL."
    return source.unsupported(span, "A template is not SQL.", hint)


def _top(source: SourceText, at: int) -> SqlError:
    number = source.tokens[at + 1]
    span = Span(source.tokens[at].start, number.end + 1)
    hint = f"write LIMIT {printable(number.text)} at the end."
    return source.unsupported(span, "TOP is not supported.", hint)


def _backtick(source: SourceText, at: int) -> SqlError:
    start = source.tokens[at].start
    end = source.sql.find("`", start + 1)
    span = Span(start, end + 1 if end >= 0 else start + 1)
    name = source.sql[start + 1 : end] if end >= 0 else "age"
    hint = "write " + instead(quoted_name(printable(name))) + " in double quotes."
    return source.unsupported(span, "Backticks are not supported.", hint)


def parse_tokens(source: SourceText) -> exp.Expr:
    """Return the one tree of a statement's tokens.

    Raises:
        SqlParseError: there is none, or more than one.
        SqlLimitError: it is too deep.
    """
    try:
        parser = _Grammar(dialect=DuckDB())
        parsed = parser.parse(list(source.tokens), source.sql)
        trees: list[exp.Expr] = [tree for tree in parsed if tree is not None]
    except ParseError as error:
        raise source.error(
            _error_span(error, source),
            "The SQL is not well-formed here.",
            first_that_works(
                closed(source, _error_span(error, source)),
                f"check the words before it; the form is {_EXAMPLE}",
            ),
            SqlParseError,
        ) from None
    except RecursionError:
        raise source.error(
            source.whole(),
            "The statement is too deeply nested.",
            "write it with fewer parentheses, or as several statements.",
            SqlLimitError,
        ) from None
    except Exception:  # whatever else the parser stumbles over in odd text is the text's fault
        trees = []
    if len(trees) != 1:
        raise source.error(
            source.whole(), "The SQL can't be parsed.", f"the form is {_EXAMPLE}", SqlParseError
        )
    return trees[0]


def _check_depth(tree: exp.Expr, source: SourceText) -> None:
    """Refuse trees that are too deep for the recursive passes that follow.

    Chains of AND and OR are as deep as they are long, but those passes flatten them; chains of
    UNION are halved before them (`shorthands.with_short_chains`).
    """
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise source.error(
                source.whole(),
                f"The statement nests more than {MAX_DEPTH} operators.",
                "shorten the arithmetic.",
                SqlLimitError,
            )
        chained = isinstance(node, exp.Connector | exp.Union)
        flat = chained and type(node.parent) is type(node)
        pending += [(child, depth + (not flat)) for child in node.iter_expressions()]


def _error_span(error: ParseError, source: SourceText) -> Span:
    for detail in error.errors:
        before, marked = detail.get("start_context") or "", detail.get("highlight") or ""
        at = source.sql.find(before + marked)
        if at >= 0 and marked:
            return Span(at + len(before), at + len(before) + len(marked))
    return source.whole()


# ── A tree has all that was typed ────────────────────────────────────────────────────────────────

_SIGNS = frozenset({
    TokenType.L_PAREN, TokenType.R_PAREN, TokenType.COMMA, TokenType.DOT, TokenType.PLUS,
    TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DPIPE, TokenType.EQ,
    TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE,
})  # fmt: skip
_READ_OTHERWISE = frozenset({
    TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.INTERVAL, TokenType.DOT,
})  # fmt: skip
"""Signs behind which a value may be another one in the tree: units of time come first in a call and
have several names, places in lists are counted from 0, '1 day' is a number and a unit, and of .5
the 5 comes by itself."""
_VALUES = frozenset({TokenType.NUMBER, TokenType.STRING})


def _check_nothing_is_left_out(tree: exp.Expr, source: SourceText) -> None:
    """Refuse a statement with names or values that its tree hasn't as often as they were typed.

    The parser reads `mod(a, b, c)` as a % b, which is well-formed.

    Raises:
        SqlParseError: there is one.
    """
    nodes, typed = list(tree.walk()), list(_typed(source.tokens))
    if any(isinstance(node, exp.JSONPath) for node in nodes):
        return  # a text that was taken apart; the allow-list has none
    left = Counter(_held_by(nodes))
    left.subtract(text for _, text, _ in typed)
    for token, text, is_sure in typed:
        if is_sure and left[text] < 0:
            raise source.error(
                Span(token.start, token.end + 1),
                "This would be left out, as nothing can be read here.",
                "leave it out, if it is an argument too many; or check the words around it.",
                SqlParseError,
            )


def _typed(tokens: Sequence[Token]) -> Iterator[tuple[Token, str, bool]]:
    """Yield names and values, how they are known, and whether they must be in the tree.

    A word between other words may be one of the grammar.
    """
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        kinds = [None if one is None else one.token_type for one in (before, after)]
        if token.token_type in _VALUES:
            if kinds[0] not in _READ_OTHERWISE:
                yield token, _known_as(token.text), True
        elif token.token_type is TokenType.IDENTIFIER:
            yield token, _known_as(token.text), True
        elif token.token_type is TokenType.VAR and kinds[1] is not TokenType.L_PAREN:
            yield token, _known_as(token.text), {*kinds} <= _SIGNS


def _held_by(nodes: Iterable[exp.Expr]) -> Iterator[str]:
    """Yield names and values of a tree's nodes, as they are known."""
    for node in nodes:
        for value in node.args.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, (str, int, float)) and not isinstance(each, bool):
                    yield _known_as(str(each))


def _known_as(text: str) -> str:
    """Return one text for all spellings of a name, or of a number."""
    if not text[:1].isdigit() and text[:1] not in {".", "-", "+"}:
        return folded(text)
    try:
        return str(Decimal(text.replace("_", "")).normalize())
    except InvalidOperation:
        return folded(text)


# ── A tree, written as SQL and read again, is the same tree ──────────────────────────────────────


def check_written(query: exp.Query, source: SourceText) -> None:
    """Refuse a tree that reads otherwise when it is written and read again.

    Whatever is sent to DuckDB is written from parts of this tree. With names in quotes and no free
    text elsewhere, what is written has the same tree; here that is checked, and not assumed.

    Raises:
        SqlParseError: it doesn't.
    """
    text = query.sql(dialect="duckdb", comments=False, identify=True)
    try:
        same = _are_same(parse_tokens(SourceText(text, tokenize(text))), query)
    except SqlError:
        same = False
    if not same:
        raise source.error(
            source.whole(),
            "The SQL can be read in more than one way.",
            "write it more simply: names as words or in double quotes, strings in single ones.",
            SqlParseError,
        )


def _are_same(first: object, second: object) -> bool:
    """Whether two trees are equal in all but what writing changes on purpose."""
    pending = [(first, second)]
    while pending:
        left, other = pending.pop()
        if isinstance(left, exp.Expr) and isinstance(other, exp.Expr):
            left, other = _plain(left), _plain(other)
            if isinstance(other, (exp.AggFunc, exp.WithinGroup)):
                if not _is_aggregate(left, other):
                    return False
            elif type(left) is not type(other):
                return False
            else:
                pending += _parts(left, other)
        elif isinstance(left, list) and isinstance(other, list):
            if len(left) != len(other):
                return False
            pending += zip(left, other, strict=True)
        elif (left or None) != (other or None):  # what is not given may be None, False or []
            return False
    return True


def _parts(one: exp.Expr, other: exp.Expr) -> list[tuple[object, object]]:
    # "safe" tells other dialects how NULL is joined; strings one below the other come without it.
    keys = {*one.args, *other.args} - {"quoted", "safe"}
    return [(one.args.get(key), other.args.get(key)) for key in keys]


def _is_aggregate(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether an aggregate came back as itself, or in another form with the same names and values.

    WITHIN GROUP becomes an argument, BOOL_AND casts its own, STRING_AGG gets a comma.
    """
    if type(one) is type(other) and all(_are_same(*pair) for pair in _parts(one, other)):
        return True
    return _leaves(one) ^ _leaves(other) <= {(exp.Literal, ",")}


def _leaves(node: exp.Expr) -> set[tuple[type, str]]:
    return {(type(n), n.name) for n in node.find_all(exp.Identifier, exp.Literal)}


def _plain(node: exp.Expr) -> exp.Expr:
    """Write a node as it comes back: IF as CASE, units in full, functions in small letters."""
    if isinstance(node, exp.WindowSpec) and node.args.get("end") is None:
        return exp.WindowSpec(**{**node.copy().args, "end": "CURRENT ROW"})
    if isinstance(node, exp.Join) and node.args.get("on") == exp.true():
        return exp.Join(**{**node.copy().args, "on": None})  # what unnest gets after a comma
    if isinstance(node, exp.If) and not _is_branch(node):
        branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
        otherwise = node.args.get("false")
        return exp.Case(ifs=[branch], default=otherwise.copy() if otherwise is not None else None)
    if isinstance(node, exp.Trim) and node.args.get("position") == "BOTH":
        return exp.Trim(**{**node.copy().args, "position": None})  # which is meant without a word
    if isinstance(node, exp.Var):
        unit = capitals(node.name)
        return exp.Var(this=DuckDB.DATE_PART_MAPPING.get(unit, unit))
    if isinstance(node, exp.Anonymous):
        return exp.Anonymous(this=folded(node.name), expressions=node.copy().expressions)
    return node


def _is_branch(node: exp.If) -> bool:
    """Whether it is WHEN … THEN of a CASE, and not a function in one: its operand or ELSE."""
    return isinstance(node.parent, exp.Case) and node.arg_key == "ifs"
