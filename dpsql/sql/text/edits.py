"""Edits of a statement that may be what its refusal should propose: they are tried before it does.

An edit is made of the statement's own text. Here nothing is known of tables and types, so whether
it is answered is seen by asking; see `dpsql.hints.first_that_works`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Span, printable
from dpsql.hints import Hint, instead, write
from dpsql.schema.names import folded, nearest
from dpsql.sql.text.spans import CLAUSES, SourceText

_WORD = re.compile(r"[A-Za-z_]\w*")
_MEANT = ("SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "JOIN")
"""Keywords for which words are taken that are spelled almost like them."""
_MOST_VALUES = 20
_LONGEST = 80
"""Characters of what a hint shows as what is to be replaced."""
_RANGE = re.compile(r"(?:range|generate_series)\(\s*(?:(\d+)\s*,\s*)?(\d+)\s*\)", re.IGNORECASE)


def written(source: SourceText, text: str, span: Sequence[int]) -> Hint:
    """Say what to write in place of a part of a statement."""
    old = " ".join(source.sql[span[0] : span[1]].split())
    whole = span[0] <= source.whole().start and span[1] >= source.whole().end
    place = "" if whole or len(old) > _LONGEST else f" in place of {printable(old)}"
    return "write " + instead(text, of=(span[0], span[1])) + place + "."


def swapped(source: SourceText, span: Span, old: str, new: str) -> list[Hint]:
    """Write a part of the marked text otherwise, by a regular expression."""
    text = source.text(span)
    changed = " ".join(re.sub(old, new, text, flags=re.IGNORECASE).split())
    plain = text.isprintable() and changed != " ".join(text.split())
    return [written(source, changed, span)] if plain else []


def casts(source: SourceText, span: Span, of_text: str = "INTEGER") -> Iterator[Hint]:
    """Cast one of the columns and strings of an expression to another type.

    Args:
        source: the statement's text.
        span: the expression.
        of_text: what its strings are cast to.
    """
    inside = [t for t in source.tokens if span.start <= t.start and t.end < span.end]
    for token in inside:
        if token.token_type is TokenType.STRING:
            yield from _cast(source, span, token, f"TRY_CAST({{}} AS {of_text})")
    names = [t for t in inside if _is_name(source, t)]
    for form in (
        "CAST({} AS VARCHAR)",
        "CAST({} AS BIGINT)",
        "TRY_CAST({} AS DOUBLE)",
        "CAST({} AS DOUBLE)",
    ):
        for token in names:
            yield from _cast(source, span, token, form)


def _cast(source: SourceText, span: Span, token: Token, form: str) -> list[Hint]:
    at_token = Span(token.start, token.end + 1)
    before = source.sql[span.start : at_token.start]
    after = source.sql[at_token.end : span.end]
    hint = written(source, f"{before}{form.format(source.text(at_token))}{after}", span)
    kind = form.removesuffix(")").rpartition(" ")[2]
    return [hint + f" That is NULL where it is no {kind}." if "TRY" in form else hint]


def _is_name(source: SourceText, token: Token) -> bool:
    """Whether a token is a name that stands alone, and is no function."""
    after = source.sql[token.end + 1 :].lstrip()[:1]
    before = source.sql[: token.start].rstrip()[-1:]
    named = token.token_type in {TokenType.VAR, TokenType.IDENTIFIER}
    return named and after not in {"(", "."} and before != "."


def chained(source: SourceText, span: Span) -> list[Hint]:
    """Write `1 < a < 5` as `1 < a AND a < 5`."""
    sign = r"\s*(<=|>=|<>|<|>|=)\s*"
    form = rf"([^<>=]+?){sign}([^<>=]+?){sign}([^<>=]+)"
    match = re.fullmatch(form, source.text(span).strip())
    if match is None:
        return []
    low, first, middle, second, high = match.groups()
    return [write(f"{low} {first} {middle} AND {middle} {second} {high}", of=span)]


def renamed(source: SourceText, said: str, known: Iterable[str] = ()) -> Iterator[Hint]:
    """Put another name of the statement, or a known one, for one that DuckDB doesn't find.

    What DuckDB says names it in quotes, and maybe what may be written: (use: 'a.n' or 'b.n').
    """
    meant = re.findall(r"'(\w+\.\w+)'", said)
    wrong = re.findall(r'"(\w+)"', said)
    for name in dict.fromkeys(reversed(wrong)):
        places = [t for t in source.tokens if folded(t.text) == folded(name)]
        words = {folded(t.text): t.text for t in source.tokens if _is_name(source, t)}
        after_as = [
            t.text
            for before, t in zip(source.tokens, source.tokens[1:], strict=False)
            if before.token_type is TokenType.ALIAS
        ]
        others = [*meant, *after_as, *known, *words.values(), *_before_as(source)]
        for token in reversed(places):
            for other in dict.fromkeys(others):
                if folded(other) != folded(name):
                    hint = written(source, other, (token.start, token.end + 1))
                    yield hint + " Or write another name that is there."


def _before_as(source: SourceText) -> list[str]:
    """Return what queries after WITH are called."""
    pairs = zip(source.tokens, source.tokens[1:], strict=False)
    return [first.text for first, then in pairs if then.token_type is TokenType.ALIAS]


def quote_closed(text: str, span: Span) -> list[Hint]:
    """Close a string, a quoted name or a comment."""
    marked = text[span.start : span.end]
    old = text[span.start :].rstrip()
    sign = " */" if marked == "/" else marked
    if not old.isprintable() or len(old) > _LONGEST:
        return []
    closing = instead(old + sign, of=(span.start, len(text)))
    return ["write " + closing + f" in place of {old}."]


def closed(source: SourceText, span: Span) -> Iterator[Hint]:
    """Close a parenthesis that is open, leave out a clause without anything, or name its rows."""
    tokens, sql = source.tokens, source.sql
    kinds = [token.token_type for token in tokens]
    if kinds.count(TokenType.L_PAREN) > kinds.count(TokenType.R_PAREN):
        for at in range(1, len(tokens)):
            if source.word(at) in CLAUSES:
                before = Span(tokens[at - 1].start, tokens[at - 1].end + 1)
                yield written(source, source.text(before) + ")", before)
        last = Span(tokens[-1].start, tokens[-1].end + 1)
        yield written(source, source.text(last) + ")", last)
    if kinds.count(TokenType.R_PAREN) > kinds.count(TokenType.L_PAREN):
        end = max(at for at, kind in enumerate(kinds) if kind is TokenType.R_PAREN)
        before = Span(tokens[max(end - 1, 0)].start, tokens[end].end + 1)
        yield written(source, source.text(before).removesuffix(")").rstrip(), before)
    yield from _spelled(source, span)
    if source.word(len(tokens) - 1) in CLAUSES | {"AND", "OR"}:
        yield write(sql[: tokens[-1].start].rstrip(), of=(0, tokens[-1].end + 1))
    for at in range(2, len(tokens)):
        if kinds[at - 1 : at + 1] == [TokenType.L_PAREN, TokenType.R_PAREN]:
            call = Span(tokens[at - 2].start, tokens[at].end + 1)
            name = printable(source.text(Span(call.start, tokens[at - 2].end + 1)))
            counted = written(source, "COUNT(*)", call)
            yield counted + f" That counts rows; {name} needs what it is of, in its parentheses."


def _spelled(source: SourceText, span: Span) -> Iterator[Hint]:
    """Write a word of SQL as it is spelled, BY behind GROUP and ORDER, or a comma."""
    for at, token in enumerate(source.tokens):
        own, word = Span(token.start, token.end + 1), source.word(at)
        meant = nearest(word, _MEANT) if _WORD.fullmatch(token.text) else None
        if meant is not None and word not in _MEANT:
            yield written(source, meant, own)
        if word in {"GROUP", "ORDER"} and source.sql[own.end :].split(maxsplit=1)[0:1] != ["BY"]:
            yield written(source, f"{source.text(own)} BY", own)
        if own.start <= span.start < own.end:
            first = at - (token.token_type is TokenType.L_PAREN)  # a call begins with its name
            if first > 0:
                before, after = source.tokens[first - 1], source.tokens[first]
                text = source.sql[before.start : before.end + 1]
                called = source.sql[after.start : own.end]
                yield written(source, f"{text}, {called}", Span(before.start, own.end))


def unlisted(source: SourceText, span: Span) -> Iterator[Hint]:
    """Write a list otherwise, where brackets mean nothing: IN, its place, or what is in it."""
    sql = source.sql
    around = re.compile(r"=\s*(?:ANY|SOME)\s*\(\s*\[([^\[\]]*)\]\s*\)", re.IGNORECASE)
    forms: Sequence[tuple[re.Pattern[str], str]] = (
        (around, r"IN (\1)"),
        (re.compile(r"\[\s*([^\[\],]+)[^\[\]]*\]\s*\[\s*1\s*\]"), r"\1"),
        (re.compile(r"list_value\(\s*(\w+)\s*\)\s*\[\s*1\s*\]", re.IGNORECASE), r"\1"),
        (re.compile(r"(::\s*\w+)\s*\[\s*\]"), r"\1"),
        (re.compile(r"\[+\s*([^\[\]]+?)\s*\]+"), r"\1"),
    )
    for form, text in forms:
        for found in form.finditer(sql):
            if found.start() < span.end and span.start < found.end():
                yield written(source, found.expand(text), found.span())


def listed(text: str) -> str | None:
    """Write the numbers of range(9) as a list, if they are few."""
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        return None
    series = text.strip()[:1] in "gG"
    first, last = int(match[1] or 0), int(match[2]) + series
    return (
        f"({', '.join(map(str, range(first, last)))})" if 0 < last - first <= _MOST_VALUES else None
    )


def joined_on(source: SourceText, span: Span) -> list[Hint]:
    """Write a query of all columns of a table, by a condition, as a join on that condition."""
    form = re.compile(
        r",\s*(?:LATERAL\s*)?\(\s*SELECT \* FROM (\w+) WHERE ([^()]+)\)\s*(?:AS\s+)?(\w+)"
        r"|JOIN\s+LATERAL\s*\(\s*SELECT \* FROM (\w+) WHERE ([^()]+)\)\s*(?:AS\s+)?(\w+)\s+ON TRUE",
        re.IGNORECASE,
    )
    match = form.search(source.sql)
    if match is None or not match.start() < span.end or not span.start < match.end():
        return []
    table, condition, name = (part for part in match.groups() if part is not None)
    start, before = match.start(), ""
    if match[0].startswith(","):
        start = max(token.start for token in source.tokens if token.end < start)
        before = source.sql[start : match.start()].rstrip() + " "
    text = f"{before}JOIN {table} {name} ON {condition.strip()}"
    return [written(source, text, (start, match.end()))]


def plain_names(source: SourceText) -> list[Hint]:
    """Write the names without the underscores that they begin with, throughout the statement."""
    text = re.sub(r"(?<!\w)__(?=\w)", "", source.sql)
    return [write(" ".join(text.split()), of=(0, len(source.sql)))]


def on_groups(
    source: SourceText,
    select: exp.Select,
    rows: Sequence[Span],
    groups: Sequence[Span],
    word: str,
) -> list[Hint]:
    """Move conditions from WHERE behind GROUP BY, to HAVING or QUALIFY.

    Args:
        source: the statement's text.
        select: the SELECT that has them.
        rows: the conditions that stay.
        groups: those that are moved.
        word: HAVING or QUALIFY.
    """
    inner = source.inside(select)
    where = inner.clause("WHERE")
    if where is None or not groups:
        return []
    later = [inner.clause(name) for name in ("GROUP", "HAVING", "QUALIFY")]
    spans = [span for span in later if span is not None]
    known = inner.clause(word)
    parts = [source.text(span) for span in groups]
    if known is not None:
        parts.insert(0, re.sub(rf"^{word}\s+", "", source.text(known), flags=re.IGNORECASE))
    kept = ["WHERE " + " AND ".join(map(source.text, rows))] if rows else []
    kept += [source.text(span) for span in spans if span != known]
    whole = Span(where.start, max([where.end, *(span.end for span in spans)]))
    return [written(source, " ".join([*kept, f"{word} {' AND '.join(parts)}"]), whole)]
