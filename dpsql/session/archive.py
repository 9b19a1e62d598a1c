"""Earlier releases that the ledger keeps, and those of them that can be used for a table."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product

from dpsql.answers.facts import Earlier
from dpsql.answers.sources import explained, goes_with, identity_of, only_adds
from dpsql.engines.source import DataSource, StoredState
from dpsql.errors import LedgerError, StaleSchemaError, printable
from dpsql.planner.reconstruction.sources import Source, of_table
from dpsql.privacy import Entry, Ledger, Purpose, join, join_database, join_stored
from dpsql.privacy.purpose import ChargedTable
from dpsql.release import Before
from dpsql.release.drawn import KeptQuantiles, decode_quantiles, holds_quantiles
from dpsql.release.found_keys import FoundKeys, KeptKeys, decode_keys, holds_keys
from dpsql.release.measurements import decode
from dpsql.request import Request, digest
from dpsql.schema import Table
from dpsql.schema.domain import DERIVED, OTHER, Domain
from dpsql.schema.fitting import from_declaration
from dpsql.schema.grain import declared_type, origins, paths_read
from dpsql.session.key_source import OF_COLUMN, KeySource
from dpsql.session.purpose import NO_PLAN, DataState, charged_table, purpose, without_bound
from dpsql.sql.lowering.drawn import DrawnQuantile

_PROCESS = uuid.uuid4().hex
"""Hides what is known of files, their sizes and times, in digests that leave the process."""


_MOST_STATES = 200
"""Descriptions of a table that are tried where keys of its columns were found several times."""


def _with_states(table: Table, states: Mapping[str, Domain | str]) -> Table:
    """Return a table some of whose columns have other domains, or only a type."""
    known: dict[str, Domain | str] = {**table.columns, **table.undeclared, **states}
    listed = {name: known[name] for name in table.listed if name in known}
    return replace(
        table,
        columns={name: of for name, of in listed.items() if isinstance(of, Domain)},
        undeclared={name: of for name, of in listed.items() if isinstance(of, str)},
    )


class Archive:
    """Earlier measurements in a ledger, each read once."""

    def __init__(
        self, ledger: Ledger, source: DataSource, state: DataState, accept_schema: bool
    ) -> None:
        self._ledger, self._source = ledger, source
        self.state, self._accept_schema = state, accept_schema
        self._measured: dict[tuple[str, str], Before] = {}
        """Request, table → what it measured."""
        self._descriptions: dict[tuple[str, str], Mapping[str, str]] = {}
        """Request, table → how the table was described when it was measured."""
        self._expected: dict[str, set[str]] = {}
        """Table → its schemas before domains of columns were found, here and now."""
        self._found = set[tuple[str, str]]()
        """Tables and columns of which these are."""

    def state_of(self, table: Table, *, charged: bool = False) -> DataState:
        """Return which rows a table has now, and see to it that they can be charged for here.

        If they are `charged` for next, they can be nowhere else from then on.

        Those of an attached database are told apart as in a session of its own. Of files nothing
        tells that they are the same as when another process measured them, but their owner's name
        for them; as long as this one runs, their times do.

        Raises:
            LedgerError: an attached database, or files of a view, have another account, or none
                that lasts.
        """
        stored = self._source.stored_state(table)
        if stored != StoredState():
            return self._as_read(stored, table, charged=charged)
        files = [origin for origin in origins(table) if origin.roots]
        databases = self._databases(table, charged=charged)
        if not files and len(databases) == 1:
            return DataState(self.state.vintage, *databases)
        roots = tuple(sorted({root for origin in files for root in origin.roots}))
        joined = join(roots, self._ledger, decide=charged) if roots else ()
        states = "".join(origin.state for origin in files)
        times = "" if self.state.vintage or not roots else digest([_PROCESS, states])
        return DataState(self.state.vintage, digest(["files", joined, times, *databases]))

    def _as_read(self, stored: StoredState, table: Table, *, charged: bool) -> DataState:
        """Return the state of a table with all whose rows are read for it: they are one account's.

        What was measured of rows with columns of others is of the states of all of them.
        """
        state = self._as_stored(stored, charged=charged)
        others = [Table(path[-1], {}, path=path) for path in paths_read(table)[1:]]
        states = [
            self._as_stored(self._source.stored_state(stored_table), charged=charged).database
            for stored_table in others
        ]
        if not states:
            return state
        return DataState(state.vintage, digest(["several", state.database, *states]))

    def _as_stored(self, stored: StoredState, *, charged: bool) -> DataState:
        """Return the state of a table that tells of its rows itself.

        A version is one, in whichever process. Without, files and their times are, in whichever
        session, as long as this process runs. The owner's name for a state goes before both.
        """
        joined = join_stored(stored.roots, stored.uid, self._ledger, decide=charged)
        if self.state.vintage:
            known = joined or self.state.database
            return DataState(self.state.vintage, digest(["stored", known]))
        if stored.version:
            return DataState("", digest(["version", stored.uid, stored.version]))
        return DataState("", digest(["files", joined, _PROCESS, stored.files]))

    def _databases(self, table: Table, *, charged: bool) -> list[str]:
        """Tell apart the databases of all rows that a table has, but for those in files."""
        databases = dict.fromkeys(
            table_read.stored.file
            for table_read in table.read
            if table_read.origin is None
            or not (table_read.origin.roots or table_read.origin.tables)
        )
        return [
            self.state.database
            if file is None
            else join_database(file, self._ledger, decide=charged)
            for file in databases
        ]

    def nothing(self) -> Before:
        """Return that nothing was measured before."""
        return Before(vintage=self.state.vintage)

    def measured(self, request: Request, table: Table) -> Before:
        """Return what was measured of a table, under its present description.

        Raises:
            StaleSchemaError: the table is bound to another description.
            LedgerError: the table is bound to another unit, or the ledger can't be read.
        """
        wanted = self._checked(request, table)
        kept = []
        for entry in self._read(wanted):
            then = entry.purpose.of(wanted.table)
            same = then is not None and then.schema == wanted.schema
            measured = self._measured[entry.request, wanted.table]
            kept.append(measured.where(partial(goes_with, table=table, same_schema=same)))
        return self._joined(kept)

    def of_tables(self, request: Request, tables: Sequence[Table]) -> Before:
        """Return what was measured of one table; or of several, each by its name.

        Raises:
            StaleSchemaError, LedgerError: see `measured`.
        """
        if len(tables) == 1:
            return self.measured(request, tables[0])
        return self._joined([_named(self.measured(request, t), t) for t in tables])

    def compared_with(self, before: Before, tables: Sequence[Table]) -> Before:
        """Return what was measured of other tables whose totals were compared with those of some.

        Each is as it was when they were compared, the last time: what they say is of that state,
        whatever rows they have now.

        Args:
            before: what was measured of some tables.
            tables: these tables.
        """
        entries = {entry.request: entry for entry in self._ledger.entries()}
        known = set(map(identity_of, tables))
        befores: list[Before] = []
        places = list(zip(before.sources, before.earlier, strict=True))
        while places:
            source, place = places.pop()
            names = {name for of in source.differences for name in of.tables}
            for name in sorted(names - known):
                then = entries[place.request].purpose.of(name)
                if then is not None:
                    known.add(name)
                    others = self._joined(self._as_then(then))
                    befores.append(others)
                    places += zip(others.sources, others.earlier, strict=True)
        return self._joined(befores)

    def _as_then(self, charged: ChargedTable) -> list[Before]:
        """Return what was measured of a table in one state, under one description."""
        return [
            replace(of, sources=tuple(replace(s, table=charged.table) for s in of.sources))
            for entry in self._read(charged)
            if entry.purpose.of(charged.table) == charged
            and (of := self._measured[entry.request, charged.table])
        ]

    def _checked(self, request: Request, table: Table) -> ChargedTable:
        """Return what of a table is charged for, after checking that it can be."""
        wanted = self._charged(table)
        try:
            self._ledger.check(
                purpose(request, (wanted,)),
                accept_schema=self.accepted((table,)),
                each_row=table.each_row,
            )
        except StaleSchemaError as error:
            raise explained(error, self._described(wanted), table.stored) from None
        return wanted

    def purpose(
        self,
        request: Request,
        tables: Sequence[Table],
        plan: str = NO_PLAN,
        *,
        charged: bool = False,
    ) -> Purpose:
        """Return what a charge for the rows of some tables is for; see `state_of`."""
        return purpose(request, [self._charged(table, charged=charged) for table in tables], plan)

    def key_purpose(
        self, table: Table, keys: KeySource, plan: str = NO_PLAN, *, charged: bool = False
    ) -> Purpose:
        """Return what a charge for keys is for; see `state_of`.

        They are of the same rows whatever is declared of these, and no measurements of any: so they
        have a state of their own, by which they are found again and nothing else is.
        """
        state = self.state_of(table, charged=charged)
        made = [origin.digest for origin in origins(table)]
        rows = charged_table(table, state)
        rows = rows._replace(vintage=digest(["keys", state.digest, *made]))
        return Purpose(plan, digest([keys.kind, keys.name]), *rows)

    def kept_keys(self, table: Table, keys: KeySource) -> tuple[Entry, KeptKeys] | None:
        """Return the keys that were found last, of the same rows, with their charge."""
        kept = next(self._kept_of([self.key_purpose(table, keys)], holds_keys), None)
        return None if kept is None else (kept[0], decode_keys(kept[1]))

    def quantile_purpose(
        self, of: DrawnQuantile, plan: str = NO_PLAN, *, halved: bool = False, charged: bool = False
    ) -> Purpose:
        """Return what a charge for quantiles that are drawn is for; see `state_of`.

        They are of rows as they are described, and no measurements: so they have a state of their
        own, by which they are found again and nothing else is. Several that are drawn together have
        one charge, which is the same for whichever of these.
        """
        rows = charged_table(of.table, self.state_of(of.table, charged=charged))
        state = digest(["quantiles", rows.vintage, rows.schema])
        asked = ["halved quantiles", of.rows] if halved else ["quantiles", of.name]
        return Purpose(plan, digest(asked), *rows._replace(vintage=state))

    def kept_quantiles(self, of: DrawnQuantile) -> tuple[Entry, KeptQuantiles] | None:
        """Return quantiles that were drawn last, of the same rows and groups, with their charge."""
        asked = [self.quantile_purpose(of, halved=halved) for halved in (False, True)]
        for entry, content in self._kept_of(asked, holds_quantiles):
            kept = decode_quantiles(content).of(of.values.probability)
            if kept is not None:
                return entry, kept
        return None

    def _kept_of(
        self, wanted: Sequence[Purpose], holds: Callable[[bytes], bool]
    ) -> Iterator[tuple[Entry, bytes]]:
        """Yield what is kept of equal questions about one table, and its charge, the last first."""
        asked = {(of.script, of.tables[0].rows) for of in wanted}
        for entry in reversed(self._ledger.entries()):
            same = (entry.script, entry.purpose.tables[0].rows) in asked
            content = self._ledger.content(entry) if same and entry.content else None
            if content is not None and holds(content):
                yield entry, content

    def _charged(self, table: Table, *, charged: bool = False) -> ChargedTable:
        return charged_table(table, self.state_of(table, charged=charged))

    def referred(self, request: Request, tables: Iterable[Table]) -> tuple[ChargedTable, ...]:
        """Return what is charged for of tables whose rows are seen from those that count.

        It is without a bound on the rows of units: those that are seen are all.

        Raises:
            StaleSchemaError: one is bound to another description.
            LedgerError: one is bound to another unit.
        """
        referred = []
        for table in tables:
            bare = without_bound(self._charged(table), table)
            if self._is_bound_to(request, bare):
                referred.append(bare)
                continue
            if self._counts_otherwise(table):
                continue
            try:
                referred.append(self._checked(request, table))
            except (StaleSchemaError, LedgerError) as error:
                message = f"Rows refer to rows of {printable(table.name)}. {error.message}"
                raise type(error)(message, hint=error.hint) from None
        return tuple(referred)

    def _has_only_fewer_rows(self, table: Table, charged: ChargedTable) -> bool:
        """Whether all that is new of a table is that it has one row of each unit, as it always had.

        Earlier versions charged it for as many as are stated for other tables.
        """
        unit = table.stored.unit
        if unit is None or unit.stated is None:
            return False
        before = replace(table.stored, unit=unit.stated).fingerprint
        return self._is_bound_to(Request(), charged._replace(schema=before))

    def _counts_otherwise(self, table: Table) -> bool:
        """Whether a table is bound to the same description, but for how many of its rows count.

        Where its rows are looked into, that says nothing of them. As far as it can be told: the
        ledger has a digest of the description, and the description itself only if that was kept
        with what was measured.
        """
        charged = self._charged(table)
        known = [e.purpose.of(charged.table) for e in self._ledger.entries()]
        units = {then.unit for then in known if then is not None}
        described = self._described(charged) if units == {charged.unit} else {}
        return bool(described) and _alike(described, table.stored.described)

    def _is_bound_to(self, request: Request, charged: ChargedTable) -> bool:
        """Whether the ledger has a table under this description, or not at all."""
        try:
            self._ledger.check(purpose(request, (charged,)))
        except (StaleSchemaError, LedgerError):
            return False
        return True

    def with_own(self, measured: Sequence[Source], tables: Sequence[Table]) -> Before:
        """Return a release's own measurements, as the last, after all those that it rests on.

        Args:
            measured: what was measured of each table.
            tables: these tables.
        """
        named = []
        for source, table in zip(measured, tables, strict=True):
            wanted = self._charged(table)
            self._read(wanted)
            rests_on = [self._measured[request, wanted.table] for request in source.rests_on]
            named += [_named(column, table) if source.table else column for column in rests_on]
        return self._joined([*named, Before(tuple(measured))])

    def accepted(self, tables: Sequence[Table]) -> frozenset[str]:
        """Return those of some tables that may be described otherwise than at their last release.

        By the digests that ledgers have of them.
        """
        charges = [(table, self._charged(table)) for table in tables]
        return frozenset(
            charged.table
            for table, charged in charges
            if self._accept_schema
            or only_adds(self._described(charged), table.stored)
            or self._is_bounded_since(table, charged)
            or self._has_only_more_bounds(table, charged)
            or self._has_only_fewer_rows(table, charged)
            or self._is_found_since(charged)
            or self._differs_by_keys(charged, table.stored)
        )

    def expect_change(self, table: Table, column: str) -> None:
        """Take note that a table is described otherwise from now on: as values are found."""
        charged = self._charged(table)
        schemas = {charged.schema, without_bound(charged, table).schema}
        self._expected.setdefault(charged.table, set()).update(schemas)
        self._found.add((charged.table, column))

    def _is_found_since(self, charged: ChargedTable) -> bool:
        """Whether a table is bound to a description that it had before keys were found in it."""
        schemas = self._expected.get(charged.table, ())
        bound = (charged._replace(schema=schema) for schema in schemas)
        return any(self._is_bound_to(Request(), before) for before in bound)

    def _differs_by_keys(self, charged: ChargedTable, table: Table) -> bool:
        """Whether a table is bound to a description that differs only where keys were found.

        Their domains are as public as answers, in every session of the account: one that has not
        found any, or others, describes them otherwise.
        """
        states = {name: self._states(charged, table, name) for name in table.described}
        several = {name: values for name, values in states.items() if values}
        for chosen in islice(product(*several.values()), bool(several), _MOST_STATES):
            then = _with_states(table, dict(zip(several, chosen, strict=True)))
            schemas = {then.fingerprint, without_bound(charged, then).schema}
            if any(self._is_bound_to(Request(), charged._replace(schema=of)) for of in schemas):
                return True
        return False

    def _states(self, charged: ChargedTable, table: Table, name: str) -> list[Domain | str]:
        """Return the domains that were found of a column, and its type, without one.

        As it is now it comes first. None, if its keys were never found.
        """
        script = digest([OF_COLUMN, name])
        entries = [
            entry
            for entry in self._ledger.entries()
            if entry.script == script and entry.purpose.of(charged.table) is not None
        ]
        if not entries and (charged.table, name) not in self._found:
            return []
        now: Domain | str = table.columns[name] if name in table.columns else table.undeclared[name]
        domains: list[Domain | str] = [now, declared_type(table, name)]
        labels = {OTHER} if isinstance(now, str) else {OTHER, now.other or OTHER}
        contents = (self._ledger.content(entry) for entry in entries if entry.content)
        for kept in (decode_keys(content) for content in contents if content is not None):
            for keys in (FoundKeys.of(kept, "", other) for other in labels):
                if keys.keys or keys.is_text:
                    domain = keys.domain
                    domains.append(
                        from_declaration(name, kept.type, generated=False, domain=domain)
                    )
        return domains

    def _is_bounded_since(self, table: Table, charged: ChargedTable) -> bool:
        """Whether all that is new of a table is how many of its rows count of a unit.

        Until now they were looked into, or units were counted that have some.
        """
        return table.is_bounded and self._is_bound_to(Request(), without_bound(charged, table))

    def _has_only_more_bounds(self, table: Table, charged: ChargedTable) -> bool:
        """Whether all that is new of a table are bounds of numbers: no cell depends on these."""
        bare = table.stored.without_declared_bounds.fingerprint
        return self._is_bound_to(Request(), charged._replace(schema=bare))

    def _joined(self, befores: list[Before]) -> Before:
        sources = tuple(source for before in befores for source in before.sources)
        earlier = tuple(place for before in befores for place in before.earlier)
        return Before(sources, earlier, self.state.vintage)

    def _described(self, wanted: ChargedTable) -> Mapping[str, str]:
        """Return how the table was described at its last release, if that was kept."""
        known = ((entry, entry.purpose.of(wanted.table)) for entry in self._ledger.entries())
        entries = [(entry, then) for entry, then in known if then is not None]
        if not entries or entries[-1][1].schema == wanted.schema:
            return {}
        for entry, then in reversed(entries):
            if not entry.content or then.schema != entries[-1][1].schema:
                continue
            key = entry.request, wanted.table
            if key not in self._descriptions:
                content = self._ledger.content(entry)
                if content is None:
                    continue
                if holds_keys(content):
                    self._descriptions[key] = decode_keys(content).described
                elif holds_quantiles(content):
                    self._descriptions[key] = decode_quantiles(content).each[0].described
                else:
                    self._descriptions[key] = of_table(decode(content), wanted.table)[-1].described
            return self._descriptions[key]
        return {}

    def _read(self, wanted: ChargedTable) -> list[Entry]:
        """List the releases of the wanted data, and read what is not known of them yet."""
        # Listed once: other processes may add to them at any moment.
        entries = [
            e
            for e in self._ledger.entries()
            if e.content and wanted.rows in {table.rows for table in e.purpose.tables}
        ]
        if any((entry.request, wanted.table) not in self._measured for entry in entries):
            data = {"table": wanted.table, "unit": wanted.unit, "vintage": wanted.vintage}
            for entry, content in self._ledger.measurements(**data):
                key = entry.request, wanted.table
                if key not in self._measured:
                    sources = of_table(decode(content), wanted.table)
                    self._measured[key] = self._kept(entry, sources)
        return entries

    def _kept(self, entry: Entry, sources: tuple[Source, ...]) -> Before:
        """Return what can be used of an entry: nothing of one that chose what to measure."""
        if any(source.reading == "adaptive" for source in sources):
            return self.nothing()
        return Before(sources, (Earlier.of(entry),), self.state.vintage)


def _alike(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether the columns of a table are described alike, but for what is computed of them."""
    first, other = (
        {name: of for name, of in each.items() if not of.startswith(DERIVED)}
        for each in (before, now)
    )
    return first == other


def _named(before: Before, table: Table) -> Before:
    """Say of measurements which of several tables they are about."""
    identity = identity_of(table)
    return replace(before, sources=tuple(replace(s, table=identity) for s in before.sources))
