"""WHERE: syntax tree → bound conditions, with the types checked."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from dpsql.errors import Span, SqlError, UnsupportedSqlError, printable
from dpsql.schema import Domain, Table
from dpsql.schema.table import closest
from dpsql.sql import terms
from dpsql.sql.spans import Source
from dpsql.sql.terms import Condition, Kind, Term

_NUMBER = re.compile(r"(\d*)\.?(\d*)", re.ASCII)
_MAX_DIGITS = 40
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ORDERINGS = {"<", "<=", ">", ">=", "BETWEEN"}
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Neg: "NEG",
    exp.Abs: "ABS",
}
_KINDS: dict[Kind, str] = {
    "number": "a number",
    "label": "a string",
    "truth": "a truth value",
    "null": "NULL",
}
_SHOWN_VALUES = 5
_SEARCHED_VALUES = 2_000


class PredicateBinder:
    """Binds the expressions of one statement's WHERE clause."""

    def __init__(self, source: Source, table: Table, resolve: Callable[[exp.Column], str]) -> None:
        self._source = source
        self._table = table
        self._resolve = resolve

    def conditions(self, where: exp.Expr | None) -> tuple[Condition, ...]:
        """Bind the conjuncts of a WHERE clause, one by one.

        Raises:
            SqlError: types that can't be compared, a string that is no value of its column, or
                numbers too large to be exact.
            UnsupportedSqlError: a construct that has no place in a WHERE clause.
        """
        if where is None:
            return ()
        return tuple(self._condition(node) for node in _operands(where.this, exp.And))

    def _condition(self, node: exp.Expr) -> Condition:
        term = self._truth(node)
        return Condition(term, term.columns, self._source.node(node))

    def _truth(self, node: exp.Expr) -> Term:
        """Bind an expression that must be true, false or unknown."""
        term = self._bind(node)
        if term.kind in {"truth", "null"}:
            return term
        raise self._error(
            f"A condition is needed here, not {_KINDS[term.kind]}.",
            node,
            "compare it with something: age >= 18, sex = 'Female'.",
        )

    def _bind(self, node: exp.Expr) -> Term:
        node = node.unnest()
        if isinstance(node, exp.Connector):
            word = "AND" if isinstance(node, exp.And) else "OR"
            parts = _operands(node, type(node))
            return terms.predicate(word, *(self._truth(part) for part in parts))
        if isinstance(node, exp.Not):
            return terms.predicate("NOT", self._truth(node.this))
        if type(node) in _COMPARISONS:
            return self._comparison(_COMPARISONS[type(node)], node, node.this, node.expression)
        if isinstance(node, exp.Between):
            low, high = node.args["low"], node.args["high"]
            return self._comparison("BETWEEN", node, node.this, low, high)
        if isinstance(node, exp.In):
            return self._membership(node)
        if isinstance(node, exp.Is):
            return self._is(node)
        if type(node) in _ARITHMETIC:
            return self._arithmetic(_ARITHMETIC[type(node)], node)
        return self._leaf(node)

    def _leaf(self, node: exp.Expr) -> Term:
        if isinstance(node, exp.Column):
            name = self._resolve(node)
            domain = self._table.columns[name]
            return terms.column(name, _kind(domain), _magnitude(domain))
        if isinstance(node, exp.Literal):
            return terms.literal(node.name) if node.is_string else self._number(node)
        if isinstance(node, exp.Boolean):
            return terms.literal(bool(node.this))
        if isinstance(node, exp.Null):
            return terms.literal(None)
        if isinstance(node, (exp.Count, exp.Sum, exp.Window)):
            raise self._unsupported(
                "An aggregate can't stand in WHERE.",
                node,
                "filter the returned frame, it is free: frame.filter(...)",
            )
        raise self._unsupported(
            "This expression is not supported in WHERE.",
            node,
            "use comparisons of columns with literals, AND, OR, NOT, BETWEEN, IN, IS NULL.",
        )

    def _number(self, node: exp.Literal) -> Term:
        match = _NUMBER.fullmatch(node.name)
        if match is None:
            raise self._unsupported(
                "A number in this form is not supported.",
                node,
                "write it as a whole or decimal number, which is exact: 100000 or 0.5.",
            )
        whole, fraction = match.groups()
        if len(whole) + len(fraction) > _MAX_DIGITS:
            raise self._too_large(node)
        return self._exact(terms.number(int(whole + fraction), len(fraction)), node)

    def _arithmetic(self, operator: str, node: exp.Expr) -> Term:
        operands = [node.this] if operator in {"NEG", "ABS"} else [node.this, node.expression]
        bound = [self._bind(operand) for operand in operands]
        for operand, term in zip(operands, bound, strict=True):
            if term.kind != "number":
                raise self._error(
                    f"Arithmetic needs numbers, not {_KINDS[term.kind]}.",
                    operand,
                    "use integer columns and numbers: hours + 2*years <= 60.",
                )
        return self._exact(terms.arithmetic(operator, *bound), node)

    def _membership(self, node: exp.In) -> Term:
        for item in node.expressions:
            core = item.unnest()
            core = core.this.unnest() if isinstance(core, exp.Neg) else core
            if not isinstance(core, (exp.Literal, exp.Null, exp.Boolean)):
                raise self._unsupported(
                    "IN takes a list of literals.",
                    item,
                    "write OR between comparisons: a = b OR a = 3.",
                )
        return self._comparison("IN", node, node.this, *node.expressions)

    def _is(self, node: exp.Is) -> Term:
        right = node.expression.unnest()
        if isinstance(right, exp.Null):
            return self._exact(terms.predicate("IS NULL", self._bind(node.this)), node)
        if isinstance(right, exp.Boolean):
            word = "IS TRUE" if right.this else "IS FALSE"
            return terms.predicate(word, self._truth(node.this))
        raise self._unsupported(
            "IS takes NULL, TRUE or FALSE.", node, "compare values by =, or IS NOT DISTINCT FROM."
        )

    def _comparison(self, operator: str, node: exp.Expr, *operands: exp.Expr) -> Term:
        bound = [self._bind(operand) for operand in operands]
        self._check_kinds(bound, node)
        if operator in _ORDERINGS:
            self._check_order(bound, node)
        else:
            self._check_labels(bound, operands)
        return self._exact(terms.predicate(operator, *bound), node)

    def _check_kinds(self, bound: list[Term], node: exp.Expr) -> None:
        kinds = {term.kind for term in bound} - {"null"}
        if len(kinds) <= 1:
            return
        for term in bound:
            if term.operator == "column":
                name = printable(str(term.value))
                domain = self._table.columns[str(term.value)]
                other = min(kinds - {term.kind})
                raise self._error(
                    f"The column {name} holds {_KINDS[term.kind].removeprefix('a ')}s, "
                    f"so it can't be compared with {_KINDS[other]}.",
                    node,
                    _values_hint(name, domain),
                )
        first, second = sorted(kinds)[:2]
        raise self._error(
            f"{_KINDS[first].capitalize()} can't be compared with {_KINDS[second]}.",
            node,
            "compare each column on its own: 1 < age AND age < 5.",
        )

    def _check_order(self, bound: list[Term], node: exp.Expr) -> None:
        """Refuse to order two ENUM columns: by position or by letters depends on their types."""
        columns = [t for t in bound if t.operator == "column" and t.kind == "label"]
        if sum(self._table.columns[str(t.value)].type == "ENUM" for t in columns) > 1:
            raise self._unsupported(
                "Two ENUM columns can't be compared by order.",
                node,
                "compare them by = or <>, or each with a string.",
            )

    def _check_labels(self, bound: list[Term], nodes: tuple[exp.Expr, ...]) -> None:
        """Refuse strings that are no value of the column: almost surely a typing error."""
        columns = [t for t in bound if t.operator == "column" and t.kind == "label"]
        for column in columns:
            name = str(column.value)
            values = set(self._table.columns[name].values)
            for term, node in zip(bound, nodes, strict=True):
                if term.operator == "literal" and term.kind == "label" and term.value not in values:
                    text = str(term.value)
                    raise self._error(
                        f"{_quoted(text)} is not a value of {printable(name)}.",
                        node,
                        _label_hint(text, name, self._table.columns[name]),
                    )

    def _exact(self, term: Term, node: exp.Expr) -> Term:
        if term.bound > terms.MAX_MAGNITUDE:
            raise self._too_large(node)
        return term

    def _too_large(self, node: exp.Expr) -> SqlError:
        return self._error(
            "The numbers get too large here to be compared exactly.",
            node,
            "use numbers with fewer digits; together they may reach 38.",
        )

    def _error(self, message: str, node: exp.Expr, hint: str) -> SqlError:
        return SqlError(message, sql=self._source.sql, span=self._span(node), hint=hint)

    def _unsupported(self, message: str, node: exp.Expr, hint: str) -> UnsupportedSqlError:
        span = self._span(node)
        return UnsupportedSqlError(message, sql=self._source.sql, span=span, hint=hint)

    def _span(self, node: exp.Expr) -> Span:
        return self._source.node(node)


