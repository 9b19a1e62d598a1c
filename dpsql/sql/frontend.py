"""The front end: SQL statements → one workload and the shape of its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TypeVar

from dpsql.errors import (
    DpsqlError,
    ResourceLimitError,
    SchemaError,
    Span,
    SqlError,
    SqlLimitError,
    SqlParseError,
    UnsupportedSqlError,
    printable,
)
from dpsql.hints import Hint, RemedyPlace
from dpsql.linalg.arrays import Ints
from dpsql.rel.related import related_rows
from dpsql.rows.expression import NOTHING, RowCase, RowExpression, all_of, ordered
from dpsql.rows.known import Interval, common
from dpsql.rows.write import RowWriter
from dpsql.schema import Table
from dpsql.schema.domain import Cuts, NumberBounds
from dpsql.schema.names import quoted_name, twins
from dpsql.sql.allow import check_allowed
from dpsql.sql.assemble import Asked, LoweredStatement, answered, assemble
from dpsql.sql.binding.core import FILLED, Core, Linear, SumForm
from dpsql.sql.binding.tables import (
    NamedTables,
    Public,
    Relate,
    Resolve,
    SameUnits,
    Unbounded,
    Unique,
    Widen,
    no_bound,
    no_parents,
    no_relations,
    nothing_unique,
)
from dpsql.sql.compiled import Importance, Script, naming
from dpsql.sql.computing.whole import with_whole_statistics
from dpsql.sql.computing.worth import worths
from dpsql.sql.lowering.alike import alike_cells, of_all, of_first, with_one_of_each
from dpsql.sql.lowering.derive import derived_core
from dpsql.sql.lowering.evaluate import Evaluator
from dpsql.sql.lowering.keys import NO_CUTS, DerivedKeys
from dpsql.sql.lowering.lower import lower
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.outline import Outlined, Outliner
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.several import by_table, check_bounded, one_table_only, over_all_tables
from dpsql.sql.shorthands import (
    with_short_chains,
    without_brackets,
    without_pivots,
    without_shorthands,
)
from dpsql.sql.spellings import without_spellings
from dpsql.sql.text.limits import MAX_STATEMENTS
from dpsql.sql.text.parse import Parsed, check_written, parse_statement


def no_public_tables(_: tuple[str, ...]) -> None:
    """Know of no public table."""
    return


def no_split(_: Table) -> Mapping[str, Ints]:
    """Tell no further cells apart."""
    return {}


T = TypeVar("T")
CutsOf = Callable[[Table], Mapping[str, Cuts]]
"""Says where the lines of a table's columns are cut."""


def no_cuts(_: Table) -> Mapping[str, Cuts]:
    """Cut no line further than statements do."""
    return NO_CUTS


def compile_script(
    statements: Sequence[tuple[str, str]],
    resolve: Resolve,
    public: Public = no_public_tables,
    weights: Mapping[str, float] | str | None = None,
    split: Callable[[Table], Mapping[str, Ints]] = no_split,
    groups_above: float | None = None,
    cuts: CutsOf = no_cuts,
    *,
    sums: SumForm = FILLED,
    drawing: bool = False,
    wherever: bool = False,
    widen: Widen = no_parents,
    same_units: SameUnits = one_table_only,
    unbounded: Unbounded = no_bound,
    relate: Relate = no_relations,
    unique: Unique = nothing_unique,
) -> Script:
    """Compile named statements over private tables to a workload; no row is touched.

    Args:
        statements: name and SQL text of each.
        resolve: finds the private table that a name (as its parts) means, or raises a
            SchemaError.
        public: returns the public table of a name, or None.
        weights: statement → importance, which goes before `/*+ weight(5) */` in its text; or
            `marginal`, see `Importance`.
        split: for the table, column → classes of cells that must be told apart although no
            statement does.
        groups_above: leave groups out whose noisy count is below so many of its standard errors,
            before anything else is computed on the answers.
        cuts: for a table, line of a column → where it is cut although no statement asks for that.
        sums: the form in which values are added up row by row.
        drawing: draw quantiles of few values, too, in place of reading them off running totals.
        wherever: let averages be exact wherever they lie, and not on average of that.
        widen: gives a private table the columns of the rows that it refers to.
        same_units: refuses a further table whose rows are not of the units of the first one.
        unbounded: words that nothing bounds the rows of units in a table whose rows are counted.
        relate: describes the rows of a relation of private tables.
        unique: returns the sets of columns in which no two rows of a private table agree.

    Raises:
        SqlError: a statement is malformed, too large, refused, or over another table.
        SchemaError: a table or column is unknown or has no public domain.
        ResourceLimitError: a joint domain or a matrix is too large.
    """
    ask = partial(
        _compiled,
        resolve=resolve,
        public=public,
        split=split,
        groups_above=groups_above,
        cuts=cuts,
        sums=sums,
        drawing=drawing,
        wherever=wherever,
        widen=widen,
        same_units=same_units,
        unbounded=unbounded,
        relate=relate,
        unique=unique,
    )
    try:
        return ask(statements, weights=weights)
    except SqlError as error:
        error.hint = first_answered(error, lambda sql: ask([("query", sql)], weights=None))
        raise


