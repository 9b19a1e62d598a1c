"""Bind what a core computes for each row: names to the schema, aliases to what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from dpsql.errors import Span, SqlError, SqlSchemaError, printable
from dpsql.hints import Hint, ask, first_that_works, instead, leave_out, never, write
from dpsql.schema import Domain, Table
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.names import RESERVED, as_sql, closest, folded, nearest, one_of, quoted_text
from dpsql.schema.sequences import DecimalRange
from dpsql.sql.binding.core import Statistic
from dpsql.sql.binding.expressions import (
    NESTED,
    BoundExpr,
    Expr,
    column,
    conjuncts,
    has_aggregate,
    is_aggregate,
    paren,
    rebuild,
    render,
)
from dpsql.sql.binding.instants import told_by_rows
from dpsql.sql.binding.scope import Found, Home, NamedColumn, PrivateColumn, Scope
from dpsql.sql.binding.subqueries import Outer
from dpsql.sql.binding.summands import summands
from dpsql.sql.text.edits import on_groups, unlisted, written
from dpsql.sql.text.limits import MAX_TOKENS, too_long
from dpsql.sql.text.parse import IN_LIST
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


MAX_NAME_CHARACTERS = 128

Visit = Callable[[Expr], Expr]
"""Rewrites a subquery; raises if it may not stand where it does."""
VisitRows = Callable[[Expr, "RowBinder"], BoundExpr | None]
"""Binds a subquery over rows of the same unit; None if it is over others."""
VisitPublic = Callable[[Expr, Outer], Expr]
"""The same for one over public tables, which may use columns of the row that it is for."""


@dataclass(frozen=True, slots=True)
class Visits:
    """The functions that handle the subqueries of a SELECT, one for each kind."""

    public: VisitPublic
    rows: VisitRows
    noisy: VisitPublic
    """Rewrites a subquery that may be over noisy answers, and use keys from outside."""


def no_rows(node: Expr, binder: RowBinder) -> BoundExpr | None:
    """Know of no subquery over rows of the same unit: these are columns of relations."""


class RowBinder:
    """Binds expressions over the rows of one SELECT, and notes its statistics.

    Args:
        source: the statement's text.
        select: the SELECT.
        home: the item after FROM whose rows are private.
        visits: what becomes of its subqueries.
    """

    def __init__(self, source: SourceText, select: exp.Select, home: Home, visits: Visits) -> None:
        self.source = source
        self.aliases = {
            folded(node.alias): node.this
            for node in select.expressions
            if isinstance(node, exp.Alias)
        }
        check_aliases(self.aliases, source)
        self.scope = Scope(source, home.visible, self.aliases)
        self._select = select
        self._home = home
        self._visits = visits
        self._statistics: dict[Statistic, int] = {}
        self._named = set[str]()
        self._open: list[Expr] = []
        self.told: set[str] = set()
        """The columns that tell groups and conditions."""

    @property
    def named(self) -> frozenset[str]:
        """The private columns that were named so far."""
        return frozenset(self._named)

    def name(self, columns: frozenset[str]) -> None:
        """Note private columns that are named in conditions which are bound already."""
        self._named |= columns

    @property
    def where(self) -> Expr | None:
        """The condition after WHERE."""
        clause = self._select.args.get("where")
        return None if clause is None else clause.this

    @property
    def table(self) -> Table:
        """The table whose rows are counted."""
        return self._home.table

    def statistic(self, statistic: Statistic) -> int:
        """Note a statistic, once; return its number."""
        return self._statistics.setdefault(statistic, len(self._statistics))

    def conditions(self, node: Expr) -> tuple[BoundExpr, ...]:
        """Bind the conjuncts of a condition on rows."""
        return tuple(map(self.bind, conjuncts(node)))

    def bind(self, node: Expr) -> BoundExpr:
        """Bind an expression over the columns of rows.

        It may depend on columns without a domain, or on what the cells of a timestamp don't tell:
        whether it can be evaluated row by row is seen when it is lowered.

        Raises:
            SqlError, SqlSchemaError, UnsupportedSqlError: a name or construct has no place here.
        """
        attributes: set[str] = set()
        relations: set[int] = set()
        rows: set[str] = set()
        size = 0

        def change(part: Expr) -> Expr:
            nonlocal size
            before, size = size, size + 1
            if isinstance(part, exp.Paren):
                return exp.Paren(this=change(part.this))
            either = self.scope.either(part) if isinstance(part, exp.Coalesce) else None
            if either is not None:
                (rows if either.by_row else attributes).add(either.name)
                return self._placed(column(either.canonical), part)
            if isinstance(part, exp.Column):
                meant = self._column(part, change, attributes, relations, rows)
                size = before + sum(not isinstance(node, exp.Identifier) for node in meant.walk())
                if size > MAX_TOKENS:
                    raise too_long(part, self.source)
                return meant
            if isinstance(part, exp.Star):
                columns = [instead(self.scope.whole(name)) for name in self.scope.names]
                hint = "name a column: " + one_of(columns) + "." if columns else "name a column."
                raise self.source.unsupported(part, "* can't stand here.", hint)
            if isinstance(part, exp.Window):
                raise self._misplaced(part)
            if is_aggregate(part):
                raise self._misplaced(part)
            if isinstance(part, (exp.Exists, exp.In, exp.Query, exp.Subquery)):
                found = self._visits.rows(part, self)
                if found is not None:
                    attributes.update(found.attributes)
                    relations.update(found.relations)
                    rows.update(found.by_row)
                    return exp.Paren(this=found.node.copy())
            if isinstance(part, (exp.Query, exp.Subquery)):
                return self._visits.public(
                    part, partial(self._outside, attributes, relations, rows)
                )
            self._check_plain(part)
            check_labels(part, self.domain_of, self.source)
            return rebuild(part, change)

        bound = change(node.unnest()).unnest()
        self._named |= attributes
        rows |= told_by_rows(bound, self._home.table)
        return BoundExpr(
            bound,
            render(bound),
            frozenset(attributes),
            frozenset(relations),
            self._written(node),
            frozenset(rows),
        )

    def summands(self, *nodes: Expr) -> tuple[BoundExpr, ...]:
        """Bind what is added up, or two expressions whose products are."""
        return summands([self.bind(node) for node in nodes], self._home.table, self.told)

    def _written(self, node: Expr) -> Span:
        """Return where an expression stands; of an alias, where what it stands for does."""
        inner = node.unnest()
        if isinstance(inner, exp.Column) and not inner.table and not inner.is_star:
            found = self.scope.resolve(inner, by_row=True)
            if isinstance(found, exp.Expr):
                node = found
        return self.source.node(node.unnest() if isinstance(node, exp.Paren) else node)

    def _column(
        self,
        node: exp.Column,
        change: Visit,
        attributes: set[str],
        relations: set[int],
        rows: set[str],
    ) -> Expr:
        found = self._resolved(node)
        if isinstance(found, PrivateColumn):
            (rows if found.by_row else attributes).add(found.name)
            named = column(found.canonical)
            return self._placed(named, node) if found.by_row else named
        if isinstance(found, NamedColumn):
            bound = found.value
            attributes |= bound.attributes
            relations |= bound.relations
            rows |= bound.by_row
            inner = bound.node.copy()
            return inner if isinstance(inner, exp.Column) else exp.Paren(this=inner)
        return exp.Paren(this=self._aliased(node, found, change))

    def _outside(
        self, attributes: set[str], relations: set[int], rows: set[str], node: exp.Column
    ) -> Expr | None:
        """Bind a column that stands in a subquery and isn't its own; None if there is none.

        Subqueries are run for cells: one without a domain must be compared with public values.
        """
        try:
            if isinstance(
                self.scope.resolve(node, by_row=True), exp.Expr
            ):  # of the SELECT list, not a column
                return None
            return self._column(node, paren, attributes, relations, rows)
        except SqlSchemaError as error:
            if error.unknown and not node.table:
                return None
            raise

    def _placed(self, found: exp.Column, node: Expr) -> exp.Column:
        """Note where a column was written, for errors that are found after binding."""
        span = self.source.node(node)
        found.meta.update(start=span.start, end=span.end - 1)
        return found

    def _resolved(self, node: exp.Column) -> Found | Expr:
        """Return what a column means; in a subquery it may be one from outside."""
        try:
            return self.scope.resolve(node, by_row=True)
        except SqlSchemaError as error:
            inside = self._select.find_ancestor(exp.Where, exp.Having, exp.Alias)
            if error.unknown and self._is_outside(node):
                error.message = (
                    f"{printable(node.table)} stands outside of this subquery over private rows, "
                    "whose value isn't one for each key here."
                )
                error.hint = (
                    "compare with its columns by = after WHERE, and return COUNT, SUM, AVG, MIN, "
                    "MAX, VAR_POP or quantiles; or group by them in a WITH query, and join that."
                )
            elif inside is not None and error.unknown:
                error.hint = (
                    "a subquery can use columns of its own tables only: group by them in a WITH "
                    "query, and join that. Otherwise " + (error.hint or "")
                )
            raise

    def _is_outside(self, node: exp.Column) -> bool:
        """Whether a column's table stands after FROM of a query around this one."""
        name, above = folded(node.table), self._select.find_ancestor(exp.Select)
        while name and above is not None:
            clauses = [above.args.get("from_"), *(above.args.get("joins") or ())]
            if any(one is not None and folded(one.this.alias_or_name) == name for one in clauses):
                return True
            above = above.find_ancestor(exp.Select)
        return False

    def _aliased(self, node: exp.Column, original: Expr, change: Visit) -> Expr:
        """Put what an alias of the SELECT list stands for in its place."""
        if any(original is other for other in self._open):
            raise self.source.error(
                node,
                f"{printable(node.name)} is defined in terms of itself.",
                closest(node.name, self.scope.names, as_sql),
            )
        self._open.append(original)
        try:
            return change(original.unnest())
        finally:
            self._open.pop()

    def domain_of(self, node: Expr) -> tuple[str, Domain] | None:
        """Return name and domain of a private column; None if it is none, or has none."""
        node = node.unnest()
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        found = self.scope.resolve(node, by_row=True)
        if not isinstance(found, PrivateColumn) or found.by_row:
            return None
        return found.shown, self._home.table.columns[found.name]

    def _check_plain(self, node: Expr) -> None:
        """Refuse what has a meaning for answers, and none for the value of a row."""
        if isinstance(node, exp.Order):
            raise self.source.unsupported(
                node.this or node,
                "ORDER BY in an aggregate of rows is not supported.",
                leave_out(of=_order_of(node, self.source)) + ".",
            )
        if isinstance(node, NESTED):
            what = "list in brackets"
            hint: str = first_that_works(unlisted(self.source, self.source.node(node)), IN_LIST)
            if isinstance(node, (exp.Struct, exp.Dot)):
                what = "struct"
                hint = first_that_works(self._plain(node), "write plain values.")
            elif isinstance(node, exp.Bracket) and not isinstance(node.this, exp.Array):
                what, hint = "place in brackets", self._letter(node)
            message = f"A {what} is not supported here: this is computed for each row."
            raise self.source.unsupported(node, message, hint)

    def _misplaced(self, node: Expr) -> SqlError:
        if isinstance(node, exp.Window) and self.table.unit is not None:
            return self.source.unsupported(
                node,
                "A window function can't stand here.",
                "compute it in a query after FROM, as a column: SELECT n, COUNT(*) "
                "FROM (SELECT …, LEAST(row_number() OVER (PARTITION BY …), 9) AS n FROM …) GROUP "
                "BY n. A window over groups goes into the SELECT list, and uses the columns of "
                "GROUP BY.",
            )
        what = "A window function" if isinstance(node, exp.Window) else "An aggregate"
        return self.source.unsupported(
            node,
            f"{what} can't stand here: this is computed for each row.",
            self._moved(node),
        )

    def _moved(self, node: Expr) -> str:
        """Say where an aggregate stands that can't be used in an expression on rows."""
        above: Expr | None = node.parent
        while isinstance(above, (exp.Paren, exp.Filter)):
            above = above.parent
        if above is not None and is_aggregate(above) and not isinstance(node, exp.Window):
            inner, outer = (self.source.text(self.source.node(n)) for n in (node, above))
            keys = self._select.args.get("group")
            if keys is None:
                return "without GROUP BY it is one number: write it alone, " + instead(
                    inner, of=self.source.node(above)
                )
            by = ", ".join(self.source.text(self.source.node(key)) for key in keys.expressions)
            made = outer.replace(inner, "n", 1)
            return "aggregates of aggregates stand in an outer query: " + ask(
                f"SELECT {made} AS m FROM (SELECT {by}, {inner} AS n … GROUP BY {by})"
            )
        word = "QUALIFY" if isinstance(node, exp.Window) else "HAVING"
        return first_that_works(
            [*self._on_groups(word), *self._ungrouped()],
            never(
                "what is computed for each row, to choose, join, or group it by, can't depend on "
                "noisy answers. Conditions on groups go into HAVING, or into QUALIFY if they have "
                "windows."
            ),
        )

    def _on_groups(self, word: str) -> list[Hint]:
        """Move conditions on groups out of WHERE."""
        if self.where is None:
            return []
        parts = {self.source.node(part): self._is_of_groups(part) for part in conjuncts(self.where)}
        kept, moved = (
            [span for span, of in parts.items() if of is groups] for groups in (False, True)
        )
        return on_groups(self.source, self._select, kept, moved, word)

    def _is_of_groups(self, part: Expr) -> bool:
        named = (self.aliases.get(folded(c.name)) for c in part.find_all(exp.Column))
        used = [part, *(meant for meant in named if meant is not None)]
        return any(has_aggregate(one) or one.find(exp.Window) is not None for one in used)

    def _ungrouped(self) -> list[Hint]:
        """Leave aggregates and windows out of GROUP BY."""
        group = self._select.args.get("group")
        clause = self.source.inside(self._select).clause("GROUP")
        if clause is None or group is None:
            return []
        items = self._select.expressions

        def is_of_groups(key: Expr) -> bool:
            numbered = isinstance(key, exp.Literal) and key.name.isdigit()
            place = int(key.name) if numbered else 0
            meant = items[place - 1] if 1 <= place <= len(items) else key
            return self._is_of_groups(meant)

        kept = [key for key in group.expressions if not is_of_groups(key)]
        if not kept:
            return [leave_out(of=clause) + ", with GROUP BY: an aggregate is no key."]
        keys = ", ".join(self.source.text(self.source.node(key)) for key in kept)
        return [written(self.source, f"GROUP BY {keys}", clause)]

    def _plain(self, node: Expr) -> list[Hint]:
        """Write the one value of a struct in its place."""
        struct = node.this if isinstance(node, exp.Dot) else node
        values = [part.expression for part in struct.expressions]
        texts = [self.source.text(self.source.node(value)) for value in values]
        return [write(text) for text in texts[:1]] if len(texts) == 1 else []

    def _letter(self, node: exp.Bracket) -> str:
        """Say what to write for `text[1]`."""
        text, _, place = self.source.text(self.source.node(node)).removesuffix("]").rpartition("[")
        if not place.strip().isdigit():
            return "of a text write substring(…)."
        return "of a text write " + instead(f"substring({text}, {place.strip()}, 1)") + "."