def _operands(node: exp.Expr, connector: type[exp.Expr]) -> list[exp.Expr]:
    """Flatten a chain of ANDs or ORs, without recursion because chains may be long."""
    found, pending = [], [node]
    while pending:
        current = pending.pop()
        inner = current.unnest()
        if type(inner) is connector:
            pending += [inner.expression, inner.this]
        else:
            found.append(current)
    return found


def _kind(domain: Domain) -> Kind:
    if domain.type == "BOOLEAN":
        return "truth"
    return "label" if domain.type in {"VARCHAR", "ENUM"} else "number"


def _magnitude(domain: Domain) -> int:
    values = domain.values
    if _kind(domain) != "number":
        return 0
    if isinstance(values, range):
        return max(abs(values.start), abs(values.stop - 1))
    return max(abs(int(v)) for v in values)


def _values_hint(name: str, domain: Domain) -> str:
    if isinstance(domain.values, range):
        return f"{name} goes from {domain.values.start} to {domain.values.stop - 1}."
    shown = [
        _quoted(v) if isinstance(v, str) else str(v).upper() for v in domain.values[:_SHOWN_VALUES]
    ]
    more = ", …" if len(domain.values) > _SHOWN_VALUES else ""
    return f"the values of {name} are {', '.join(shown)}{more}."


def _label_hint(text: str, name: str, domain: Domain) -> str:
    known = [str(v) for v in domain.values[:_SEARCHED_VALUES]]
    guess = closest(text[:200], known)
    if not guess.startswith("did you mean"):
        return _values_hint(printable(name), domain)
    return f"did you mean {_quoted(guess.removeprefix('did you mean ').removesuffix('?'))}?"


def _quoted(text: str) -> str:
    shown = printable(text if len(text) <= 60 else text[:60] + "…")
    return "'" + shown.replace("'", "''") + "'"
