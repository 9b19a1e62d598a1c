"""Metadata for answers that are taken elsewhere: what was asked, and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import msgspec
import polars as pl

from dpsql.errors import printable
from dpsql.planner.plans.traits import MECHANISMS
from dpsql.privacy import Budget
from dpsql.release.confidence import CONFIDENCE
from dpsql.release.facts import Facts
from dpsql.release.forms import sql_type
from dpsql.release.summary import DELTAS
from dpsql.schema import Table

WHAT = "answers of a dpsql release"
"""What a document of metadata begins with."""
MADE_UP = "rows made up of a dpsql release: nobody is in them"
"""What that of synthetic rows does."""
FORMAT = 1


class DocumentPart(msgspec.Struct, frozen=True):
    """A part of a document; each has at least these names."""


class _Asked(DocumentPart, frozen=True):
    form: Literal["rho", "mu", "epsilon"]
    amount: Fraction
    delta: Fraction | None

    def budget(self) -> Budget:
        if self.form == "epsilon" and self.delta is not None:
            return Budget(epsilon=self.amount, delta=self.delta)
        if self.form == "epsilon":
            raise ValueError
        return Budget(mu=self.amount) if self.form == "mu" else Budget(rho=self.amount)


class BudgetPart(DocumentPart, frozen=True):
    """The amount that was charged, in all forms."""

    asked: _Asked
    rho: float
    rho_exact: Fraction
    mu: float
    epsilon_at_delta: dict[str, float]


class MechanismPart(DocumentPart, frozen=True, kw_only=True):
    """The mechanism that measured, and how well it did."""

    name: str | None
    title: str | None
    noise: str
    """`gaussian` or `laplace`."""
    noise_in_words: str = ""
    objective: str
    rmse: float | None
    certified_gap: float | None
    warning: str | None = None
    residual_spaces: int
    whole_domain: bool
    invariants: tuple[()] = ()


def mechanism_part(facts: Facts) -> MechanismPart:
    """Say what measured, and how well."""
    return MechanismPart(
        name=facts.mechanism,
        title=None if facts.mechanism is None else MECHANISMS[facts.mechanism].title,
        noise="laplace" if facts.laplace else "gaussian",
        noise_in_words=facts.noise,
        objective=facts.objective,
        rmse=facts.rmse,
        certified_gap=facts.gap,
        warning=facts.warning,
        residual_spaces=facts.spaces,
        whole_domain=facts.whole,
    )


def budget_part(budget: Budget) -> BudgetPart:
    """Say what was charged, in all forms."""
    deltas = dict.fromkeys((*DELTAS, *([] if budget.delta is None else [budget.delta])))
    return BudgetPart(
        _Asked(budget.form, budget.amount, budget.delta),
        rho=float(budget.rho),
        rho_exact=budget.rho,
        mu=budget.mu,
        epsilon_at_delta={f"{float(d):g}": budget.epsilon_at(d) for d in deltas},
    )


class Described(Protocol):
    """Says what columns are."""

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a statement's frame; see `Release.columns`."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a column of a frame."""

    column: str
    type: str
    """In DuckDB."""
    role: str
    """`key`, `value` or `adjusted`, as `Release.columns` has it, or `variance`, `standard_error`,
    `lower`, `upper` of a value."""
    of: str | None
    """The value that it belongs to; None for keys and values."""
    meaning: str
    """In words."""


def meanings(
    types: Mapping[str, pl.DataType], described: pl.DataFrame, confidence: float | None
) -> list[Meaning]:
    """Say of each column of a frame what it means.

    Args:
        types: column → its type, in order.
        described: what is said of keys and values, see `Release.columns`.
        confidence: that of intervals, if there are any.
    """
    said = {row["column"]: row for row in described.iter_rows(named=True)}
    beside = {
        f"{name}_{role}": (role, name)
        for name, row in said.items()
        if row["role"] == "value"
        for role in ("variance", "standard_error", "lower", "upper")
    }
    found = []
    for column, dtype in types.items():
        if column in said:  # an analyst may call a column so, too
            row = said[column]
            of = column.removesuffix("_adjusted") if row["role"] == "adjusted" else None
            own = row["role"], of, _of_value(row, _beside(column, types))
        else:
            role, name = beside.get(column, ("value", column))
            own = role, name, _of_noise(role, name, confidence or CONFIDENCE)
        found.append(Meaning(column, sql_type(dtype), *own))
    return found


