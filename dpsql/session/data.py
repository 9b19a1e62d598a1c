"""Private data: where it is, what the owner declares, the account, and questions about its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain, pairwise
from typing import TypeVar

import polars as pl

from dpsql.answers.facts import BoundedColumn, DrawnQuantiles, FoundColumn, ReleasedValue
from dpsql.calls import check_path, check_switch
from dpsql.engines.public import PublicReader
from dpsql.engines.source import DataSource
from dpsql.engines.unit_rows import ROWS, no_units, rows_of_relation
from dpsql.errors import (
    ArgumentError,
    DpsqlError,
    SandboxLimitError,
    SchemaError,
    SqlError,
    SqlSchemaError,
    StaleSchemaError,
    UnboundedError,
    UnsupportedSqlError,
    printable,
    shown,
)
from dpsql.hints import Hint, option
from dpsql.linalg.arrays import Ints
from dpsql.planner.mechanisms.base import check_how
from dpsql.planner.plans.traits import LAPLACE
from dpsql.planner.registry import plan
from dpsql.privacy import Entry, Ledger
from dpsql.rel.related import RelatedRows, all_that_meet, related_rows
from dpsql.request import Declared, Request
from dpsql.rows.found import FoundExpression
from dpsql.schema import EachRow, Schema, Table, Unit
from dpsql.schema.catalog import check_declared, unbounded, verify_unchanged
from dpsql.schema.declarations import bounding, declaring
from dpsql.schema.domain import Domain, NumberBounds
from dpsql.schema.drafts import number_hint, without_finding
from dpsql.schema.facts import Database
from dpsql.schema.grain import paths_read
from dpsql.schema.keys import check_references, read_keys
from dpsql.schema.limits import bound_of, note_of, unbounded_where_met
from dpsql.schema.lookup import means, meant, of_table
from dpsql.schema.names import as_sql, folded, quoted_text
from dpsql.schema.references import check_same_units, check_stored_apart, root_of, with_parents
from dpsql.schema.table import MovedValues, moved_values
from dpsql.schema.units import RowLimit
from dpsql.session.archive import Archive
from dpsql.session.purpose import check_vintage
from dpsql.sql.binding.core import FILLED, SumForm
from dpsql.sql.compiled import Script
from dpsql.sql.frontend import CutsOf, compile_script, no_cuts, no_split

Split = Mapping[str, Ints]
_WORD = re.compile(r"\w+")
_QUANTILE = re.compile(
    r"\b(median|(approx_)?quantile(_(disc|cont))?|(percentile_(disc|cont)\s*\([^()]*\)\s*"
    r"within\s+group\s*\(\s*order\s+by))[\s(]*$",
    re.IGNORECASE,
)
"""The beginning of a quantile, up to what it is of."""
_ANY = NumberBounds(Fraction(0), Fraction(1), found=True)
FoundFact = FoundColumn | BoundedColumn
"""A column whose values, or whose bounds, were found in the rows."""
F = TypeVar("F", FoundColumn, BoundedColumn)


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredData:
    """Private data, and what its owner declares besides what the catalog says."""

    source: DataSource
    schema: Schema | None
    unit: Unit | EachRow | None
    public: PublicReader
    made: Mapping[str, Table] = field(default_factory=dict)
    """Tables made of rows of private tables for this question, by their names in it."""
    found: Mapping[tuple[tuple[str, ...], str], FoundFact] = field(default_factory=dict)
    """Path and column → that its domain or bounds, which are declared in the schema, were found in
    the rows, by which rule and for which charge."""
    told: Mapping[tuple[str, ...], Mapping[str, Domain]] = field(default_factory=dict)
    """Path → expressions of a row whose values were found, see `Table.told`."""
    learned: frozenset[tuple[tuple[str, ...], str]] = frozenset()
    """Paths and columns whose values were found, or are assumed, see `Table.learned`."""
    drawn: tuple[DrawnQuantiles, ...] = ()
    """The quantiles that were drawn for the statements that are asked."""
    valued: tuple[ReleasedValue, ...] = ()
    """The values that were released first, and are written in the statements that are asked."""
    can_find: Callable[[], bool] = lambda: True
    """Whether the account can pay for finding more."""
    by_owner: Schema | None = None
    """The part of that schema that the owner declares: nothing that was found or is assumed."""

    @classmethod
    def of(cls, source: DataSource, declared: Declared) -> DeclaredData:
        """Check what a caller declares.

        Raises:
            SchemaError, ArgumentError: it is malformed.
        """
        check_vintage(declared.vintage)
        check_path(ledger=declared.ledger)
        check_switch(accept_schema=declared.accept_schema)
        schema = None if declared.schema is None else Schema.given(declared.schema)
        beside = declared.max_rows, declared.references, declared.max_groups, declared.max_values
        unit = Unit.given(declared.unit, *beside)
        private = partial(_is_private, source, schema, unit)
        public = PublicReader(source, declared.public, private)
        return cls(source, schema, unit, public, by_owner=schema)

    def compile(
        self,
        request: Request,
        split: Callable[[Table], Split] = no_split,
        cuts: CutsOf = no_cuts,
        sums: SumForm = FILLED,
    ) -> Script:
        """Compile statements against the catalog and what is declared.

        With Laplace noise, whose errors fall as 1/ε², a sum around its middle and the count that it
        is put back with have twice the variance of the sum from zero, unless the count is asked
        besides. There sums are added up from zero where the workload is planned with less error so.

        Args:
            request: the statements.
            split: for the table, column → classes of cells that are told apart in any case.
            cuts: for a table, line of a column → where it is cut in any case.
            sums: the form in which values are added up row by row.

        Raises:
            SqlError, SchemaError, ResourceLimitError: they can't be answered.
        """
        try:
            with self.source.catalog.held(anew=False):
                script = self._checked(request, split, cuts, sums)
                return script.with_drawn(
                    {at: quantile.values for quantile in self.drawn for at in quantile.at}
                )
        except (SchemaError, SqlError) as error:
            if not self.can_find():
                error.hint = without_finding(error.hint)
            if not getattr(error, "unknown", False):
                numbers = self._as_numbers(request, error)
                error.hint = numbers + " Or " + error.hint if numbers and error.hint else error.hint
                error.hint = self.with_drafts(error.hint)
            raise

    def _as_numbers(self, request: Request, error: DpsqlError) -> Hint | None:
        """Word the declaration of texts as numbers, if what an error marks can be answered so.

        Texts of a file are texts as nobody has declared anything of them: those that are marked are
        taken for numbers, and the statements are checked once more.
        """
        if not isinstance(error, UnsupportedSqlError | SqlSchemaError):
            return None
        if error.sql is None or error.span is None:
            return None
        if isinstance(error, SqlSchemaError) and not _QUANTILE.search(error.sql[: error.span[0]]):
            return None  # a text has a largest, and groups, as it is
        marked = {folded(each) for each in _WORD.findall(error.sql[slice(*error.span)])}
        each = self.source.undeclared_texts(self.by_owner, self.public.names)
        for name, texts in each.items():
            named = [column for column in texts if folded(column) in marked]
            declared = self
            for column in named:
                table = declared.private((name,))
                declared = declared.declaring(table, column, _ANY)
            if not named:
                continue
            try:
                declared._checked(request, no_split, no_cuts, FILLED)
            except DpsqlError:
                continue
            finally:  # they are texts again, also where nothing at all is declared
                replace(self, schema=self.schema or Schema({})).private((name,))
            return number_hint(name, named)
        return None

    def with_drafts(self, hint: str | None) -> str | None:
        """Return a hint with the command that drafts a schema, if a file of CSV has none."""
        first = self.source.how_to_declare(self.by_owner, self.public.names)
        if first is None:
            return hint
        return first if hint is None else Hint("") + hint + " " + first

    def _checked(
        self,
        request: Request,
        split: Callable[[Table], Split],
        cuts: CutsOf,
        sums: SumForm,
    ) -> Script:
        check_declared(self.source, self.schema)
        check_references(self.source.catalog, self.schema, self.unit)
        if request.report_moved:
            alone = replace(request, weights=None, report_cut=False)
            script = self._compiled(alone, no_split, no_cuts, sums)
            request = with_values_moved(request, script)
        if request.report_cut:
            alone = replace(request, weights=None)
            script = self._compiled(alone, no_split, no_cuts, sums)
            request, made = with_units_cut(request, script, self.unit_counts)
            declared = replace(self, made={**self.made, **made})
            return declared._checked(request, split, cuts, sums)
        script = self._compiled(request, split, cuts, sums)
        centered = script.is_centered
        named = isinstance(request.mechanism, str)  # it may be anything yet
        if named and request.mechanism == LAPLACE and request.amount is not None and centered:
            try:
                given = script, self._compiled(request, split, cuts, SumForm(from_zero=True))
                return min(given, key=lambda s: plan(s.workload, request.amount, LAPLACE).rmse)
            except SandboxLimitError:
                raise
            except DpsqlError:
                return script  # of which it will be told when it is planned
        return script

    def _compiled(
        self,
        request: Request,
        split: Callable[[Table], Split],
        cuts: CutsOf,
        sums: SumForm,
    ) -> Script:
        check_how(request.tolerance, request.residuals, request.objective)
        script = compile_script(
            request.statements,
            self.private,
            self.public.read,
            request.weights,
            split,
            request.groups_above,
            cuts,
            sums=sums,
            drawing=request.quantiles is not None and request.quantiles.always,
            wherever=request.targets is not None or request.objective == "largest",
            widen=self.widened,
            same_units=self.check_same_units,
            relate=self.with_rows,
            unique=self.unique_keys,
            unbounded=self.unbounded,
        )
        for script_ in script.each:
            self._check_met(script_.table)
        return script

    def _check_met(self, table: Table) -> None:
        """Check that rows of a table meet none but those of their own units, whoever asked so.

        Raises:
            SchemaError: units of another table are others.
        """
        for other in {of.path: of for rows in table.added for of in rows.tables}.values():
            if other.path != table.path:
                self.check_same_units(table, other)

    def unbounded(self, table: Table) -> UnboundedError:
        """Say that nothing bounds the rows of units in a table."""
        related = related_rows(table)
        if related is not None:
            return unbounded_where_met(self.source.catalog, related.counted, self.schema, self.unit)
        return unbounded(self.source.catalog, table, self.schema, self.unit)

    def widened(self, table: Table) -> Table:
        """Give a private table the columns of the private rows that it refers to."""
        return with_parents(self.source, table, self.schema, self.unit)

    def with_rows(self, rows: RelatedRows) -> Table:
        """Describe the rows of a relation of private tables.

        Raises:
            SchemaError: their units are not the same, or several bounds are declared.
        """
        first, *others = rows.read
        for other in others:
            self.check_same_units(first, other)
        most = rows.most
        if most is None:
            most = bound_of(self.source.catalog, rows.counted, self.schema, self.unit)
        if most is None and len(rows.counted) > 1:
            from dpsql.rel.facts import most_rows  # which few statements need

            most = most_rows(rows.relation)
            if most is not None:
                rows = replace(rows, notes=(*rows.notes, note_of(rows.counted, most)))
        return rows_of_relation(rows, self.root_of(first), most)

    def declaring(
        self,
        table: Table,
        column: str,
        declared: Domain | NumberBounds,
        found: FoundFact | None = None,
    ) -> DeclaredData:
        """Declare a domain, or bounds, besides.

        Args:
            table: a table that was described.
            column: a column of it.
            declared: its domain or bounds, in place of what was declared before.
            found: by which rule they were found in the rows; None if they are made up.
        """
        known = {} if found is None else {(table.path, column): found}
        schema = Schema({}) if self.schema is None else self.schema
        names = (name for name in schema if means(self.source.catalog, name, table.path))
        schema = declaring(schema, next(names, self.name_of(table)), column, declared)
        columns = {(table.path, column)} if isinstance(declared, Domain) else set()
        learned = self.learned | columns
        return replace(self, schema=schema, found={**self.found, **known}, learned=learned)

    def bounding(
        self,
        table: Table,
        expression: str,
        bounds: NumberBounds,
        found: BoundedColumn | None = None,
    ) -> DeclaredData:
        """Declare the bounds of an expression of a row; see `declaring`."""
        known = {} if found is None else {(table.path, expression): found}
        schema = Schema({}) if self.schema is None else self.schema
        names = (n for n in schema.expressions if means(self.source.catalog, n, table.path))
        schema = bounding(schema, next(names, self.name_of(table)), expression, bounds)
        return replace(self, schema=schema, found={**self.found, **known})

    def telling(
        self,
        table: Table,
        computed: FoundExpression,
        domain: Domain,
        found: FoundColumn | None = None,
    ) -> DeclaredData:
        """Declare the values of an expression of a row; see `declaring`."""
        told = {**self.told.get(table.path, {}), computed.name: domain}
        known = {} if found is None else {(table.path, found.column): found}
        return replace(self, told={**self.told, table.path: told}, found={**self.found, **known})

    def name_of(self, table: Table) -> str:
        """Return the shortest name by which a schema means a table, and no other one."""
        path = table.path
        names = (table.typed, ".".join(path[-2:]), ".".join(path))
        return next((n for n in names if means(self.source.catalog, n, path)), table.typed)

    def found_of(self, tables: Iterable[Table], kind: type[F]) -> tuple[F, ...]:
        """Return what was found of one kind, of all tables that are read for some.

        Of values of expressions, those by which these tables are told apart.
        """
        read, derived = _paths_read(tables), {name for table in tables for name in table.derived}
        each = (
            column for (path, _), column in sorted(self.found.items(), key=_key) if path in read
        )
        alone = (column for column in each if isinstance(column, kind))
        return tuple(
            column
            for column in alone
            if not isinstance(column, FoundColumn)
            or not column.computed
            or column.column in derived
        )

    def unique_keys(self, table: Table) -> frozenset[frozenset[str]]:
        """Return the sets of columns in which no two rows agree, as the database sees to it."""
        if table.origin is not None:
            return frozenset()
        keys = read_keys(self.source.catalog.keys(table.path), table.path)
        return frozenset(columns for name, columns in keys.unique if name == table.path[-1])

    def unit_counts(
        self, table: Table, least: int, most: int, limits: tuple[RowLimit, ...] = ()
    ) -> Table:
        """Describe the units of a table, each with the number of its rows, as a table."""
        return self.source.unit_counts(table, self.root_of(table), least, most, limits)

    def check_same_units(self, first: Table, other: Table) -> None:
        """Check that rows of two tables are of the same units, by the FOREIGN KEYs of both.

        Raises:
            SchemaError: they aren't, or it isn't clear.
        """
        check_same_units(self.source, first, other, self.schema, self.unit)

    def private(self, parts: tuple[str, ...]) -> Table:
        """Describe a table that is not public, by any name.

        Raises:
            SchemaError: it is public by another name, or can't be described.
        """
        if parts[-1] in self.made:
            return self.made[parts[-1]]
        table = self.source.describe(parts, self.schema, self.unit)
        self.public.check_private(table)
        learned = frozenset(name for path, name in self.learned if path == table.path)
        told = self.told.get(table.path)
        if told is None and not learned:
            return table
        return replace(table, told=told or {}, learned=learned)

    def described(self, name: str) -> Table:
        """Describe a table that is not public by its name, as a schema has it."""
        if not isinstance(name, str):
            raise ArgumentError(f"{shown(name)} is no table's name.", hint='for example "orders".')
        return self.private(meant(self.source.catalog, name))

    def related(self, name: str) -> Table:
        """Describe a table by its name, or all rows of several that meet: "orders, visits".

        Nothing need bound how many these are.

        Raises:
            SchemaError: there is no such table; or the rows of several have no units, or others.
        """
        names = name.split(",") if isinstance(name, str) else []
        if len(names) < 2:
            return self.described(name)
        tables = sorted(
            (self.described(name.strip()) for name in names), key=lambda table: table.path
        )
        for table in tables:
            if table.unit is None:
                raise no_units(table)
            if table.path != tables[0].path:
                self.check_same_units(tables[0], table)
        return rows_of_relation(all_that_meet(tables), self.root_of(tables[0]), 1)

    def root_of(self, table: Table) -> str:
        """Return the table and the columns of the ids of a table's units."""
        return root_of(self.source, table, self.schema, self.unit)


