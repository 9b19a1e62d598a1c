"""The closed list of what may run in the sandbox, over DuckDB's own syntax tree of a query.

The front end reads with sqlglot, DuckDB with a parser of its own. So that nothing can hide
between the two, DuckDB reads each query first and gives its tree, and the query runs only if it is
one query, and every kind of node, every function and every table in it is listed here. This is the
last check before a query runs, and it doesn't trust how the text was made.

Functions are in one table, of what may run here and how it may be written. Each entry is DuckDB's
name, as its own syntax tree shows it, and behind a colon what the front end's parser makes of what
is written:

- `abs:Abs`: a class of sqlglot's;
- `even`: nothing but a name, which is the same;
- `encode:`: what nobody may write, but other things are written by;
- `:Case`: a class that is syntax to DuckDB, and no function.

All are functions of their arguments alone, but for aggregates and window functions, which run on
public or noisy rows: none tells the time, the session, the settings or the catalog, draws random
numbers, keeps state, waits, fails on purpose, reads anything or runs text as SQL. The third column,
what may run on private rows, is `dpsql/rows/functions.py`; `binding/expressions.py` joins it.

Nothing is imported here: the helper process has the files of this folder, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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


Tree = Mapping[str, Any]
Names = frozenset[str]

OWN_TABLE = re.compile(r"__[a-z]+_[0-9]+")
"""The pattern of names of the sandbox's tables; no analyst can give such a name."""

_EXPRESSIONS = """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA OPERATOR
    PARAMETER STAR SUBQUERY TYPE WINDOW
"""
_CLASSES = frozenset(_EXPRESSIONS.split())
_SPECIAL = """
    ARRAY_EXTRACT COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION OPERATOR_COALESCE OPERATOR_IS_NOT_NULL
    OPERATOR_IS_NULL OPERATOR_NOT OPERATOR_TRY STRUCT_EXTRACT
"""
_OPERATORS = frozenset(_SPECIAL.split())
_SHAPES = """
    SELECT_NODE SET_OPERATION_NODE BASE_TABLE EMPTY EXPRESSION_LIST JOIN SUBQUERY TABLE_FUNCTION
    DISTINCT_MODIFIER LIMIT_MODIFIER ORDER_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING
"""
_OTHERS = frozenset(_SHAPES.split())
"""Types of nodes that are not expressions: queries, tables, and what sorts and cuts."""
_EMPTY = (
    "at_clause", "catalog", "catalog_name", "columns", "expr", "export_state", "rename_list",
    "replace_list", "sample", "schema", "schema_name",
)  # fmt: skip
"""Parts that must be empty, wherever they stand."""


_BYTES = "C"
"""The collation that compares bytes: expressions of rows name it, whatever is set there."""
_BUILT_IN = ["system", "main"]
"""The schema of the functions that are listed, and of no others: expressions of rows name it."""


class NotPermittedError(Exception):
    """A query has something in it that isn't listed."""


def check_permitted(document: Tree) -> None:
    """Check what `json_serialize_sql` says of a text.

    Raises:
        NotPermittedError: it is not one query, or has something in it that isn't listed.
    """
    if document.get("error") is not False:
        raise NotPermittedError(str(document.get("error_message"))[:200])
    if len(document["statements"]) != 1:
        raise NotPermittedError("there is more than one query")
    pending: list[tuple[Any, Names]] = [(document["statements"], frozenset())]
    while pending:
        node, names = pending.pop()
        if isinstance(node, list):
            pending += [(part, names) for part in node]
        elif isinstance(node, dict):
            _check(node, names)
            rest = dict(node)
            for cte in (rest.pop("cte_map", None) or {"map": []})["map"]:
                pending.append((cte["value"], names))
                # As written: Python folds the case of more letters than DuckDB.
                names |= {cte["key"]}
            pending += [(part, names) for part in rest.values()]


def _check(node: Tree, names: Names) -> None:
    kind, type_ = node.get("class"), node.get("type")
    good = kind in _CLASSES if "class" in node else type_ is None or type_ in _OTHERS
    if not good or (kind == "OPERATOR" and type_ not in _OPERATORS):
        raise NotPermittedError(f"{kind or type_} can't run here")
    if kind == "COLLATE" and node.get("collation") != _BYTES:
        raise NotPermittedError("a collation can't run here")
    if "function_name" in node and node["function_name"] not in RUN:
        raise NotPermittedError(f"the function {node['function_name']} can't run here")
    if node.get("function_name") == "age" and len(node["arguments"]) != 2:
        raise NotPermittedError("age of one time depends on the clock")
    if type_ == "TABLE_FUNCTION" and node["function"]["function_name"] not in TABLES:
        raise NotPermittedError("this table function can't run here")
    if type_ == "BASE_TABLE":
        name = node["table_name"]
        if name not in names and OWN_TABLE.fullmatch(name) is None:
            raise NotPermittedError(f"there is no table {name}")
    _check_places(node)


def _check_places(node: Tree) -> None:
    """Check that nothing is named by a schema but what is built in, and what must be empty is."""
    kind = node.get("class")
    *schema, _ = node.get("qualified_name", {"path": [""]})["path"]
    built_in = kind == "FUNCTION" and schema == _BUILT_IN
    if schema and not built_in:
        raise NotPermittedError("a name with a schema can't stand here")
    known = {"catalog": "system", "schema": "main"} if built_in else {}
    # A lambda's body is an expression like others; a star's would be COLUMNS(…).
    given = [
        key
        for key in _EMPTY
        if node.get(key) and node[key] != known.get(key) and (kind, key) != ("LAMBDA", "expr")
    ]
    if given:
        raise NotPermittedError(f"{given[0]} can't stand here")