def _beside(value: str, types: Mapping[str, pl.DataType]) -> str:
    """Say which column tells the noise in a value."""
    return "standard error" if f"{value}_standard_error" in types else "variance"


def _of_value(row: Mapping[str, str | None], beside: str) -> str:
    kinds = {
        "exact": f"computed from noisy counts; the {beside} beside it is exact",
        "approximate": f"computed from noisy counts; the {beside} beside it is approximate",
        "interval": "read from noisy counts; the bounds beside it are those of its interval",
        "none": "computed from noisy counts; no variance is known",
    }
    if row["role"] == "key":
        text = "public: the group that the row is about, not an answer"
    else:
        text = kinds.get(row["variance"] or "", kinds["none"])
    return f"{text}; {row['reason']}" if row["reason"] else text


def _of_noise(role: str, name: str, confidence: float) -> str:
    if role == "standard_error":
        return f"the standard error of the noise in {printable(name)}, in its unit"
    if role == "variance":
        return f"the variance of the noise in {printable(name)}, in squares of its unit"
    return (
        f"the {role} bound of {printable(name)}: it lies between both with a probability of "
        f"{confidence:g}"
    )


def common(facts: Facts) -> dict[str, Any]:
    """Return what is so of all statements, as JSON has it."""
    receipt = facts.receipt
    budget = None if facts.budget is None else budget_part(facts.budget)
    found = {
        "what": WHAT,
        "format": FORMAT,
        "created": facts.created,
        "tables": [_table(table) for table in facts.tables],
        "vintage": facts.vintage,
        "neighbours": facts.neighbours,
        "budget": budget,
        "mechanism": mechanism_part(facts),
        "post_processing": {
            "confidence": facts.confidence,
            "nonnegative": facts.nonnegative,
            "integers": facts.integers,
            "groups_above": facts.groups_above,
            "suppress_below": facts.suppress_below,
        },
        "ledger": None if receipt is None else {"id": receipt.ledger, "entry": receipt.seq},
        "rests_also_on": [{"entry": e.seq, "time": e.time} for e in facts.earlier],
        "versions": dict(facts.versions),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found, enc_hook=str))
    return plain


def _table(table: Table) -> dict[str, Any]:
    unit = table.unit
    return {
        "name": table.shown,
        "unit": None if unit is None else unit.name,
        "rows_that_count_of_a_unit": None if unit is None else unit.max_rows,
    }


def of_statement(
    facts: Facts, frames: Described, name: str, types: Mapping[str, pl.DataType]
) -> dict[str, Any]:
    """Return what is so of one statement, as JSON has it."""
    described = frames.columns(name)
    reasons = {row["column"]: row["variance"] for row in described.iter_rows(named=True)}
    columns: Sequence[Meaning] = meanings(types, described, facts.confidence)
    return {
        "sql": facts.statements[name],
        "notes": list(facts.notes.get(name, ())),
        "rows_need_a_value_in": list(facts.guards.get(name, ())),
        "columns": [{**asdict(c), "variance": reasons.get(c.column)} for c in columns],
    }


def of_file(name: str, rows: int, digest: str) -> dict[str, Any]:
    """Return what is so of a file of rows, as JSON has it."""
    return {"file": name, "rows": rows, "sha256": digest}


def of_answer(
    facts: Facts, frames: Described, name: str, frame: pl.DataFrame, file: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document beside one answer in a file of its own.

    Args:
        facts: of the release.
        frames: describes its columns.
        name: the statement.
        frame: its answer.
        file: what is so of the file.
    """
    statement = {**file, **of_statement(facts, frames, name, frame.schema)}
    return {**common(facts), "statements": {name: statement}}


def of_made_up(
    facts: Facts, frame: pl.DataFrame, options: Mapping[str, Any], file: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the document beside synthetic rows.

    Args:
        facts: of the release.
        frame: the rows.
        options: how they were made.
        file: what is so of the file.
    """
    columns = [{"column": n, "type": sql_type(dtype)} for n, dtype in frame.schema.items()]
    return {**common(facts), "what": MADE_UP, **file, "made": dict(options), "columns": columns}