def _key(item: tuple[tuple[tuple[str, ...], str], FoundFact]) -> tuple[tuple[str, ...], str]:
    return item[0]


def _paths_read(tables: Iterable[Table]) -> frozenset[tuple[str, ...]]:
    """Return the paths of all stored tables that are read for some."""
    paths = set[tuple[str, ...]]()
    for table in tables:
        paths |= {*paths_read(table), *(parent.table.path for parent in table.parents)}
    return frozenset(paths)


def _is_private(
    source: DataSource, schema: Schema | None, unit: Unit | EachRow | None, path: tuple[str, ...]
) -> bool:
    """Whether it is declared of a stored table that it has domains, or rows of units."""
    if schema is not None and of_table(source.catalog, schema, path) is not None:
        return True
    try:
        return source.describe(path, schema, unit).unit is not None
    except SchemaError:  # the unit of other tables is none of this one
        return False


@dataclass(frozen=True, slots=True, eq=False)
class PrivateData:
    """Declared data, and the account of what was spent on it."""

    declared: DeclaredData
    ledger: Ledger
    database: Database
    """That which the ledger is for."""
    archive: Archive

    @contextmanager
    def held(self, *, anew: bool = False) -> Iterator[None]:
        """Check the database, and hold what its catalog tells until that ends; see `Catalog`.

        A call compiles statements many times before anything is charged: of invented values, for
        each key that is wanting, of what was measured before. All of these see one look at the
        catalog. What they were compiled against is compared with another one, on the snapshot
        that is counted, before the charge (`verify`); and after a charge the next one is taken.

        Args:
            anew: whether to look again, though something is held.

        Raises:
            StaleSchemaError: see `check_database`.
        """
        with self.declared.source.catalog.held(anew=anew):
            self.check_database()
            yield

    def check_database(self) -> None:
        """Check that the connection is at the database that the ledger is for.

        Tables of another one may have the same names and domains. What was measured here would
        pass for what is asked of these.

        Raises:
            StaleSchemaError: it was moved.
        """
        if self.declared.source.identity() != self.database:
            raise StaleSchemaError(
                "The connection was moved to another database, and this ledger belongs to the "
                "first one.",
                hint="USE the first database again, or make a new session.",
            )

    def charge_of(self, request: str) -> Entry:
        """Return the charge for a request, by its name in the ledger."""
        return next(entry for entry in self.ledger.entries() if entry.request == request)

    def verify(self, *tables: Table) -> None:
        """Check that tables are the planned ones, and in the database that the ledger is for.

        Of several, that their rows are of the same units, too.

        Raises:
            StaleSchemaError: it isn't.
        """
        declared, first = self.declared, tables[0]
        with self.held(anew=True):
            for table in tables:
                verify_unchanged(declared.source, table, declared.schema, declared.unit)
                if table is not first:
                    check_stored_apart(first, table)
                    declared.check_same_units(first, table)


