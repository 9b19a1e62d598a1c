"""All mechanisms side by side, on one workload and budget."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from dpsql.charts.plots import inlined, plotted
from dpsql.charts.specs import Figure, Panel, Points
from dpsql.errors import DpsqlError, MechanismError, PlotError, WorkloadError
from dpsql.hints import Hint
from dpsql.linalg.threads import one_thread
from dpsql.markup import card, table
from dpsql.planner.comparison.bound import LowerBound, svd_bound
from dpsql.planner.mechanisms.base import DEFAULT, Cost, Options
from dpsql.planner.plans.plan import Plan
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER
from dpsql.planner.registry import planned, reason_unsupported, traits_of
from dpsql.privacy import Budget
from dpsql.workload import Workload

if TYPE_CHECKING:
    import altair

UNIFORM = f"{QUERYSMASHER} (uniform)"
EVERY = 0.002
"""Seconds between two looks at the memory in use."""
BIASED = "no expected errors; answers are biased"
ADAPTIVE = f"chooses what it measures by the data: {BIASED}"

SCHEMA = {
    "mechanism": pl.String(),
    "rmse": pl.Float64(),
    "worst_standard_error": pl.Float64(),
    "lower_bound": pl.Float64(),
    "bound": pl.String(),
    "seconds": pl.Float64(),
    "peak_mb": pl.Float64(),
    "note": pl.String(),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """Mechanisms side by side, the most accurate first. Shown as text, or as HTML in a notebook."""

    workload: Workload
    budget: Budget
    frame: pl.DataFrame
    """Columns: `mechanism`, `rmse` and `worst_standard_error` (in rows; null where there are none),
    `lower_bound` (no plan of the kind that `bound` names has a smaller RMSE), `bound`, `seconds`
    (of planning), `peak_mb` (memory that planning took), `note` (why a mechanism does not apply).
    """

    @property
    def title(self) -> str:
        """The heading of what is shown: the number of queries and the budget."""
        queries, families = self.workload.count, len(self.workload.families)
        counted = f"{queries:,} {'query' if queries == 1 else 'queries'}"
        return (
            f"{counted} in {families:,} {'family' if families == 1 else 'families'}, {self.budget}"
        )

    def __repr__(self) -> str:
        rows = [[*SHOWN], *(_shown(row) for row in self.frame.iter_rows(named=True))]
        widths = [max(len(row[i]) for row in rows) for i in range(len(SHOWN))]
        lines = [self.title, ""]
        for *cells, note in rows:
            left = cells[0].ljust(widths[0])
            right = "  ".join(c.rjust(w) for c, w in zip(cells[1:], widths[1:-1], strict=True))
            lines.append(f"{left}  {right}  {note}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [_shown(row) for row in self.frame.iter_rows(named=True)]
        return card(self.title, table(SHOWN, rows), *inlined(self._figure))

    def plot(self) -> altair.Chart | altair.LayerChart:
        """Draw the expected RMSE of each mechanism as a bar, and its lower bound as a tick.

        A chart of Altair; it needs `pip install "dpsql[plots]"`.

        Raises:
            PlotError: no mechanism has an expected error, or Altair is not installed.
        """
        if self._figure is None:
            raise PlotError("No mechanism has an expected error.", hint="see comparison.frame.")
        return plotted(self._figure, self.title)

    @property
    def _figure(self) -> Figure | None:
        known = self.frame.filter(pl.col("rmse").is_finite())
        if known.is_empty():
            return None
        points = Points(
            value="expected RMSE (rows)",
            by="mechanism",
            scale="nominal",
            keys=known["mechanism"].to_list(),
            values=known["rmse"].to_list(),
            ends=[None] * known.height,
            limits=known["lower_bound"].to_list(),
        )
        best, error = known.row(0, named=True)["mechanism"], known["rmse"][0]
        words = f"Bars: the expected RMSE of each mechanism; {best} has the least, {error:.4g}."
        missing = self.frame.height - known.height
        left_out = [f"{missing} without an expected error are left out"] if missing else []
        return Figure((Panel(points),), words, ("ticks are lower bounds", *left_out))


SHOWN = ("mechanism", "rmse", "largest se", "lower bound", "seconds", "peak MB", "note")


@one_thread
def compare(
    workload: Workload,
    budget: Budget,
    mechanisms: Sequence[str] | None = None,
    options: Options = DEFAULT,
) -> Comparison:
    """Plan a workload by several mechanisms, one after the other.

    Args:
        workload: what to answer.
        budget: what each may spend.
        mechanisms: their names; all by default.
        options: whom to protect, and how closely QuerySmasher is to be solved.

    Raises:
        MechanismError: there is no mechanism of that name.
        WorkloadError: the workload is empty.
    """
    if isinstance(mechanisms, str):
        mechanisms = [mechanisms]
    if mechanisms is not None and not isinstance(mechanisms, Sequence):
        raise MechanismError(
            "Mechanisms are given as a list of names.", hint='for example mechanisms=["hdmm"].'
        )
    for name in mechanisms or ():
        traits_of(name)
    if mechanisms is not None and not mechanisms:
        raise MechanismError(
            "No mechanism is named.",
            hint="leave " + Hint("mechanisms=", "--mechanism") + " out to compare all.",
        )
    if not workload.count:
        raise WorkloadError("The workload is empty.", hint="add at least one family of queries.")
    names = [*MECHANISMS] if mechanisms is None else list(dict.fromkeys(mechanisms))
    tried = [(name, name, options) for name in names]
    if QUERYSMASHER in names:
        tried.insert(
            names.index(QUERYSMASHER) + 1,
            (UNIFORM, QUERYSMASHER, replace(options, residuals="uniform")),
        )
    bound = svd_bound(workload)
    rows = [
        {"mechanism": label, **_measured(name, workload, budget, how, bound)}
        for label, name, how in tried
    ]
    # What differs in the tenth digit is equally good.
    order = pl.col("rmse").round_sig_figs(6)
    frame = pl.DataFrame(rows, schema=SCHEMA).sort(order, nulls_last=True, maintain_order=True)
    return Comparison(workload, budget, frame)


def _measured(
    name: str, workload: Workload, budget: Budget, options: Options, bound: LowerBound
) -> dict[str, object]:
    """Plan, and return what goes into the columns."""
    reason = reason_unsupported(name, workload, budget)
    if reason is None and MECHANISMS[name].is_adaptive:
        reason = ADAPTIVE
    if reason is not None:
        return {"note": reason}
    with peak_memory() as peak_mb:
        start = time.perf_counter()
        try:
            found = planned(workload, budget, name, options)
        except DpsqlError as error:
            return {"note": error.message}
        except (ArithmeticError, ValueError):  # also what numpy raises of singular matrices
            return {"note": "its numbers are too far apart to be computed with"}
        seconds, peak = time.perf_counter() - start, peak_mb()
    work = {"seconds": seconds, "peak_mb": peak}
    if MECHANISMS[name].is_biased:
        return {
            **work,
            "note": f"measures {found.workload.count:,} cells of pairs and single columns, "
            f"expected RMSE {found.rmse:.4g}; {BIASED}",
        }
    kind, least = _bound(found, bound, options)
    return {
        "rmse": found.rmse,
        "worst_standard_error": found.expected_error()["worst_standard_error"].max(),
        "lower_bound": least,
        "bound": kind,
        **work,
    }


def _bound(planned: Plan, bound: LowerBound, options: Options) -> tuple[str, float]:
    """Return the plan's own certificate, or else the bound that holds for all mechanisms.

    These may use that the rows of a unit are apart, also where the plan doesn't.
    """
    if math.isfinite(planned.gap):
        kind = "of all mechanisms" if planned.least else "of its residual spaces"
        return f"certified bound {kind}", planned.rmse / math.sqrt(1 + planned.gap)
    cost = Cost(planned.budget, planned.contributions, spreads=options.spreads)
    total = bound.at(planned.budget, float(cost.agreeing))
    return "SVD bound" if bound.exact else "below the SVD bound", math.sqrt(
        total / planned.workload.count
    )


def _shown(row: dict[str, object]) -> list[str]:
    """Write the cells of a row."""
    errors = [_number(row[k], ".4g") for k in ("rmse", "worst_standard_error", "lower_bound")]
    work = [_number(row["seconds"], ".2f"), _number(row["peak_mb"], ".0f")]
    return [str(row["mechanism"]), *errors, *work, str(row["note"] or row["bound"] or "")]


def _number(value: object, form: str) -> str:
    return "-" if value is None else format(value, form)


@contextmanager
def peak_memory() -> Iterator[Callable[[], float]]:
    """Yield how much more memory the process used at most, in units of 2^20 bytes, since then."""
    import psutil  # only comparisons need it

    process, stop = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def look() -> float:
        nonlocal most
        most = max(most, process.memory_info().rss)
        return float(most - before) / 2**20

    def watch() -> None:
        while not stop.wait(EVERY):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield look
    finally:
        stop.set()
        thread.join()
