"""`release.json`: the facts of a release as plain JSON, and back."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import polars as pl

from dpsql.errors import BudgetError, ReleaseFormatError, SchemaError
from dpsql.planner.plans.expected import EXPECTED
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.privacy import Budget, Purpose, Receipt
from dpsql.release.facts import LAPLACE_NOISE, Earlier, Facts
from dpsql.release.summary import DELTAS
from dpsql.schema.document import table_from_json, table_to_json

FORMAT = 3
READ = (2, FORMAT)
"""What is read: format 2 left rows out of all statements that one of them left out."""
MAX_BYTES = 2**26

_FRACTION = re.compile(r"(0|[1-9][0-9]{0,1999})(/[1-9][0-9]{0,1999})?")


def write(facts: Facts, files: Mapping[str, Any]) -> str:
    """Write facts and what is said of each file, with a checksum of all of it."""
    document = {
        "format": FORMAT,
        "created": facts.created,
        "table": table_to_json(facts.table),
        "neighbours": facts.neighbours,
        "contributions": facts.table.contributions,
        "vintage": facts.vintage,
        "statements": dict(facts.statements),
        "expected_error": facts.expected.to_dicts(),
        "budget": None if facts.budget is None else _budget(facts.budget),
        "rows_need_a_value_in": {name: list(of) for name, of in facts.guards.items()},
        "notes": {name: list(notes) for name, notes in facts.notes.items()},
        "privacy_cost_mu_squared": str(facts.privacy_cost),
        "mechanism": {
            "name": facts.mechanism,
            "title": None if facts.mechanism is None else MECHANISMS[facts.mechanism].title,
            "noise": facts.noise,
            "objective": facts.objective,
            "rmse": facts.rmse,
            "certified_gap": facts.gap,
            "warning": facts.warning,
            "residual_spaces": facts.spaces,
            "whole_domain": facts.whole,
            "invariants": [],
        },
        "post_processing": {
            "confidence": facts.confidence,
            "nonnegative": facts.nonnegative,
            "integers": facts.integers,
        },
        "ledger": None if facts.receipt is None else _receipt(facts.receipt),
        "rests_also_on": [
            {
                "entry": e.seq,
                "request": e.request,
                "mu_squared": str(e.mu_squared),
                "time": e.time,
            }
            for e in facts.earlier
        ],
        "versions": dict(facts.versions),
        "files": dict(files),
    }
    return _text({**document, "sha256": _digest(document)})


def _text(sealed: Mapping[str, Any]) -> str:
    return json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _budget(budget: Budget) -> dict[str, Any]:
    deltas = dict.fromkeys((*DELTAS, *([] if budget.delta is None else [budget.delta])))
    return {
        "asked": {
            "form": budget.form,
            "amount": str(budget.amount),
            "delta": None if budget.delta is None else str(budget.delta),
        },
        "rho": float(budget.rho),
        "rho_exact": str(budget.rho),
        "mu": budget.mu,
        "epsilon_at_delta": {f"{float(d):g}": budget.epsilon_at(d) for d in deltas},
    }


def _receipt(receipt: Receipt) -> dict[str, Any]:
    purpose = receipt.purpose
    return {
        "id": receipt.ledger,
        "entry": receipt.seq,
        "request": receipt.request,
        "mu_squared": str(receipt.mu_squared),
        "purpose": {name: getattr(purpose, name) for name in PURPOSE},
    }


PURPOSE = ("plan", "script", "table", "schema", "unit", "vintage")


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read(text: str) -> tuple[Facts, dict[str, Any]]:
    """Read facts, and what is said of each file.

    Raises:
        ReleaseFormatError: it is no such document, or was changed.
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
        return _facts(document), _typed(document["files"], dict)
    except (
        KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError,
        BudgetError, SchemaError, pl.exceptions.PolarsError,
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


def _typed(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError
    return value


def _number(value: Any) -> float:
    number = float(_typed(value, int, float))
    if not math.isfinite(number):
        raise ValueError
    return number


def _fraction(value: Any) -> Fraction:
    if not _FRACTION.fullmatch(_typed(value, str)):
        raise ValueError
    return Fraction(value)


def _texts(value: Any) -> dict[str, str]:
    return {_typed(k, str): _typed(v, str) for k, v in _typed(value, dict).items()}


def _facts(document: Mapping[str, Any]) -> Facts:
    mechanism, post = document["mechanism"], document["post_processing"]
    gap, confidence = mechanism["certified_gap"], post["confidence"]
    warning = mechanism.get("warning")  # none in those of earlier versions
    facts = Facts(
        table=table_from_json(document["table"]),
        statements=_texts(document["statements"]),
        expected=pl.DataFrame(_typed(document["expected_error"], list), schema=EXPECTED),
        budget=_read_budget(document["budget"]),
        guards=_guards(document),
        notes={
            _typed(name, str): tuple(_typed(note, str) for note in _typed(notes, list))
            for name, notes in _typed(document.get("notes", {}), dict).items()
        },
        privacy_cost=_fraction(document["privacy_cost_mu_squared"]),
        receipt=_read_receipt(document["ledger"]),
        rmse=None if mechanism["rmse"] is None else _number(mechanism["rmse"]),
        gap=None if gap is None else _number(gap),
        spaces=_typed(mechanism["residual_spaces"], int),
        whole=_typed(mechanism["whole_domain"], bool),
        objective=_typed(mechanism["objective"], str),
        vintage=_typed(document["vintage"], str),
        earlier=tuple(_read_earlier(item) for item in _typed(document["rests_also_on"], list)),
        confidence=None if confidence is None else _number(confidence),
        nonnegative=_typed(post["nonnegative"], bool),
        integers=_typed(post["integers"], bool),
        created=_typed(document["created"], str),
        versions=_texts(document["versions"]),
        mechanism=mechanism["name"],
        laplace=mechanism["noise"] == LAPLACE_NOISE,
        warning=None if warning is None else _typed(warning, str),
    )
    named = facts.mechanism in MECHANISMS if facts.budget is not None else facts.mechanism is None
    if not named or facts.noise != mechanism["noise"] or facts.neighbours != document["neighbours"]:
        raise ValueError
    known = EXPECTED if not facts.adaptive else ("statement", "rows")
    if facts.expected.select(*known).null_count().sum_horizontal()[0]:
        raise ValueError
    return facts


def _guards(document: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found = document["rows_need_a_value_in"]
    if document["format"] < FORMAT:
        found = dict.fromkeys(document["statements"], found) if found else {}
    return {
        _typed(name, str): tuple(_typed(column, str) for column in _typed(of, list))
        for name, of in _typed(found, dict).items()
    }


def _read_budget(value: Any) -> Budget | None:
    if value is None:
        return None
    asked = value["asked"]
    form, amount = asked["form"], _fraction(asked["amount"])
    if form == "epsilon":
        return Budget(epsilon=amount, delta=_fraction(asked["delta"]))
    if form == "mu":
        return Budget(mu=amount)
    if form != "rho":
        raise ValueError
    return Budget(rho=amount)


def _read_receipt(value: Any) -> Receipt | None:
    if value is None:
        return None
    purpose = Purpose(**{name: _typed(value["purpose"][name], str) for name in PURPOSE})
    return Receipt(
        _typed(value["id"], str),
        _typed(value["entry"], int),
        _typed(value["request"], str),
        _fraction(value["mu_squared"]),
        purpose,
    )


def _read_earlier(value: Any) -> Earlier:
    return Earlier(
        _typed(value["entry"], int),
        _typed(value["request"], str),
        _fraction(value["mu_squared"]),
        _typed(value["time"], str),
    )
