"""Strings that are compared with a column: almost surely a typing error if it never has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from dpsql.errors import SqlError, printable
from dpsql.schema.table import closest
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.spans import Source

_SHOWN_VALUES = 5
_SEARCHED_VALUES = 2_000
_EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)

Lookup = Callable[[Expr], tuple[str, Sequence[object]] | None]
"""Returns name and values of a column of strings."""


def check_labels(node: Expr, lookup: Lookup, source: Source) -> None:
    """Refuse `column = 'text'` and `column IN ('text')` if no row can have that text.

    Raises:
        SqlError: names the text, and the value that was probably meant.
    """
    if isinstance(node, _EQUALITIES):
        pairs = [(node.this, node.expression), (node.expression, node.this)]
    elif isinstance(node, exp.In):
        pairs = [(node.this, item) for item in node.expressions]
    else:
        return
    for side, other in pairs:
        literal = other.unnest()
        if not isinstance(literal, exp.Literal) or not literal.is_string:
            continue
        found = lookup(side)
        if found is not None and literal.name not in found[1]:
            name, values = found
            raise SqlError(
                f"{_quoted(literal.name)} is not a value of {printable(name)}.",
                sql=source.sql,
                span=source.node(literal),
                hint=_hint(literal.name, name, [str(v) for v in values[:_SEARCHED_VALUES]]),
            )


def _hint(text: str, name: str, known: Sequence[str]) -> str:
    guess = closest(text[:200], known)
    if guess.startswith("did you mean"):
        return f"did you mean {_quoted(guess.removeprefix('did you mean ').removesuffix('?'))}?"
    more = ", …" if len(known) > _SHOWN_VALUES else ""
    shown = ", ".join(map(_quoted, known[:_SHOWN_VALUES]))
    return f"the values of {printable(name)} are {shown}{more}."


def _quoted(text: str) -> str:
    shown = printable(text if len(text) <= 60 else text[:60] + "…")
    return "'" + shown.replace("'", "''") + "'"
