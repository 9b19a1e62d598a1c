"""Names that the owner gives, of tables and columns: all that each may mean, of which one is left.

A unit, a bound or a reference names a table or columns in a text: `account`, `account.id`,
`main.account.id`; of several, `shop, nr`. One text may fit several things: a table `account`, and
a column `account` of another table; a column `"a.b"`, and the column `b` of a table `a`. Which of
them is taken says who is protected, so it must not follow from what is tried first. All are listed
here, by one function for all declarations, and whoever can't show that they are the same refuses.

*None is missing.* A text means a table as a whole, or a column alone, or a column behind a table,
at any of its dots; or it is a list of such texts, all of one table. `meanings` tries each of these,
and `Names.tables` says what a text means as a table, with whatever stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import product
from typing import NamedTuple, Protocol

from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint
from dpsql.schema.names import folded


class MeantName(NamedTuple):
    """One thing that a name may mean."""

    path: tuple[str, ...]
    """Database, schema and name of a table."""
    columns: tuple[str, ...] = ()
    """Columns of it; none for the table itself."""

    def worded(self, parts: int) -> str:
        """Word it for people, with some parts of its table's path."""
        table = printable(".".join(self.path[-parts:]))
        if not self.columns:
            return f"the table {table}"
        listed = " and ".join(map(printable, self.columns))
        return f"the column{'s' if len(self.columns) > 1 else ''} {listed} of {table}"


class Names(Protocol):
    """A catalog in which names are looked up."""

    def tables(self, text: str) -> Collection[tuple[str, ...]]:
        """Return the paths of all tables that a text means as a whole."""

    def columns_in(self, path: tuple[str, ...]) -> Collection[str]:
        """Return the columns of a table."""


def meanings(names: Names, text: str, own: tuple[str, ...] | None = None) -> list[MeantName]:
    """Return all that a name may mean: tables; columns, alone only those of a table.

    Args:
        names: where it is looked up.
        text: the name.
        own: the table whose columns need no name before them, if there is one.
    """
    return [*map(MeantName, names.tables(text)), *columns_meant(names, text, own)]


def columns_meant(names: Names, text: str, own: tuple[str, ...] | None = None) -> list[MeantName]:
    """Return all columns that a name may mean, of one table each; see `meanings`."""
    found = _of_one(names, text, own)
    parts = text.split(",")
    if len(parts) > 1:
        for chosen in product(*(_of_one(names, part, own) for part in parts)):
            if len({one.path for one in chosen}) == 1:
                columns = tuple(column for one in chosen for column in one.columns)
                found.append(MeantName(chosen[0].path, columns))
    return list(dict.fromkeys(found))


def _of_one(names: Names, text: str, own: tuple[str, ...] | None) -> list[MeantName]:
    """Return each single column that a text may mean."""
    text = text.strip()
    places = [(own, text)] if own is not None else []
    for at, sign in enumerate(text):
        if sign == ".":
            places += [(path, text[at + 1 :]) for path in names.tables(text[:at])]
    found = [(path, match(column, names.columns_in(path))) for path, column in places]
    return list(dict.fromkeys(MeantName(p, (column,)) for p, column in found if column is not None))


def spelled(
    meaning: MeantName,
    read: Callable[[str], Sequence[MeantName]],
    own: tuple[str, ...] | None = None,
) -> str | None:
    """Return the shortest name that has one meaning and no other; None if each has others, too.

    Args:
        meaning: what is to be named.
        read: returns all that a name may mean where it is given.
        own: the table whose columns need no name before them there, if there is one.
    """
    path, columns = meaning
    texts = [".".join(path[-n:]) for n in (1, 2, 3) if all(path[-n:])]
    if columns:
        before = [""] * (path == own) + [f"{table}." for table in texts]
        texts = [", ".join(table + column for column in columns) for table in before]
    return next((text for text in texts if list(read(text)) == [meaning]), None)


def ambiguous(
    name: str, where: str, found: Sequence[MeantName], typed: Sequence[str | None]
) -> SchemaError:
    """Return the error for a name that may mean several things.

    Args:
        name: as the owner wrote it.
        where: what is named so.
        found: all that it may mean.
        typed: how each of them is typed so that it means nothing else; None if it can't be.
    """
    known = dict.fromkeys(text for text in typed if text is not None)
    alike = len({one.worded(1) for one in found}) < len(found)
    means = " or ".join(one.worded(3 if alike else 1) for one in found)
    shown = Hint("")
    for text in known:
        shown = shown + (" or " if shown else "") + text
    return SchemaError(
        f"{where} is named {printable(name)}, which may mean {means}.",
        hint="write " + shown + ", whichever is meant."
        if known
        else "rename one of them: no spelling means just one of them.",
    )


def match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is meant; SQL ignores case.

    Raises:
        SchemaError: it may be several, which differ in case only.
    """
    found = [k for k in known if folded(k) == folded(name)]
    if len(found) > 1:
        shown = " and ".join(map(printable, found[:2]))
        raise SchemaError(
            f"{printable(name)} may mean {shown}, which differ in case only.",
            hint="rename one of them.",
        )
    return found[0] if found else None
