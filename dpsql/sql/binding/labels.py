"""Values that a column never has: strings that it is compared with, and times of day of a DATE.

Almost surely a typing error, or a declaration by days of what has times.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from dpsql.errors import printable
from dpsql.hints import Hint, instead
from dpsql.rows.times import ALIASES, OF_CLOCKS
from dpsql.schema import Domain
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.names import folded, nearest, one_of, quoted_text
from dpsql.schema.sequences import DecimalRange
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.text.spans import SourceText

_SHOWN_VALUES = 5
_SEARCHED_VALUES = 2_000
_EQUALITIES = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)

Lookup = Callable[[Expr], tuple[str, Domain] | None]
"""Returns name and domain of a private column."""
_STRINGS = frozenset({"VARCHAR", "ENUM"})
_CLOCKS = OF_CLOCKS - {"epoch"}


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


def check_times(node: Expr, lookup: Lookup, source: SourceText) -> None:
    """Refuse the hour, minute or second of a column of dates: it is 0 in every row.

    Raises:
        SqlError: names the column, and a declaration by which a column has times.
    """
    if isinstance(node, exp.Extract):
        part, of = node.this, node.expression
    elif isinstance(node, exp.Anonymous) and folded(node.name) in {"date_part", "datepart"}:
        part, of = node.expressions[0], node.expressions[-1]
    elif isinstance(node, (exp.Hour, exp.Minute, exp.Second)):
        part, of = None, node.this
    else:
        return
    if part is not None and ALIASES.get(folded(part.name)) not in _CLOCKS:
        return
    found = lookup(of)
    if found is None or found[1].type != "DATE" or found[1].instant:
        return
    name = printable(found[0])
    raise source.error(
        node,
        f"{name} is a column of dates, which have no time of day.",
        Hint(
            "where its rows have times, in a file of CSV, declare it by the hour, with "
            'grain = "hour" or by Domain.dates(first, last, "hour").'
        ),
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
