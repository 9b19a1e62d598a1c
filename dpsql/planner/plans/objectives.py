"""Other objectives: the largest variance, and the least budget that meets given errors.

Let every answer of family f be allowed the variance l_f at privacy cost 1. For any weights w on
the families, a plan of cost C has Σ_f w_f Σ_q Var_q >= E(w)/C with E(w) the least total weighted
error, so that no plan meets the limits below

    C >= E(w) / Σ_f w_f n_f l_f .

The best weights make both sides equal if the answers of a family vary alike. They are found by
raising the weights of families that are too noisy and planning again; every round gives a plan
and a lower bound. Where they vary unequally, as running totals do, each answer needs a weight w_q
of its own, with Σ w_q l_f for Σ w_f n_f l_f. Small domains are planned so, at once: see
`strategies.minimax`. Families without a limit take no part in that. (Fitness for use: Xiao et al.,
"Optimizing fitness-for-use of differentially private linear queries", VLDB 2021; the largest
variance: ResidualPlanner, arXiv 2305.08175, 5.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpsql.errors import InternalError, WorkloadError
from dpsql.hints import option
from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import least, significant
from dpsql.planner.plans.plan import Objective, Plan
from dpsql.planner.reconstruction.base import LARGE
from dpsql.planner.shares import total_error
from dpsql.planner.strategies import minimax
from dpsql.privacy import Budget
from dpsql.privacy.budget import LARGEST_MU_SQUARED, SMALLEST_MU_SQUARED
from dpsql.workload import Workload
from dpsql.workload.workload import EQUAL, joint_cells, touched, written_out

Planner = Callable[[Workload, Budget, Plan | None], Plan]
"""Plans a workload; with the references of a plan for other weights, if one is given."""

ROUNDS = 25
CLOSE = 1e-3
"""The rounds end when the bounds are this close, or the plan gets no better any more."""
ENOUGH = 2 * CLOSE
"""Weights of answers that lead so near to the bound are not compared with those of families."""
STEP = 1.3
"""Weights are raised by this power of how far a family is from its limit."""
SMALLEST_WEIGHT = 1e-9
"""Relative to the largest one."""
SHARE = 3e-3
"""Weight of families without a target, in √(privacy cost), relative to those that have one."""
BINDING = 0.98
_UNIT = Budget(mu=1)
_MARGIN = 1e-12
"""Larger than what processors differ by."""


@dataclass(frozen=True, slots=True)
class _Found:
    weighted: Workload
    """The queries with the weights that were found."""
    plan: Plan
    """At privacy cost 1."""
    ratios: list[float]
    """Each family's largest variance in units of its limit."""
    bound: float
    """No plan meets the limits at a smaller privacy cost."""

    @property
    def needed(self) -> float:
        """The privacy cost at which this plan meets all limits."""
        return max(self.ratios)


def least_largest(workload: Workload, budget: Budget, planner: Planner, whole: bool) -> Plan:
    """Plan so that the largest weighted variance of any answer is as small as possible.

    Args:
        workload: what to answer.
        budget: what may be spent.
        planner: plans for the least total.
        whole: whether the whole domain may be planned at once.
    """
    limits = [1 / family.weight for family in workload.families]
    start = [family.weight for family in workload.families]
    weighing = _find(workload, limits, start, planner, whole)
    fitted = planner(weighing.weighted, budget, weighing.plan)
    gap = weighing.needed / weighing.bound - 1
    return reported(workload, fitted, limits, "least largest variance", gap)


