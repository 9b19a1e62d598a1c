"""FROM: the tables of a SELECT, and how they are joined."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import Span, printable
from dpsql.hints import Hint, first_that_works, instead, never, option
from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.core import JoinKind, Relation
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.edits import swapped
from dpsql.sql.text.spans import JOINS, SourceText

_TURNED: dict[JoinKind, JoinKind] = {"left": "right", "right": "left", "full": "full"}
"""What a join is from its other side."""
_ANYWAY = ": groups without rows are in the answer anyway."
_KINDS: dict[str, JoinKind] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True, slots=True)
class JoinedItem:
    """One item after FROM; the first one has no condition."""

    item: Expr
    kind: JoinKind
    on: Expr | None
    using: tuple[str, ...]

    @property
    def turned(self) -> JoinKind | None:
        """The kind with both sides exchanged; None if it is no LEFT, RIGHT or FULL JOIN."""
        return _TURNED.get(self.kind)


def joins_of(select: exp.Select, source: SourceText) -> list[JoinedItem]:
    """Return the items after FROM in order.

    Raises:
        UnsupportedSqlError: a join of a kind that is not supported.
    """
    clause = select.args.get("from_")
    if clause is None:
        return []
    found = [JoinedItem(clause.this, "inner", None, ())]
    for node in select.args.get("joins") or []:
        side, kind = capitals(node.args.get("side") or ""), capitals(node.kind or "")
        if node.args.get("method"):
            words = capitals(str(node.args["method"]))
            raise source.unsupported(
                source.clause(*JOINS) or source.node(node.this),
                f"{'An' if words[0] == 'A' else 'A'} {words} join is not supported.",
                _plainly(node, words, source),
            )
        using = tuple(part.name for part in node.args.get("using") or [])
        found.append(JoinedItem(node.this, _kind(side, kind), node.args.get("on"), using))
    return found


def _plainly(node: exp.Join, words: str, source: SourceText) -> Hint:
    """Say what to write for a join whose condition isn't written, or finds the nearest row."""
    if words == "POSITIONAL":
        return never("rows have no order, so none has a place.")
    span = source.clause(*JOINS) or source.node(node.this)
    edits = swapped(source, span, r"^\s*ASOF\s+", "") if words == "ASOF" else []
    return first_that_works(
        [edit + " That takes all rows that meet it, and not the nearest." for edit in edits],
        f"write the condition out: {_written(node)} ON … = ….",
    )


def _written(node: exp.Join) -> str:
    """Write a join by its table."""
    return f"JOIN {node.this.name or 'the table'}"


def _kind(side: str, kind: str) -> JoinKind:
    if kind == "SEMI":
        return "semi"
    if kind == "ANTI":
        return "anti"
    return _KINDS.get(side, "inner")


def check_sides(
    joins: list[JoinedItem], home: JoinedItem | None, source: SourceText, *, plain: bool
) -> None:
    """Refuse joins that keep rows of a side, where that can't be said of groups.

    Args:
        joins: the items after FROM.
        home: the one whose rows are private.
        source: the statement's text.
        plain: whether it is a table, in a SELECT of which groups are made.

    Raises:
        UnsupportedSqlError: there is one.
    """
    at = 0 if home is None else joins.index(home)
    first = joins[1:2] if at < 2 and plain else []
    for number, join in enumerate(joins):
        outer = join.kind in {"right", "full"} or (join is home and join.kind == "left")
        turned_left = join is home and at == 1 and join.kind == "right"
        if outer and not turned_left and join not in first:
            other = "LEFT JOIN" if home is None else "JOIN"
            hint = "use " + instead(other, of=source.joining(join.item))
            if home is not None:
                hint = (
                    "it must be the first join, of a private table itself and a public one; or "
                    + hint
                    + _ANYWAY
                )
            raise source.unsupported(
                source.clause(*JOINS) or source.node(join.item),
                f"A {capitals(join.kind)} join is not supported here.",
                hint,
            )
        before = number <= at and join.kind != "inner"
        if before and not (join is home and at == 1 and join.turned):
            raise source.unsupported(
                join.item,
                "The private table must come first in this kind of join.",
                joined_plainly(join.item, source),
            )


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
