"""The computations of a statement on noisy answers, in the sandbox, and notes on their results."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.errors import SqlError, printable
from dpsql.hints import Hint, first_that_works, instead
from dpsql.schema.names import as_called, as_sql, folded, quoted_name
from dpsql.schema.table import MovedValues
from dpsql.sql.binding.core import FLOOR_ROLES, ROW, AnswerColumn, Role, Windowed
from dpsql.sql.binding.expressions import Expr, render
from dpsql.sql.computing.fractions import COLUMNS, Placed, with_fractions
from dpsql.sql.computing.gradient import NotSmoothError
from dpsql.sql.computing.propagate import NONE, UNKNOWN, NumberedStatistics, Output, Propagation
from dpsql.sql.computing.whole import with_whole_numbers
from dpsql.sql.lowering.lower import LoweredCore
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.text.edits import renamed, swapped
from dpsql.sql.text.spans import SourceText

_BESIDE = (Role.LOWER, Role.UPPER, Role.SIZE)
"""The hidden columns beside a quantile."""
_NOT_IN_TRY = (exp.AggFunc, exp.Window, exp.Query)
SUFFIXES = ("_variance", "_standard_error", "_lower", "_upper")
"""The endings of the names of columns beside a value column."""


@dataclass(frozen=True, slots=True)
class DirectOutput:
    """An output column that is a key, or a statistic, of a statement's only core."""

    name: str
    key: int | None
    statistic: int | None

    @property
    def noisy(self) -> bool:
        """Whether it is a statistic."""
        return self.statistic is not None


@dataclass(frozen=True, slots=True, eq=False)
class Postprocessing:
    """A query over tables of noisy answers."""

    sql: str
    """With hidden columns behind the outputs, see `propagate`."""
    everything: tuple[Output, ...]
    """The outputs, and behind them the bounds of intervals and what fractions consist of."""
    visible: int
    """The number of outputs."""
    bounds: Mapping[int, int]
    """For outputs that are quantiles as they are: the place of the lower bound; the upper one
    comes next, and then of how many rows they are."""
    ranges: Mapping[int, pl.Series]
    """For the same outputs: all values of their domain, in order."""
    fractions: Mapping[int, Placed]
    """For outputs that divide, or take roots: what they consist of."""
    tables: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """The tables of answers with their columns and types."""
    sandbox: Sandbox

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the answer."""
        return self.everything[: self.visible]

    def run(self, answers: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Compute the result; its last columns are the hidden ones.

        Raises:
            SqlError: DuckDB can't compute something for these noisy values.
        """
        try:
            with self.sandbox.lock:  # threads share the tables
                self.sandbox.allow(1)
                for (name, columns), frame in zip(self.tables, answers, strict=True):
                    _fill(self.sandbox, name, columns, frame)
                return self.sandbox.frame(self.sql)
        except SandboxError as error:
            raise SqlError(
                f"DuckDB can't compute this on the noisy answers: {error}",
                hint="noise makes counts fractional and sometimes negative: guard divisions, "
                "roots and casts by CASE or NULLIF, or compute on the returned frame.",
            ) from None


def direct_outputs(
    query: exp.Query, lowered: Sequence[LoweredCore]
) -> tuple[DirectOutput, ...] | None:
    """Return the outputs of a statement that computes nothing; None if it does."""
    if not isinstance(query, exp.Select) or len(lowered) != 1 or len(lowered[0].sets) != 1:
        return None
    if any(v for k, v in query.args.items() if k not in {"expressions", "from_"}):
        return None
    clause = query.args.get("from_")
    if clause is None or clause.this.name != lowered[0].core.table:
        return None
    outputs = []
    for item in query.expressions:
        column = AnswerColumn.of(item.this.unnest())
        if column is None or column.role not in {Role.KEY, Role.STATISTIC}:
            return None
        is_key = column.role is Role.KEY
        key, statistic = (column.number, None) if is_key else (None, column.number)
        outputs.append(DirectOutput(item.alias, key, statistic))
    return tuple(outputs)


