"""Keys that nobody knows beforehand, found in the rows for a charge, and kept in the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from dpsql.answers.facts import FoundColumn
from dpsql.answers.found_values import FoundValues, parts_of
from dpsql.answers.scored import is_count
from dpsql.calls import check_switch
from dpsql.engines.key_scores import KeyScores, ScoredKeys
from dpsql.errors import (
    ArgumentError,
    BudgetError,
    LedgerError,
    SchemaError,
    UnsupportedSqlError,
    printable,
    shown,
)
from dpsql.measurement.keys import KeyPlan, find_keys
from dpsql.measurement.measure import ChargedPlan
from dpsql.privacy import Budget, Receipt
from dpsql.privacy.finding import Keys
from dpsql.privacy.keys import MOST_KEYS, KeyRule, weights
from dpsql.privacy.refusals import too_much_delta
from dpsql.progress import Watch
from dpsql.release.found_keys import (
    FoundKeys,
    KeptKeys,
    decode_keys,
    texts_of,
)
from dpsql.request import Free, Request
from dpsql.rows.expression import columns
from dpsql.rows.found import FoundExpression
from dpsql.schema import Table
from dpsql.schema.domain import OTHER, Domain, refused_label
from dpsql.schema.drafts import KEY_TYPES, counting_hint, declaration_hint
from dpsql.schema.grain import declared_type
from dpsql.schema.names import as_sql, closest, folded, unknown
from dpsql.session.checks import check_budget, check_rules
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.key_source import KeySource
from dpsql.session.paid import PaidStep


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """A question for the keys of a column.

    Args:
        table: the table's name.
        column: the column's name, or an expression of some as it is written; or several of them,
            whose values are found together.
        budget: what is given for it; 0 asks only for what was found before.
        keys: which part of it is spent, and how.
        other: the label for other texts.
        refresh: whether new keys are paid for, whatever was found before.
        computed: the expression, if it is known already.
    """

    table: str
    column: str | Sequence[str]
    budget: Budget | Free
    keys: Keys = field(default_factory=Keys)
    other: str = OTHER
    refresh: bool = False
    computed: FoundExpression | None = None

    def __post_init__(self) -> None:
        """Refuse what can't be meant.

        Raises:
            ArgumentError, BudgetError: that is so.
        """
        if self.budget != 0 or isinstance(self.budget, bool):
            check_budget(self.budget)
        check_switch(refresh=self.refresh)
        check_rules(keys=self.keys)
        refused = refused_label(self.other)
        if refused is not None:
            raise ArgumentError(refused, hint='for example other="(other)".')
        if self.refresh and not isinstance(self.budget, Budget):
            raise BudgetError(
                "New keys are paid for, and the budget is 0.",
                hint="leave refresh=True out.",
            )


def answer_keys(data: PrivateData, asked: KeyQuestion, watch: Watch) -> FoundKeys:
    """Find keys with a charge, or hand out again what was found before.

    Nothing but keys that were told leaves `find_keys`; all else is as `paid.PaidStep` says.

    Raises:
        StaleSchemaError: the connection or the table is not the one it was.
        ExecutionError: something failed after the charge, which stands.
        DpsqlError: it can't be answered; nothing was charged.
    """
    with data.held():
        table = data.declared.described(asked.table)
        source = source_of(data.declared, table, asked)
        most = most_keys(data.declared, table, source)
    purpose = partial(data.archive.key_purpose, table, source)
    left = data.ledger.undelivered(purpose(), None)  # whatever it has cost
    if left is not None:
        return _handed_out(data, left[0], decode_keys(left[1]), asked)
    if not asked.refresh or not isinstance(asked.budget, Budget):
        known = _found_before(data, table, source, asked)
        if known is not None:
            return known
    if not isinstance(asked.budget, Budget):
        raise BudgetError(
            f"No keys of {printable(table.name)}.{printable(source.label)} were found before.",
            hint="pass a budget, for example dpsql.Budget(epsilon=1, delta=1e-9).",
        )
    budget, rule = asked.budget, _rule(data, asked, asked.budget, most)
    plan = KeyPlan(rule, asked.keys.max_keys)
    engine = data.declared.source.engine()
    scores = _Noticed(engine.key_scores(table, source.key, rule.weights))

    def charge() -> Receipt:
        return data.ledger.charge(
            rule.mu_squared,
            delta=rule.delta,
            asked=data.ledger.understood(budget),
            purpose=purpose(plan.digest, charged=True),
            accept_schema=data.archive.accepted((table,)),
            each_row=table.each_row,
        )

    def take(charged: ChargedPlan) -> KeptKeys:
        told = find_keys(charged, scores, partial(watch, "finding keys"))
        return KeptKeys(
            table.typed,
            source.label,
            source.type,
            source.filled,
            rule,
            texts_of(told),
            table.stored.described,
            len(told) < plan.most,
            parts_of(source.computed),
        )

    paid = PaidStep(table, plan, scores.check, charge)
    receipt, kept = paid.taken(data, engine, take, lambda: scores.scored)
    return FoundKeys.of(kept, receipt.request, asked.other)


def kept_keys(data: PrivateData, asked: KeyQuestion) -> FoundKeys | None:
    """Return keys that were found before; None if there are none. Nothing is charged."""
    with data.held():
        table = data.declared.described(asked.table)
        source = source_of(data.declared, table, asked)
    return _found_before(data, table, source, asked)


@dataclass(slots=True)
class _Noticed(KeyScores):
    """Scores, and whether any were handed out: noise may have been drawn for them."""

    scores: KeyScores
    scored: bool = False

    @property
    def weights(self) -> Sequence[int]:
        return self.scores.weights

    def check(self) -> None:
        self.scores.check()

    def run(self, known: Collection[bytes] = ()) -> Iterator[ScoredKeys]:
        for piece in self.scores.run(known):
            self.scored = True
            yield piece


def _handed_out(
    data: PrivateData, receipt: Receipt, kept: KeptKeys, asked: KeyQuestion
) -> FoundKeys:
    """Hand keys out, and note that."""
    with suppress(LedgerError):
        data.ledger.deliver(receipt)
    return FoundKeys.of(kept, receipt.request, asked.other)


def _found_before(
    data: PrivateData, table: Table, source: KeySource, asked: KeyQuestion
) -> FoundKeys | None:
    """Return the keys that were found last, of the same rows, by whatever budget."""
    kept_keys_ = data.archive.kept_keys(table, source)
    if kept_keys_ is None:
        return None
    entry, kept = kept_keys_
    return FoundKeys.of(kept, entry.request, asked.other)


def rule_of(data: PrivateData, asked: KeyQuestion) -> KeyRule:
    """Return the rule by which keys would be found; spends nothing.

    Raises:
        BudgetError: the budget has no δ, or is too small.
    """
    return _rule(data, asked, *_asked_of(data.declared, asked))


def rule_alone(declared: DeclaredData, asked: KeyQuestion) -> KeyRule:
    """Return the rule by which keys would be found, where there is no account."""
    budget, most = _asked_of(declared, asked)
    return asked.keys.rule(budget, most)


def _asked_of(declared: DeclaredData, asked: KeyQuestion) -> tuple[Budget, int]:
    """Return the budget of a question, and how many keys of a unit count at most."""
    table = declared.described(asked.table)
    most = most_keys(declared, table, source_of(declared, table, asked))
    if not isinstance(asked.budget, Budget):
        raise BudgetError("Keys need a budget.", hint="pass one, dpsql.Budget(rho=0.1).")
    return asked.budget, most


def _rule(data: PrivateData, asked: KeyQuestion, budget: Budget, most: int) -> KeyRule:
    """Return the rule for what is asked, in this account.

    Of the δ that the account sets aside for keys as large a part is spent, if nothing else is said,
    as of its total: so that it isn't used up before that is.
    """
    delta = delta_of_account(data, budget, asked.keys.share or Fraction(1))
    return asked.keys.rule(data.ledger.understood(budget), most, delta)


def delta_of_account(data: PrivateData, budget: Budget, share: Fraction) -> Fraction | None:
    """Return the δ for a part of a budget: as large a part of what is set aside as of the total.

    None if the account has no total.

    Raises:
        BudgetError: it has one, and sets no δ aside.
    """
    ledger = data.ledger
    total, aside, left = ledger.total, ledger.total_delta, ledger.remaining_delta
    if total is None or aside is None:
        return None
    if not aside:
        raise too_much_delta(aside, aside, any_aside=False)
    part = min(ledger.understood(budget).mu_squared / total, Fraction(1)) * share
    return min(aside * part, left or aside)


def column_of(table: Table, name: object) -> str:
    """Return the column that a name means.

    Raises:
        SchemaError: there is none.
    """
    known = [*table.columns, *table.undeclared]
    for column in known:
        if isinstance(name, str) and folded(column) == folded(name):
            return column
    raise unknown(
        f"There is no column {shown(name)} in {printable(table.name)}.",
        closest(str(name), known, as_sql),
    )


def source_of(declared: DeclaredData, table: Table, asked: KeyQuestion) -> KeySource:
    """Return the column of a question, or what its expression computes of a row.

    Raises:
        SchemaError: there is no such column, and it is no expression whose values can be found.
        SqlError: the expression can't be evaluated row by row.
    """
    if asked.computed is not None:
        return KeySource.of_expression(asked.computed)
    if not isinstance(asked.column, list | tuple):
        return _source(declared, table, asked.column)
    texts = dict.fromkeys(_as_key(table, name) for name in asked.column)
    if len(texts) < 2:
        raise ArgumentError(
            f"{shown(asked.column)} is no list of several columns.",
            hint='for example ["carrier", "flight"].',
        )
    by_owner = replace(declared, learned=frozenset(), schema=declared.by_owner)
    expression = _wanted_by(by_owner, table, [*texts])
    if expression is None or len(expression.parts) < len(texts):
        raise SchemaError(
            f"The values of {printable(', '.join(texts))} can't be found together: those of some "
            "are known, or each of them is one unit's, or they are of a type of which none are "
            "found.",
            hint="ask for those of columns without a domain, and group by the others as well; of "
            "times, for days: CAST(… AS DATE).",
        )
    return KeySource.of_expression(expression)


def _as_key(table: Table, name: object) -> str:
    """Write a column, or an expression, as a key of groups."""
    return str(name) if is_expression(table, name) else as_sql(column_of(table, name))


def _source(declared: DeclaredData, table: Table, text: object) -> KeySource:
    if is_expression(table, text):
        return KeySource.of_expression(_computed(declared, table, str(text)))
    return KeySource.of_column(table, column_of(table, text))


def is_expression(table: Table, text: object) -> bool:
    """Whether it is more than a name, and no column's."""
    if not isinstance(text, str) or table.has(text):
        return False
    return any(not (sign.isalnum() or sign in "_ ") for sign in text)


