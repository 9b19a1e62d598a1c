"""Strings that are compared with a column: almost surely a typing error if it never has them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from dpsql.errors import printable
from dpsql.hints import Hint, instead
from dpsql.schema import Domain
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.names import nearest, one_of, quoted_text
from dpsql.schema.sequences import DecimalRange
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.spans import SourceText

_SHOWN_VALUES = 5
_SEARCHED_VALUES = 2_000
_EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)

Lookup = Callable[[Expr], tuple[str, Domain] | None]
"""Returns name and domain of a private column."""
_STRINGS = frozenset({"VARCHAR", "ENUM"})


def check_labels(node: Expr, lookup: Lookup, source: SourceText) -> None:
    """Refuse `column = 'text'` and `column IN ('text')` if no row can have that text.

    Nor is a number compared with a column of strings, or a word with a column of numbers.

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
        found = lookup(side) if isinstance(literal, exp.Literal) else None
        if found is None:
            continue
        name, domain = found
        strings = domain.type in _STRINGS
        if strings and literal.is_string and literal.name in domain.values:
            continue
        if strings and literal.is_string and domain.other is not None:
            continue  # rows may have it
        if not strings and (not literal.is_string or not _is_word(literal.name, domain)):
            continue
        shown = _quoted(literal.name) if literal.is_string else printable(literal.name[:60])
        raise source.error(
            literal,
            f"{shown} is not a value of {printable(name)}.",
            _hint(literal.name, name, domain),
        )


def _is_word(text: str, domain: Domain) -> bool:
    """Whether a string can't be meant as a value of a column of numbers."""
    if domain.type not in INTEGER_TYPES and not isinstance(domain.values, DecimalRange):
        return False
    try:
        Decimal(text.strip())
    except InvalidOperation:
        return True
    return False


def _hint(text: str, name: str, domain: Domain) -> Hint:
    if domain.type not in _STRINGS:
        return Hint(f"{printable(name)} has the values {printable(str(domain))}.")
    known = [str(value) for value in domain.values[:_SEARCHED_VALUES]]
    meant = nearest(text[:200], known)
    if meant is not None:
        return "did you mean " + instead(quoted_text(printable(meant))) + "?"
    more = ", …" if len(known) > _SHOWN_VALUES else ""
    shown = one_of([instead(_quoted(value)) for value in known[:_SHOWN_VALUES]])
    return f"the values of {printable(name)} are " + shown + more + "."


def _quoted(text: str) -> str:
    return quoted_text(printable(text if len(text) <= 60 else text[:60] + "…"))