def prepare(
    query: exp.Query, lowered: Sequence[LoweredCore], sandbox: Sandbox, source: SourceText
) -> Postprocessing:
    """Make the tables that a query is over, without rows, and check that DuckDB takes it.

    What could fail for some noisy value becomes NULL there: the answers have been paid for.

    Raises:
        SqlError: it refuses the query, for its types for example.
    """
    query = _guarded(with_whole_numbers(query, lowered))
    tables = []
    for core in lowered:
        columns = (*_columns(core), (ROW, "BIGINT"))
        listed = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in columns)
        sandbox.create(core.core.table, f"SELECT {listed} WHERE false")
        tables.append((core.core.table, columns))
    try:
        names = [as_called(name) for name, _ in sandbox.types(render(query))]
    except SandboxError as error:
        raise source.error(
            source.whole(),
            f"DuckDB can't compute this on the answers: {error}",
            first_that_works(
                _corrected(source, str(error)),
                "counts and sums are DOUBLE there; cast where another type is needed.",
            ),
        ) from None
    whole_query, bounds, ranges = _with_bounds(query, lowered, len(names))
    extended, fractions = with_fractions(whole_query, lowered, len(names))
    hidden = len(_BESIDE) * len(bounds) + COLUMNS * len(fractions)
    shown = [*names, *(f"__b{i}" for i in range(hidden))]
    text, outputs = _annotated(extended, lowered, sandbox, shown)
    return Postprocessing(
        text, tuple(outputs), len(names), bounds, ranges, fractions, tuple(tables), sandbox
    )


def _corrected(source: SourceText, said: str) -> Iterator[Hint]:
    """Write a name, a place or an argument otherwise that DuckDB finds nothing for."""
    whole = source.whole()
    match = re.fullmatch(r"ORDER term out of range - should be between 1 and (\d+)", said)
    if match is not None:
        yield from swapped(source, whole, r"ORDER BY \d+", f"ORDER BY {match[1]}")
    function = re.search(r"types '(\w+)\(", said)
    if function is not None:
        yield from swapped(source, whole, rf"\b{function[1]}\([^()]*\)", f"{function[1]}()")
    twice = re.match(r'Duplicate named argument "(\w+)"', said)
    if twice is not None:
        name = twice[1]
        yield from swapped(source, whole, rf"(.*)'{name}'(?=\s*:)", rf"\1'{name}_2'")
    yield from renamed(source, said)


def _guarded(query: exp.Query) -> exp.Query:
    """Let casts and other arithmetic on integers that fails give NULL."""
    guarded = query.copy()
    for node in reversed(list(guarded.find_all(exp.Cast, exp.IntDiv, exp.Mod))):
        if type(node) is exp.Cast:
            node.replace(exp.TryCast(this=node.this.copy(), to=node.to.copy()))
        elif isinstance(node, exp.IntDiv) and has_statistic(
            node
        ):  # of DOUBLE, // leaves a fraction
            divisor = exp.Nullif(this=node.expression.copy(), expression=exp.Literal.number(0))
            share = exp.Div(this=exp.Paren(this=node.this.copy()), expression=divisor)
            node.replace(exp.Floor(this=share))
        elif not isinstance(node, exp.Cast) and not node.find(*_NOT_IN_TRY):
            node.replace(exp.Try(this=node.copy()))
    for select in guarded.find_all(exp.Select):
        for item in select.expressions:
            inner = item.unalias()
            if inner.find(exp.TryCast) and not inner.find(*_NOT_IN_TRY):
                inner.replace(exp.Try(this=inner.copy()))
    return guarded


