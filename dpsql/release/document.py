"""`release.json`: the facts of a release as plain JSON, and back.

The shapes of its parts are declared here, and msgspec reads them strictly. What is written for
people only, such as the noise and the neighbors in words, is not read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any

import msgspec
import polars as pl

from dpsql.errors import BudgetError, ReleaseFormatError, SchemaError, printable
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.planner.reconstruction.base import EXPECTED
from dpsql.privacy import Purpose, Receipt
from dpsql.release.facts import Earlier, Facts
from dpsql.release.metadata import (
    BudgetPart,
    DocumentPart,
    MechanismPart,
    budget_part,
    mechanism_part,
)
from dpsql.schema.stored import table_from_json, table_to_json

FORMAT = 4
SEVERAL = 5
"""The format of releases of several tables, which earlier versions can't read."""
READ = (2, 3, FORMAT, SEVERAL)
"""What is read: format 2 left rows out of all statements that one of them left out, format 3 knew
neither contexts nor measures among what was measured, format 4 is of one table."""
MAX_BYTES = 2**26
MAX_ABOVE = 1e6
"""Standard errors of `groups_above`."""

_FRACTION = re.compile(r"(0|[1-9][0-9]{0,1999})(/[1-9][0-9]{0,1999})?")

_NOISE_OF_FORMAT_2 = {
    "round(N(0, sigma^2)) added to exact integers: the Gaussian mechanism, rounded afterwards; "
    "variance sigma^2 + 1/12; drawn exactly from AES-256 in counter mode, keyed by the "
    "system": "gaussian",
    "discrete Laplace noise, P(z) in proportion to exp(-|z|/b), added to exact integers: pure "
    "epsilon; variance 1/(2 sinh(1/(2b))^2); drawn exactly from AES-256 in counter mode, keyed by "
    "the system": "laplace",
}
"""What stood in place of a name; the words of that version for good."""


class _Expected(DocumentPart, frozen=True):
    statement: str
    rows: int
    rmse: float | None
    worst_standard_error: float | None


class _PostProcessing(DocumentPart, frozen=True):
    confidence: float | None
    nonnegative: bool
    integers: bool
    groups_above: float | None = None


class _Receipt(DocumentPart, frozen=True):
    id: str
    entry: int
    request: str
    mu_squared: Fraction
    purpose: Purpose


class DescribedColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The description of a column of a frame; see `Release.columns`."""

    column: str
    role: str | None
    variance: str | None
    reason: str | None


class DescribedFile(DocumentPart, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a file in the folder."""

    statement: str | None
    """Whose answers it holds; None if it holds the noisy integers."""
    rows: Annotated[int, msgspec.Meta(ge=0)] = 0
    columns: tuple[DescribedColumn, ...] = ()
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class _Document(DocumentPart, frozen=True, kw_only=True):
    format: int
    created: str
    table: dict[str, Any]
    other_tables: tuple[dict[str, Any], ...] = ()
    """In format 5, of which there is at least one."""
    neighbours: str
    contributions: int
    vintage: str
    statements: dict[str, str]
    expected_error: tuple[_Expected, ...]
    budget: BudgetPart | None
    rows_need_a_value_in: dict[str, tuple[str, ...]] | tuple[str, ...]
    """By statement; in format 2 the same columns for all statements."""
    notes: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    privacy_cost_mu_squared: Fraction
    mechanism: MechanismPart
    post_processing: _PostProcessing
    ledger: _Receipt | None
    rests_also_on: tuple[Earlier, ...]
    versions: dict[str, str]
    files: dict[str, DescribedFile]


# ── writing ────────────────────────────────────────────────────────────────────────────────


def write(facts: Facts, files: Mapping[str, DescribedFile]) -> str:
    """Write facts and what is said of each file, with a checksum of all of it."""
    written = _Document(
        format=SEVERAL if facts.others else FORMAT,
        created=facts.created,
        table=table_to_json(facts.table),
        other_tables=tuple(map(table_to_json, facts.others)),
        neighbours=facts.neighbours,
        contributions=facts.table.contributions,
        vintage=facts.vintage,
        statements=dict(facts.statements),
        expected_error=tuple(_Expected(**row) for row in facts.expected.to_dicts()),
        budget=None if facts.budget is None else budget_part(facts.budget),
        rows_need_a_value_in=dict(facts.guards),
        notes=dict(facts.notes),
        privacy_cost_mu_squared=facts.privacy_cost,
        mechanism=mechanism_part(facts),
        post_processing=_PostProcessing(
            facts.confidence, facts.nonnegative, facts.integers, facts.groups_above
        ),
        ledger=None if facts.receipt is None else _receipt(facts.receipt),
        rests_also_on=facts.earlier,
        versions=dict(facts.versions),
        files=dict(files),
    )
    document = msgspec.json.decode(msgspec.json.encode(written, enc_hook=str))
    if not facts.others:
        del document["other_tables"]
        if document["ledger"] is not None:
            del document["ledger"]["purpose"]["others"]
    return _text({**document, "sha256": _digest(document)})


