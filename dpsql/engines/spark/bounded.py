"""Spark's SQL for the rows that count where each privacy unit may contribute at most k of them.

Trusted.

Guarantees of lines:
    The row in a place of the line in which rows of a unit stand has, of all that is read of it,
    what follows from the rows that agree with it in `by`: from them all together, not from how they
    are stored or spread, nor from which task runs twice. Nothing fails.

    *Proof.* Rows are numbered within `by` by the line of a relation: columns in which rows of a
    unit agree only if they are the same in all that is read (`engines/relations.py`). It is enough
    that two rows which the order takes for equal have equal values of each: they then take each
    other's places without a trace. By type: texts are sorted as bytes, which equal themselves
    alone. Integers, decimals of one scale, days, times and booleans are equal only if they are the
    same. So are doubles, but that -0.0 equals 0.0, for which their signs come after them; and that
    all NaN are one, as they are to each function that is written here and are shown as one text.
    NULL is equal to NULL, and comes first. Casts are to bytes, to DOUBLE from FLOAT, and from there
    to text: all are total. ∎

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

    Nothing fails: Spark numbers rows by INTs, which begin again below zero behind 2^31 - 1, where r
    would not take each value once; so of units with 2^31 rows and more none is kept. Elsewhere
    r <= n < 2^31, and k <= 10^6 (`rel/check.py`), so that q·k is a BIGINT. A divisor is n, k or the
    length of a stretch; where n > k all are positive, and elsewhere a quotient by zero, NULL
    without ANSI mode, is never computed, as n is brought above k first. No text that is made of an
    id is longer than six times that and 10,000 more, and none is sorted by. ∎

The rows are those of a relation (`engines/relations.py`), of which some may be left out before, as
where a statement chooses a few of each unit. What is left of a unit is, as a multiset, a function
of its rows alone, and so is what is kept of it. Where rows have places in the line already, because
windows look at them one by one, r follows from these. What rows have of others besides is joined to
the rows that are kept, each of which stays one row.

All rows with ids are shuffled by these, and sorted. To keep the first k of each by a hash, for
which Spark cuts partitions before it shuffles them, would keep other rows than DuckDB does: its
rule looks at places among all of a unit's rows. Of ids that are one number, day or text the same
rows are kept as in DuckDB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dpsql.engines.spark.columns import code_of
from dpsql.engines.spark.sql.text import call, constant, identity, let, quoted, whole
from dpsql.errors import SchemaError, printable
from dpsql.schema import Table

FLOATS = frozenset({"FLOAT", "DOUBLE"})


def place_in_line(order: Sequence[str], by: Sequence[str]) -> str:
    """Write the place of a row among those that agree in some columns, from 1."""
    line = ", ".join(least_first(order)) or f"{whole(0)} ASC"
    place = f"{call('row_number')} OVER (PARTITION BY {', '.join(by)} ORDER BY {line})"
    return f"CAST({place} AS BIGINT)"


def least_first(keys: Iterable[str]) -> Iterator[str]:
    """Write keys of an order from the least one on, NULL before all others."""
    return (f"{key} ASC NULLS FIRST" for key in keys)


def told_apart(column: str, *types: str) -> Iterator[str]:
    """Write keys in which values agree only if they are the same."""
    yield identity(column, "VARCHAR" if "VARCHAR" in types else "")
    if not FLOATS.isdisjoint(types):
        text = f"CAST(CAST({column} AS DOUBLE) AS STRING)"
        yield call("startswith", text, constant("-", "STRING"))


def key_of(column: str, type_: str) -> str:
    """Write what tells values apart, and can be read as the value."""
    if type_ in FLOATS:
        return f"CAST(CAST({column} AS DOUBLE) AS STRING)"
    return identity(column, type_)


def value_of(key: str, type_: str) -> str:
    """Write the value that a key stands for."""
    if type_ == "VARCHAR":
        return f"CAST({key} AS STRING)"
    return f"CAST({key} AS {type_})" if type_ in FLOATS else key


_NO_IDS = FLOATS | {"BLOB", "TIMESTAMP WITH TIME ZONE"}
_MOST_ROWS = 2**31
"""Spark's `row_number` is an INT."""
_LONG_TEXT = 10_000
"""Bytes of an id that are shown one by one, if not all of them are plain."""
_PRIME = 2**31 - 1
"""The prime of the rule in `bounded.py`."""


def check_units(table: Table) -> None:
    """Refuse units that can't be told apart here, of a table and of all whose rows it meets.

    Raises:
        SchemaError: ids are of a type that none can have.
    """
    for table_read in table.read:
        if table_read.unit is None or table_read.made_of:  # which are looked at
            continue
        for name, type_ in table_read.unit.columns:
            if type_ in _NO_IDS:
                raise SchemaError(
                    f"The column {printable(name)} of type {type_} can't tell units apart in "
                    "Spark.",
                    hint="use a column of integers, texts or dates.",
                )