def least_budget(
    workload: Workload, targets: Mapping[str, float], planner: Planner, whole: bool
) -> Plan:
    """Find the least budget at which no answer's standard error is above its target.

    Families without a target get a small share besides, so that they are answered at all.

    Args:
        workload: what to answer.
        targets: family name → the largest standard error that its answers may have.
        planner: plans for the least total.
        whole: whether the whole domain may be planned at once.

    Raises:
        WorkloadError: a target is for no family, not a positive number, or can't be met.
    """
    limits = limits_of(workload, targets)
    asked = workload.weighted([None if limit is None else 1.0 for limit in limits])
    given = [limit for limit in limits if limit is not None]
    start = [1 / (limit * max(1, f.count)) for limit, f in zip(given, asked.families, strict=True)]
    weighing = _find(asked, given, start, planner, whole)
    weighted = _with_the_others(workload, limits, weighing, planner)
    mu_squared = weighing.needed
    while True:
        budget = rounded_up(mu_squared)
        fitted = planner(weighted, budget, weighing.plan)
        excess = max(ratios_of(fitted, workload, limits))
        if excess <= 1:
            gap = float(budget.mu_squared) / weighing.bound - 1
            return reported(workload, fitted, limits, "least budget for the targets", gap)
        mu_squared = float(budget.mu_squared) * excess * (1 + 1e-6)


def limits_of(workload: Workload, targets: Mapping[str, float]) -> list[float | None]:
    """Return the largest variance that each family's answers may have; None without a target.

    Raises:
        WorkloadError: a target is for no family, or not a positive number.
    """
    names = {family.name for family in workload.families}
    if not isinstance(targets, Mapping) or not targets:
        raise WorkloadError(
            "Targets are a mapping of statements to standard errors.",
            hint="for example " + option("targets", {"by_sex": 25}) + ".",
        )
    for name, target in targets.items():
        if name not in names:
            raise WorkloadError(
                f"There is no statement {name!r} that could have a target.",
                hint=f"the names are {', '.join(sorted(names)[:10])}.",
            )
        number = isinstance(target, (int, float)) and not isinstance(target, bool)
        if not number or not 1e-6 <= target <= 1e12:
            raise WorkloadError(
                f"The target {target!r} of {name!r} is not a standard error.",
                hint="a target is a number of rows from 1e-6 to 1e12, for example 25.",
            )
    allowed = {name: float(target) ** 2 for name, target in targets.items()}
    return [allowed.get(family.name) for family in workload.families]


def _find(
    workload: Workload, limits: list[float], start: list[float], planner: Planner, whole: bool
) -> _Found:
    """Find weights of answers if that is quick, and of families unless those do as well."""
    weighings: list[_Found] = []
    if whole and minimax.least_work(workload.count, joint_cells(workload)) <= minimax.WORK:
        weighings += _weigh_answers(workload, limits, planner)
    elif workload.count <= LARGE and (emphasised := _weigh_rows(workload)) is not None:
        weighings.append(_search(workload, emphasised, limits, start, planner))
    if not any(each.needed <= each.bound * (1 + ENOUGH) for each in weighings):
        weighings.append(_search(workload, workload, limits, start, planner))
    return least(weighings, lambda each: each.needed)


def _weigh_answers(workload: Workload, limits: list[float], planner: Planner) -> list[_Found]:
    """Let each answer have a weight of its own; none if nothing depends on data."""
    pairs = zip(workload.families, limits, strict=True)
    allowed = [replace(family, weight=1 / limit) for family, limit in pairs]
    rows = written_out(Workload.of(workload.domain, allowed), touched(workload))
    if not rows.any():
        return []
    game = minimax.weigh(rows, CLOSE / 20)
    # A variance counts in units of its limit. No weight may be 0: the answer would be lost.
    weights = game.weights / np.repeat(limits, [family.count for family in workload.families])
    weights = significant(np.maximum(weights / weights.max(), SMALLEST_WEIGHT))
    families, start = [], 0
    for family in workload.families:
        family_weights = weights[start : start + family.count]
        start += family.count
        alike = not len(family_weights) or family_weights.max() <= family_weights.min() * (
            1 + EQUAL
        )
        if alike:  # products stay products
            families.append(
                replace(
                    family,
                    weight=float(significant(family_weights.mean()))
                    if len(family_weights)
                    else 1.0,
                )
            )
        else:
            families.append(replace(family, weight=1.0).joined().emphasised([family_weights]))
    weighted = Workload.of(workload.domain, families)
    plan = planner(weighted, _UNIT, None)
    ratios = ratios_of(plan, workload, limits)
    return [_Found(weighted, plan, ratios, game.lower * float(plan.agreeing**2))]


