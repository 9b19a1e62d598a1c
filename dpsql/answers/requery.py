"""Answers from measurements that were made before: post-processing, so they cost nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np
import polars as pl

from dpsql.answers.answers import Answers
from dpsql.answers.facts import DrawnQuantiles, FoundColumn
from dpsql.answers.frames import AnsweredFrames
from dpsql.answers.sources import Beside, beside, identity_of, lifted
from dpsql.errors import (
    ReleaseFormatError,
    ResourceLimitError,
    SchemaError,
    SqlError,
    UndeterminedError,
    printable,
)
from dpsql.hints import spend
from dpsql.linalg.arrays import Ints
from dpsql.measurement.certify import is_laplace
from dpsql.planner.mechanisms.measures import parts
from dpsql.planner.reconstruction.base import Missing, Reconstruction
from dpsql.planner.reconstruction.parts import AmongOthers
from dpsql.planner.reconstruction.sources import (
    Source,
    along,
    common_cuts,
    lies_on,
    of_table,
    splits,
)
from dpsql.planner.reuse.past import Past, alone, known
from dpsql.rel.related import ReadTable, RelatedRows
from dpsql.schema import Table
from dpsql.schema.domain import Cuts
from dpsql.schema.grain import without_computed
from dpsql.schema.names import closest, folded
from dpsql.sql.binding.core import FILLED, OTHER_FORMS, SumForm
from dpsql.sql.binding.tables import Public
from dpsql.sql.compiled import Script
from dpsql.sql.frontend import CutsOf, compile_script, no_cuts, no_split
from dpsql.sql.lowering.drawn import DrawnValues, Place
from dpsql.workload import Family, Workload

ASKED = "query"
"""The statement's name."""
LISTED = 5
"""Attribute sets that a message names."""


def answers_of(script: Script, sources: Sequence[Source], others: Sequence[Source] = ()) -> Answers:
    """Answer a script from earlier measurements alone.

    Args:
        script: compiled over cells as fine as those of the sources, see `sources.splits`.
        sources: measurements of the same table.
        others: those of tables that aren't asked. If totals of theirs were compared with those of
            the tables that are, they say something of these.

    Raises:
        UndeterminedError: they don't determine what is asked.
    """
    compared = beside(script, sources, others)
    if compared is not None:
        return _beside_others(script, sources, compared)
    sources = [s for s in lifted(script, sources) if s.reading != "adaptive"]
    if len(sources) == 1 and not sources[0].combines:
        return _from_one(script, sources[0])
    past = Past(tuple(source for source in sources if source.combines), script.merged)
    combination, lacking = known(script.workload, past)
    if lacking:
        raise _undetermined(
            script, lambda own: known(own, past)[1], "what was measured before is used with it."
        )
    values = combination.values([s.values for s in past.sources if s.values is not None])
    return Answers.measured(script.workload, combination.reconstruction, values)


def _beside_others(script: Script, sources: Sequence[Source], compared: Beside) -> Answers:
    """Answer with what is known of totals of tables that aren't asked."""
    past = Past(compared.sources, compared.merged)
    try:
        found, lacking = known(compared.workload, past, compared.others)
    except ResourceLimitError:  # what was measured of the others is too large
        return answers_of(script, sources)
    if lacking:
        return answers_of(script, sources)  # which says what is lacking
    values = found.values([s.values for s in past.sources if s.values is not None])
    reconstruction: Reconstruction = found.reconstruction
    if compared.one is not None:
        measures = {part.measure for part in parts(compared.workload)}
        reconstruction = AmongOthers(compared.one, reconstruction, measures)
    return Answers.measured(script.workload, reconstruction, values)


def _from_one(script: Script, source: Source) -> Answers:
    """Answer from marginals of one release, which can't be put together with others."""
    reconstruction, domain = alone(source, script.workload), script.workload.domain

    def lacking(workload: Workload) -> Missing:
        lacking_families: list[tuple[str, ...]] = []
        for family in workload.families:
            other = _without_cells(source, family, script)
            missing = [tuple(sorted(other))] if other else reconstruction.missing(family, domain)
            lacking_families += missing
        return tuple(dict.fromkeys(lacking_families))

    if lacking(script.workload):
        raise _undetermined(
            script, lacking, "these measurements can't be put together with others."
        )
    values = reconstruction.values(source.values or {})
    laplace = is_laplace(source.measured)
    return Answers.measured(script.workload, reconstruction, values, laplace=laplace)


def _with_drawn(script: Script, drawn: Sequence[DrawnQuantiles]) -> Script:
    """Return a script with quantiles that were drawn: those of the same name, or at its places.

    By places those of a release's own statement are known, over whatever cells it is compiled.

    Raises:
        UndeterminedError: another one wasn't drawn.
    """
    at = {place: one.values for one in drawn for place in one.at}
    named = {(one.path, one.name): one.values for one in drawn}
    found = dict[Place, DrawnValues]()
    for place, name in script.drawn_at.items():
        of = script.drawn[name]
        values = named.get((of.table.path, of.name)) or at.get(place)
        if values is None or len(values.places) != of.values.count or values.line != of.values.line:
            raise UndeterminedError(
                f"{printable(of.label)} wasn't drawn for this release, or in other groups.",
                hint="ask for it in the statements of a release.",
            )
        found[place] = values
    return script.with_drawn(found)


