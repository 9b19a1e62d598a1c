"""Names: how they are told apart, and written in hints."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint, instead

RESERVED = "__"
"""The beginning of names of the library's own in SQL on public things: no statement has such."""
_ASIDE = "\x1f"
"""A sign that no statement can have in a name."""
_KEYWORDS_LISTED = """
    all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by
    case cast check collate collation column columns concurrently constraint create cross default
    deferrable desc describe distinct do else end except false fetch for foreign freeze from full
    generated glob group having ilike in initially inner intersect into is isnull join lambda
    lateral leading left like limit map natural not notnull null offset on only or order outer
    overlaps pivot pivot_longer pivot_wider placing positional primary qualify references returning
    right select semi show similar some struct summarize symmetric table tablesample then to
    trailing true try_cast tuple union unique unpack unpivot using variadic verbose when where
    window with
"""
KEYWORDS = frozenset(_KEYWORDS_LISTED.split())
"""Words of DuckDB's SQL that are names in quotes alone, or where no function can stand."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SMALL = str.maketrans(_LETTERS.upper(), _LETTERS)
_CAPITAL = str.maketrans(_LETTERS, _LETTERS.upper())


def folded(name: str) -> str:
    """Return the form by which names are compared: two with the same form are one name to DuckDB.

    DuckDB ignores the case of the letters A to Z. "É" and "é" are two names to it, and so are the
    Kelvin sign and "k", which `str.lower` takes for one.
    """
    return name.lower() if name.isascii() else name.translate(_SMALL)


def capitals(word: str) -> str:
    """Return a word of SQL in capitals, as lists of words and messages have it; A to Z only."""
    return word.upper() if word.isascii() else word.translate(_CAPITAL)


def unknown(message: str, hint: str) -> SchemaError:
    """Return the error for a name that no table or column has."""
    error = SchemaError(message, hint=hint)
    error.unknown = True
    return error


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is probably meant to be; None if there is none like it."""
    lowered = {folded(n): n for n in known}
    matches = difflib.get_close_matches(folded(name), list(lowered), n=1, cutoff=0.6)
    return lowered[matches[0]] if matches else None


def closest(
    name: str,
    known: Iterable[str],
    shown: Callable[[str], str] = str,
    *,
    of: tuple[int, int] | None = None,
) -> Hint:
    """Word a hint that names the known names closest to `name`, each as `shown`.

    Args:
        name: what was written.
        known: what may be.
        shown: how each is written.
        of: where it was written, if not all of what the error marks is the name.
    """
    names = list(known)
    meant = nearest(name, names)
    if meant is not None:
        return "did you mean " + instead(shown(meant), of=of) + "?"
    if len(names) == 1:
        return "the only name here is " + instead(shown(names[0]), of=of) + "."
    if not names:
        return Hint("there are none.")
    return "known names are " + one_of([instead(shown(known), of=of) for known in names]) + "."


def one_of(hints: Sequence[Hint]) -> Hint:
    """List hints of which one is meant."""
    return reduce(lambda before, hint: before + ", " + hint, hints)


def quoted_name(name: str) -> str:
    """Write a name in quotes, as SQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    """Write a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def enum_type(labels: Iterable[str]) -> str:
    """Write the type of an ENUM as SQL."""
    return f"ENUM({', '.join(map(quoted_text, labels))})"


def as_sql(name: str) -> str:
    """Write a name as it can be typed into SQL: in quotes if it needs them."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    plain = plain and folded(name) not in KEYWORDS
    return name if plain else quoted_name(printable(name))


def as_text(name: str) -> str:
    """Write a name as a string of Python."""
    return json.dumps(printable(name), ensure_ascii=False)


def twins(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two names that are one to SQL; None if there are none."""
    known: dict[str, str] = {}
    for name in names:
        if folded(name) in known:
            return known[folded(name)], name
        known[folded(name)] = name
    return None


def unused(columns: Iterable[str]) -> str:
    """Return a beginning that no column has, for names of the library's own beside them."""
    prefix, taken = "u_", [folded(name) for name in columns]
    while any(name.startswith(prefix) for name in taken):
        prefix = "u" + prefix
    return prefix


def aside(name: str) -> str:
    """Return what a public table's column is called beside the library's own names.

    One whose name begins as these do gets a name that can't be written. So where a subquery is
    evaluated, with canonical names in it, it has no column that would be taken for one of these.
    """
    return _ASIDE + name if name.lstrip(_ASIDE).startswith(RESERVED) else name


def as_called(name: str) -> str:
    """Return the name of a column that may have been put `aside`."""
    is_aside = name.startswith(_ASIDE) and name.lstrip(_ASIDE).startswith(RESERVED)
    return name.removeprefix(_ASIDE) if is_aside else name


def apart(table: str, columns: Sequence[str]) -> dict[str, str]:
    """Return the columns of a table by their names in small letters.

    Raises:
        SchemaError: two are the same then, and one could be taken for the other.
    """
    same = twins(columns)
    if same is not None:
        first, second = map(as_sql, same)
        raise SchemaError(
            f"The columns {first} and {second} of {printable(table)} differ in case only.",
            hint=f"rename one of them: ALTER TABLE {as_sql(table)} RENAME {second} TO "
            f"{as_sql(same[1] + '_2')};",
        )
    return {folded(column): column for column in columns}
