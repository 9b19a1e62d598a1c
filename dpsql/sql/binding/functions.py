"""The scalar functions that a statement may call: deterministic ones of their arguments alone.

Not among them are functions that tell the time, the session or the catalog (`now`, `version`), that
draw random numbers, keep state, wait, fail on purpose, read files or run text as SQL.
"""

from __future__ import annotations

from sqlglot import exp

_NUMBERS = (
    exp.Abs, exp.Acos, exp.Asin, exp.Atan, exp.Atan2, exp.Cbrt, exp.Ceil, exp.Cos, exp.Cot,
    exp.Degrees, exp.Exp, exp.Floor, exp.Greatest, exp.IsInf, exp.IsNan, exp.Least, exp.Ln,
    exp.Log, exp.Mod, exp.Pi, exp.Pow, exp.Radians, exp.Round, exp.Sign, exp.Sin, exp.Sqrt,
    exp.Tan, exp.Trunc,
)  # fmt: skip
_TEXT = (
    exp.Ascii, exp.Chr, exp.Concat, exp.ConcatWs, exp.Contains, exp.EndsWith, exp.Left, exp.Length,
    exp.Levenshtein, exp.Lower, exp.MD5, exp.RegexpExtract, exp.RegexpFullMatch, exp.RegexpLike,
    exp.RegexpReplace, exp.Replace, exp.Reverse, exp.Right, exp.StartsWith, exp.StrPosition,
    exp.Substring, exp.Translate, exp.Trim, exp.Unicode, exp.Upper,
)  # fmt: skip
_DATES = (
    exp.DateDiff, exp.DateFromParts, exp.DateTrunc, exp.Day, exp.DayOfMonth, exp.DayOfWeek,
    exp.DayOfWeekIso, exp.DayOfYear, exp.Dayname, exp.Extract, exp.Hour, exp.LastDay, exp.Minute,
    exp.Month, exp.Monthname, exp.Quarter, exp.Second, exp.StrToTime, exp.TimeToStr,
    exp.TimeToUnix, exp.TimestampTrunc, exp.Week, exp.WeekOfYear, exp.Year,
)  # fmt: skip
_CHOICES = (exp.Case, exp.Coalesce, exp.If, exp.Nullif)

FUNCTIONS: frozenset[type[exp.Expr]] = frozenset((*_NUMBERS, *_TEXT, *_DATES, *_CHOICES))
"""Functions that the parser knows by a class of their own."""

_NAMES = """
    century date_part date_sub datepart datesub decade even gcd hamming isfinite isoyear
    jaccard lcm left_grapheme millennium nfc_normalize  ord prefix right_grapheme
    round_even row strip_accents strlen suffix weekday yearweek ifnull julian bit_count
"""
NAMED = frozenset(_NAMES.split())
"""Functions that the parser knows by name only."""

AGGREGATES: frozenset[type[exp.Expr]] = frozenset((
    exp.AnyValue, exp.ApproxDistinct, exp.ApproxQuantile, exp.ArgMax, exp.ArgMin, exp.ArrayAgg,
    exp.Avg, exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.Corr, exp.Count,
    exp.CountIf, exp.CovarPop, exp.CovarSamp, exp.First, exp.GroupConcat, exp.Kurtosis, exp.Last,
    exp.LogicalAnd, exp.LogicalOr, exp.Max, exp.Median, exp.Min, exp.Mode, exp.PercentileCont,
    exp.PercentileDisc, exp.Quantile, exp.RegrAvgx, exp.RegrAvgy, exp.RegrCount, exp.RegrIntercept,
    exp.RegrR2, exp.RegrSlope, exp.RegrSxx, exp.RegrSxy, exp.RegrSyy, exp.Skewness, exp.Stddev,
    exp.StddevPop, exp.StddevSamp, exp.Sum, exp.Variance, exp.VariancePop,
))  # fmt: skip
"""Aggregates that may be computed on public or noisy rows; fewer may be on private ones."""

VOLATILE: tuple[type[exp.Expr], ...] = (
    exp.Rand, exp.Uuid, exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime,
    exp.Localtimestamp, exp.CurrentDatabase, exp.CurrentSchema, exp.CurrentVersion,
    exp.CurrentUser, exp.SessionUser, exp.CurrentRole, exp.CurrentCatalog,
)  # fmt: skip
"""Functions whose value isn't one of their arguments, for a better message."""

WINDOWS: frozenset[type[exp.Expr]] = frozenset((
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag,
    exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue,
))  # fmt: skip
"""Window functions; they compute on noisy answers."""

TYPES = frozenset(
    {
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT",
        "UINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "TEXT", "CHAR", "DATE",
        "TIMESTAMP", "TIMESTAMPNTZ", "TIME", "INTERVAL",
    }
)  # fmt: skip
"""Types that can be cast to."""
