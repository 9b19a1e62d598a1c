"""What hints say to type, typed: into a statement, or as arguments of a session.

A conversation goes on as somebody would have it who does what each refusal says first, until there
is an answer, or nothing to type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

import dpsql
from dpsql.errors import DpsqlError, SqlError
from dpsql.hints import Remedy, RemedyPlace, remedies_of

_REST = "…"
_LATER = {"GROUP BY", "HAVING", "QUALIFY", "WINDOW", "ORDER BY", "LIMIT", "OFFSET", "FETCH"}
_LATER |= {"UNION", "EXCEPT", "INTERSECT"}
MOST_STEPS = 8


@dataclass(frozen=True)
class Asked:
    """A statement, with the arguments of the session that is asked."""

    sql: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    owner: tuple[str, ...] = ()
    """Statements that the data owner runs first."""


@dataclass(frozen=True)
class Step:
    """What was asked, and the refusal; None if it is answered."""

    asked: Asked
    refusal: DpsqlError | None

    @property
    def named(self) -> tuple[str, str | None] | None:
        """What the refusal says."""
        if self.refusal is None:
            return None
        return self.refusal.message, self.refusal.hint


Refused = Callable[[Asked], DpsqlError | None]
"""Asks, and returns the refusal."""


def conversations(first: Asked, refused: Refused) -> Iterator[list[Step]]:
    """Type each remedy of a refusal, and then what the next one says first, and so on.

    A conversation ends with an answer, where nothing is to be typed, or where it comes back to what
    was said before.
    """
    error = refused(first)
    for remedy in typeable(error):
        steps = [Step(first, error)]
        chosen: Remedy | None = remedy
        while chosen is not None and len(steps) < MOST_STEPS:
            at = steps[-1]
            assert at.refusal is not None
            asked = typed(at.asked, chosen, at.refusal)
            steps.append(Step(asked, refused(asked)))
            again = asked in [step.asked for step in steps[:-1]]
            further = None if again else steps[-1].refusal
            chosen = next(iter(typeable(further)), None)
        yield steps


def typeable(error: DpsqlError | None) -> list[Remedy]:
    """Return the remedies of a refusal that have a place: names of a schema are in no statement."""
    found = remedies_of(None if error is None else error.hint)
    apart = {RemedyPlace.ARGUMENT, RemedyPlace.DATABASE}
    in_sql = isinstance(error, SqlError) and error.sql is not None
    return [remedy for remedy in found if in_sql or remedy.place in apart]


def typed(asked: Asked, remedy: Remedy, error: DpsqlError) -> Asked:
    """Return what is asked after a remedy of a refusal is typed."""
    if remedy.place is RemedyPlace.ARGUMENT:
        return replace(asked, arguments=merged(asked.arguments, remedy.text))
    if remedy.place is RemedyPlace.DATABASE:
        return replace(asked, owner=(*asked.owner, remedy.text))
    assert isinstance(error, SqlError)
    start, end = remedy.span or error.span or (0, len(asked.sql))
    if remedy.place is RemedyPlace.MARKED:
        sql = asked.sql[:start] + remedy.text + asked.sql[end:]
    elif remedy.place is RemedyPlace.STATEMENT:
        sql = _statement(remedy.text, asked.sql, (start, end))
    else:
        sql = _grouped(remedy.text, asked.sql, (start, end))
    return replace(asked, sql=sql)


def merged(arguments: Mapping[str, object], written: str) -> Mapping[str, object]:
    """Return arguments with one that is written as in Python; mappings and lists are added to."""
    (name, value) = next(iter(eval(f"dict({written})", {"dpsql": dpsql}).items()))  # noqa: S307
    before = arguments.get(name)
    if name == "schema" and before is not None:
        value = _with_schema(before, value)
    elif isinstance(before, dict) and isinstance(value, dict):
        value = {**before, **value}
    elif isinstance(before, (list, tuple)) and isinstance(value, (list, tuple)):
        value = [*before, *(one for one in value if one not in before)]
    if name == "max_rows" and isinstance(arguments.get("unit"), dpsql.Unit):
        return {**arguments, "unit": replace(arguments["unit"], max_rows=value)}
    return {**arguments, name: value}


def _with_schema(before: object, added: dpsql.Schema) -> dpsql.Schema:
    """Add declarations to a schema: tables, columns and expressions."""
    old = before if isinstance(before, dpsql.Schema) else dpsql.Schema(before)
    tables = {name: dict(columns) for name, columns in old.items()}
    for name, columns in added.items():
        tables[name] = {**tables.get(name, {}), **columns}
    expressions = {name: dict(bounds) for name, bounds in old.expressions.items()}
    for name, bounds in added.expressions.items():
        expressions[name] = {**expressions.get(name, {}), **bounds}
    others = {name: getattr(old, name) for name in ("units", "groups", "references")}
    return dpsql.Schema(tables, expressions=expressions, **others)


# ── clauses of the SELECT that is marked ───────────────────────────────────────────────────


def _statement(text: str, sql: str, span: tuple[int, int]) -> str:
    """Write a statement, with what the marked SELECT has for `…`, and its WITH."""
    tokens = _tokens(sql)
    if _REST not in text:
        return text
    clauses = _clauses(tokens, span)
    begin = next((at for word, at in clauses if word == "FROM"), None)
    rest = ""
    if begin is not None:
        later = [at for word, at in clauses if word in _LATER and at > begin]
        stop = tokens[later[0]].start if later else _end(tokens, span)
        rest = sql[tokens[begin].start : stop].strip()
    return _named_before(tokens, sql, span) + text.replace(_REST, rest)


def _named_before(tokens: list[Token], sql: str, span: tuple[int, int]) -> str:
    """Write WITH and what it names before a span: for a query among these, the ones before it."""
    if not tokens or tokens[0].token_type is not TokenType.WITH:
        return ""
    depth, ends = 0, 0
    for token in tokens:
        kind = token.token_type
        if token.start >= span[0]:
            return sql[:ends] + " " if ends else ""
        if depth == 0 and kind is TokenType.SELECT:
            return sql[: token.start]
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        ends = token.start if depth == 0 and kind is TokenType.COMMA else ends
    return ""


def _grouped(keys: str, sql: str, span: tuple[int, int]) -> str:
    """Write what stands behind GROUP BY of the SELECT that is marked."""
    tokens = _tokens(sql)
    clauses = _clauses(tokens, span)
    group = next((at for word, at in clauses if word == "GROUP BY"), None)
    later = [at for word, at in clauses if word in _LATER and (group is None or at > group)]
    stop = tokens[later[0]].start if later else _end(tokens, span)
    start = tokens[group].start if group is not None else stop
    return f"{sql[:start].rstrip()} GROUP BY {keys} {sql[stop:]}".strip()


def _tokens(sql: str) -> list[Token]:
    return sqlglot.tokenize(sql, read="duckdb")


def _inside(tokens: list[Token], span: tuple[int, int]) -> tuple[int, int]:
    """Return the range of tokens of the innermost SELECT around a span."""
    first, last = 0, len(tokens)
    opened: list[int] = []
    for i, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            opened.append(i)
        elif token.token_type is TokenType.R_PAREN and opened:
            left = opened.pop()
            around = tokens[left].start < span[0] <= token.start
            query = tokens[left + 1].token_type in {TokenType.SELECT, TokenType.WITH}
            if around and query and left >= first:
                first, last = left + 1, i
    return first, last


def _clauses(tokens: list[Token], span: tuple[int, int]) -> list[tuple[str, int]]:
    """Return the clauses of the SELECT around a span, with the tokens where they begin."""
    first, last = _inside(tokens, span)
    found, depth = [], 0
    for i in range(first, last):
        kind = tokens[i].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        word = " ".join(tokens[i].text.upper().split())
        plain = depth == 0 and kind not in {TokenType.STRING, TokenType.IDENTIFIER}
        if plain and word in {"FROM"} | _LATER:
            found.append((word, i))
    return found


def _end(tokens: list[Token], span: tuple[int, int]) -> int:
    last = _inside(tokens, span)[1]
    return tokens[last].start if last < len(tokens) else tokens[-1].end + 1
