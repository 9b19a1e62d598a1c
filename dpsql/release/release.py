"""A release: named frames, made from noisy measurements, and what must be known about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from dpsql.answers.facts import (
    BoundedColumn,
    DrawnQuantiles,
    Facts,
    FoundColumn,
    ReleasedValue,
    agree,
)
from dpsql.answers.frames import (
    AnsweredAgain,
    AnsweredFrames,
    Frames,
    SupportedFrames,
    SuppressedFrames,
    marks,
)
from dpsql.answers.noise import check_confidence
from dpsql.answers.requery import ASKED, asked_of, fitting, requery
from dpsql.calls import check_above, check_path_given, check_rows, check_switch, checked
from dpsql.errors import SchemaError, printable, shown
from dpsql.linalg.threads import one_thread
from dpsql.planner.plans.plan import Plan
from dpsql.planner.reconstruction.sources import Source
from dpsql.present.reported import Reported
from dpsql.present.shown import ErrorFrames, shown_frame
from dpsql.present.summary import summarize
from dpsql.privacy import Budget, Ledger, Receipt
from dpsql.release import folder
from dpsql.release.folder import malformed
from dpsql.release.found_keys import FoundKeys
from dpsql.release.measurements import decode
from dpsql.schema.names import folded

if TYPE_CHECKING:
    import duckdb
    import pandas
    import pyarrow

    from dpsql.present.exports import Form, Style
    from dpsql.release.relations import ReleasedRelation


# ── Synthetic rows of a release: it makes them up, and compares them with itself ─────────────────
#
# The code for that is imported where it is needed, as most releases make up no rows.


class SyntheticRows(ABC):
    """The synthetic rows of the tables of a release. All of this is post-processing."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The public facts about the release."""

    @property
    @abstractmethod
    def sources(self) -> tuple[Source, ...]:
        """The sources of the release: what was measured."""

    @one_thread
    def synthetic(
        self,
        rows: int | None = None,
        *,
        updates: int = 0,
        seed: int | None = None,
        table: str | None = None,
    ) -> pl.DataFrame:
        """Make up rows that are like those of the table, as far as the release says. It is free.

        They have the columns with a domain by which rows were counted, with the types of the
        table. Columns are drawn one by one, each given two others at most, so that pairs of columns
        are near what was measured; what was not measured is not in them.

        Args:
            rows: how many; as many as the release says that there are, by default.
            updates: rounds in which rows are moved so that all pairs of columns get nearer to what
                was measured, also those that columns were not drawn by. What depends on three
                columns may get lost, and it takes longer.
            seed: gives the same rows each time; without it, they are others each time.
            table: of several tables, which one's rows are meant.

        Raises:
            UndeterminedError: the release doesn't say how many rows there are.
            ArgumentError, SchemaError, ResourceLimitError: no such rows can be made up.
        """
        from dpsql.release.synthesis import synthetic

        with fitting():
            return synthetic(self._relation(table), rows, updates, seed)

    @one_thread
    def synthetic_quality(self, frame: pl.DataFrame, *, table: str | None = None) -> pl.DataFrame:
        """Compare synthetic rows with what was measured: a row for each column and measured pair.

        Columns: `columns`, `cells`, and three distances, each half the sum of absolute differences
        between shares of rows (total variation). `tv_to_fitted` is that of the rows to the table
        without negative cells that was fitted to measurements. `tv_noise_expected` says about how
        far this table is from the truth, by its noise; NULL where that isn't known.
        `tv_estimated` is of both together, about. `note` says which columns are independent of all
        others or were left out, and why.

        Args:
            frame: rows of `synthetic`.
            table: of several tables, which one's rows they are.

        Raises:
            ArgumentError, SchemaError: they are no such rows.
        """
        from dpsql.release.synthesis import quality

        with fitting():
            return quality(self._relation(table), frame)

    def _relation(self, name: str | None) -> ReleasedRelation:
        """Return what is known of the rows of a table; it is kept."""
        from dpsql.release.relations import ReleasedRelation
        from dpsql.release.synthesis import table_named

        table = table_named(self.facts.tables, name)
        if table.path not in self._relations:
            self._relations[table.path] = ReleasedRelation.of(table, self.sources)
        return self._relations[table.path]

    @cached_property
    def _relations(self) -> dict[tuple[str, ...], ReleasedRelation]:
        return {}


