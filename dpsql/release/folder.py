"""Releases on disk: a folder that appears at once and complete, and is read with suspicion.

The folder has a Parquet file for each statement, the noisy integers of the release (and of those
on whose measurements it rests as well), and `release.json`, with the SHA-256 of every file.

Whoever can write the folder can also write new checksums. What can't be forged is in the ledger:
its chain of hashes holds the digest of the noisy integers, see `check_ledger`.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from dpsql.answers.facts import DrawnQuantiles, Earlier, Facts, FoundColumn
from dpsql.answers.found_values import FoundValues
from dpsql.answers.frames import DESCRIBED, Frames, slices
from dpsql.answers.scored import CellScores
from dpsql.answers.sources import identity_of, same_columns, unchanged
from dpsql.errors import BudgetError, InternalError, LedgerError, ReleaseFormatError, SchemaError
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.base import EXPECTED
from dpsql.planner.reconstruction.sources import Source
from dpsql.present.disk import as_json, digest_of, new_folder, plain_names, system_errors
from dpsql.present.disk import write as write_file
from dpsql.present.formats import write_parquet
from dpsql.present.records import DocumentPart, In, document_of, facts_in
from dpsql.privacy import Entry, Ledger
from dpsql.privacy.purpose import ChargedTable
from dpsql.release.drawn import can_be_drawn, decode_quantiles
from dpsql.release.found_keys import FoundKeys, KeptKeys, decode_keys
from dpsql.release.measurements import decode, encode, read_parquet
from dpsql.schema import Table
from dpsql.schema.domain import OTHER

# ── `release.json`: the facts of a release as plain JSON, and back ───────────────────────────────
#
# Facts are written and read by their records, beside the format and what is said of each file.


FORMAT = 4
SEVERAL = 5
"""The format of releases of several tables, which earlier versions can't read."""
ASIDE = 6
"""The format of releases whose budget sets δ aside, or that were charged some."""
DRAWN = 7
"""The format of releases for which quantiles were drawn."""
VALUED = 8
"""The format of releases for which values were released first."""
READ = (2, 3, FORMAT, SEVERAL, ASIDE, DRAWN, VALUED)
"""Formats that are read: format 2 left rows out of all statements that one of them left out, format
3 knew neither contexts nor measures among what was measured, format 4 is of one table."""
MAX_BYTES = 2**26
MAX_SCORE = 2**62
MAX_ABOVE = 1e6
"""Standard errors of `groups_above`."""

_NOISE_OF_FORMAT_2 = {
    "round(N(0, sigma^2)) added to exact integers: the Gaussian mechanism, rounded afterwards; "
    "variance sigma^2 + 1/12; drawn exactly from AES-256 in counter mode, keyed by the "
    "system": "gaussian",
    "discrete Laplace noise, P(z) in proportion to exp(-|z|/b), added to exact integers: pure "
    "epsilon; variance 1/(2 sinh(1/(2b))^2); drawn exactly from AES-256 in counter mode, keyed by "
    "the system": "laplace",
}
"""Words that stood in place of a name in format 2, for good."""


class DescribedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a column of a frame; see `Release.columns`."""

    column: str
    role: str | None
    variance: str | None
    reason: str | None


class DescribedFile(DocumentPart, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a file in the folder."""

    statement: str | None
    """The statement whose answers it holds; None if it holds the noisy integers."""
    rows: Annotated[int, msgspec.Meta(ge=0)] = 0
    columns: tuple[DescribedColumn, ...] = ()
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


# ── writing ────────────────────────────────────────────────────────────────────────────────


def write(facts: Facts, files: Mapping[str, DescribedFile]) -> str:
    """Write facts and what is said of each file, with a checksum of all of it."""
    document = {
        "format": _format_of(facts),
        **document_of(facts, In.RELEASE),
        "files": msgspec.to_builtins(files),
    }
    later = {
        "found_keys": facts.found,
        "found_bounds": facts.bounded,
        "drawn_quantiles": facts.drawn,
        "released_values": facts.valued,
    }
    for name, value in later.items():
        if not value:
            del document[name]
    if not facts.read:
        del document["read_tables"]
    if not facts.others:
        del document["other_tables"]
        if document["ledger"] is not None:
            del document["ledger"]["purpose"]["others"]
    return as_json({**document, "sha256": _digest(document)})


