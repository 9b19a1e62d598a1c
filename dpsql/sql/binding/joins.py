"""FROM: the tables of a SELECT, and how they are joined."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import printable
from dpsql.hints import Hint, option
from dpsql.sql.binding.core import JoinKind, Relation
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.spans import JOINS, SourceText

_SIDES = {
    "RIGHT": "write it the other way round: FROM people LEFT JOIN bands; or use JOIN.",
    "FULL": "use JOIN, or LEFT JOIN from the private table.",
}


@dataclass(frozen=True, slots=True)
class JoinedItem:
    """One item after FROM; the first one has no condition."""

    item: Expr
    kind: JoinKind
    on: Expr | None
    using: tuple[str, ...]


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
        side, kind = (node.args.get("side") or "").upper(), (node.kind or "").upper()
        if node.args.get("method") or side in _SIDES:
            words = f"{node.args.get('method') or ''} {side}".split()[0].upper()
            raise source.unsupported(
                source.clause(*JOINS) or source.node(node.this),
                f"{'An' if words[0] == 'A' else 'A'} {words} join is not supported.",
                _SIDES.get(side, f"write the condition out: {_written(node)} ON … = …."),
            )
        using = tuple(part.name for part in node.args.get("using") or [])
        found.append(JoinedItem(node.this, _kind(side, kind), node.args.get("on"), using))
    return found


def _written(node: exp.Join) -> str:
    """Write a join by its table."""
    return f"JOIN {node.this.name or 'the table'}"


def _kind(side: str, kind: str) -> JoinKind:
    if kind == "SEMI":
        return "semi"
    if kind == "ANTI":
        return "anti"
    return "left" if side == "LEFT" else "inner"


def name_parts(node: Expr) -> tuple[str, ...]:
    """Return the parts of a table's name."""
    nodes = (node.args.get(key) for key in ("catalog", "db", "this"))
    return tuple(part.name for part in nodes if part is not None)


def has_column(name: str, relation: Relation) -> bool:
    """Whether a relation has a column of this name."""
    return any(name.lower() == column.lower() for column in relation.columns)


def public_hint(items: list[Expr]) -> Hint:
    """Say what may be joined: tables that are named as public, of which a row is never counted."""
    first, *others = (".".join(name_parts(item)) for item in items)
    named = list(dict.fromkeys(name for name in others if not _may_be_same(name, first)))
    if not named:
        return Hint("what you need of another row belongs in a column of this one.")
    return (
        f"if {printable(' and '.join(named))} has no private row, say so: "
        + option("public", named)
        + f". What you need of a private table belongs in a column of {printable(first)}."
    )


def _may_be_same(name: str, other: str) -> bool:
    """Whether two names are equal but for a schema that one of them leaves out."""
    longer, shorter = sorted((f".{n.lower()}" for n in (name, other)), key=len, reverse=True)
    return longer.endswith(shorter)