def _weigh_rows(workload: Workload) -> Workload | None:
    """Weigh the rows of each block as is best for the block alone; None if all are alike.

    For a single family that is best for its products, too: γ₂ of a Kronecker product is the
    product of the factors' (Lee, Shraibman and Špalek, "A direct product theorem for discrepancy",
    CCC 2008). The weights of a block have the mean 1. Comparisons of columns are left as they are:
    they are planned by symmetries and in integers, both of which weights would take away.
    """
    if any(len(block.attributes) > 1 for f in workload.families for block in f.blocks):
        return None
    asked = {b.queries.key: b.queries for f in workload.families for b in f.blocks}
    weights, left = dict[bytes, Array](), minimax.WORK
    for key, queries in asked.items():
        work = minimax.least_work(queries.rows, queries.cells)
        weights[key] = np.ones(queries.rows)
        # Strategies for few rows are made of their integers, which weights would take away.
        many = queries.rows >= queries.cells
        if many and work <= left and queries.cell_squares() is None and queries.matrix.any():
            left -= work
            row_weights = minimax.weigh(queries.matrix, CLOSE).weights
            weights[key] = significant(np.maximum(row_weights / row_weights.max(), SMALLEST_WEIGHT))
    families = [f.emphasised([weights[b.queries.key] for b in f.blocks]) for f in workload.families]
    blocks = (b for f in families for b in f.blocks)
    changed = any(block.queries.key not in asked for block in blocks)
    return Workload.of(workload.domain, families) if changed else None


def _search(
    workload: Workload,
    emphasised: Workload,
    limits: list[float],
    start: list[float],
    planner: Planner,
) -> _Found:
    """Change the weights until the families' largest variances stand as their limits do.

    Args:
        workload: what is asked.
        emphasised: the same families, their answers with weights of the mean 1.
        limits: the variance that the answers of each family may have.
        start: a weight for each family.
        planner: plans for the least total.
    """
    weights, best, like = _scaled(start), None, None
    bound, stale = 0.0, 0
    for _ in range(ROUNDS):
        weighted = emphasised.weighted(weights)
        like = planner(weighted, _UNIT, like)
        ratios = ratios_of(like, workload, limits)
        if not max(ratios):
            raise WorkloadError(
                "The statements with targets have no error at any budget.",
                hint="their answers are known without data; give a target to another one.",
            )
        bound = max(bound, _bound(like, weighted, limits))
        if best is None or max(ratios) < best.needed * (1 - CLOSE / 10):
            stale = 0
        stale += 1
        if best is None or max(ratios) < best.needed:
            best = _Found(weighted, like, ratios, bound)
        if max(ratios) <= bound * (1 + CLOSE) or stale > 5:
            break
        weights = _scaled(
            [w * (ratio / max(ratios)) ** STEP for w, ratio in zip(weights, ratios, strict=True)]
        )
    if best is None:  # there is at least one round
        raise InternalError("no plan was made")
    return replace(best, bound=max(bound, _bound_of_binding(emphasised, limits, best, planner)))


def _scaled(weights: list[float]) -> list[float]:
    largest = max(weights)
    return [float(significant(max(w / largest, SMALLEST_WEIGHT))) for w in weights]


def ratios_of(plan: Plan, workload: Workload, limits: Sequence[float | None]) -> list[float]:
    """Return each family's largest variance in units of its limit; 0 where there is none.

    For families of many answers it may be an upper bound (see `Reconstruction.extent`), with
    which limits are met and gaps hold as well.
    """
    ratios = []
    for family, limit in zip(workload.families, limits, strict=True):
        largest = plan.reconstruction.extent(family, workload.domain)[1] if limit else 0.0
        ratios.append(largest / (limit or 1.0))
    return ratios


