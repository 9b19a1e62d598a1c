"""The effect of other budgets: expected errors against the budget.

With the same measurements, noise has a standard deviation that changes with 1/μ (with 1/ε where it
is Laplace noise), so that all errors do: variances are linear in those of the noise. The best
measurements are the same at every budget, as their share of it is what is optimized.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import polars as pl

from dpsql.charts.specs import Curve, Curves, Figure, Panel
from dpsql.errors import BudgetError, printable
from dpsql.privacy import Budget

TIMES = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))
MOST_CURVES = 6
LONGEST_NAME = 40
BY_BUDGET = {
    "budget": pl.String(),
    "times": pl.Float64(),
    "errors": pl.Float64(),
    "rmse": pl.Float64(),
}


def error_by_budget(budget: Budget, rmse: float) -> pl.DataFrame:
    """Return the errors of a plan at multiples of its budget; see `Plan.error_by_budget`.

    Args:
        budget: the plan's.
        rmse: its expected error.
    """
    rows = [
        (str(each), float(each.amount / budget.amount), factor, rmse * factor)
        for each, factor in _multiples(budget)
    ]
    return pl.DataFrame(rows, schema=BY_BUDGET, orient="row")


def tradeoff_figure(budget: Budget, errors: pl.DataFrame) -> Figure | None:
    """Draw each statement's RMSE against the budget; None where all errors are 0 or unknown.

    Args:
        budget: the plan's.
        errors: what it expects, see `Plan.expected_error`.
    """
    known = errors.filter((pl.col("rmse") > 0) & pl.col("rmse").is_finite())
    if known.is_empty():
        return None
    shown = known[sorted(_largest(known["rmse"].to_list()))]
    others = _multiples(budget)
    drawn = [
        Curve(_unlike(name, i), [(float(each.amount), rmse * factor) for each, factor in others])
        for i, (name, rmse) in enumerate(shown.select("statement", "rmse").rows())
    ]
    form = {"rho": "ρ", "mu": "μ", "epsilon": "ε"}[budget.form]
    at = f" at {str(budget).partition(', ')[2]}" if budget.form == "epsilon" else ""
    notes = (
        (f"the {MOST_CURVES} of {errors.height:,} statements with the largest errors",)
        if known.height > MOST_CURVES
        else ()
    )
    lines = Curves(value="expected RMSE (rows)", by=f"{form}{at}", curves=drawn)
    twice = next((f for each, f in others if each.amount == 2 * budget.amount), None)
    words = "Lines: the expected error of each statement by the budget."
    if twice is not None:
        words += f" Twice {form} would divide all errors by {1 / twice:.3g}."
    return Figure((Panel(lines),), words, notes)


def _multiples(budget: Budget) -> list[tuple[Budget, float]]:
    """Return other budgets in the form of this one, and by what they multiply errors."""
    factors = []
    for times in TIMES:
        tail = {} if budget.delta is None else {"delta": budget.delta}
        try:
            each = Budget(**{budget.form: times * budget.amount}, **tail)
            each = each.setting_aside(budget.key_delta)
        except BudgetError:
            continue  # too small or too large to be one
        factor = 1 / times if budget.pure else _root(budget.mu_squared / each.mu_squared)
        factors.append((each, float(factor)))
    return factors


def _root(value: Fraction) -> float:
    return math.sqrt(value.numerator / value.denominator)


def _largest(errors: Sequence[float]) -> list[int]:
    return sorted(range(len(errors)), key=lambda i: -errors[i])[:MOST_CURVES]


def _unlike(name: str, number: int) -> str:
    """Cut a long name, so that no two become the same."""
    said = printable(name)
    return said if len(said) <= LONGEST_NAME else f"{said[: LONGEST_NAME - 4]}… {number + 1}"