class Release(SyntheticRows, Reported, Mapping[str, pl.DataFrame]):
    """The answers of one release: statement name → frame.

    Each frame has a row for every group of the public domain that the conditions leave possible,
    whether or not the table has such rows. Keys have the type of the domain; beside each value
    column `n` stands its `n_variance`. Answers are unbiased and consistent across statements. A
    frame is made when it is first asked for; `batches` makes it piece by piece.
    """

    def __init__(
        self,
        facts: Facts,
        frames: SupportedFrames,
        measurements: bytes,
        plan: Plan | None = None,
        *,
        standard_errors: bool = False,
    ) -> None:
        self._facts = facts
        self._frames = frames
        self._measurements = measurements
        self._plan = plan
        self._standard_errors = standard_errors

    def with_facts(self, facts: Facts) -> Release:
        """Return the same answers with other facts."""
        return self._with(facts=facts)

    def resting_on(
        self,
        found: tuple[FoundColumn, ...],
        bounded: tuple[BoundedColumn, ...],
        drawn: tuple[DrawnQuantiles, ...] = (),
        valued: tuple[ReleasedValue, ...] = (),
    ) -> Release:
        """Return the same release with what was found, drawn or released before it was made.

        Counts of found keys take their scores along, where they are all that is asked: see
        `answers/scored.py`. What is kept of scores are those that are used.
        """
        frames, facts = self._frames, self._facts
        scored = None
        if isinstance(frames, AnsweredFrames):
            scored = frames.with_scores(facts.tables, found)
        if scored is None:
            found = tuple(one.without_scores for one in found)
        facts = replace(facts, found=found, bounded=bounded, drawn=drawn, valued=valued)
        return self._with(facts=facts, frames=scored)

    def with_standard_errors(self) -> Release:
        """Return the same release with standard errors in place of variances.

        Each value `n` has `n_standard_error` beside it, which is the square root of `n_variance`:
        in frames and batches, in frames of other libraries, and where answers are written as CSV,
        as Parquet or to DuckDB. What `save` writes has variances.
        """
        return self._with(standard_errors=True)

    def _with(
        self,
        *,
        facts: Facts | None = None,
        frames: SupportedFrames | None = None,
        standard_errors: bool = False,
    ) -> Release:
        return Release(
            facts or self._facts,
            frames or self._frames,
            self._measurements,
            self._plan,
            standard_errors=standard_errors or self._standard_errors,
        )

    @property
    def _handed_out(self) -> Frames:
        """The frames as they are asked for."""
        return ErrorFrames(self._frames) if self._standard_errors else self._frames

    @one_thread
    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self._frames.names:
            known = ", ".join(map(repr, self._frames.names))
            raise KeyError(f"there is no answer {name!r}: the answers are {known}")
        return self._handed_out.frame(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames.names)

    def __len__(self) -> int:
        return len(self._frames.names)

    def __repr__(self) -> str:
        charged = f"charged {self.charged or 'nothing'}"
        names = ", ".join(self._frames.names)
        return f"Release({names}; {charged}; neighbours: {self.neighbours})"

    @one_thread
    def show(self, name: str) -> pl.DataFrame:
        """Return the answer to a statement to be looked at: values as texts of few digits.

        A value has as many decimals as two digits of its standard error need. That stands beside
        it, as `n_standard_error`. This is for display: `release[name]` has values and variances.

        Raises:
            KeyError: there is no such statement.
        """
        return shown_frame(self._frames.frame(name))

    def batches(self, name: str, rows: int = 1_000_000) -> Iterator[pl.DataFrame]:
        """Yield the answer to a statement as frames of at most `rows` rows, one after the other.

        Together they have the rows of `release[name]`, up to rounding in floats, and in another
        order if the SELECT list names its keys in another order than GROUP BY. What is held at
        once is one batch and the largest marginal. A statement that computes on its answers
        (ORDER BY, averages, …) needs all of them: its batches are slices of its frame.

        Raises:
            KeyError: there is no such statement.
        """
        return self._handed_out.batches(name, rows)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a statement's answer.

        Columns: `column`, `role` (`key`, `value`, or `adjusted`: biased, see `Session.release`),
        `variance` (`exact`, `approximate`: of first order, by the delta method, or estimated where
        counts take scores of keys along, `interval`: a quantile has bounds instead, or `none`) and
        `reason` (why there is none, or what else must be known of the value: whether groups without
        rows take part, or noise chose it).

        Raises:
            KeyError: there is no such statement.
        """
        return self._frames.columns(name)

    @one_thread
    def query(
        self,
        sql: str,
        *,
        confidence: float | None = None,
        public: Mapping[str, pl.DataFrame] | None = None,
        groups_above: float | None = None,
        suppress_below: float | None = None,
    ) -> pl.DataFrame:
        """Answer one more statement from what was measured. It costs nothing.

        Args:
            sql: a SELECT over the release's table, or some of them.
            confidence: adds interval columns.
            public: name → frame, for public tables that the statement joins.
            groups_above: leaves out groups that may be empty, see `Session.release`.
            suppress_below: shows values of few rows as NULL, see `suppressed`.

        Raises:
            UndeterminedError: the measurements don't determine what is asked.
            SqlError, SchemaError, ResourceLimitError: it can't be answered at all.
        """
        check_confidence(confidence)
        check_above(groups_above=groups_above)
        check_rows(suppress_below=suppress_below)
        tables, frames = self._facts.tables, public or {}
        read = self._facts.read
        asked = asked_of(sql, tables, frames, read)
        drawn = tuple(one.of_statement("", "") for one in self._facts.drawn)  # by name alone
        how = confidence, groups_above, read, self._facts.found, drawn
        answers = requery(sql, asked, self.sources, frames, *how)
        shown = answers if suppress_below is None else SuppressedFrames(answers, suppress_below)
        return (ErrorFrames(shown) if self._standard_errors else shown).frame(ASKED)

    @checked
    def suppressed(self, below: float) -> Release:
        """Return the same release with NULL in place of values that rest on few rows.

        No row is left out, and nothing is decided by anything but noisy values, so it is free. A
        count rests on as many rows as it says, an average, a share or a quantile on those of its
        group, a sum on the most that others in its row say; where none does it stays. Variances,
        bounds and adjusted values go with their value. Conditions, ORDER BY and LIMIT saw all
        values. What `save` writes has all values, too, and `query` is about these.

        Args:
            below: how many rows are enough.

        Raises:
            UndeterminedError: after loading, if a statement can't be answered again.
        """
        check_rows(below=below)
        frames = self._frames
        plain = frames.plain if isinstance(frames, SuppressedFrames) else frames
        facts = replace(self._facts, suppress_below=float(below))
        shown = SuppressedFrames(plain, float(below))
        return self._with(facts=facts, frames=shown)

    @one_thread
    def marks(self, name: str) -> pl.DataFrame:
        """Mark the values of a statement that mean nothing by themselves.

        Returns:
            A row for each row of `release[name]`, and a column for each of its values, with the
            first of these marks that fits, or NULL: `suppressed`, see there; `divided by noise`,
            if what is divided by is less than three of its standard errors from zero; `noise`, if
            the value is less than its own standard error from zero, or a quantile has an interval
            that leaves out no value of its domain.

        Raises:
            KeyError: there is no such statement.
            UndeterminedError: after loading, if it can't be answered again.
        """
        return marks(self._frames, name)

    @checked
    def found_keys(self, table: str, column: str | Sequence[str]) -> FoundKeys:
        """Return the values of a column that were found in the rows, and by which rule.

        They were charged by themselves, see `keys` of `Session.release` and `Session.find_keys`.

        Args:
            table: a table that was read.
            column: its column, or an expression as the summary calls it; or a list of them, whose
                values were found together.

        Raises:
            SchemaError: none of such a column were found.
        """
        read = [of for one in self.facts.tables for of in one.read]
        known = {of.path: of for of in (*(one.table for one in self.facts.read), *read)}
        known |= {of.path: of for of in self.facts.tables}  # with keys that are computed of rows
        for found in self.facts.found:
            of = known.get(found.path)
            if of is None or folded(of.name) != folded(str(table)) or not found.is_called(column):
                continue
            domain = found.domain(of)
            if domain is not None:
                return FoundKeys.released(found, of, domain)
        names = (f"{printable(f.path[-1])}.{printable(f.label)}" for f in self.facts.found)
        raise SchemaError(
            f"No values of {shown(table)}, {shown(column)} were found for this release.",
            hint=f"those of {', '.join(names)} were."
            if self.facts.found
            else "its columns have domains that were declared.",
        )

    def summary(self) -> str:
        """Say in plain text what a data user must know: promise, mechanism, accuracy, limits."""
        return summarize(self._facts)

    def save(self, path: str | Path) -> Path:
        """Write the release to a new folder, which appears at once and complete.

        It has a Parquet file for each statement, the noisy integers, and `release.json`, with
        all that is in `summary`, and checksums.

        Returns:
            The folder.

        Raises:
            ReleaseFormatError: the folder exists, or can't be written; or a statement has a name
                that can't be that of a file.
        """
        check_path_given(path=path)
        frames = self._frames
        plain = frames.plain if isinstance(frames, SuppressedFrames) else frames
        return folder.save(self._facts, plain, self._measurements, Path(path))

    @checked
    def to_csv(self, path: str | Path, *, style: Style = "plain", overwrite: bool = False) -> Path:
        """Write the answers to a folder: a CSV file for each statement, and `metadata.json`.

        The folder appears at once and complete. Each value can be read again as it is: the metadata
        have the types. NULL is written as nothing, an empty text as `""`.

        Args:
            path: the folder, which is made.
            style: `plain`, to be read again; or `office`, for publication: values with their
                standard errors in brackets, flags for what means little, footnotes below.
            overwrite: whether a folder that has nothing but answers written so is replaced.

        Returns:
            The folder.

        Raises:
            ReleaseFormatError: the folder exists, or can't be written.
        """
        return self._written(path, "csv", overwrite=overwrite, style=style)

    @checked
    def to_markdown(
        self, path: str | Path, *, style: Style = "office", overwrite: bool = False
    ) -> Path:
        """Write the answers to a folder, as `to_csv` does: a page of Markdown for each statement.

        They are for people: averages and shares are within what is possible.

        Args:
            path: the folder, which is made.
            style: `office`, as statistics offices publish tables, or `plain`; see `report`.
            overwrite: whether a folder that has nothing but answers written so is replaced.
        """
        return self._written(path, "md", overwrite=overwrite, style=style)

    @checked
    def to_parquet(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the answers to a folder, as `to_csv` does: a Parquet file for each statement.

        To ask the measurements again later, `save` the release instead.
        """
        return self._written(path, "parquet", overwrite=overwrite)

    @checked
    def to_duckdb(
        self,
        con: duckdb.DuckDBPyConnection | str | Path,
        *,
        schema: str | None = None,
        overwrite: bool = False,
    ) -> dict[str, str]:
        """Write a table for each statement to a DuckDB database.

            release.to_duckdb(con, schema="temp")
            con.sql("SELECT … FROM by_sex")

        All tables are written in one transaction, or none; in the caller's, if one is open. Their
        comments have the metadata that `to_csv` writes, those of columns what they mean.

        Args:
            con: a connection to it; or a path, for a database of its own, which appears whole.
            schema: where the tables go: `results`, or `database.results` of an attached database,
                which is made if there is none; `temp` for tables that end with the connection. By
                default the schema in use.
            overwrite: whether tables that were written so are replaced. No other one ever is.

        Returns:
            Statement → the table's name, in quotes and with its database and schema.

        Raises:
            ReleaseFormatError: there is another table of such a name, there or where statements
                would find this one instead; or it can't be written.
        """
        check_switch(overwrite=overwrite)
        from dpsql.present import exports

        with one_thread:
            return exports.to_duckdb(
                self._facts, self._handed_out, con, schema, overwrite=overwrite
            )

    def to_pandas(self) -> dict[str, pandas.DataFrame]:
        """Return the answers as frames of pandas: statement → frame.

        Integers and Boolean are of pandas' own types that have NULL, ENUMs are categories, dates,
        times and decimals are Arrow's; in floats NULL becomes NaN.

        Raises:
            ReleaseFormatError: pandas is not installed.
            ResourceLimitError: a frame is too large.
        """
        from dpsql.present import exports

        with one_thread:
            return exports.to_pandas(self._handed_out)

    def to_arrow(self) -> dict[str, pyarrow.Table]:
        """Return the answers as Arrow tables: statement → table.

        Raises:
            ResourceLimitError: a frame is too large.
        """
        from dpsql.present import exports

        with one_thread:
            return exports.to_arrow(self._handed_out)

    def _written(
        self, path: str | Path, form: Form, *, overwrite: bool, style: Style = "plain"
    ) -> Path:
        from dpsql.present import exports
        from dpsql.present.exports import check_style

        check_path_given(path=path)
        check_switch(overwrite=overwrite)
        check_style(style)
        with one_thread:
            if form == "md" or style == "office":
                write = partial(exports.write_tables, self._facts, self._frames, style=style)
            else:
                write = partial(exports.write_files, self._facts, self._handed_out)
            return write(Path(path), form, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, ledger: Ledger | str | Path | None = None) -> Release:
        """Read a release that was saved. Nothing in it is run.

        Args:
            path: the folder.
            ledger: if given, the ledger that has to hold the charge and the measurements.

        Raises:
            ReleaseFormatError: it is not a release, or was changed.
            LedgerError: the ledger doesn't hold its charge.
        """
        check_path_given(path=path)
        facts, frames, measurements = folder.load(Path(path))
        counted = {frozenset(columns) for columns in facts.guards.values()}
        if any(source.guards and {source.guards} != counted for source in decode(measurements)):
            raise malformed("its measurements counted other rows than release.json says")
        if not agree(facts, decode(measurements)):
            raise malformed("its measurements are of another kind than release.json says")
        if ledger is not None:
            if not isinstance(ledger, Ledger):
                charged_in = "" if facts.receipt is None else facts.receipt.ledger
                ledger = Ledger.existing(ledger, identity=charged_in)
            folder.check_ledger(facts, measurements, ledger)
        sources = decode(measurements)

        def answer(name: str) -> SupportedFrames:
            sql = facts.statements[name]
            asked = asked_of(sql, facts.tables, {}, facts.read)
            shown = facts.confidence, facts.groups_above
            drawn = tuple(one.of_statement(name, ASKED) for one in facts.drawn)
            return requery(sql, asked, sources, {}, *shown, facts.read, facts.found, drawn)

        again = AnsweredAgain(frames, answer, facts.biased)
        return cls(facts, again, measurements)

    @property
    def facts(self) -> Facts:
        """All that is public about the release apart from its answers."""
        return self._facts

    @property
    def _all(self) -> tuple[SupportedFrames, bytes]:
        return self._frames, self._measurements

    @property
    def sources(self) -> tuple[Source, ...]:
        """The noisy integers that answers follow from, those of earlier releases first."""
        return decode(self._measurements)

    @property
    def plan(self) -> Plan | None:
        """The plan that was measured; None where nothing new was, and after loading."""
        return self._plan

    @property
    def charged(self) -> Budget | None:
        """The budget that the release was charged; None if that was nothing."""
        return self._facts.budget

    @property
    def receipt(self) -> Receipt | None:
        """Proof of the charge."""
        return self._facts.receipt

    @property
    def neighbours(self) -> str:
        """The change of the data that the budget is for, in words."""
        return self._facts.neighbours