def split_of(known: Table, split: Split, table: Table) -> Split:
    """Split the cells of a table that was read before, and again now.

    Raises:
        StaleSchemaError: it was altered in between.
    """
    if table.fingerprint != known.fingerprint:
        raise StaleSchemaError(
            f"The table {known.name} was altered since its schema was read.",
            hint="ask again: the new schema is read then.",
        )
    return split


# ── The question how many values count as others, because domains and bounds are declared so ─────
#
# It is one more statement for each table, of conditions that are evaluated row by row.


MOVED = "values_moved"


def with_values_moved(request: Request, script: Script) -> Request:
    """Ask besides how many values are moved of the columns that statements show or add up.

    Args:
        request: what is asked.
        script: what it was compiled to.

    Raises:
        SchemaError: none are.
    """
    asked = [(statement.table, moved) for statement in script.each if (moved := _moved(statement))]
    if not asked:
        raise SchemaError(
            "No values are moved into a domain here: no column that is shown or added up is "
            "declared that way.",
            hint="leave " + option("report_moved") + " out.",
        )
    statements = dict(request.statements)
    names = named_besides(MOVED, [table for table, _ in asked], statements)
    statements |= {name: _count(*each) for name, each in zip(names, asked, strict=True)}
    return replace(request, statements=tuple(statements.items()), report_moved=False)