def _computed(declared: DeclaredData, table: Table, text: str) -> FoundExpression:
    """Read an expression: it is what a statement lacks that groups by it.

    Raises:
        SchemaError: its values are known, or can't be found.
        SqlError: it can't be evaluated row by row.
    """
    wanted = _wanted_by(declared, table, [text])
    if wanted is None:
        raise SchemaError(
            f"The values of {printable(text)} are known, or follow from those of a column.",
            hint="group by it.",
        )
    return wanted


def _wanted_by(declared: DeclaredData, table: Table, keys: Sequence[str]) -> FoundExpression | None:
    """Return what would be found for groups by some keys; None if nothing, or columns alone.

    Raises:
        SchemaError, SqlError: there can't be such groups.
    """
    name = ".".join(map(as_sql, table.path)) or as_sql(table.name)
    listed = ", ".join(f"({key}) AS k{number}" for number, key in enumerate(keys))
    places = ", ".join(str(number + 1) for number in range(len(keys)))
    sql = f"SELECT {listed}, COUNT(*) AS n FROM {name} GROUP BY {places}"
    try:
        replace(declared, told={}).compile(Request((("keys", sql),), 0))
    except SchemaError as error:
        if error.wanted is None:
            raise
        computed = error.wanted.computed
        return computed if isinstance(computed, FoundExpression) else None
    return None