def _with_bounds(
    query: exp.Query, lowered: Sequence[LoweredCore], width: int
) -> tuple[exp.Query, dict[int, int], dict[int, pl.Series]]:
    """Add the bounds of quantiles that a statement returns as they are, and how many rows.

    Returns:
        The query; the places of the bounds; the values that these quantiles are of.
    """
    clause = query.args.get("from_")
    if not isinstance(query, exp.Select) or clause is None or query.args.get("distinct"):
        return query, {}, {}
    cores = [core for core in lowered if core.core.table == clause.this.name]
    if not cores or query.args.get("joins"):
        return query, {}, {}
    statistics = cores[0].sets[0].columns
    extended = query.copy()
    columns: dict[int, int] = {}
    ranges: dict[int, pl.Series] = {}
    for i, item in enumerate(query.expressions):
        column = AnswerColumn.of(item.this.unnest())
        if column is None or column.role is not Role.STATISTIC:
            continue
        values = statistics[column.number].range
        if values is not None:
            ranges[i] = values
            columns[i] = width + len(_BESIDE) * len(columns)
            for role in _BESIDE:
                name = exp.to_identifier(f"__b{len(extended.expressions) - width}")
                bound = exp.Alias(this=role.column(column.number), alias=name)
                extended.expressions.append(bound)
    return extended, columns, ranges


def _annotated(
    query: exp.Query, lowered: Sequence[LoweredCore], sandbox: Sandbox, names: Sequence[str]
) -> tuple[str, list[Output]]:
    answers, first = {}, 0
    rows = sum(group.rows for core in lowered for group in core.sets)
    for core in lowered:
        statistics = core.sets[0].columns
        opaque = frozenset(j for j, s in enumerate(statistics) if s.is_quantile)
        answers[core.core.table] = NumberedStatistics(first, len(statistics), opaque)
        first += len(statistics)

    def columns(table: str) -> list[str]:
        return [name for name, _ in sandbox.types(f"SELECT * FROM {quoted_name(table)}")]

    try:
        annotated, outputs = Propagation(answers, columns, rows).annotate(query)
        text = render(annotated)
        found = [name for name, _ in sandbox.types(text)]
        if len(found) != 2 * len(names):
            raise NotSmoothError("the query has columns of a form that isn't followed")
    except (NotSmoothError, SandboxError) as error:
        if not lowered:  # of public tables alone, nothing is noisy
            unknown, pairs = [Output(name) for name in names], NONE
        else:
            reason, pairs = str(error), UNKNOWN
            unknown = [Output(name, noisy=True, exact=False, reason=reason) for name in names]
        hidden = ", ".join(f"{pairs} AS __e{i}" for i in range(len(names)))
        return f"SELECT *, {hidden} FROM ({render(query)})", unknown
    return text, [replace(o, name=name) for name, o in zip(names, outputs, strict=True)]


def _columns(core: LoweredCore) -> list[tuple[str, str]]:
    """Return the columns of a core's table of answers, with their types."""
    numbers, floor = range(len(core.core.keys)), core.core.floor
    statistics = [(j, s.value_type or "DOUBLE") for j, s in enumerate(core.sets[0].columns)]
    ordered = [(j, t) for j, t in statistics if core.sets[0].columns[j].is_quantile]
    columns = [(Role.KEY, k, core.types.get(k, "INTEGER")) for k in numbers]
    columns += [(Role.ROLLED_UP, k, "INTEGER") for k in numbers]
    columns += [(Role.STATISTIC, j, type_) for j, type_ in statistics]
    columns += [(Role.CENTER, j, "DOUBLE") for j, _ in statistics]
    columns += [(end, j, type_) for j, type_ in ordered for end in (Role.LOWER, Role.UPPER)]
    columns += [(Role.SIZE, j, "DOUBLE") for j, _ in ordered]
    if floor is not None:
        columns += [(role, floor.statistic, "DOUBLE") for role in FLOOR_ROLES]
    return [(role.named(number), type_) for role, number, type_ in columns]


def has_statistic(node: Expr) -> bool:
    """Whether a noisy statistic stands anywhere in an expression over answers."""
    columns = map(AnswerColumn.of, node.find_all(exp.Column))
    return any(column is not None and column.role is Role.STATISTIC for column in columns)


def _fill(
    sandbox: Sandbox, name: str, columns: Sequence[tuple[str, str]], frame: pl.DataFrame
) -> None:
    incoming = sandbox.new_name("incoming")
    sandbox.store(incoming, frame)
    casts = ", ".join(f"CAST({quoted_name(c)} AS {type_}) AS {c}" for c, type_ in columns)
    sandbox.create(name, f"SELECT {casts} FROM {incoming}")
    sandbox.drop(incoming)