def _moved(script: Script) -> list[MovedValues]:
    """Return what is moved of a table's own columns, of those that its statements use."""
    table = script.table
    if table.made_of:
        return []
    added = (measure.columns for measure in script.measures.values())
    used = {*script.workload.domain, *chain.from_iterable(added)}
    names = [name for name in (*table.alone.columns, *table.alone.bounds) if name in used]
    return [moved for name in names for moved in moved_values(table, name)]


def _count(table: Table, moved: list[MovedValues]) -> str:
    """Write the statement that counts values that are moved, with a row for each way."""
    named = ".".join(map(as_sql, table.path)) or as_sql(table.name)
    each = (
        f"{quoted_text(values.column)} AS column_name, {quoted_text(values.kind)} AS how, "
        f"COUNT(*) FILTER (WHERE {values.condition}) AS moved, COUNT(*) AS all_values "
        f"FROM {named} WHERE {as_sql(values.column)} IS NOT NULL"
        for values in moved
    )
    return f"SELECT /*+ weight({BESIDE}) */ " + " UNION ALL SELECT ".join(each)


# ── Questions about how many rows units have ─────────────────────────────────────────────────────
#
# They are statements, over what `dpsql/engines/unit_rows.py` makes of the rows of a table.


MOST = 10_000
"""The largest number of rows that can be told apart."""
BOUND, CUT = "max_rows", "units_cut"
_UNITS = frozenset({"units", "units_variance"})
BESIDE = 0.01
"""Weight of what is counted besides: of units that were cut, and of values that are moved."""


