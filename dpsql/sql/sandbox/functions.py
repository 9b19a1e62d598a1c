"""The functions of SQL in one table: what may run in the sandbox, and how it may be written.

Each entry is DuckDB's name, as its own syntax tree shows it, and behind a colon what the front
end's parser makes of what is written:

- `abs:Abs`: a class of sqlglot's;
- `even`: nothing but a name, which is the same;
- `encode:`: what nobody may write, but other things are written by;
- `:Case`: a class that is syntax to DuckDB, and no function.

All are functions of their arguments alone, but for aggregates and window functions, which run on
public or noisy rows: none tells the time, the session, the settings or the catalog, draws random
numbers, keeps state, waits, fails on purpose, reads anything or runs text as SQL. The third column,
what may run on private rows, is `dpsql/rows/functions.py`; `binding/functions.py` joins it.

Nothing is imported here: the helper process has the files of this folder, and no others.
"""

from __future__ import annotations

_SCALARS = """
    %:Mod *: +: -: /: //: abs:Abs acos:Acos asin:Asin atan:Atan atan2:Atan2 bit_count cbrt:Cbrt
    ceil:Ceil cos:Cos cot:Cot degrees:Degrees even exp:Exp floor:Floor gcd greatest:Greatest
    isfinite isinf:IsInf isnan:IsNan lcm least:Least ln:Ln log:Log log10 log2 nextafter:
    pi:Pi pow:Pow power:Pow radians:Radians round:Round round_even sign:Sign sin:Sin sqrt:Sqrt
    tan:Tan trunc:Trunc

    ||: ~~: !~~: ~~*: !~~*: ~~~: like_escape: not_like_escape: ilike_escape: not_ilike_escape:
    ascii:Ascii chr:Chr concat:Concat concat_ws:ConcatWs contains:Contains encode:
    ends_with:EndsWith hamming instr:StrPosition jaccard left:Left left_grapheme length:Length
    levenshtein:Levenshtein lower:Lower lpad:Pad ltrim:Trim md5:MD5 nfc_normalize ord prefix
    regexp_extract:RegexpExtract regexp_full_match:RegexpFullMatch regexp_matches:RegexpLike
    regexp_replace:RegexpReplace repeat:Repeat replace:Replace reverse:Reverse right:Right
    right_grapheme rpad:Pad rtrim:Trim split_part:SplitPart starts_with:StartsWith strip_accents
    strlen strpos:StrPosition substring:Substring suffix translate:Translate trim:Trim
    unicode:Unicode upper:Upper

    age century date_diff:DateDiff date_part date_part:Extract date_sub date_trunc:DateTrunc
    date_trunc:TimestampTrunc datepart datesub day:Day dayname:Dayname dayofmonth:DayOfMonth
    dayofweek:DayOfWeek dayofyear:DayOfYear decade epoch:TimeToUnix hour:Hour isodow:DayOfWeekIso
    isoyear julian last_day:LastDay make_date:DateFromParts millennium minute:Minute month:Month
    monthname:Monthname quarter:Quarter second:Second strftime:TimeToStr strptime:StrToTime
    time_bucket:DateBin to_centuries: to_days:ToDays to_decades: to_hours to_microseconds:
    to_millennia: to_milliseconds: to_minutes to_months to_quarters: to_seconds to_weeks to_years
    week:Week weekday weekofyear:WeekOfYear year:Year yearweek

    :Case :Coalesce :If nullif:Nullif row struct_pack: flatten: len: list_resize: list_transform:
    list_value: list_zip:
"""
_AGGREGATES = """
    any_value:AnyValue approx_count_distinct:ApproxDistinct approx_quantile:ApproxQuantile
    arg_max:ArgMax arg_min:ArgMin array_agg:ArrayAgg avg:Avg bit_and:BitwiseAndAgg
    bit_or:BitwiseOrAgg bit_xor:BitwiseXorAgg bool_and:LogicalAnd bool_or:LogicalOr corr:Corr
    count:Count count_if:CountIf count_star:Count covar_pop:CovarPop covar_samp:CovarSamp
    first:First kurtosis:Kurtosis last:Last list: listagg:GroupConcat max:Max median:Median min:Min
    mode:Mode quantile:Quantile quantile_cont:PercentileCont quantile_disc:PercentileDisc
    regr_avgx:RegrAvgx regr_avgy:RegrAvgy regr_count:RegrCount regr_intercept:RegrIntercept
    regr_r2:RegrR2 regr_slope:RegrSlope regr_sxx:RegrSxx regr_sxy:RegrSxy regr_syy:RegrSyy
    skewness:Skewness stddev:Stddev stddev_pop:StddevPop stddev_samp:StddevSamp
    string_agg:GroupConcat sum:Sum var_pop:VariancePop var_samp:Variance variance:Variance
"""
_WINDOWS = """
    cume_dist:CumeDist dense_rank:DenseRank first_value:FirstValue lag:Lag last_value:LastValue
    lead:Lead nth_value:NthValue ntile:Ntile percent_rank:PercentRank rank:Rank row_number:RowNumber
"""

Entry = tuple[str, str]
"""DuckDB's name, and what is written: a class, or the same name; each may be empty."""


def _entries(text: str) -> tuple[Entry, ...]:
    split = (entry.partition(":") for entry in text.split())
    return tuple((name, written if colon else name) for name, colon, written in split)


SCALARS, AGGREGATES, WINDOWS = map(_entries, (_SCALARS, _AGGREGATES, _WINDOWS))
"""Aggregates may be computed on public or noisy rows, fewer of them on private ones; window
functions compute on noisy answers."""
TABLES = frozenset({"generate_series", "range", "unnest"})
"""Functions that give tables."""
RUN = frozenset(name for name, _ in (*SCALARS, *AGGREGATES, *WINDOWS) if name) | TABLES
"""All that may run in the sandbox."""