def _without_cells(source: Source, family: Family, script: Script) -> frozenset[str]:
    """Return the attributes that weren't measured over the cells that they have now.

    Sums rest on what was measured of them, and of the counts with which their middle is put back.
    """
    cells, merged = script.workload.domain, script.merged
    without: set[str] = set()
    for read in family.rests_on:
        measure = None if read.measure is None else read.measure.attributes[0]
        of = source if measure is None else source.measures.get(measure)
        if of is None:
            return frozenset({str(measure)})
        attributes = read.counted.attributes
        without |= {n for n in attributes if not of.has_cells(n, cells[n], merged.get(n))}
    return frozenset(without)


def _undetermined(
    script: Script, lacking_of: Callable[[Workload], Missing], then: str
) -> UndeterminedError:
    """Say which statement asks for what was not measured."""
    for statement in script.statements:
        families = [script.workload.families[i] for i in statement.families]
        lacking = lacking_of(Workload.of(script.workload.domain, families))
        if lacking:
            break
    called = [[script.labels.get(name, name) for name in names] for names in lacking]
    named = [" x ".join(map(printable, names)) or "the total" for names in called]
    more = f" and {len(named) - LISTED:,} more" if len(named) > LISTED else ""
    error = UndeterminedError(
        "Earlier measurements don't say what is asked: too little was measured of "
        f"{', '.join(named[:LISTED])}{more}.",
        sql=statement.sql,
        hint="ask with a budget, for example " + spend(rho="0.01") + f": {then}",
    )
    error.statement = printable(statement.name)
    return error


def asked_of(
    sql: str,
    tables: Sequence[Table],
    public: Mapping[str, pl.DataFrame],
    read: Sequence[ReadTable] = (),
) -> tuple[Table, ...]:
    """Return which of a release's tables one SQL text is over.

    Raises:
        SqlError, SchemaError, ResourceLimitError: it is over none of them, or malformed.
    """
    if len(tables) == 1:
        return tuple(tables)
    script = _compiled(sql, tables, public, read)
    by_path = {table.path: table for table in tables}
    for table in script.tables:
        if table.path not in by_path:  # rows of others refer to those of this one
            raise _not_counted(tables, (table.name,))
    return tuple(by_path[table.path] for table in script.tables)


def requery(
    sql: str,
    tables: Sequence[Table],
    sources: Sequence[Source],
    public: Mapping[str, pl.DataFrame],
    confidence: float | None,
    groups_above: float | None = None,
    read: Sequence[ReadTable] = (),
    found_keys: Sequence[FoundColumn] = (),
    drawn: Sequence[DrawnQuantiles] = (),
) -> AnsweredFrames:
    """Answer one SQL text from earlier measurements of its tables, without a database.

    What is returned has one statement, `ASKED`, whose frame has been made.

    Args:
        sql: the text.
        tables: those that it is over.
        sources: what was measured of them, and of others.
        public: name → frame.
        confidence: for interval columns.
        groups_above: leaves out groups that may be empty.
        read: the stored tables that relations read.
        found_keys: the columns of which keys were found, with scores if counts take these along.
        drawn: the quantiles that were drawn.

    Raises:
        UndeterminedError: they don't determine what is asked.
        SqlError, SchemaError, ResourceLimitError: it can't be answered at all.
        ReleaseFormatError: the measurements were changed.
    """
    with fitting():
        measured = {table.path: _TableBefore.of(table, sources) for table in tables}
        counted = [of.table for of in measured.values()]
        about = {"", *map(identity_of, tables)}
        others = [source for source in sources if source.table not in about]

        def known(table: Table) -> _TableBefore:
            if table.path not in measured:
                raise _not_counted(counted, (table.name,))
            return measured[table.path]

        def before(table: Table) -> _TableBefore:
            """Know of nothing that was measured of a table, which a relation may be in place of."""
            return measured.get(table.path, _TableBefore(table, (), {}))

        names = {name for of in measured.values() for s in of.sources for name in s.measures}
        compile_ = partial(
            _compiled,
            sql,
            counted,
            public,
            read,
            split=lambda table: before(table).split(table),
            groups_above=groups_above,
            cuts=lambda table: before(table).cuts,
            found=found_keys,
        )

        def answered(sums: SumForm = FILLED) -> AnsweredFrames:
            script = compile_(sums=sums)
            around = frozenset[str]().union(*(s.known_otherwise(names) for s in script.each))
            if around:
                script = compile_(sums=replace(sums, around=around))
            script = _with_drawn(script, drawn)
            axes = chain.from_iterable(known(table).along(table) for table in script.tables)
            answers = answers_of(script, tuple(axes), others)
            frames = AnsweredFrames(script.statements, answers, confidence)
            frames = frames.with_scores(script.tables, found_keys) or frames
            frames.frame(ASKED)
            return frames

        try:
            return answered()
        except UndeterminedError:
            if names:
                for other in OTHER_FORMS:
                    with suppress(UndeterminedError):
                        return answered(other)
            raise