def bounds(most: int) -> tuple[int, ...]:
    """Return bounds from which to choose: half an octave apart, and the largest one."""
    halves = (round(2 ** (half / 2)) for half in range(2 * most.bit_length()))
    return tuple(sorted({most, *(bound for bound in halves if bound < most)}))


def check_up_to(most: object) -> None:
    """Refuse what is no number of rows that can be told apart.

    Raises:
        ArgumentError: it isn't one.
    """
    if type(most) is not int or not 1 <= most <= MOST:
        raise ArgumentError(
            f"up_to is a whole number from 1 to {MOST:,}, not {shown(most)}.",
            hint="give the largest bound that you would choose, for example "
            + option("up_to", 100)
            + ".",
        )


def histogram(name: str, most: int) -> str:
    """Write the statement that counts units by how many rows they have.

    Rows between two bounds pass for as many as lie in their middle, and more than the last one for
    one more.
    """
    edges = (0, *bounds(most), most + 1)
    below = [(high, Fraction(low + 1 + high, 2)) for low, high in pairwise(edges)]
    steps = " ".join(f"WHEN {ROWS} <= {high} THEN {high}" for high, _ in below)
    means = " ".join(f"WHEN {ROWS} <= {high} THEN {float(mean)}" for high, mean in below)
    after = f"OVER (ORDER BY {BOUND} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    return f"""
        SELECT {BOUND}, units, {CUT}, {CUT} / all_units AS {CUT}_share,
            above - {BOUND} * {CUT} AS rows_cut,
            (above - {BOUND} * {CUT}) / all_rows AS rows_cut_share
        FROM (
            SELECT CASE {steps} END AS {BOUND}, COUNT(*) AS units,
                SUM(COUNT(*)) {after} AS {CUT},
                SUM(SUM(CASE {means} END)) {after} AS above,
                SUM(COUNT(*)) OVER () AS all_units,
                SUM(SUM(CASE {means} END)) OVER () AS all_rows
            FROM {as_sql(name)} GROUP BY {BOUND}
        ) ORDER BY {BOUND}
    """


def without_last(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Say of units with more rows than the last bound how many they are, and nothing else."""
    known, others = pl.col(BOUND) <= most, [n for n in frame.columns if n not in _UNITS]
    return frame.with_columns(pl.when(known).then(pl.col(name)).alias(name) for name in others)