def check_names(
    outputs: Sequence[DirectOutput | Output], source: SourceText, items: Sequence[Expr]
) -> None:
    """Refuse a frame that would have two columns of one name.

    Raises:
        SqlError: names the columns.
    """
    taken: set[str] = set()
    for output, item in zip(outputs, items, strict=True):
        for own in _named(output):
            if folded(own) in taken:
                beside = ", ".join("n" + suffix for suffix in SUFFIXES)
                known = {folded(name) for one in outputs for name in _named(one)}
                raise source.error(
                    item,
                    f"Two columns of the answer would be called {printable(own)}.",
                    "give each its own name"
                    + _another_name(item, output.name, known, source)
                    + f". Names beside n are {beside}.",
                )
            taken.add(folded(own))


def _named(output: DirectOutput | Output) -> tuple[str, ...]:
    """Return what a column of the answer, and what stands beside it, is called."""
    return (output.name, *(output.name + end for end in SUFFIXES if output.noisy))


def _another_name(item: Expr, name: str, known: set[str], source: SourceText) -> Hint:
    """Write an item of the SELECT list with a name that is free."""
    if isinstance(item, exp.Query):
        return Hint("")
    further = (f"{name}_{n}" for n in range(2, len(known) + 3))
    free = next(one for one in further if folded(one) not in known)
    given = item.args["alias"] if isinstance(item, exp.Alias) else None
    if given is not None:
        return ", for example " + instead(as_sql(free), of=source.node(given))
    return ", for example " + instead(f"{source.text(source.node(item))} AS {as_sql(free)}")


# ── Notes on answers that are computed over groups, or chosen by noise: what readers must know ───


EMPTY = (
    "groups without rows take part, unlike in a database: declare which groups exist, or leave "
    "out groups that may be empty, by groups_above={} or HAVING COUNT(*) > …"
)
_FLOORS = range(2, 7)
"""Floors in standard errors. The least is proposed that on average lets less than one in two
statements have a group without rows."""
CHOSEN = (
    "chosen by noisy values, so too large on average: by 0.8 standard errors if the exact value "
    "is at the threshold, by 1.5 or 2.4 if it is one or two standard errors below"
)
CHOSEN_GROUPS = "groups are chosen by noisy values"
LISTED = "groups are public: they are listed whether they have rows or not, and cost nothing"
PUBLIC = "computed from public tables alone: exact, and free"
ABOVE = "groups whose noisy count is less than {:g} times its standard error are left out"
NO_GROUP = (
    "no possible row meets the conditions: are they contradictory, beyond the columns' domains, or "
    "do they compare with NULL, which is written IS NULL?"
)
_NEUTRAL = (exp.Sum,)
"""Functions of groups to which an empty group adds nothing but noise."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note on some values: what must be known of them besides their errors."""

    text: str
    outputs: frozenset[int] | None = None
    """The numbers of their columns; None for all that are noisy."""
    avoidable: bool = False
    """Whether it is said before anything is charged, because another statement is without it."""

    def about(self, output: int, *, key: bool) -> bool:
        """Whether it is about a column, which may be one without noise."""
        return not key if self.outputs is None else output in self.outputs


def notes(
    query: exp.Query, cores: Sequence[LoweredCore], post: Postprocessing | None
) -> tuple[Note, ...]:
    """Return the notes for a statement.

    Args:
        query: what it computes on the answers of its cores.
        cores: these.
        post: the same, followed through by its noise; None if nothing is computed.
    """
    floors = {core.core.floor.errors for core in cores if core.core.floor is not None}
    noted = [*_empty_notes(query, cores), *(Note(ABOVE.format(errors)) for errors in floors)]
    outputs = () if post is None else post.outputs
    if any(not group.rows for core in cores for group in core.sets):
        width = len(outputs) or len(query.expressions)
        noted.append(Note(NO_GROUP, frozenset(range(width)), avoidable=True))
    if any(output.chosen for output in outputs):
        noisy = any(output.noisy for output in outputs)
        noted.append(Note(CHOSEN) if noisy else Note(CHOSEN_GROUPS, frozenset(range(len(outputs)))))
    elif not any(group.columns for core in cores for group in core.sets):
        width = len(outputs) or len(query.expressions)
        noted.append(Note(LISTED if cores else PUBLIC, frozenset(range(width))))
    return tuple(noted)


