"""FROM: the tables of a SELECT, and how they are joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import Span, SqlError, printable
from dpsql.hints import Hint, first_that_works, instead, never, option
from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.core import JoinKind, Relation
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.edits import swapped
from dpsql.sql.text.spans import JOINS, SourceText

_TURNED: dict[JoinKind, JoinKind] = {"left": "right", "right": "left", "full": "full"}
"""Kinds of joins, and what each is from its other side."""
_ANYWAY = ": groups without rows are in the answer anyway."
_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True, eq=False, slots=True)
class JoinedItem:
    """One item after FROM, told apart by its place; the first one has no condition."""

    item: Expr
    kind: JoinKind
    on: Expr | None
    using: tuple[str, ...]
    nearest: bool = False
    """Whether of all rows that meet a row the nearest one is joined: ASOF."""

    @property
    def turned(self) -> JoinKind | None:
        """The kind with both sides exchanged; None if it is no LEFT, RIGHT or FULL JOIN."""
        return _TURNED.get(self.kind)


def joins_of(select: exp.Select, source: SourceText, *, nearest: bool = False) -> list[JoinedItem]:
    """Return the items after FROM in order.

    Args:
        select: the SELECT.
        source: the statement's text.
        nearest: whether ASOF joins are known what to do with.

    Raises:
        UnsupportedSqlError: a join of a kind that is not supported.
    """
    clause = select.args.get("from_")
    if clause is None:
        return []
    found = [JoinedItem(clause.this, "inner", None, ())]
    for node in select.args.get("joins") or []:
        side, kind = capitals(node.args.get("side") or ""), capitals(node.kind or "")
        words, joined = capitals(str(node.args.get("method") or "")), _kind(side, kind)
        asof = words == "ASOF"  # the nearest row is one of the right: sides can't be exchanged
        if words and not (nearest and asof and joined in {"inner", "left"}):
            raise unknown_join(node.this, words, source)
        using = tuple(part.name for part in node.args.get("using") or [])
        found.append(JoinedItem(node.this, joined, node.args.get("on"), using, asof))
    return found


def unknown_join(item: Expr, words: str, source: SourceText) -> SqlError:
    """Refuse a join whose condition isn't written, or that finds the nearest row."""
    span = source.clause(*JOINS) or source.node(item)
    edits = swapped(source, span, r"^\s*ASOF\s+", "") if words == "ASOF" else []
    hint = first_that_works(
        [edit + " That takes all rows that meet it, and not the nearest." for edit in edits],
        f"write the condition out: JOIN {item.name or 'the table'} ON … = ….",
    )
    if words == "POSITIONAL":
        hint = never("rows have no order, so none has a place.")
    article = "An" if words[0] == "A" else "A"
    return source.unsupported(span, f"{article} {words} join is not supported.", hint)


def _kind(side: str, kind: str) -> JoinKind:
    if kind == "SEMI":
        return "semi"
    if kind == "ANTI":
        return "anti"
    return _KINDS.get(side, "inner")


def check_sides(
    joins: Sequence[JoinedItem],
    home: JoinedItem,
    source: SourceText,
    *,
    plain: bool,
    apart: Sequence[JoinedItem],
) -> None:
    """Refuse joins that keep rows of a side, where that can't be said of groups.

    Args:
        joins: the items after FROM.
        home: the first one whose rows are private.
        source: the statement's text.
        plain: whether it is a table, in a SELECT of which groups are made.
        apart: others whose rows are private, which are joined before.

    Raises:
        UnsupportedSqlError: there is one.
    """
    at = next((number for number, join in enumerate(joins) if join is home), 0)
    first = joins[1] if at < 2 and plain and len(joins) > 1 else None
    for number, join in enumerate(joins):
        if join in apart:
            continue
        second = join is home and at == 1
        outer = join.kind in {"right", "full"} or (join is home and join.kind == "left")
        if outer and join is not first and not (second and join.kind == "right"):
            raise _kept(join, source)
        if number <= at and join.kind != "inner" and not (second and join.turned):
            raise source.unsupported(
                join.item,
                "The private table must come first in this kind of join.",
                joined_plainly(join.item, source),
            )


def _kept(join: JoinedItem, source: SourceText) -> SqlError:
    """Refuse a join that keeps rows of a side."""
    hint = "it must be the first join, of a private table itself and a public one; or use "
    hint = hint + instead("JOIN", of=source.joining(join.item)) + _ANYWAY
    message = f"A {capitals(join.kind)} join is not supported here."
    return source.unsupported(source.clause(*JOINS) or source.node(join.item), message, hint)


def joined_plainly(place: Expr | Span, source: SourceText) -> Hint:
    """Say to use JOIN for an item after FROM: rows that meet none are in no group."""
    return "use " + instead("JOIN", of=source.joining(place)) + _ANYWAY


def name_parts(node: Expr) -> tuple[str, ...]:
    """Return the parts of a table's name."""
    nodes = (node.args.get(key) for key in ("catalog", "db", "this"))
    return tuple(part.name for part in nodes if part is not None)


def has_column(name: str, relation: Relation) -> bool:
    """Whether a relation has a column of this name."""
    return any(folded(name) == folded(column) for column in relation.columns)


def public_hint(items: list[Expr], open_: list[bool]) -> Hint:
    """Say what may be joined: tables that are named as public, of which a row is never counted.

    Args:
        items: the tables.
        open_: whether nothing says that the rows of each are private.
    """
    names = [".".join(name_parts(item)) for item in items]
    counted = next((n for n, may in zip(names, open_, strict=True) if not may), names[0])
    named = [
        name
        for name, may in zip(names, open_, strict=True)
        if may and not _may_be_same(name, counted)
    ]
    if not named:
        return never(
            "a row could be counted any number of times. Put what you need of another row into a "
            "column of this one."
        )
    named = list(dict.fromkeys(named))
    have, whose = ("has", "its") if len(named) == 1 else ("have", "their")
    return (
        f"put what you need of a private table into a column of {printable(counted)}. Only if "
        f"{printable(' and '.join(named))} {have} no private row, say so, and {whose} rows are "
        "shown as they are: " + option("public", named) + "."
    )


def _may_be_same(name: str, other: str) -> bool:
    """Whether two names are equal but for a schema that one of them leaves out."""
    longer, shorter = sorted((f".{folded(n)}" for n in (name, other)), key=len, reverse=True)
    return longer.endswith(shorter)