def with_units_cut(
    request: Request,
    script: Script,
    unit_counts: Callable[[Table, int, int, tuple[RowLimit, ...]], Table],
) -> tuple[Request, Mapping[str, Table]]:
    """Ask besides how many units have more rows than count, by the bound and by limits.

    Args:
        request: what is asked.
        script: what it was compiled to.
        unit_counts: describes the units of a table with how many rows they have, as far as numbers
            from the least to the largest one are told apart, which those have, too, whom limits
            cut.

    Returns:
        What is asked then, and what it is over besides, by the names that it has there.

    Raises:
        SchemaError: all rows of all units count.
    """
    statements, made = dict(request.statements), dict[str, Table]()
    bounded = (table for table in script.tables if table.unit is not None and table.is_bounded)
    cut = [table for table in bounded if not _all_count(table)]
    if not cut:
        raise SchemaError(
            "No rows are left out here: no table that is counted limits the rows of a unit.",
            hint="leave " + option("report_cut") + " out.",
        )
    for table, name in zip(cut, named_besides(CUT, cut, statements), strict=True):
        k = table.contributions
        limits = table.unit.limits if table.unit is not None else ()
        units = unit_counts(table, k, k + 1, limits)
        made[units.path[-1]] = units
        statements[name] = _count_cut(units, k, grouped=request.groups_above is None)
    return replace(request, statements=tuple(statements.items()), report_cut=False), made


