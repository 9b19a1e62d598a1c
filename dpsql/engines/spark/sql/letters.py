"""Letters that DuckDB changes to lower or upper case: each to one, whatever is beside it.

Spark's own functions look at words and at languages, and make two letters of some.
"""

from __future__ import annotations

from functools import cache

import duckdb

from dpsql.errors import InternalError

_RANGES = (1, 0xD800), (0xE000, 0x110000)
"""All characters."""


@cache
def mapped(function: str) -> tuple[str, str]:
    """Return all characters that a function changes, and what to.

    Raises:
        InternalError: it doesn't change them one by one.
    """
    if function not in {"lower", "upper"}:
        raise InternalError("no function of letters")
    pairs: list[tuple[str, str]] = []
    with duckdb.connect() as con:
        for ends in _RANGES:
            all_ = f"SELECT chr(i::INTEGER) AS c FROM range({ends[0]}, {ends[1]}) AS r(i)"
            asked = f"SELECT c, {function}(c) FROM ({all_}) WHERE {function}(c) <> c ORDER BY c"
            pairs += con.execute(asked).fetchall()
    if any(len(after) != 1 for _, after in pairs):
        raise InternalError("DuckDB makes two letters of one")
    return "".join(before for before, _ in pairs), "".join(after for _, after in pairs)