def cell_of(table: Table, name: str) -> str:
    """Write the code of the cell that a column of a row has."""
    return code_of(quoted(name), table.columns[name], leaves_out=table.leaves_out(name))


def among_those(
    prefix: str, id_: Sequence[tuple[str, str]], order: Sequence[str]
) -> tuple[str, str]:
    """Write two columns: how many rows have the same id, and the place of each among them.

    Args:
        prefix: what their names begin with, and what no other column's name does.
        id_: the columns of the id, with their types.
        order: what rows are sorted by.
    """
    by = [name for name, _ in id_]
    count = f"{call('count', whole(1))} OVER (PARTITION BY {', '.join(by)})"
    return f"{count} AS {prefix}n", f"{place_in_line(order, by)} AS {prefix}r"


def is_kept(prefix: str, id_: Sequence[tuple[str, str]], most: int) -> str:
    """Write whether a row stays, with the columns of `among_those` beside it."""
    few, chosen = f"{prefix}n <= {whole(most)}", _is_chosen(prefix, id_, whole(most))
    return (
        f"CASE WHEN {few} THEN true "
        f"WHEN {prefix}n < {whole(_MOST_ROWS)} THEN {chosen} ELSE false END"
    )


def _is_chosen(prefix: str, id_: Sequence[tuple[str, str]], k: str) -> str:
    """Write whether a row is the one that is kept of its stretch.

    What is needed more than once has a name, so that the text doesn't double with each step.
    """
    # n is never below k + 1, so that each divisor is positive wherever this is computed.
    named = {
        "m": call("md5", f"CAST({text_of_id(id_, prefix)} AS BINARY)"),
        "k": k,
        "n": call("greatest", f"{prefix}n", f"({k} + {whole(1)})"),
        "s": f"{_bits(_number(f'{prefix}m', 1), 30)} * {whole(2**32)} + {_number(f'{prefix}m', 0)}",
        "q": f"({prefix}r - {whole(1)} + {prefix}s % {prefix}n) % {prefix}n",
        "j": f"({prefix}q * {prefix}k) div {prefix}n",
        "f": f"({prefix}j * {prefix}n + {prefix}k - {whole(1)}) div {prefix}k",
        "e": f"(({prefix}j + {whole(1)}) * {prefix}n + {prefix}k - {whole(1)}) div {prefix}k",
        "l": call("greatest", f"{prefix}e - {prefix}f", whole(1)),
        "a": _bits(_number(f"{prefix}m", 2), 31),
        "b": _bits(_number(f"{prefix}m", 3), 31),
    }
    drawn = f"((({prefix}a * {prefix}j + {prefix}b) % {whole(_PRIME)}) % {prefix}l)"
    written = f"{prefix}q = {prefix}f + {drawn}"
    for name, value in reversed(named.items()):
        written = let(f"{prefix}{name}", value, written)
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


def text_of_id(id_: Sequence[tuple[str, str]], prefix: str) -> str:
    """Write an id as text: for a single one, and for plain ones, as DuckDB does."""
    texts = [_of_bytes(name, prefix) if type_ == "VARCHAR" else f"CAST({name} AS STRING)"
             for name, type_ in id_]  # fmt: skip
    if len(texts) == 1:
        return texts[0]
    parts = [part for text in texts for part in (constant(", ", "STRING"), text)]
    return call("concat", constant("(", "STRING"), *parts[1:], constant(")", "STRING"))


def _of_bytes(value: str, prefix: str) -> str:
    """Write bytes as DuckDB shows them: what is plain as it is, and the others in hex."""
    plain = call("regexp_like", f"CAST({value} AS STRING)", f"CAST({_PLAIN} AS STRING)")
    size = call("octet_length", value)
    at = call("substr", value, f"{prefix}i", whole(1, "INT"))
    character = f"CAST({at} AS STRING)"
    plain_one = call("regexp_like", character, f"CAST({_PLAIN} AS STRING)")
    hexed = call("concat", f"CAST({_HEX} AS STRING)", call("hex", at))
    each = f"{prefix}i -> CASE WHEN {plain_one} THEN {character} ELSE {hexed} END"
    listed = call("transform", call("sequence", whole(1, "INT"), size), each)
    shown = call("array_join", listed, "CAST(X'' AS STRING)")
    return (
        f"CASE WHEN {plain} THEN CAST({value} AS STRING) "
        f"WHEN {size} > {whole(_LONG_TEXT, 'INT')} THEN {call('hex', value)} ELSE {shown} END"
    )


_PLAIN = "X'" + rb"\A[ !#-&(-\[\]-~]*\z".hex().upper() + "'"
_HEX = "X'" + rb"\x".hex().upper() + "'"