def _compiled(
    statements: Sequence[tuple[str, str]],
    resolve: Resolve,
    public: Public,
    weights: Mapping[str, float] | str | None,
    split: Callable[[Table], Mapping[str, Ints]],
    groups_above: float | None,
    cuts: CutsOf,
    sums: SumForm,
    drawing: bool,
    wherever: bool,
    widen: Widen,
    same_units: SameUnits,
    unbounded: Unbounded,
    relate: Relate,
    unique: Unique,
) -> Script:
    """Compile statements, without trying what a hint may say; see `compile_script`."""
    _check_names(statements)
    several = len(statements) > 1
    sandbox = Sandbox()
    sandbox.allow(len(statements))
    try:
        tables = NamedTables(sandbox, resolve, public, widen, unbounded, relate, unique, same_units)
        outliner = Outliner(tables, groups_above)
        parsed = [(name, naming(name, several, _read, sql, tables)) for name, sql in statements]
        outlined = [
            (name, tree, naming(name, several, _outlined, tree, outliner)) for name, tree in parsed
        ]
        written = {name: tree.weight for name, tree in parsed}
        importance = replace(Importance.of(written, weights), wherever=wherever)
        asked = [
            _OverOne(tables.asked(table), own, sandbox, importance, several).asked(
                split, cuts, sums, drawing
            )
            for table, own in by_table(outlined, several, same_units)
        ]
        script = answered(over_all_tables(asked), outlined, sandbox)
        script = replace(script, read=tables.read)
        check_bounded(outlined, several, unbounded)
        return script
    except SandboxError as error:
        raise SqlError(
            f"DuckDB refuses a public table or a value: {error}",
            hint="public tables have columns of numbers, strings, dates and truth values.",
        ) from None
    except RecursionError:  # the limits leave ample room, unless the caller has used it up
        raise SqlLimitError(
            "A statement is too deeply nested for the stack that is left.",
            hint="call dpsql from less deeply nested code, or write the statement more simply.",
        ) from None


@dataclass(frozen=True, slots=True)
class _OverOne:
    """The queries of statements about one table, to be compiled."""

    table: Table
    outlined: Sequence[tuple[str, Parsed, Outlined]]
    sandbox: Sandbox
    importance: Importance
    several: bool
    """Whether errors say in which statement they are."""

    @property
    def cores(self) -> tuple[Core, ...]:
        """All queries about the rows of the table."""
        return tuple(core for _, _, outline in self.outlined for core in outline.cores)

    def asked(
        self,
        split: Callable[[Table], Mapping[str, Ints]],
        cuts: CutsOf,
        sums: SumForm,
        drawing: bool,
    ) -> Asked:
        """Compile that; see `compile_script`."""
        sandbox = self.sandbox
        declared = declared_expressions(self.table, sandbox)
        stored = self.table.without_keys
        keys = DerivedKeys(stored, sandbox, cuts(self.table))
        related = related_rows(self.table)
        stored_in = {} if related is None else related.stored_in
        reader = partial(
            RowReader,
            sandbox,
            stored,
            declared=declared,
            from_zero=sums.from_zero,
            drawing=drawing,
            summed=sums.columns(self.cores),
            around=sums.around,
            stored_in=stored_in,
        )
        readers = [reader(source=p.source) for _, p, _ in self.outlined]

        evaluators = [Evaluator(sandbox, stored, p.source) for _, p, _ in self.outlined]

        def derive(keys: DerivedKeys) -> list[tuple[Parsed, Outlined]]:
            def derived(number: int) -> tuple[Parsed, Outlined]:
                _, tree, outline = self.outlined[number]
                return _derived(tree, outline, keys, readers[number], evaluators[number])

            return self._each(derived)

        derived = derive(keys)
        if keys.has_lines:
            keys = keys.settled()
            derived = derive(keys)

        def compiled(table: Table, told_apart: Mapping[str, Ints]) -> Asked:
            def lowered(number: int) -> LoweredStatement:
                name, item, reader = self.outlined[number][0], derived[number], readers[number]
                return _lowered(name, item, table, sandbox, reader, self.importance)

            return assemble(table, self._each(lowered), told_apart, keys.keys)

        cores = [core for _, outline in derived for core in outline.cores]
        return _over_cells(keys.table, cores, sandbox, split(keys.table), compiled)

    def _each(self, step: Callable[[int], T]) -> list[T]:
        """Take a step with each statement."""
        names = (name for name, _, _ in self.outlined)
        return [naming(name, self.several, step, number) for number, name in enumerate(names)]