def _format_of(facts: Facts) -> int:
    aside = facts.budget is not None and bool(facts.budget.key_delta)
    charged = facts.receipt is not None and bool(facts.receipt.delta)
    rested = any(before.delta for before in facts.charges_before)
    if facts.valued:
        return VALUED
    if facts.drawn:
        return DRAWN
    if aside or charged or rested or facts.bounded:
        return ASIDE
    return SEVERAL if facts.others else FORMAT


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# ── reading ────────────────────────────────────────────────────────────────────────────────


def read(text: str) -> tuple[Facts, dict[str, DescribedFile]]:
    """Read facts, and what is said of each file.

    Raises:
        ReleaseFormatError: it is not such a document, or was changed.
    """
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise malformed("release.json is not JSON") from None
    if not isinstance(document, dict) or type(document.get("format")) is not int:
        raise malformed("release.json is not a release's")
    if document["format"] not in READ:
        known = " and ".join(map(str, READ))
        raise ReleaseFormatError(
            f"The release has format {str(document['format'])[:20]!r}; this dpsql knows {known}.",
            hint="use the version of dpsql that wrote it.",
        )
    try:
        # The same in other words, with other spaces for example, was changed as well.
        if text != as_json(document) or document.pop("sha256") != _digest(document):
            raise malformed("release.json was changed")
        facts = facts_in(_of_today(document))
        _check(facts, document)
        return facts, msgspec.convert(document["files"], dict[str, DescribedFile])
    except (
        KeyError, TypeError, ValueError, OverflowError, RecursionError, BudgetError, LedgerError,
        InternalError, SchemaError, msgspec.ValidationError, pl.exceptions.PolarsError,
    ):  # fmt: skip
        raise malformed("release.json says something impossible") from None