def _receipt(receipt: Receipt) -> _Receipt:
    return _Receipt(
        receipt.ledger, receipt.seq, receipt.request, receipt.mu_squared, receipt.purpose
    )


def _text(sealed: Mapping[str, Any]) -> str:
    return json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
        if text != _text(document) or document.pop("sha256") != _digest(document):
            raise malformed("release.json was changed")
        found = msgspec.convert(document, _Document, dec_hook=_fraction)
        return _facts(found), found.files
    except (
        KeyError, TypeError, ValueError, OverflowError, RecursionError, BudgetError, SchemaError,
        msgspec.ValidationError, pl.exceptions.PolarsError,
    ):  # fmt: skip
        raise malformed("release.json says something impossible") from None


def malformed(why: str) -> ReleaseFormatError:
    """Word that a release on disk can't be trusted."""
    return ReleaseFormatError(
        f"The release is damaged: {why}.", hint="get the folder again from whoever published it."
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _fraction(kind: type, value: Any) -> Fraction:
    """Read a fraction, the one type that msgspec leaves to us."""
    if kind is not Fraction or type(value) is not str or not _FRACTION.fullmatch(value):
        raise ValueError
    return Fraction(value)


def _facts(document: _Document) -> Facts:
    mechanism, post = document.mechanism, document.post_processing
    expected = msgspec.to_builtins(document.expected_error)
    facts = Facts(
        table=table_from_json(document.table),
        others=tuple(map(table_from_json, document.other_tables)),
        neighbours=printable(document.neighbours),
        statements=document.statements,
        expected=pl.DataFrame(list(expected), schema=EXPECTED),
        budget=None if document.budget is None else document.budget.asked.budget(),
        guards=_guards(document),
        notes=document.notes,
        privacy_cost=document.privacy_cost_mu_squared,
        receipt=None if document.ledger is None else _read_receipt(document.ledger),
        rmse=mechanism.rmse,
        gap=mechanism.certified_gap,
        spaces=mechanism.residual_spaces,
        whole=mechanism.whole_domain,
        objective=mechanism.objective,
        vintage=document.vintage,
        earlier=document.rests_also_on,
        confidence=post.confidence,
        nonnegative=post.nonnegative,
        integers=post.integers,
        groups_above=post.groups_above,
        created=document.created,
        versions=document.versions,
        mechanism=mechanism.name,
        laplace=_is_laplace(mechanism.noise),
        warning=mechanism.warning,
    )
    _check(facts, document)
    return facts


def _is_laplace(noise: str) -> bool:
    return {"gaussian": False, "laplace": True}[_NOISE_OF_FORMAT_2.get(noise, noise)]


def _check(facts: Facts, document: _Document) -> None:
    """Check that what is said of one thing goes with what is said of others."""
    named = facts.mechanism in MECHANISMS if facts.budget is not None else facts.mechanism is None
    if not named or facts.table.contributions != document.contributions:
        raise ValueError
    paths = {table.path for table in facts.tables}
    units = len(facts.tables) == 1 or all(table.unit is not None for table in facts.tables)
    if len(paths) < len(facts.tables) or bool(facts.others) != (document.format == SEVERAL):
        raise ValueError
    charged = 0 if facts.receipt is None else len(facts.receipt.purpose.tables)
    if not units or charged not in {0, len(facts.tables)}:
        raise ValueError
    if facts.groups_above is not None and not 0 <= facts.groups_above <= MAX_ABOVE:
        raise ValueError
    known = EXPECTED if not facts.biased else ("statement", "rows")
    if facts.expected.select(*known).null_count().sum_horizontal()[0]:
        raise ValueError


def _guards(document: _Document) -> dict[str, tuple[str, ...]]:
    found = document.rows_need_a_value_in
    if isinstance(found, dict) != (document.format > 2):
        raise ValueError
    if isinstance(found, tuple):
        return dict.fromkeys(document.statements, found) if found else {}
    return found


def _read_receipt(said: _Receipt) -> Receipt:
    return Receipt(said.id, said.entry, said.request, said.mu_squared, said.purpose)