def _over_cells(
    table: Table,
    cores: Sequence[Core],
    sandbox: Sandbox,
    split: Mapping[str, Ints],
    compiled: Callable[[Table, Mapping[str, Ints]], Asked],
) -> Asked:
    """Compile over all cells; if these are too many, over one for all that are alike."""
    try:
        return compiled(table, split)
    except ResourceLimitError:
        with suppress(SandboxError, ResourceLimitError):
            alike = alike_cells(sandbox, table, cores, split)
            if alike:
                fewer = with_one_of_each(table, alike)
                asked = compiled(fewer, of_first(table, alike, split))
                script = asked.script
                merged = {n: alike[n] for n in alike if n in script.workload.domain}
                merged = of_all(table, merged, script.merged)
                return replace(asked, script=replace(script, tables=(table,), merged=merged))
        raise


def _derived(
    parsed: Parsed,
    outline: Outlined,
    keys: DerivedKeys,
    reader: RowReader,
    evaluator: Evaluator,
) -> tuple[Parsed, Outlined]:
    cores = tuple(
        derived_core(keys, core, reader, evaluator, parsed.source) for core in outline.cores
    )
    return parsed, replace(outline, cores=cores)


def _lowered(
    name: str,
    item: tuple[Parsed, Outlined],
    table: Table,
    sandbox: Sandbox,
    reader: RowReader,
    importance: Importance,
) -> LoweredStatement:
    parsed, outline = item
    evaluator = Evaluator(sandbox, table, parsed.source)
    lowered = [lower(core, table, evaluator, reader) for core in outline.cores]
    cores = with_whole_statistics(outline.query, lowered, reader)
    worth = {} if importance.wherever else worths(outline.query, outline.cores)
    return LoweredStatement(name, cores, importance, worth)


def _check_names(statements: Sequence[tuple[str, str]]) -> None:
    if not statements:
        raise SqlError("There is no statement.", hint="for example SELECT COUNT(*) FROM people.")
    if len(statements) > MAX_STATEMENTS:
        raise SqlLimitError(
            f"There are more than {MAX_STATEMENTS:,} statements.", hint="release several parts."
        )
    same = twins(name for name, _ in statements)
    if same is not None:
        raise SqlError(
            f"Two statements are named {printable(same[1])!r}; case makes no difference.",
            hint="give each statement its own name.",
        )


def _read(sql: str, tables: NamedTables) -> Parsed:
    parsed = without_pivots(with_short_chains(parse_statement(sql)), tables.values)
    parsed = without_spellings(without_brackets(parsed), tables.columns, tables.is_private)
    parsed = without_shorthands(parsed)
    check_allowed(parsed)
    check_written(parsed.query, parsed.source)
    return parsed


def _outlined(parsed: Parsed, outliner: Outliner) -> Outlined:
    """Outline a statement; if it numbers rows and is refused, as one of quantiles."""
    try:
        return outliner.outline(parsed)
    except UnsupportedSqlError:
        stored = outliner.tables.stored
        from dpsql.sql.ranked.quantiles import with_quantiles  # most number no rows

        ranked = with_quantiles(parsed, lambda parts: stored(parts) is not None)
        if ranked is None:
            raise
    check_allowed(ranked)
    check_written(ranked.query, ranked.source)
    return outliner.outline(ranked)


# ── Remedies: of what a refusal could say to type, the first that is answered ────────────────────


MOST_TRIES = 16
"""Statements that are compiled for one refusal; each is about as large as what was asked."""
MOST_SECONDS = 0.5
"""CPU seconds after which no further statement is tried: a refusal is to come within a second."""