def _order_of(node: exp.Order, source: SourceText) -> Span:
    """Return where ORDER BY stands in an aggregate, be it of anything or of nothing."""
    last = max(source.node(part).end for part in node.expressions)
    if node.this is not None:
        return Span(source.node(node.this).end, last)
    by = source.node(node.expressions[0]).start
    words = (token.start for token in source.tokens if token.token_type is TokenType.ORDER_BY)
    return Span(max(start for start in words if start < by), last)


def check_aliases(aliases: Mapping[str, Expr], source: SourceText) -> None:
    """Refuse a SELECT list whose names stand for too much: each may use the one before it twice.

    Raises:
        SqlLimitError: with names replaced by what they stand for, one is too long.
    """
    sizes: dict[str, int] = {}

    def size(name: str) -> int:
        if name not in sizes:
            sizes[name] = 1  # so long as it is looked at: a name in itself is the column's
            found = aliases[name].find_all(exp.Expr)
            parts = (part for part in found if not isinstance(part, exp.Identifier))
            own = (folded(part.name) if _is_bare(part) else "" for part in parts)
            sizes[name] = sum(size(of) if of in aliases else 1 for of in own)
        return sizes[name]

    for name, node in aliases.items():
        if size(name) > MAX_TOKENS:
            raise too_long(node, source)


def _is_bare(node: Expr) -> bool:
    return isinstance(node, exp.Column) and not node.table


def check_name(name: str, node: Expr, source: SourceText) -> str:
    """Return a name that the analyst gives, if it is a good one.

    Raises:
        SqlError: it is empty, too long, invisible, or one of the library's own.
    """
    long = len(name) > MAX_NAME_CHARACTERS
    if not name.strip() or long or not name.isprintable() or name.startswith(RESERVED):
        plain = "".join(c for c in name if c.isprintable()).strip().lstrip("_")[:60] or "n"
        raise source.error(
            node,
            "This name can't be that of a column.",
            "write "
            + instead(as_sql(plain))
            + f", or another of up to {MAX_NAME_CHARACTERS} visible "
            f"characters, not beginning with {RESERVED}.",
        )
    return name
