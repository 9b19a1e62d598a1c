"""Spark's SQL for the rows that count where each privacy unit may contribute at most k of them.

Trusted.

Guarantees:
    Adding or removing a unit with all of its rows changes what is kept by at most k rows, all of
    them its own, and by no more of those that agree in columns than its limits say.

    *Proof.* The rule is that of `engines/duckdb/bounded.py`, which proves that at most k rows are
    kept of each unit, and that which these are follows from the unit's own rows. Here a step adds
    to each row n, the number of rows of its unit, and r, its place among these, by windows that are
    both PARTITION BY the unit's id: so they are functions of the rows with this id. Rows without an
    id were left out before. Ids and what rows are sorted by are compared as bytes where they are
    texts, and floats by their sign besides, so two rows that tie agree in all that is read. (Not
    told apart are NaNs with different bits: nothing of Spark's SQL does.) Ids are no floats. Then
    a row stays by n, r and its id alone, and of n > k rows just one stays of each of k stretches: q
    takes each value from 0 to n - 1 once, as r does. Whatever the hash is, there is one row for
    each stretch. If a part of the job is run again, its rows are the same, and so are n, r and what
    is kept: only of rows that tie another one may come, which says the same. (All rows that a place
    is among come to one task, which takes each part of what came before as it is now: so r takes
    each value once also where other tasks had them in another order.)

    Nothing fails: r < n < 2^62, and k <= 10^6, so q·k is a BIGINT for fewer than 2^43 rows of a
    unit, and wraps beyond, where a row goes or stays by its own unit's numbers all the same (and
    then more than k might stay: so those with 2^43 rows and more have none). A divisor is n, k or
    the length of a stretch; where n > k all are positive, and elsewhere a quotient by zero, NULL
    without ANSI mode, is never computed, as n is brought above k first. No text that is made of an
    id is longer than six times that and 10,000 more, and none is sorted by. ∎

All rows with ids are shuffled by these, and sorted. To keep the first k of each by a hash, for
which Spark cuts partitions before it shuffles them, would keep other rows than DuckDB does: its
rule looks at places among all of a unit's rows. Of ids that are one number, day or text the same
rows are kept as in DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dpsql.engines.lines import line_columns
from dpsql.engines.names import unused
from dpsql.engines.spark.columns import code_of
from dpsql.engines.spark.text import call, constant, identity, let, quoted, whole
from dpsql.errors import InternalError, SchemaError
from dpsql.schema import Table
from dpsql.schema.units import ResolvedUnit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FLOATS = frozenset({"FLOAT", "DOUBLE"})
_NO_IDS = _FLOATS | {"BLOB", "TIMESTAMP WITH TIME ZONE"}
_MOST_ROWS = 2**43
_MOST_KEPT = 10**6
_LONG_TEXT = 10_000
"""Bytes of an id that are shown one by one, if not all of them are plain."""
_PRIME = 2**31 - 1
"""That of the rule in `bounded.py`."""


def check_unit(table: Table) -> None:
    """Refuse units that can't be told apart here.

    Raises:
        SchemaError: their ids are in another table, or of a type that no id can have.
    """
    unit = table.unit
    if unit is None:
        return
    if unit.joins:
        raise SchemaError(
            "Units whose ids are in another table can't be counted in Spark yet.",
            hint="store the id of the unit in each row of the table.",
        )
    for name, type_ in unit.columns:
        if type_ in _NO_IDS:
            raise SchemaError(
                f"The column {name} of type {type_} can't tell units apart in Spark.",
                hint="use a column of integers, texts or dates.",
            )


def kept_rows(rows: DataFrame, table: Table, names: Sequence[str]) -> DataFrame:
    """Return `names` of the rows that count."""
    unit = _unit_of(table)
    if unit.max_rows is None or unit.max_rows > _MOST_KEPT:
        raise InternalError("nothing bounds the rows of units in this table")
    own = unused([*table.columns, *table.undeclared])
    ids = [identity(quoted(name), type_) for name, type_ in unit.columns]
    limited = list(dict.fromkeys(name for limit in unit.limits for name in limit.columns))
    line = dict(line_columns(table, names))
    shown = list(dict.fromkeys([*names, *line, *limited]))
    found = rows.where(" AND ".join(f"{id_} IS NOT NULL" for id_ in ids)).selectExpr(
        *map(quoted, shown),
        *(f"{id_} AS {own}id{i}" for i, id_ in enumerate(ids)),
        *(f"{_cell(table, name)} AS {own}c{i}" for i, name in enumerate(limited)),
    )
    types = [type_ for _, type_ in unit.columns]
    id_ = [(f"{own}id{i}", type_) for i, type_ in enumerate(types)]
    order = [key for name, of in line.items() for key in _told_apart(quoted(name), *of)]
    for limit in unit.limits:
        cells = [(f"{own}c{limited.index(name)}", "BIGINT") for name in limit.columns]
        found = _kept_of(found, own, [*id_, *cells], order, limit.rows)
    return _kept_of(found, own, id_, order, unit.max_rows).selectExpr(*map(quoted, names))


def _unit_of(table: Table) -> ResolvedUnit:
    if table.unit is None:
        raise InternalError("a table without a unit has no bound on its rows")
    return table.unit


def _cell(table: Table, name: str) -> str:
    return code_of(quoted(name), table.columns[name], leaves_out=table.leaves_out(name))


def _told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    yield identity(column, "VARCHAR" if "VARCHAR" in types else "")
    if not _FLOATS.isdisjoint(types):
        text = f"CAST(CAST({column} AS DOUBLE) AS STRING)"
        yield call("startswith", text, constant("-", "STRING"))


def _kept_of(
    rows: DataFrame, own: str, id_: Sequence[tuple[str, str]], order: Sequence[str], most: int
) -> DataFrame:
    """Keep at most so many of the rows that have the same id; see `bounded.py`."""
    by = ", ".join(name for name, _ in id_)
    line = ", ".join(f"{key} ASC NULLS FIRST" for key in order) or f"{whole(0)} ASC"
    count = f"{call('count', whole(1))} OVER (PARTITION BY {by})"
    place = f"{call('row_number')} OVER (PARTITION BY {by} ORDER BY {line})"
    lined = rows.selectExpr("*", f"{count} AS {own}n", f"CAST({place} AS BIGINT) AS {own}r")
    few = f"{own}n <= {whole(most)}"
    chosen = _is_chosen(own, id_, whole(most))
    return lined.where(
        f"CASE WHEN {few} THEN true WHEN {own}n < {whole(_MOST_ROWS)} THEN {chosen} ELSE false END"
    ).drop(f"{own}n", f"{own}r")


def _is_chosen(own: str, id_: Sequence[tuple[str, str]], k: str) -> str:
    """Write whether a row is the one that is kept of its stretch.

    What is needed more than once has a name, so that the text doesn't double with each step.
    """
    # n is never below k + 1, so that each divisor is positive wherever this is computed.
    named = {
        "m": call("md5", f"CAST({_text(id_, own)} AS BINARY)"),
        "k": k,
        "n": call("greatest", f"{own}n", f"({k} + {whole(1)})"),
        "s": f"{_bits(_number(f'{own}m', 1), 30)} * {whole(2**32)} + {_number(f'{own}m', 0)}",
        "q": f"({own}r - {whole(1)} + {own}s % {own}n) % {own}n",
        "j": f"({own}q * {own}k) div {own}n",
        "f": f"({own}j * {own}n + {own}k - {whole(1)}) div {own}k",
        "e": f"(({own}j + {whole(1)}) * {own}n + {own}k - {whole(1)}) div {own}k",
        "l": call("greatest", f"{own}e - {own}f", whole(1)),
        "a": _bits(_number(f"{own}m", 2), 31),
        "b": _bits(_number(f"{own}m", 3), 31),
    }
    drawn = f"((({own}a * {own}j + {own}b) % {whole(_PRIME)}) % {own}l)"
    written = f"{own}q = {own}f + {drawn}"
    for name, value in reversed(named.items()):
        written = let(f"{own}{name}", value, written)
    return written


def _number(digits: str, word: int) -> str:
    """Write a number of 32 bits of a hash: DuckDB reads its bytes from the last to the first."""
    first = 8 * word + 1
    pairs = [call("substr", digits, whole(first + 2 * i, "INT"), whole(2, "INT")) for i in range(4)]
    turned = call("concat", *reversed(pairs))
    return f"CAST({call('conv', turned, whole(16, 'INT'), whole(10, 'INT'))} AS BIGINT)"


def _bits(number: str, count: int) -> str:
    """Write the lower bits of a number that isn't negative."""
    return f"({number} % {whole(2**count)})"