@contextmanager
def fitting() -> Iterator[None]:
    """Refuse measurements that were forged, and whose parts don't fit.

    Raises:
        ReleaseFormatError: they don't.
    """
    try:
        yield
    except (np.linalg.LinAlgError, ValueError, OverflowError):
        raise ReleaseFormatError(
            "The measurements can't be read: they don't fit the table, or each other.",
            hint="get the release again from whoever published it.",
        ) from None


@dataclass(frozen=True, slots=True)
class _TableBefore:
    """A table as it was counted, and what was measured of it."""

    table: Table
    sources: tuple[Source, ...]
    cuts: Mapping[str, Cuts]
    """Cuts of its lines."""

    @classmethod
    def of(cls, table: Table, sources: Sequence[Source]) -> _TableBefore:
        """Return what was measured of one of some tables."""
        own = of_table(sources, identity_of(table))
        return cls(_counted(table, own), own, common_cuts(own, {}))

    def along(self, known: Table) -> list[Source]:
        """Return the sources along all cuts of the lines of the table, as it is asked."""
        cuts = common_cuts(self.sources, known.lines)
        return [along(source, cuts) for source in self.sources if lies_on(source, cuts)]

    def split(self, known: Table) -> Mapping[str, Ints]:
        """Return the cells that they tell apart."""
        return splits(self.along(known))


def _compiled(
    sql: str,
    tables: Sequence[Table],
    public: Mapping[str, pl.DataFrame],
    read: Sequence[ReadTable] = (),
    *,
    split: Callable[[Table], Mapping[str, Ints]] = no_split,
    groups_above: float | None = None,
    cuts: CutsOf = no_cuts,
    sums: SumForm = FILLED,
    found: Sequence[FoundColumn] = (),
) -> Script:
    """Compile one SQL text over the tables of a release, whose rows are of the same units."""
    # What a statement computes it says itself, but for values that were found.
    plain = [_with_found(without_computed(table), found) for table in tables]
    keys = {one.table.path: one.unique for one in read}
    return compile_script(
        [(ASKED, _text(sql))],
        lambda parts: _named(plain, parts, read),
        _frames(public),
        split=split,
        groups_above=groups_above,
        cuts=cuts,
        sums=sums,
        widen=lambda one: _widened(one, plain, read),
        same_units=lambda first, other: None,
        relate=lambda rows: _related(rows, plain),
        unique=lambda one: keys.get(one.path, frozenset()),
    )


def _with_found(table: Table, found: Sequence[FoundColumn]) -> Table:
    """Return a table with what was found: values of its columns, and of expressions of these."""
    here = [one for one in found if one.path == table.path]
    told = {of.of_key(one.column): of.domain for one in here if (of := one.computed) is not None}
    learned = frozenset(one.column for one in here if one.computed is None)
    return replace(table, told=told, learned=learned & table.columns.keys()) if here else table


def _widened(table: Table, tables: Sequence[Table], read: Sequence[ReadTable]) -> Table:
    """Return a table with what its rows refer to, wherever that is known."""
    known = (*tables, *(one.table for one in read))
    of_table = [one for one in known if one.path == table.path]
    return max(of_table, key=lambda one: len(one.parents), default=table)


def _related(rows: RelatedRows, tables: Sequence[Table]) -> Table:
    """Return the counted table that has the rows of a relation.

    Raises:
        SchemaError: other rows met there, or none did.
    """
    for table in tables:
        if table.origin is not None and table.origin.digest == rows.digest:
            return table
    raise SchemaError(
        f"This release doesn't have these rows: {printable(rows.name)}.",
        hint="write joins, groups and conditions on places as in the statements of the release.",
    )


def _counted(table: Table, sources: Sequence[Source]) -> Table:
    """Return the table as it was counted.

    Releases before format 3 counted only rows with a value of the domain in some columns. Of these
    rows, none is outside of these domains.
    """
    filtered = frozenset().union(*(source.guards for source in sources))
    return replace(table, enforced=table.enforced | filtered)


def _text(sql: object) -> str:
    if not isinstance(sql, str):
        raise SqlError("A query is one SQL text.", hint='for example release.query("SELECT …").')
    return sql


def _frames(public: Mapping[str, pl.DataFrame]) -> Public:
    """Resolve the names of public tables."""
    frames = {folded(name): frame for name, frame in public.items()}
    return lambda parts: frames.get(".".join(folded(part) for part in parts))


def _named(tables: Sequence[Table], parts: tuple[str, ...], read: Sequence[ReadTable]) -> Table:
    """Resolve the name of a table that was measured, or of one that its rows refer to."""
    below = [parent.table for table in tables for parent in table.parents]
    seen = (one.table.alone for one in read)
    for one in (*tables, *seen, *below):
        if one.is_called(parts):
            return one
    raise _not_counted(tables, parts)


def _not_counted(tables: Sequence[Table], parts: tuple[str, ...]) -> SchemaError:
    return SchemaError(
        f"This release has no table {printable('.'.join(parts))}.",
        hint=closest(parts[-1], [table.name for table in tables]),
    )
