"""Timestamps that are known by their day, hour or minute: which expressions that determines.

A day has 86,400,000,000 microseconds, too many to try. So it is proved from the expression, node
by node, that nothing in it depends on the time within a day (an hour, a minute: the *period*), but
for comparisons of the column itself:

- *fixed* is what has one value for all times of a period;
- *within* is a timestamp whose period is fixed, and whose time in it isn't: the column, a cast of
  it to TIMESTAMP, it with whole such periods added, and choices among such values.

A function from the lists below makes a fixed value of one within, since it looks at no more than
the period: at the day only, or in a column known by hours, at these too.
A function of fixed values is fixed, as all functions that are allowed are deterministic. A
comparison of the column with a fixed value v changes at v and nowhere else: in a period it is fixed
if it is the same at its first instant, at its last, and at, just before and just after v. These
are collected to be tried, see `coarse`. Anything else depends on the time: it is evaluated row by
row where its values are known, as an hour is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from dpsql.schema import Domain, Table
from dpsql.schema.names import folded
from dpsql.schema.sequences import TimeRange
from dpsql.sql.binding.expressions import Expr

COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.In, exp.Is,
)  # fmt: skip
"""Nodes that compare a column with values, which are the other operands."""

_WORDS = """
    day days dayofmonth dow dayofweek weekday isodow doy dayofyear week weeks weekofyear yearweek
    month months mon quarter quarters year years isoyear decade decades century centuries
    millennium millennia millenium era