def _all_count(table: Table) -> bool:
    """Whether no unit has more rows than count: a relation that has few rows of each."""
    related = related_rows(table)
    if related is None or related.sure is None or related.sure > table.contributions:
        return False
    return not any(of.unit is not None and of.unit.limits for of in related.counted)


def _count_cut(units: Table, k: int, *, grouped: bool) -> str:
    """Write the statement that counts units with more than k rows, and all, and gives their share.

    By groups it is one that all mechanisms answer; but few units in a group may be left out.
    """
    counted_from, counted = as_sql(units.path[-1]), "COUNT(*)"
    if grouped:
        counted_from, counted = (
            f"(SELECT {ROWS}, COUNT(*) AS n FROM {counted_from} GROUP BY {ROWS})",
            "SUM(n)",
        )
    cut = f"{counted} FILTER (WHERE {ROWS} > {k})"
    return (
        f"SELECT /*+ weight({BESIDE}) */ {cut} AS {CUT}, {counted} AS units, "
        f"{cut} / {counted} AS {CUT}_share FROM {counted_from}"
    )


def named_besides(base: str, tables: Sequence[Table], asked: Mapping[str, str]) -> Iterator[str]:
    """Name statements that are asked besides, one for each table, as no other one is named."""
    taken = {folded(name) for name in asked}
    for table in tables:
        name = base if len(tables) == 1 else f"{base} of {printable(table.name)}"
        while folded(name) in taken:
            name += "_"
        taken.add(folded(name))
        yield name