def is_computed(declared: DeclaredData, table: Table, source: KeySource) -> bool:
    """Whether the database computes an expression of a row, for which no row is read.

    Where it doesn't, values of its column are found, and the expression evaluated over these.
    """
    engine = declared.source.engine()
    try:
        with engine.snapshot():
            engine.key_scores(table, source.key, weights(1)).check()
    except UnsupportedSqlError:
        return False
    return True


def most_keys(declared: DeclaredData, table: Table, source: KeySource) -> int:
    """Return how many keys of a unit count at most.

    Raises:
        SchemaError: the column needs no keys, or can't have any; or a row may be of several units.
        UnboundedError: nothing says how many.
    """
    name, column = f"{printable(table.name)}.{printable(source.label)}", source.name
    known = column in table.columns and (table.path, column) not in declared.found
    if source.computed is None and (known or column in table.derived):
        raise SchemaError(
            f"{name} has a public domain, so its keys are known.",
            hint="group by it: that costs nothing more.",
        )
    type_ = source.type
    if table.unit is not None and table.unit.named_by == (column,):
        alone = table.contributions == 1
        raise SchemaError(
            f"{name} says of which unit a row is: no value has more than one unit.",
            hint=counting_hint(table.name, column, single=alone),
        )
    if type_ not in KEY_TYPES:
        raise SchemaError(
            f"{name} is of type {type_}, and keys are found in texts, whole numbers, dates and "
            "times.",
            hint=declaration_hint(table.typed, column, type_, view=table.origin is not None),
        )
    if table.unit is None:
        return 1
    loose = next((join for join in table.unit.joins if not join.enforced), None)
    if loose is not None:
        raise SchemaError(
            f"Rows of {printable(table.name)} may be of several units: the step by "
            f"{printable(', '.join(loose.columns))} is none that the database enforces.",
            hint=f"store the id of the unit in a column of {printable(table.name)}; or declare a "
            "FOREIGN KEY.",
        )
    most = table.unit.max_groups or table.unit.max_rows
    if most is None:
        raise declared.unbounded(table)
    return min(most, MOST_KEYS)


def with_keys(data: PrivateData, asked: KeyQuestion, found: FoundKeys) -> PrivateData:
    """Return data whose owner has declared the domain that was found.

    Of numbers and days there is none if nothing was found.
    """
    if not found.keys and not found.is_text:
        return data
    with data.held():
        table = data.declared.described(asked.table)
        computed = source_of(data.declared, table, asked).computed
        by, entry = found.rule, data.charge_of(found.request)
        scores = found.scores if is_count(by) else ()
        if computed is not None:
            key = key_of(table, computed, found.domain)
            values = FoundValues.of(computed, found.domain, found.other)
            told = FoundColumn.of(table.path, key, by, entry, scores, values)
            declared = data.declared.telling(table, computed, found.domain, told)
            return replace(data, declared=declared)
        data.archive.expect_change(table, found.column)
        told = FoundColumn.of(table.path, found.column, by, entry, scores)
        declared = data.declared.declaring(table, found.column, found.domain, told)
        return replace(data, declared=declared)


def key_of(table: Table, computed: FoundExpression, domain: Domain) -> str:
    """Return the name of the key that an expression is, of which some values are found."""
    types = {name: declared_type(table, name) for name in columns(computed.expression)}
    return computed.key(domain, types).name
