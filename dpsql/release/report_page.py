"""The page of a release: what `dpsql/report/` writes, made of facts and answers.

A page is read by people, and it has to open in any browser. So of large answers it has the first
rows, and no file that would make it larger than some megabytes; each time it says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from dpsql.account import amount
from dpsql.errors import printable
from dpsql.privacy import Ledger
from dpsql.release import metadata
from dpsql.release.disk import plain_names
from dpsql.release.exports import METADATA, as_text
from dpsql.release.facts import Facts, now
from dpsql.release.marks import DIVIDED, NOISE, SUPPRESSED, SupportedFrames
from dpsql.release.publication import Style
from dpsql.release.report_answers import Answer, Room
from dpsql.release.summary import budget_forms, how_measured, limits, rested_on
from dpsql.report.page import Cell, Column, Download, Page, Section, Shown
from dpsql.report.promise import not_protected, promised

LONGEST_SQL = 20_000
DOMINATED = 0.5
"""The share of values that are noise from which on a statement has a warning."""
LEGEND = {
    NOISE: "The value is less than its own standard error away from zero: it may as well be zero.",
    DIVIDED: "The value was divided by one that may be zero but for noise: it says nothing.",
    SUPPRESSED: "The value rests on too few rows, by their noisy number, and is left out.",
}
_OVERVIEW = (
    "statement",
    "rows",
    "standard error",
    "may as well be zero",
)


@dataclass(slots=True)
class _Draft:
    """The parts of a page, collected while statements are told one by one."""

    room: Room
    told: list[Section] = field(default_factory=list)
    overview: list[list[Cell]] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    dominated: list[str] = field(default_factory=list)
    documents: dict[str, object] = field(default_factory=dict)


def page_of(
    facts: Facts,
    frames: SupportedFrames,
    measurements: bytes,
    title: str | None,
    account: Ledger | None,
    most: int,
    style: Style = "plain",
) -> Page:
    """Make the page of a release.

    Args:
        facts: what is public about it.
        frames: its answers.
        measurements: the noisy integers, of which a digest is told.
        title: what it is called.
        account: the ledger with its charge, if what is left is told.
        most: bytes, of which files get their share.
        style: how tables are written.
    """
    draft = _Draft(Room(max(len(frames.names), 1), most))
    for number, (name, file) in enumerate(plain_names(frames.names).items(), 1):
        answer = Answer(facts, frames, name, file, draft.room, style)
        _tell(draft, facts, answer, f"answer-{number}")
    tables = facts.tables
    earlier = {entry.seq: entry.mu_squared for entry in facts.earlier}
    document = {**metadata.common(facts), "statements": draft.documents}
    return Page(
        title=title or f"Release of {', '.join(table.shown for table in tables)}",
        subtitle=f"Answers with differential privacy, made on {_moment(facts.created)}",
        key_facts=_key_facts(facts),
        warnings=_warnings(facts, draft.dominated),
        promised=promised(facts.budget, tables, facts.neighbours, list(earlier.values())),
        not_protected=not_protected(tables),
        budget=_budget(facts, account),
        spent=_spent(account),
        overview=Shown(_overview_columns(), draft.overview, len(draft.overview)),
        statements=draft.told,
        provenance=_provenance(facts, measurements),
        downloads=[Download(METADATA, "JSON", "application/json", as_text(document).encode())],
        legend=[
            (mark, said)
            for mark, said in LEGEND.items()
            if mark in draft.marks and style == "plain"
        ],
    )


def _moment(written: str) -> str:
    """Write a time of the form 2026-05-04T03:02:01+00:00 as people read it."""
    return written.replace("T", " ").replace("+00:00", " UTC")


def _tell(draft: _Draft, facts: Facts, answer: Answer, anchor: str) -> None:
    """Tell of one statement."""
    name = answer.name
    sql = facts.statements.get(name, "")
    cut = [] if len(sql) <= LONGEST_SQL else [f"Of its SQL the first {LONGEST_SQL:,} characters."]
    noisy, of = answer.noisy, answer.values
    warnings = list(answer.warnings)
    if of and noisy >= DOMINATED * of:
        draft.dominated.append(name)
        warnings.append(
            f"Noise dominates: {noisy:,} of {of:,} values can't be told from zero, or say nothing. "
            "Look at the larger ones, and at totals."
        )
    errors = answer.errors
    downloads = answer.downloads()
    draft.told.append(
        Section(
            name=name,
            anchor=anchor,
            sql=sql[:LONGEST_SQL],
            errors=[(f"standard error of {column}", said) for column, said in errors.items()],
            notes=facts.notes.get(name, ()),
            warnings=warnings,
            shown=answer.shown,
            footnotes=answer.footnotes,
            picture=answer.picture(),
            left_out=[*cut, *answer.left_out],
            columns=answer.meanings,
            downloads=downloads,
        )
    )
    named = [f"{column} {said}" for column, said in errors.items()]
    told = named if len(named) > 1 else [*errors.values()]
    draft.overview.append(
        [
            Cell(name),
            Cell("not known" if answer.rows is None else f"{answer.rows:,}"),
            Cell("; ".join(told) or "not known"),
            Cell(f"{noisy:,} of {of:,} values" if of else ""),
        ]
    )
    draft.marks |= answer.marks
    draft.documents[name] = answer.document


def _overview_columns() -> list[Column]:
    return [Column(name, name == "rows", name == "statement") for name in _OVERVIEW]


def _key_facts(facts: Facts) -> list[tuple[str, str]]:
    charged = "nothing" if facts.budget is None else str(facts.budget)
    return [
        ("statements", f"{len(facts.statements):,}"),
        ("neighbours", facts.neighbours),
        ("charged", charged),
    ]


def _warnings(facts: Facts, dominated: Sequence[str]) -> list[str]:
    found = [] if facts.warning is None else [printable(facts.warning)]
    if facts.biased:
        found.append(
            "Answers are biased by an amount that is not known: they were fitted to what was "
            "measured, and have no standard errors."
        )
    if dominated:
        names = ", ".join(dominated[:10])
        more = f" and {len(dominated) - 10:,} more" if len(dominated) > 10 else ""
        found.append(f"Noise dominates the answers to {names}{more}.")
    if facts.suppress_below is not None:
        found.append(f"Values that rest on fewer than {facts.suppress_below:g} rows are left out.")
    return found


def _budget(facts: Facts, account: Ledger | None) -> list[tuple[str, str]]:
    if facts.budget is None:
        found = [("charged", "nothing: all follows from earlier releases or from declarations")]
    else:
        found = [("charged", f"{facts.budget} (as asked)")]
        found.append(("the same as", "; ".join(budget_forms(facts.budget))))
    if account is None:
        return [*found, ("left", "not told here: the ledger was not at hand")]
    found.append(("spent until now", amount(account.spent, up=True)))
    if account.total is None:
        return [*found, ("total", "not fixed: spending is recorded and not limited")]
    left = account.total - account.spent
    found.append(("left", amount(left, up=False) if left > 0 else "nothing"))
    return [*found, ("total", amount(account.total, up=True)), ("as of", now())]


def _spent(account: Ledger | None) -> float | None:
    if account is None or not account.total:
        return None
    return min(float(account.spent / account.total), 1.0)


def _provenance(facts: Facts, measurements: bytes) -> list[tuple[str, str]]:
    found = [*how_measured(facts), *limits(facts)]
    if facts.receipt is not None:
        receipt = facts.receipt
        found.append(("ledger", f"entry {receipt.seq} of ledger {receipt.ledger}"))
        found.append(("request", receipt.request))
    found += [("rests also on", rested_on(entry)) for entry in dict.fromkeys(facts.earlier)]
    digest = hashlib.sha256(measurements).hexdigest()
    return [*found, ("SHA-256 of the noisy integers", digest)]
