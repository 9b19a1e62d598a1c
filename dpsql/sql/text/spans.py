"""The place of a syntax node in the text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import SchemaError, Span, SqlError, SqlSchemaError, UnsupportedSqlError
from dpsql.schema.names import capitals

_CLAUSE_WORDS = """
    FROM WHERE GROUP HAVING QUALIFY WINDOW ORDER LIMIT OFFSET FETCH TABLESAMPLE INTO FOR
    UNION EXCEPT INTERSECT
"""
_JOIN_WORDS = """
    , JOIN LEFT RIGHT FULL INNER OUTER CROSS SEMI ANTI NATURAL ASOF POSITIONAL LATERAL
"""
CLAUSES = frozenset(_CLAUSE_WORDS.split())
"""Words that begin a new clause of a SELECT when they stand outside of parentheses."""
JOINS = frozenset(_JOIN_WORDS.split())
"""Words that begin a join."""
_PREFIXES: dict[type[exp.Expr], str] = {
    exp.Not: "NOT",
    exp.Neg: "-",
    exp.Exists: "EXISTS",
    exp.Distinct: "DISTINCT",
    exp.Where: "WHERE",
    exp.Any: "ANY",
    exp.All: "ALL",
}
_OPERATORS = frozenset({"SELECT", "AND", "OR", "NOT", "IN", "BY", "OVER", "ON", "BETWEEN", "IS"})
_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "("})
_BRACKETS = frozenset({TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSED = frozenset({TokenType.R_BRACKET, TokenType.R_BRACE})
_UNPLACED = frozenset({"FLOOR", "CEIL", "CEILING", "EXTRACT", "POSITION", "SUBSTRING", "TRIM"})
"""Functions of which the parser keeps no position."""
_CONSTANTS = frozenset({"TRUE", "FALSE", "NULL", "UNKNOWN"})


Range = tuple[int, int]
"""The first and the last of some tokens."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """A statement's text and tokens, to find where a syntax node was written.

    The parser keeps positions of names, literals and functions only; the words and parentheses
    around them are found among the tokens.
    """

    sql: str
    tokens: Sequence[Token] = ()
    _starts: list[int] = field(init=False, repr=False)
    _ends: list[int] = field(init=False, repr=False)
    _steps: list[int] = field(init=False, repr=False)
    """By how many parentheses one is further inside behind each token."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", [token.start for token in self.tokens])
        object.__setattr__(self, "_ends", [token.end for token in self.tokens])
        kinds = [token.token_type for token in self.tokens]
        steps = [(kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN) for kind in kinds]
        object.__setattr__(self, "_steps", steps)

    def error(
        self,
        place: exp.Expr | Span | None,
        message: str,
        hint: str | None,
        kind: type[SqlError] = SqlError,
    ) -> SqlError:
        """Return an error that marks a node, or a span, of this statement."""
        span = self.node(place) if isinstance(place, exp.Expr) else place
        return kind(message, sql=self.sql, span=span, hint=hint)

    def unsupported(self, place: exp.Expr | Span, message: str, hint: str) -> UnsupportedSqlError:
        """Return the error for well-formed SQL that dpsql refuses."""
        span = self.node(place) if isinstance(place, exp.Expr) else place
        return UnsupportedSqlError(message, sql=self.sql, span=span, hint=hint)

    def located(
        self, error: SchemaError, place: exp.Expr | Span, hint: str | None = None
    ) -> SqlError:
        """Return an error of the schema as one that marks a place, maybe with a better hint."""
        placed = self.error(place, error.message, hint or error.hint, SqlSchemaError)
        if isinstance(placed, SchemaError):
            placed.unknown, placed.wanted = error.unknown, error.wanted
        return placed

    @contextmanager
    def locating(self, place: exp.Expr | Span) -> Iterator[None]:
        """Let an error of the schema mark a place, unless it marks one."""
        try:
            yield
        except SqlError:
            raise
        except SchemaError as error:
            raise self.located(error, place) from None

    def whole(self) -> Span:
        """Return the span of all tokens."""
        if not self.tokens:
            return Span(0, len(self.sql))
        return Span(self.tokens[0].start, self.tokens[-1].end + 1)

    def text(self, span: Span) -> str:
        """Return the marked text."""
        return self.sql[span.start : span.end]

    def node(self, node: exp.Expr) -> Span:
        """Return the span of a node, or of the smallest node around it that has a position."""
        known = _positions(node)
        if known is None:
            return self.node(node.parent) if node.parent is not None else self.whole()
        return self._span(*self._range(node, known))

    def _range(self, node: exp.Expr, known: Range) -> Range:
        """Return the tokens of a node, given from where to where its names and values are."""
        first = bisect_right(self._starts, known[0]) - 1
        last = bisect_left(self._ends, known[1])
        return self._widened(node, first, min(last, len(self.tokens) - 1))

    def clause(self, *words: str) -> Span | None:
        """Return the span from the first of `words` outside parentheses to the next clause.

        A join begins after FROM: the commas of the SELECT list don't begin one.
        """
        after = self._first_word("FROM") if JOINS.issuperset(words) else -1
        places = [i for i in self.top_level() if i > after and self.word(i) in words]
        if not places:
            return None
        rest = [i for i in self.top_level() if i > places[0] and self.word(i) in CLAUSES]
        return self._span(places[0], rest[0] - 1 if rest else len(self.tokens) - 1)

    def inside(self, place: exp.Expr) -> SourceText:
        """Return the same text with the tokens alone of the parentheses that a SELECT stands in."""
        first = max(bisect_right(self._starts, self.node(place).start) - 1, 0)
        left, right = self._enclosing(first, first)
        return self if left == first else SourceText(self.sql, self.tokens[left + 1 : right])

    def joining(self, place: exp.Expr | Span) -> Span:
        """Return the span of the words by which an item after FROM is joined: LEFT JOIN.

        Of the first item they are those of the next one.
        """
        span = self.node(place) if isinstance(place, exp.Expr) else place
        last = max(bisect_right(self._starts, span.start) - 2, 0)
        if self.word(last) not in JOINS:
            after = bisect_right(self._starts, span.end)
            rest = range(after, len(self.tokens))
            last = next((i for i in rest if self.word(i) == "JOIN"), last)
        first = last
        while first > 0 and self.word(first - 1) in JOINS:
            first -= 1
        return self._span(first, last)

    def _first_word(self, word: str) -> int:
        return next((i for i in self.top_level() if self.word(i) == word), -1)

    def before(self, *words: str) -> Span:
        """Return the span up to the first of `words` outside parentheses."""
        places = [i for i in self.top_level() if i > 0 and self.word(i) in words]
        return self._span(0, places[0] - 1 if places else len(self.tokens) - 1)

    def first(self, *types: TokenType) -> Span | None:
        """Return the span of the first token of one of these types."""
        for i, token in enumerate(self.tokens):
            if token.token_type in types:
                parameter = token.token_type is TokenType.PARAMETER
                return self._span(i, min(i + parameter, len(self.tokens) - 1))
        return None

    def word(self, index: int) -> str:
        """Return a token's first word in capitals; quoted names and strings have none."""
        token = self.tokens[index]
        if token.token_type in {TokenType.STRING, TokenType.IDENTIFIER}:
            return ""
        if token.token_type is TokenType.TABLE_SAMPLE:
            return "TABLESAMPLE"
        return capitals(token.text).split(maxsplit=1)[0] if token.text.strip() else ""

    def call_around(self, at: int) -> int | None:
        """Return the name of the function in whose parentheses a token stands; None if in none."""
        left, _ = self._enclosing(at, at)
        return left - 1 if left != at and left > 0 else None

    def _span(self, first: int, last: int) -> Span:
        return Span(self.tokens[first].start, self.tokens[last].end + 1)

    def top_level(self) -> list[int]:
        """Return the places of the tokens outside of parentheses."""
        depth, places = 0, []
        for i, token in enumerate(self.tokens):
            depth -= token.token_type is TokenType.R_PAREN
            if depth == 0:
                places.append(i)
            depth += token.token_type is TokenType.L_PAREN
        return places

    def _widened(self, node: exp.Expr, first: int, last: int) -> Range:
        """Widen a range of tokens by the words and parentheses that belong to the node.

        The range is of the names and values in it; each rule for a node of its kind takes in more.
        """
        first = self._opened(first, last)
        last = self._balanced(first, last)
        for kinds, rule in _RULES:
            if isinstance(node, kinds):
                first, last = rule(self, node, first, last)
                last = self._balanced(first, min(last, len(self.tokens) - 1))
        return first, last

    def _in_parentheses(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the parentheses; the name of a subquery stands behind them, in others."""
        known, end = _positions(node.this) if isinstance(node, exp.Subquery) else None, last
        if known is not None:
            last = min(bisect_left(self._ends, known[1]), len(self.tokens) - 1)
            first = self._opened(bisect_right(self._starts, known[0]) - 1, last)
        first, last = self._enclosing(first, last)
        return first, max(last, end)

    def _around_query(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in more parentheses, until those of the subquery itself are reached."""
        while self.word(first + 1) not in _QUERY_WORDS:
            inside, (first, last) = first, self._enclosing(first, last)
            if inside == first:
                break
        return first, last

    def _from_select(self, node: exp.Expr, first: int, last: int) -> Range:
        return self._back_to("SELECT", first), last

    def _from_unnest(self, node: exp.Expr, first: int, last: int) -> Range:
        return self._back_to("UNNEST", first), last

    def _from_name(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the parentheses and the name of a function that has no position."""
        if not self._called(node, first):
            return first, last
        first, last = self._enclosing(first, last)
        return first - 1, last

    def _to_arguments(self, node: exp.Expr, first: int, last: int) -> Range:
        return first, last + (self._type(last + 1) is TokenType.L_PAREN)

    def _around_cast(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in `::INT`, or `CAST(` and what it closes."""
        if self._type(last + 1) is TokenType.DCOLON:
            return first, last + 2
        if any(self._type(at) is TokenType.DCOLON for at in range(first, last)):
            return first, last
        first, last = self._enclosing(first, last)
        return max(first - 1, 0), last

    def _in_brackets(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the brackets or braces of a list or struct, which may also be a call."""
        called = self._type(first + 1) is TokenType.L_PAREN
        opening = (at for at in range(first, -1, -1) if self._type(at) in _BRACKETS)
        left = None if called else next(opening, None)
        return (first, last) if left is None else (left, self._closing(left))

    def _to_index(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the `[1]` behind a list, and what a struct in front of `.n` begins with."""
        if isinstance(node.this, exp.Array | exp.Struct):
            first, end = self._in_brackets(node.this, first, last)
            last = max(last, end)
        indexed = self._type(last + 1) is TokenType.L_BRACKET
        return first, self._closing(last + 1) if indexed else last

    def _closing(self, left: int) -> int:
        """Return where the bracket or brace at a place is closed."""
        depth = 0
        for at in range(left, len(self.tokens)):
            depth += self._type(at) in _BRACKETS
            depth -= self._type(at) in _CLOSED
            if depth == 0:
                return at
        return left

    def _to_window(self, node: exp.Expr, first: int, last: int) -> Range:
        return first, last + 2 * (self._type(last + 1) is TokenType.OVER)

    def _to_constant(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the TRUE, FALSE or NULL at the end, which have no positions."""
        if isinstance(node.args.get("expression"), (exp.Boolean, exp.Null)):
            while last < len(self.tokens) - 1 and self.word(last) not in _CONSTANTS:
                last += 1
        return first, last

    def _to_operands(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the words with which the first operand begins and the last one ends."""
        if isinstance(node, exp.Dot):
            return first, last
        left, right = node.this, node.args.get("expression")
        while isinstance(left, _INFIX) and isinstance(left.this, exp.Expr):
            left = left.this
        while isinstance(right, exp.Binary):
            right = right.args.get("expression")
        for one in (left, right):
            known = _positions(one) if isinstance(one, exp.Expr) else None
            if isinstance(one, exp.Expr) and known is not None:
                begins, ends = self._range(one, known)
                first, last = min(first, begins), max(last, ends)
        return first, last

    def _from_parenthesis(self, node: exp.Expr, first: int, last: int) -> Range:
        while first > 0 and self._type(first - 1) is not TokenType.L_PAREN:
            first -= 1
        return first, last

    def _to_collation(self, node: exp.Expr, first: int, last: int) -> Range:
        return first, last + 2

    def _from_case_to_end(self, node: exp.Expr, first: int, last: int) -> Range:
        first = self._back_to("CASE", first, otherwise=0)
        while self._type(last) not in {TokenType.END, None}:
            last += 1
        return first, last

    def _from_prefix(self, node: exp.Expr, first: int, last: int) -> Range:
        """Take in the word before an operand, and parentheses between the two."""
        word = _PREFIXES[type(node)]
        while first > 0 and self.word(first) != word and self.word(first - 1) in {word, "("}:
            first -= 1
        return first, last

    def _back_to(self, word: str, first: int, otherwise: int | None = None) -> int:
        """Return the nearest place of a word at or before a token; else its own, or another."""
        places = (i for i in range(first, -1, -1) if self.word(i) == word)
        return next(places, first if otherwise is None else otherwise)

    def _called(self, node: exp.Expr, first: int) -> bool:
        """Whether the node is a function of which only the arguments have positions."""
        return (
            not isinstance(node, (exp.Binary, exp.Case, exp.Cast, exp.Exists))
            and node.meta.get("start") is None
            and self._type(first - 1) is TokenType.L_PAREN
            and first > 1
            and self.tokens[first - 2].text.replace("_", "").isalnum()
            and self.word(first - 2) not in CLAUSES | JOINS | _OPERATORS
        )

    def _type(self, index: int) -> TokenType | None:
        return self.tokens[index].token_type if 0 <= index < len(self.tokens) else None

    def _balanced(self, first: int, last: int) -> int:
        """Move the end to the right until every parenthesis that was opened is closed."""
        depth, at = sum(self._steps[first : last + 1]), max(first, last + 1)
        while at < len(self._steps) and depth > 0:
            depth += self._steps[at]
            at += 1
        return min(at, len(self._steps)) - 1

    def _opened(self, first: int, last: int) -> int:
        """Move the beginning to the left until every parenthesis that is closed was opened."""
        depth = lowest = 0
        for step in self._steps[first : last + 1]:
            depth += step
            lowest = min(lowest, depth)
        while lowest < 0 and first > 0:
            first -= 1
            lowest += self._steps[first]
            if first > 0 and lowest == 0 and self.word(first - 1) in _UNPLACED:
                first -= 1
        return first

    def _enclosing(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of the innermost parentheses around a range of tokens."""
        depth, left = 0, first
        while left > 0:
            left -= 1
            depth += self._type(left) is TokenType.R_PAREN
            if self._type(left) is TokenType.L_PAREN:
                if depth == 0:
                    return left, self._balanced(left, max(last, left))
                depth -= 1
        return first, last


_INFIX = (exp.Binary, exp.Between, exp.In)
_RULES: tuple[
    tuple[tuple[type[exp.Expr], ...], Callable[[SourceText, exp.Expr, int, int], Range]], ...
] = (
    ((exp.Subquery, exp.Paren, exp.Tuple), SourceText._in_parentheses),
    ((exp.Subquery,), SourceText._around_query),
    ((exp.Select, exp.SetOperation), SourceText._from_select),
    ((exp.Unnest,), SourceText._from_unnest),
    ((exp.Func,), SourceText._from_name),
    ((exp.SubqueryPredicate,), SourceText._in_parentheses),
    ((exp.Func, exp.Window), SourceText._to_arguments),
    ((exp.Array, exp.Struct, exp.ToMap), SourceText._in_brackets),
    ((exp.Bracket, exp.Dot), SourceText._to_index),
    ((exp.Cast,), SourceText._to_operands),
    ((exp.Cast,), SourceText._around_cast),
    ((exp.Window,), SourceText._to_window),
    ((exp.Binary,), SourceText._to_constant),
    (_INFIX, SourceText._to_operands),
    ((exp.DML, exp.DDL), SourceText._from_parenthesis),
    ((exp.Collate,), SourceText._to_collation),
    ((exp.Case,), SourceText._from_case_to_end),
    (tuple(_PREFIXES), SourceText._from_prefix),
)
"""Rules by which ranges of tokens grow, for kinds of nodes: all that fit are applied in this
order."""


def _positions(node: exp.Expr) -> tuple[int, int] | None:
    """Return the first and last known position among a node and its descendants."""
    starts, ends = [], []
    for child in node.walk():
        start, end = child.meta.get("start"), child.meta.get("end")
        if isinstance(start, int) and isinstance(end, int):
            starts.append(start)
            ends.append(end)
    return (min(starts), max(ends)) if starts else None