def first_answered(
    error: SqlError,
    compiles: Callable[[str], object],
    clock: Callable[[], float] = time.process_time,
) -> str | None:
    """Return the hint of an error: the first of its choices that works, or the one for none.

    A statement that can't be read may be refused for something else once it can.

    Nothing is touched by that but what compiling the statement itself looks at: public tables and
    the schema. So a hint says nothing that its reader could not find out by asking.

    Args:
        error: the refusal.
        compiles: compiles a text in place of the statement that is refused.
        clock: the CPU seconds of the process until now.
    """
    hint = error.hint
    if not isinstance(hint, Hint) or error.sql is None:
        return hint
    further: Hint | None = None
    end = clock() + MOST_SECONDS
    for choice in islice(hint.choices, MOST_TRIES):
        text = _typed(error.sql, error.span, choice)
        refused = None if text is None else _refusal(text, compiles)
        if text is not None and refused is None:
            return choice
        well_formed = refused is not None and not isinstance(refused, SqlParseError)
        if further is None and well_formed and isinstance(error, SqlParseError):
            further = choice
        if clock() > end:
            break
    return hint if further is None else further


def _typed(sql: str, marked: Span | None, choice: Hint) -> str | None:
    """Type what a hint says into the statement."""
    remedy = next(iter(choice.remedies), None)
    if remedy is None or remedy.place is not RemedyPlace.MARKED:
        return None
    span = remedy.span or marked
    return None if span is None else sql[: span[0]] + remedy.text + sql[span[1] :]


def _refusal(sql: str, compiles: Callable[[str], object]) -> DpsqlError | None:
    try:
        compiles(sql)
    except DpsqlError as error:
        return error
    return None


# ── Bounds of expressions that the owner declares, as trees that statements are compared with ────
#
# A declared expression is read as a statement that adds it up, by the same steps as those of the
# analyst: `SELECT SUM(price * (1 - discount)) FROM sales`. So it is bound by the same rules,
# refused for the same reasons, and equal to what stands in a statement if both mean the same.


_HINT = "give bounds to an expression that SUM can take, made of functions that can run on rows."


def declared_expressions(table: Table, sandbox: Sandbox) -> dict[RowExpression, Interval]:
    """Return the trees of a table's declared expressions, and their bounds.

    Raises:
        SchemaError: one can't be evaluated on a row, or its bounds contradict its columns'.
    """
    intervals: dict[RowExpression, Interval] = {}
    outliner = Outliner(NamedTables(sandbox, lambda _: table, lambda _: None))
    for text, bounds in table.expressions.items():
        try:
            tree, ends = _tree(text, table, sandbox, outliner, bounds)
        except SqlError as error:
            raise _refused(table, text, error.message, error.hint or _HINT) from None
        if tree in intervals:
            raise _refused(table, text, "It is declared twice.", "keep one of them.")
        intervals[tree] = ends
    return intervals


def _tree(
    text: str, table: Table, sandbox: Sandbox, outliner: Outliner, bounds: NumberBounds
) -> tuple[RowExpression, Interval]:
    parsed = parse_statement(f"SELECT SUM({text}) AS total FROM {quoted_name(table.name)}")
    check_allowed(parsed)
    check_written(parsed.query, parsed.source)
    cores = outliner.outline(parsed).cores
    linear = _only_sum(cores[0]) if len(cores) == 1 else None
    if linear is None or linear.weight is None:
        raise SqlError("It is not an expression of one row.", hint=_HINT)
    reader = RowReader(sandbox, table, parsed.source)
    tree, known = reader.known(linear.weight)
    if linear.filters:  # SUM(CASE WHEN … THEN … END) adds up what meets a condition
        holds = all_of(tuple(map(reader.expression, linear.filters)))
        tree = ordered(RowCase(((holds, tree),), NOTHING))
    type_ = RowWriter(reader.types).write(tree).type
    exact = type_.is_exact
    ends = bounds.among(Fraction(1, 10**type_.scale)) if exact else (bounds.low, bounds.high)
    low, high = common(known, ends)
    if low is None or high is None or low > high:
        raise SqlError(
            "No value lies between its bounds: those of its columns rule them all out.",
            hint="correct one of them.",
        )
    return tree, ends


def _only_sum(core: Core) -> Linear | None:
    """Return what a core computes, if it is the sum of one expression and nothing else."""
    plain = not core.keys and not core.conjuncts and not core.by_row and not core.relations
    (statistic, *others) = core.statistics
    return statistic if plain and not others and isinstance(statistic, Linear) else None


def _refused(table: Table, text: str, message: str, hint: str) -> SchemaError:
    brief = printable(text if len(text) <= 80 else f"{text[:80]}…")
    return SchemaError(
        f"The schema bounds {brief} in {printable(table.name)}: {message}", hint=hint
    )