def malformed(why: str) -> ReleaseFormatError:
    """Word that a release on disk can't be trusted."""
    return ReleaseFormatError(
        f"The release is damaged: {why}.", hint="get the folder again from whoever published it."
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError
    return unique


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _of_today(document: dict[str, Any]) -> dict[str, Any]:
    """Say what format 2 said of noise and of rows that are counted as it is said today."""
    mechanism, guards = document["mechanism"], document["rows_need_a_value_in"]
    noise = mechanism["noise"]
    if document["format"] == 2:
        columns = msgspec.convert(guards, tuple[str, ...])
        guards = dict.fromkeys(document["statements"], columns) if columns else {}
    return {
        **document,
        "mechanism": {**mechanism, "noise": _NOISE_OF_FORMAT_2.get(noise, noise)},
        "rows_need_a_value_in": guards,
    }


def _check(facts: Facts, document: Mapping[str, Any]) -> None:
    """Check that the facts of a document agree with each other."""
    named = facts.mechanism in MECHANISMS if facts.budget is not None else facts.mechanism is None
    if not named or facts.table.contributions != document["contributions"]:
        raise ValueError
    if max(document["format"], FORMAT) != _format_of(facts):
        raise ValueError
    if not (_are_tables(facts) and _are_found(facts) and _are_drawn(facts)):
        raise ValueError
    if facts.groups_above is not None and not 0 <= facts.groups_above <= MAX_ABOVE:
        raise ValueError
    known = EXPECTED if not facts.biased else ("statement", "rows")
    if facts.expected.select(*known).null_count().sum_horizontal()[0]:
        raise ValueError


def _are_tables(facts: Facts) -> bool:
    """Whether a release can be of its tables: each once, with units if several, all charged for."""
    count = len(facts.tables)
    charged = 0 if facts.receipt is None else len(facts.receipt.purpose.tables)
    units = count == 1 or all(table.unit is not None for table in facts.tables)
    return units and len({t.path for t in facts.tables}) == count and charged in {0, count}


def _are_found(facts: Facts) -> bool:
    """Whether keys and bounds can have been found: of tables that were read, each once."""
    paths = {of.path for table in facts.tables for of in (table, *table.read)}
    paths |= {one.table.path for one in facts.read}
    columns = [(one.path, one.column) for one in facts.found]
    columns += [(one.path, one.column) for one in facts.bounded]
    return (
        len(set(columns)) == len(columns)
        and all(path in paths for path, _ in columns)
        and all(one.rule.mu_squared <= one.charge.mu_squared for one in facts.found)
        and all(one.computed is None or _are_values(one.computed) for one in facts.found)
        and all(not one.scores or _are_scores(one, facts.table) for one in facts.found)
    )


def _are_drawn(facts: Facts) -> bool:
    """Whether quantiles can have been drawn: of these tables, each place once, within a charge."""
    paths = {table.path for table in facts.tables}
    at = [place for one in facts.drawn for place in one.at]
    return (
        len(set(at)) == len(at)
        and {statement for statement, *_ in at} <= facts.statements.keys()
        and all(one.path in paths and can_be_drawn(one) for one in facts.drawn)
    )


def _are_values(computed: FoundValues) -> bool:
    """Whether the values of an expression can be a domain."""
    try:
        return bool(computed.domain.values)
    except SchemaError:
        return False


def _are_scores(column: FoundColumn, table: Table) -> bool:
    """Whether the scores of keys are some by which they were told, and that counts take along."""
    least = column.rule.rounds[0].threshold
    told = least <= min(column.scores) and max(column.scores) <= MAX_SCORE
    return told and CellScores.of(table, column) is not None


DOCUMENT = "release.json"
MEASUREMENTS = "release.measurements.parquet"
"""No statement's file can have this name, which has two dots."""
_FILE = re.compile(r"[a-z0-9_]{1,80}\.parquet")


def save(facts: Facts, frames: Frames, content: bytes, path: Path) -> Path:
    """Write a release, with its noisy integers as `encode` writes them; see `Release.save`."""
    with new_folder(path) as draft:
        files = _write_all(frames, content, draft)
        write_file(draft / DOCUMENT, write(facts, files).encode())
    return path


def _write_all(frames: Frames, content: bytes, folder: Path) -> dict[str, DescribedFile]:
    """Write all data files; say of each what it holds."""
    files: dict[str, DescribedFile] = {}
    for statement, plain in plain_names(frames.names).items():
        name = f"{plain}.parquet"
        rows = write_parquet(frames, statement, folder / name).rows
        columns = tuple(DescribedColumn(**row) for row in frames.columns(statement).to_dicts())
        files[name] = DescribedFile(
            statement=statement, rows=rows, columns=columns, sha256=digest_of(folder / name)
        )
    write_file(folder / MEASUREMENTS, content)
    files[MEASUREMENTS] = DescribedFile(statement=None, sha256=digest_of(folder / MEASUREMENTS))
    return files


# ── reading ────────────────────────────────────────────────────────────────────────────────


class StoredFrames:
    """Frames in a folder; each is checked again when it is read."""

    def __init__(self, files: Mapping[str, tuple[Path, DescribedFile]]) -> None:
        self._files = files

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return tuple(self._files)

    def frame(self, name: str) -> pl.DataFrame:
        """Read a frame.

        Raises:
            KeyError: there is no such statement.
            ReleaseFormatError: the file was changed.
        """
        path, said = self._files[name]
        with system_errors(path):
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != said.sha256:
            raise malformed(f"{path.name} was changed")
        try:
            return read_parquet(content, [c.column for c in said.columns], said.rows)
        except ValueError:
            raise malformed(
                f"{path.name} can't be read, or does not hold what release.json says"
            ) from None

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield slices of the frame."""
        yield from slices(self.frame(name), rows)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a frame."""
        columns = [msgspec.structs.astuple(c) for c in self._files[name][1].columns]
        return pl.DataFrame(columns, schema=dict.fromkeys(DESCRIBED, pl.String), orient="row")


def load(path: Path) -> tuple[Facts, StoredFrames, bytes]:
    """Read a release, and check every file; see `Release.load`.

    Returns:
        Facts, frames, and the noisy integers as they were written.
    """
    with system_errors(path):
        facts, said = read(_document(path / DOCUMENT))
        for name, file in said.items():
            _check_name(name, file)
            _check_plain(path / name)
            if digest_of(path / name) != file.sha256:
                raise malformed(f"{name} was changed")
        frames = {
            file.statement: (path / name, file)
            for name, file in said.items()
            if file.statement is not None
        }
        if MEASUREMENTS not in said or set(frames) != set(facts.statements):
            raise malformed("files are missing")
        content = (path / MEASUREMENTS).read_bytes()
    if hashlib.sha256(content).hexdigest() != said[MEASUREMENTS].sha256:
        raise malformed("the measurements were changed")
    return facts, StoredFrames(frames), content


def _document(path: Path) -> str:
    """Read release.json, which is a text of limited length."""
    _check_plain(path)
    if path.stat().st_size > MAX_BYTES:
        raise malformed("release.json is too large")
    try:
        return path.read_bytes().decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        raise malformed("release.json is not a text") from None


def _check_plain(path: Path) -> None:
    """Refuse links, which lead elsewhere, and pipes and devices, which never end."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise malformed(f"{path.name} is not a plain file")


def _check_name(name: str, file: DescribedFile) -> None:
    """Check that release.json names no file outside of the folder, and says whose each is."""
    if not _FILE.fullmatch(name) and name != MEASUREMENTS:
        raise malformed("release.json names a file that can't be")
    if (file.statement is None) != (name == MEASUREMENTS):
        raise malformed("release.json does not say whose file one is")


def check_ledger(facts: Facts, content: bytes, ledger: Ledger) -> None:
    """Check that a ledger vouches for a release: for its charge, its table and what was measured.

    What a ledger did not keep, because it was too large, can't be compared.

    Raises:
        LedgerError: it does not.
    """
    entries = {entry.request: entry for entry in ledger.entries()}
    rested = list(facts.charges_before)
    if [_place(entries.get(e.request)) for e in rested] != rested:
        raise _forged()
    for drawn in facts.drawn:
        _check_drawn(drawn, facts.tables, entries[drawn.charge.request], ledger)
    for found in facts.found:
        kept = ledger.content(entries[found.charge.request])
        if kept is not None and not _tells(decode_keys(kept), found, facts.table):
            raise _forged()
    requests = [e.request for e in facts.earlier]
    _check_charge(facts, ledger)
    if facts.receipt is not None:
        requests.append(facts.receipt.request)
    held, sources = [entries[request] for request in requests], decode(content)
    parts = _by_entry(facts, sources)
    if len(parts) != len(held) or not _are_of(facts, held, parts):
        raise _forged()
    for entry, part in zip(held, parts, strict=True):
        kept = ledger.content(entry)
        if kept is not None and encode(_kept_of(decode(kept), part)) != encode(part):
            raise _forged()


def _check_charge(facts: Facts, ledger: Ledger) -> None:
    """Check that a release spent what the ledger charged for it, if it spent anything."""
    receipt, said = facts.receipt, None if facts.budget is None else facts.budget.mu_squared
    if receipt is not None:
        ledger.verify(receipt)
    if said != (None if receipt is None else receipt.mu_squared):
        raise _forged()


def _check_drawn(
    drawn: DrawnQuantiles, tables: Iterable[Table], entry: Entry, ledger: Ledger
) -> None:
    """Check that a ledger drew these quantiles, of the table that a release says."""
    kept, charged = ledger.content(entry), {of.table for of in entry.purpose.tables}
    identities = {identity_of(table) for table in tables if table.path == drawn.path}
    each = () if kept is None else decode_quantiles(kept).each
    if identities != charged or (kept is not None and not any(one.tells(drawn) for one in each)):
        raise _forged()


def _tells(kept: KeptKeys, column: FoundColumn, table: Table) -> bool:
    """Whether a ledger's keys are those of a release: by their rule, and by scores that it uses."""
    if (kept.column, kept.rule, kept.parts) != (column.label, column.rule, column.parts):
        return False
    domain = column.domain(table)
    if not column.scores or domain is None:
        return not column.scores
    told = FoundKeys.of(kept, column.charge.request, domain.other or OTHER)
    return told.scores == column.scores


def _kept_of(kept: Sequence[Source], part: Sequence[Source]) -> list[Source]:
    """Return what is kept of the tables that a part is about.

    What was measured of a table alone doesn't say which one that was; its charge does.
    """
    if any(source.table for source in kept):
        named = {source.table for source in part}
        return [source for source in kept if source.table in named]
    return [replace(source, table=part[0].table) for source in kept]


def _by_entry(facts: Facts, sources: Sequence[Source]) -> list[Sequence[Source]]:
    """Divide sources by the charges for them: the last has what was measured of all tables.

    The rounds of an adaptive release have one entry together, too.
    """
    if facts.adaptive:
        return [sources]
    apart = len(sources) if facts.receipt is None else -len(facts.tables)
    of_receipt = [sources[apart:]] if facts.receipt is not None else []
    return [*((source,) for source in sources[:apart]), *of_receipt]


def _are_of(facts: Facts, held: Sequence[Entry], parts: Sequence[Sequence[Source]]) -> bool:
    """Whether charges were for the same rows, and measurements fit tables as they are described.

    Earlier ones may be of further tables, whose totals were compared with those of the release.
    Nothing is said of how these are described: it has to be the same for all charges.
    """
    several = {identity_of(table): table for table in facts.tables} if facts.others else {}
    asked = {"", *map(identity_of, facts.tables)}
    beside: dict[str, ChargedTable] = {}
    rows: dict[str, tuple[str, str, str]] = {}
    for entry, part in zip(held, parts, strict=True):
        last_of_receipt = facts.receipt is not None and entry is held[-1]
        if last_of_receipt and not several.keys() <= {source.table for source in part}:
            return False
        for source in part:
            charged = _charged_for(entry, source)
            if charged is None:
                return False
            if not last_of_receipt and source.table not in asked:
                if beside.setdefault(source.table, charged) != charged:
                    return False
                continue
            table = several.get(source.table) if several else facts.table
            if table is None or not _is_described(charged, source, table, own=last_of_receipt):
                return False
            if rows.setdefault(charged.table if several else "", charged.rows) != charged.rows:
                return False
    return True


def _charged_for(entry: Entry, source: Source) -> ChargedTable | None:
    """Return the table that was charged for where a source was measured, if there is one."""
    charged = entry.purpose.tables
    only = charged[0] if len(charged) == 1 and not source.table else None
    return only or entry.purpose.of(source.table)


def _is_described(charged: ChargedTable, source: Source, table: Table, *, own: bool) -> bool:
    """Whether a table is described as it was when it was charged for and measured.

    A charge has the description of what is stored. How columns are described that were measured of
    a view, or of rows that are made of stored ones, is kept with the measurements.
    """
    stored = table.stored
    if charged.schema != stored.fingerprint:
        return not own and unchanged(source, table)
    if table.fingerprint == stored.fingerprint:
        return True
    return table.contributions == stored.contributions and same_columns(source, table)


def _place(entry: Entry | None) -> Earlier | None:
    return None if entry is None else Earlier.of(entry)


def _forged() -> LedgerError:
    return LedgerError(
        "The ledger holds something else for this release: the release was changed.",
        hint="get the folder again from whoever published it.",
    )
