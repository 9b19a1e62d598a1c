"""What identifies a request: digests of what is asked, of which data, for whom."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from dpsql.errors import SchemaError
from dpsql.hints import option
from dpsql.planner.mechanisms.base import DEFAULT_TOLERANCE, ObjectiveName, Residuals
from dpsql.planner.plans.traits import QUERYSMASHER
from dpsql.privacy import Budget, Purpose
from dpsql.privacy.purpose import EACH_ROW
from dpsql.schema import Table
from dpsql.schema.units import ResolvedUnit
from dpsql.session.declared import Statements, named

MAX_VINTAGE = 200


@dataclass(frozen=True, slots=True)
class How:
    """How statements are to be answered, as far as it decides what is measured."""

    budget: Budget | None
    targets: Mapping[str, float] | None
    objective: ObjectiveName
    weights: Mapping[str, float] | None
    reuse: bool
    tolerance: float = DEFAULT_TOLERANCE
    residuals: Residuals = "weighted"
    mechanism: str = QUERYSMASHER
    at_most: Budget | None = None
    """With targets: the most that may be charged. It decides nothing else."""
    accept_gap: bool = False
    """Whether a plan may lose accuracy that it need not: it decides nothing but that."""
    groups_above: float | None = None
    """How many standard errors the noisy count of a group must be above zero to be answered."""
    assume: Mapping[str, float] | None = None
    """With targets: the rows for which those of averages and the like hold."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Statements, and how they are to be answered."""

    statements: tuple[tuple[str, str], ...]
    """Name and text of each."""
    how: How

    @classmethod
    def of(cls, statements: Statements, how: How) -> Asked:
        """Name the statements.

        Raises:
            SqlError: they are no texts.
        """
        return cls(tuple(named(statements)), how)

    @property
    def digest(self) -> str:
        """A hash of all of it but the amount, which is in the ledger."""
        how = self.how
        options: list[object] = [how.objective, how.weights or {}, how.targets, how.reuse]
        if how.mechanism != QUERYSMASHER:  # what was asked before there were others stays the same
            options.append(how.mechanism)
        if how.budget is not None and how.budget.pure:  # else the noise has another law
            options.append("pure")
        if how.groups_above is not None:
            options.append({"groups_above": float(how.groups_above)})  # 2 and 2.0 ask the same
        if how.targets is not None and how.assume is not None:
            options.append({"assume": how.assume})
        return _digest([self.statements, *options])


@dataclass(frozen=True, slots=True)
class State:
    """Which rows there are: measurements of different states are never put together."""

    vintage: str
    """The owner's name for them."""
    data: str = ""
    """Which database they are in, where several share a ledger; see `dpsql.privacy.data_id`."""

    @property
    def digest(self) -> str:
        """A hash; of the vintage alone for a database that its ledger stands beside."""
        return _digest([self.vintage, self.data] if self.data else self.vintage)


def purpose(asked: Asked, table: Table, state: State, plan: str) -> Purpose:
    """Return what a charge is for, in digests.

    Args:
        asked: what is asked.
        table: of which table.
        state: of which state of its rows.
        plan: the digest of the plan.
    """
    path = [part.lower() for part in (table.path or (table.name,))]
    return Purpose(
        plan=plan,
        script=asked.digest,
        # The first part is the database, which is named as its file is; that may be moved.
        table=_digest(path[1:] or path),
        schema=table.fingerprint,
        unit=EACH_ROW if table.unit is None else _digest(_unit(table.unit)),
        vintage=state.digest,
    )


def _unit(unit: ResolvedUnit) -> object:
    """Say whose rows are protected together.

    How many count is no part of that: amounts for 3 rows of a person and for 5 are both amounts
    for a person, and add up.
    """
    return [unit.column, [[j.column, list(j.path[1:]), j.key] for j in unit.joins]]


def check_vintage(vintage: str) -> None:
    """Refuse a vintage that is no short printable text.

    Raises:
        SchemaError: it isn't.
    """
    text = isinstance(vintage, str) and len(vintage) <= MAX_VINTAGE
    if not text or not (vintage.isprintable() or not vintage):
        raise SchemaError(
            "A vintage is a short text that names a state of the data.",
            hint="for example " + option("vintage", "2026-Q4") + ".",
        )


def _digest(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