def _bound(plan: Plan, weighted: Workload, limits: Sequence[float]) -> float:
    """Return a privacy cost below which no plan meets the limits; all families have one.

    If a plan of cost C has largest variances v_f <= l_f, then the weighted total of n_f answers of
    each family is at most Σ w n l, and at least E(w)/C, with E(w) the least total at cost 1. So
    C >= E(w) / Σ w n l, whatever the weights; the weights of the best plan make them equal. With k
    records of one unit E(w) is k² times as large.
    """
    counts = [len(block.strategy.spaces) for block in plan.planned]
    alone = float(1 / plan.agreeing**2)
    least = total_error([block.lower for block in plan.planned], counts, alone)
    if plan.shared:  # what a row may cost is shared: their costs needn't add up
        least = plan.shared * float(plan.budget.mu_squared)
    pairs = zip(weighted.families, limits, strict=True)
    return least / math.fsum(f.weight * f.count * limit for f, limit in pairs)


def _bound_of_binding(
    workload: Workload, limits: list[float], weighing: _Found, planner: Planner
) -> float:
    """Bound by the families at their limits alone: the others may be far below theirs."""
    binding = [ratio >= BINDING * weighing.needed for ratio in weighing.ratios]
    if all(binding):
        return 0.0
    pairs = zip(weighing.weighted.families, binding, strict=True)
    subset = workload.weighted([f.weight if binds else None for f, binds in pairs])
    left = [limit for limit, binds in zip(limits, binding, strict=True) if binds]
    return _bound(planner(subset, _UNIT, weighing.plan), subset, left)


def _with_the_others(
    workload: Workload, limits: list[float | None], weighing: _Found, planner: Planner
) -> Workload:
    """Add the families without a target, at weights that give them `SHARE`."""
    pairs = list(zip(workload.families, limits, strict=True))
    others = workload.weighted([f.weight if limit is None else None for f, limit in pairs])
    error = _total(planner(others, _UNIT, None)) if others.families else 0.0
    factor = float(significant(SHARE**2 * _total(weighing.plan) / error)) if error else 1.0
    given = iter(weighing.weighted.families)
    families = [
        replace(f, weight=f.weight * factor) if limit is None else next(given) for f, limit in pairs
    ]
    # All weights count relative to each other; within 1e-9 to 1e9 they are taken. A power of two
    # leaves their digits, and so the plan that the search has found on any processor.
    weights = [min(max(f.weight * 2.0**20, 1e-9), 1e9) for f in families]
    return Workload.of(workload.domain, families).weighted(weights)


def _total(plan: Plan) -> float:
    return math.fsum(block.error for block in plan.planned)


def rounded_up(mu_squared: float) -> Budget:
    """Return a budget in ρ of six digits that is larger, by 10⁻¹² of it at least.

    So it doesn't depend on the last digits of a float, where that is a number of six digits.
    """
    if mu_squared >= LARGEST_MU_SQUARED:
        raise WorkloadError(
            "The targets are so small that no useful budget meets them.",
            hint="give larger standard errors, in rows.",
        )
    mu_squared = max(mu_squared, float(SMALLEST_MU_SQUARED) * 1.001) * (1 + _MARGIN)
    exponent = math.floor(math.log10(mu_squared / 2)) - 5
    digits = math.ceil(Fraction(mu_squared) / 2 / Fraction(10) ** exponent)
    return Budget(rho=digits * Fraction(10) ** exponent)


def reported(
    workload: Workload, fitted: Plan, limits: Sequence[float | None], name: str, gap: float
) -> Plan:
    """Say what was reached, in the weights that were asked for."""
    ratios = ratios_of(fitted, workload, limits)
    binding = dict.fromkeys(
        family.name
        for family, ratio in zip(workload.families, ratios, strict=True)
        if ratio >= BINDING * max(ratios)
    )
    total = fitted.reconstruction.total(workload)
    objective = Objective(name, tuple(binding), max(0.0, gap), total)
    return replace(fitted, workload=workload.copy(), objective=objective)
