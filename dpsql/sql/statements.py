"""Statements of a script: their weights when planned together, and errors that name one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from dpsql.calls import MARGINAL
from dpsql.errors import SqlError, printable, shown
from dpsql.hints import Hint, option
from dpsql.schema.names import folded

P = ParamSpec("P")
T = TypeVar("T")


def naming(name: str, several: bool, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Take one step with one of several statements; an error says with which."""
    try:
        return step(*args, **kwargs)
    except SqlError as error:
        error.statement = printable(name) if several else None
        raise


# ── Weights ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Importance:
    """The weight of each answer of each statement: its variance is multiplied by that.

    Usually all answers count alike, so that a table of many groups has most of the error, and gets
    most of the budget. If each table counts alike, the weight of a statement is divided among the
    groups of each of its grouping sets, and the mean variance of a table counts.
    """

    weights: Mapping[str, float]
    """Statement → what is written, or given for it; 1 is usual."""
    by_table: bool = False
    wherever: bool = False
    """Whether averages are to be exact wherever they lie, and not on average of that."""

    @classmethod
    def of(
        cls, written: Mapping[str, float], given: Mapping[str, float] | str | None
    ) -> Importance:
        """Put what is given before what the statements say.

        Args:
            written: statement → the weight in its text.
            given: statement → weight; or `MARGINAL`, which leaves what is written.

        Raises:
            SqlError: a weight is given for an unknown statement, or is not a positive number.
        """
        if isinstance(given, str) and given == MARGINAL:
            return cls(dict(written), by_table=True)
        names = {folded(name): name for name in written}
        if given is not None and not isinstance(given, Mapping):
            of = shown(given) if isinstance(given, str) else f"a {type(given).__name__}"
            raise SqlError(
                f"Weights map statements to numbers, they can't be {of}.",
                hint="for example "
                + option("weights", {next(iter(written)): 5})
                + ", or "
                + Hint(f'weights="{MARGINAL}"', f"--weight {MARGINAL}")
                + ", with which each table of answers counts alike.",
            )
        weights = dict(written)
        for name, weight in (given or {}).items():
            good = isinstance(weight, (int, float)) and not isinstance(weight, bool)
            if not isinstance(name, str) or folded(name) not in names:
                raise SqlError(
                    f"There is no statement {printable(str(name))!r} to give a weight to.",
                    hint=f"the statements are {', '.join(list(names.values())[:10])}.",
                )
            if not good or not 1e-6 <= weight <= 1e6:
                raise SqlError(
                    f"The weight {weight!r} of {printable(name)} is not a positive number.",
                    hint="use numbers from 1e-6 to 1e6; 1 is usual.",
                )
            weights[names[folded(name)]] = float(weight)
        return cls(weights)

    def each(self, statement: str, groups: int) -> float:
        """Return the weight of one answer of a table with so many groups."""
        weight = self.weights[statement]
        return weight / max(1, groups) if self.by_table else weight