"""
_PARTS = frozenset(_WORDS.split())
"""Parts of a date, and periods of whole days, as DuckDB names them."""
_PERIODS = ("day", "week", "month", "quarter", "year")
_SHIFTS = frozenset(f"{period}{s}" for period in _PERIODS for s in ("", "s"))
"""Periods that leave the time of day as it is when they are added."""
_OF_DATES = (
    exp.Day, exp.DayOfMonth, exp.DayOfWeek, exp.DayOfWeekIso, exp.DayOfYear, exp.Dayname,
    exp.LastDay, exp.Month, exp.Monthname, exp.Quarter, exp.Week, exp.WeekOfYear, exp.Year,
)  # fmt: skip
_NAMED = frozenset(
    ("century", "decade", "isoyear", "millennium", "weekday", "yearweek", "isfinite")
)
_WHOLE = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class _Known:
    """The known parts of a timestamp, and the operations on it that need no others."""

    parts: frozenset[str]
    """Parts of it, and periods, as DuckDB names them."""
    shifts: frozenset[str]
    """Periods that leave the time within a cell as it is when they are added."""
    shown: re.Pattern[str]
    """Formats of strftime that show nothing else."""
    functions: tuple[type[Expr], ...]
    """Functions of the known parts."""


def _known(parts: str, shown: str, *functions: type[Expr]) -> _Known:
    return _Known(
        _PARTS | frozenset(parts.split()),
        _SHIFTS | frozenset(parts.split()),
        re.compile(rf"(?:[^%]|%-?[%aAbBhdmyYjUWuwGVx{shown}])*"),
        (*_OF_DATES, *functions),
    )


_HOURS, _MINUTES = "hour hours hr hrs h", "minute minutes min mins m"
_BY = {
    "day": _known("", ""),
    "hour": _known(_HOURS, "HIp", exp.Hour),
    "minute": _known(f"{_HOURS} {_MINUTES}", "HIpM", exp.Hour, exp.Minute),
}
"""By what a column is known."""


class DependsOnTimeError(Exception):
    """An expression depends on more than what is known of a timestamp."""


def known_by(domain: Domain) -> str:
    """Return by what a timestamp with a domain is known: its "day", "hour" or "minute"."""
    return domain.values.grain if isinstance(domain.values, TimeRange) else "day"


def told_by_rows(node: Expr, table: Table) -> frozenset[str]:
    """Name the timestamps with a domain of which an expression depends on more than its cells.

    Not those with a time zone: what they are in a row depends on it.

    Args:
        node: an expression over canonical names.
        table: the private table.
    """
    places = {part.name for part in node.find_all(exp.Column)}
    return frozenset(
        name
        for i, (name, domain) in enumerate(table.columns.items())
        if f"__a{i}" in places and domain.instant and domain.zone is None
        if _depends_on_time(node, f"__a{i}", known_by(domain))
    )


def _depends_on_time(node: Expr, place: str, period: str) -> bool:
    try:
        compared_with(node, place, period)
    except DependsOnTimeError:
        return True
    return False


def compared_with(node: Expr, place: str, period: str) -> list[Expr]:
    """Prove that an expression depends on the period of a column only, but for comparisons.

    Args:
        node: the expression.
        place: the name of the column in it.
        period: by what the column is known: its "day", "hour" or "minute".

    Returns:
        Everything with which the column itself is compared.

    Raises:
        DependsOnTimeError: it can't be proved.
    """
    proof = _Proof(place, _BY[period])
    if not proof.fixed(node):
        raise DependsOnTimeError
    return proof.compared


class _Proof:
    """Goes through one expression; whatever is not shown to be fixed or within raises."""

    def __init__(self, place: str, known: _Known) -> None:
        self._place = place
        self._known = known
        self.compared: list[Expr] = []

    def fixed(self, node: Expr) -> bool:
        """Whether a node is fixed; if not, it is within.

        Raises:
            DependsOnTimeError: it is neither.
        """
        if isinstance(node, exp.Paren):
            return self.fixed(node.this)
        if isinstance(node, exp.Column):
            return not self._own(node)
        if not any(self._own(part) for part in node.find_all(exp.Column)):
            return True
        if isinstance(node, COMPARISONS) and self._compares(node):
            return True
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
            return self._shifted(node)
        if isinstance(node, (exp.Case, exp.If, exp.Coalesce)):
            return self._chosen(node)
        for part in node.iter_expressions():
            fixed = self.fixed(part)
            if not fixed and not any(
                part is argument for argument in _looked_at(node, self._known)
            ):
                raise DependsOnTimeError
        return True

    def _own(self, node: Expr) -> bool:
        return isinstance(node, exp.Column) and node.name == self._place

    def _compares(self, node: Expr) -> bool:
        """Whether a comparison is one of the column itself with values in which it is not."""
        operands = list(node.iter_expressions())
        values = [part for part in operands if not self._own(part.unnest())]
        if any(self._own(column) for part in values for column in part.find_all(exp.Column)):
            # `t::DATE IS NULL` is determined whatever stands there; other comparisons may be too.
            return isinstance(node, exp.Is) and not self.fixed(node.this)
        if any(part.find(exp.Query) for part in values):
            raise DependsOnTimeError  # with what it is compared can't be tried
        self.compared += [part for part in values if not isinstance(part, exp.Null)]
        return True

    def _cast(self, node: exp.Cast) -> bool:
        """Look at a cast: of what is within, the day is fixed, and a TIMESTAMP stays within."""
        if self.fixed(node.this):
            return True
        to = node.to
        if to.this.name == "DATE":
            return True
        if to.this.name in {"TIMESTAMP", "TIMESTAMPNTZ"} and not to.expressions:
            return False
        raise DependsOnTimeError

    def _shifted(self, node: exp.Binary) -> bool:
        if self.fixed(node.this):
            return True
        unit = node.expression.args.get("unit")
        count = node.expression.this
        whole = isinstance(count, exp.Literal) and _WHOLE.fullmatch(count.name)
        if unit is None or not whole or folded(unit.name) not in self._known.shifts:
            raise DependsOnTimeError
        return False

    def _chosen(self, node: Expr) -> bool:
        """Look at a choice by fixed conditions: it is within if one of the values is."""
        if isinstance(node, exp.Coalesce):
            conditions, values = [], [node.this, *node.expressions]
        else:
            branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
            operand = node.this if isinstance(node, exp.Case) else None
            conditions = [operand, *(branch.this for branch in branches)]
            values = [branch.args["true"] for branch in branches]
            values += [node.args.get("default"), node.args.get("false")]
        if not all(self.fixed(part) for part in conditions if part is not None):
            raise DependsOnTimeError
        fixed = [self.fixed(part) for part in values if part is not None]  # look at all of them
        return all(fixed)


def _looked_at(node: Expr, known: _Known) -> list[Expr]:
    """Return those arguments of a function of which it looks at what is known only."""
    if isinstance(node, known.functions):
        return [node.this]
    if isinstance(node, (exp.TimestampTrunc, exp.DateTrunc)):
        return [node.this] if _is_part(node.args.get("unit"), known) else []
    if isinstance(node, exp.Extract):
        return [node.expression] if _is_part(node.this, known) else []
    if isinstance(node, exp.DateDiff):
        both = [node.this, node.expression]
        return both if _is_part(node.args.get("unit"), known) else []
    if isinstance(node, exp.TimeToStr):
        shown = node.args["format"]
        fixed = isinstance(shown, exp.Literal) and known.shown.fullmatch(shown.name)
        return [node.this] if fixed else []
    if isinstance(node, exp.Anonymous) and folded(node.name) in {"date_part", "datepart"}:
        return node.expressions[1:] if _is_part(node.expressions[0], known) else []
    if isinstance(node, exp.Anonymous) and folded(node.name) in _NAMED:
        return list(node.expressions)
    return []


def _is_part(unit: Expr | None, known: _Known) -> bool:
    """Whether a word means a part, or a period, that is known."""
    words = (exp.Var, exp.Literal, exp.Identifier)
    return isinstance(unit, words) and folded(unit.name) in known.parts