def _empty_notes(query: exp.Query, cores: Sequence[LoweredCore]) -> Iterator[Note]:
    """Say of what is computed over groups that some of them may have no rows."""
    if not any(_may_be_empty(query, core) for core in cores):
        return
    groups = [group for core in cores for group in core.sets]
    means = {
        Role.STATISTIC.named(j)
        for group in groups
        for j, s in enumerate(group.columns)
        if isinstance(s.statistic, Windowed) and s.statistic.mean
    }
    over = _over_groups(query, means)
    if over is None or over:
        empty = EMPTY.format(_floor(sum(group.rows for group in groups)))
        yield Note(empty, over, avoidable=True)


def moved_notes(moved: Iterable[MovedValues]) -> tuple[Note, ...]:
    """Return a note for each way in which values count as others, see `schema.table`."""
    return tuple(Note(text) for text in dict.fromkeys(map(str, moved)))


def _floor(groups: int) -> int:
    """Return the standard errors that leave out as good as all groups without rows."""
    above = statistics.NormalDist().cdf
    return next((k for k in _FLOORS if groups * above(-k) < 1 / 2), _FLOORS[-1])


def computes_on_groups(query: exp.Query) -> bool:
    """Whether a query computes anything from several groups together."""
    return query.find(exp.AggFunc, exp.Window) is not None


def _may_be_empty(query: exp.Query, core: LoweredCore) -> bool:
    """Whether a core has groups, of which neither the owner nor HAVING says that they have rows."""
    if not core.core.keys:
        return False
    selects = [s for s in query.find_all(exp.Select) if _table_of(s) == core.core.table]
    return not core.core.declared and not all(map(_chooses, selects))


def _chooses(select: exp.Select) -> bool:
    """Whether groups are chosen by noisy values, be it in a SELECT around sums of answers."""
    where, around = select.args.get("where"), select.parent
    if where is not None and has_statistic(where):
        return True
    while isinstance(around, (exp.Subquery, exp.SetOperation, exp.From)):
        around = around.parent
    placed = select.find_ancestor(exp.From, exp.Where, exp.Select)
    return isinstance(around, exp.Select) and isinstance(placed, exp.From) and _chooses(around)


def _table_of(select: exp.Select) -> str:
    clause = select.args.get("from_")
    return clause.this.name if clause is not None else ""


def _over_groups(query: exp.Query, means: set[str]) -> frozenset[int] | None:
    """Return the columns whose values depend on which groups there are; None if all do.

    These are the items of the outer SELECT in which something is computed over groups. What cuts
    rows off, or is computed in the queries that it is over, is taken to be about all of them.

    Args:
        query: what is computed on the answers.
        means: the statistics that are means over groups.
    """
    if not _computes(query, means):
        return frozenset()
    stars = any(item.find(exp.Star) and not item.find(exp.AggFunc) for item in query.expressions)
    if not isinstance(query, exp.Select) or stars:  # the columns aren't the items
        return None
    parts = [
        ensure_list(of) for key, of in query.args.items() if key not in {"expressions", "order"}
    ]
    if any(isinstance(p, Expr) and _computes(p, means) for of in parts for p in of):
        return None
    return frozenset(i for i, item in enumerate(query.expressions) if _computes(item, means))


def _computes(part: Expr, means: set[str]) -> bool:
    """Whether something in a query depends on which groups there are."""
    for node in part.walk():
        if isinstance(node, exp.Limit | exp.Offset):
            return True
        aggregate = isinstance(node, exp.AggFunc) and not isinstance(node, _NEUTRAL)
        window = isinstance(node, exp.Window) and not isinstance(node.this, _NEUTRAL)
        mean = isinstance(node, exp.Column) and node.name in means
        if aggregate or window or mean:
            return True
    return False