def _text(id_: Sequence[tuple[str, str]], own: str) -> str:
    """Write an id as text: for a single one, and for plain ones, as DuckDB does."""
    texts = [_of_bytes(name, own) if type_ == "VARCHAR" else f"CAST({name} AS STRING)"
             for name, type_ in id_]  # fmt: skip
    if len(texts) == 1:
        return texts[0]
    parts = [part for text in texts for part in (constant(", ", "STRING"), text)]
    return call("concat", constant("(", "STRING"), *parts[1:], constant(")", "STRING"))


def _of_bytes(value: str, own: str) -> str:
    """Write bytes as DuckDB shows them: what is plain as it is, and the others in hex."""
    plain = call("regexp_like", f"CAST({value} AS STRING)", f"CAST({_PLAIN} AS STRING)")
    size = call("octet_length", value)
    at = call("substr", value, f"{own}i", whole(1, "INT"))
    one = f"CAST({at} AS STRING)"
    plain_one = call("regexp_like", one, f"CAST({_PLAIN} AS STRING)")
    hexed = call("concat", f"CAST({_HEX} AS STRING)", call("hex", at))
    each = f"{own}i -> CASE WHEN {plain_one} THEN {one} ELSE {hexed} END"
    listed = call("transform", call("sequence", whole(1, "INT"), size), each)
    shown = call("array_join", listed, "CAST(X'' AS STRING)")
    return (
        f"CASE WHEN {plain} THEN CAST({value} AS STRING) "
        f"WHEN {size} > {whole(_LONG_TEXT, 'INT')} THEN {call('hex', value)} ELSE {shown} END"
    )


_PLAIN = "X'" + rb"\A[ !#-&(-\[\]-~]*\z".hex().upper() + "'"
_HEX = "X'" + rb"\x".hex().upper() + "'"
