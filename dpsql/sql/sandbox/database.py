"""The library's view of the sandbox: statements, tables, frames.

A DuckDB of our own, which holds public things only: domains, public tables, noisy answers. The
analyst's expressions are evaluated there and nowhere else. So three-valued logic, casts, the
order of strings and dates are DuckDB's own, while nothing, not even an error, can depend on a row
of the private table. It runs in a process of its own, see `helper.py` and `worker.py`.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import weakref
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

import polars as pl
from numpy.typing import NDArray

from dpsql.errors import InternalError, SandboxLimitError, printable
from dpsql.schema import Domain
from dpsql.schema.fitting import enum_labels
from dpsql.schema.names import enum_type, folded, quoted_text
from dpsql.schema.sequences import FLOATS
from dpsql.sql.sandbox.helper import Helper, HelperError, Reply, helper
from dpsql.sql.sandbox.permitted import OWN_TABLE

MAX_SECONDS = 60.0
"""CPU time that one evaluation may take, and all those of a script for each of its statements.

It is the helper's own time and not the time of day, which would tell how busy the computer is.
"""

MAX_WRITTEN, MAX_COMPUTED = 64, 4096
"""Values of a domain, and numbers of a range, that each query has; more are stored as a table."""

_NUMBERS = itertools.count(1)


_QUESTIONS = frozenset({"rows", "frame", "types", "tree"})
"""Kinds of messages after which the helper has what it had before."""
_OWN = re.compile(r" when casting from source column \"?__\w+\"?")
"""Words of DuckDB about columns whose names nobody wrote."""


class Refusal(Enum):
    """Why DuckDB refuses a statement, as the class of its error."""

    UNBOUND = "BinderException"
    CONVERSION = "ConversionException"
    OVERFLOW = "OutOfRangeException"
    OTHER = ""

    @classmethod
    def _missing_(cls, value: object) -> Refusal:
        return cls.OTHER


class SandboxError(Exception):
    """DuckDB refuses a statement on public data; the text may be shown."""

    def __init__(self, text: str, kind: Refusal = Refusal.OTHER) -> None:
        super().__init__(text)
        self.kind = kind


class NotListedError(InternalError):
    """A statement has something in it that may not run in the sandbox, see `permitted`.

    The front end refuses it first, with words for the analyst. So it is not the analyst's error,
    and nobody who takes a SandboxError for an answer takes this one.
    """


class Sandbox:
    """Runs statements that the library has checked and rewritten, one at a time."""

    def __init__(self) -> None:
        self._number = next(_NUMBERS)
        self._helper: Helper | None = None
        self.lock = threading.RLock()
        """Held while statements are run that belong together."""
        self.left = MAX_SECONDS
        """Seconds of CPU time that evaluations may still take, together."""
        self._domains: dict[tuple[int, Domain], str] = {}
        self._cells: dict[str, pl.DataFrame] = {}
        self._names = 0

    def allow(self, statements: int) -> None:
        """Allow the time of so many statements from now on."""
        self.left = MAX_SECONDS * statements

    def new_name(self, what: str) -> str:
        """Return a table name that is not in use, and that no analyst can give."""
        self._names += 1
        return f"__{what}_{self._names}"

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a result.

        Raises:
            SandboxError: the query fails.
            SandboxLimitError: it takes too much time or memory.
            NotListedError: it may not run there.
        """
        return self._select("rows", query, parameters)[0].rows()

    def arrays(self, query: str) -> dict[str, NDArray[Any]]:
        """Return the columns of a result without NULL as arrays."""
        columns, _ = self._select("rows", query)
        return {name: columns[name].to_numpy() for name in columns.columns}

    def frame(self, query: str) -> pl.DataFrame:
        """Return a result with the types of Polars; an ENUM keeps its labels."""
        found, types = self._select("frame", query)
        labels = [(name, enum_labels(type_)) for name, type_ in types]
        try:
            return found.with_columns(pl.col(n).cast(pl.Enum(each)) for n, each in labels if each)
        except pl.exceptions.PolarsError as error:
            raise SandboxError(_shown(error)) from None

    def types(self, query: str) -> list[tuple[str, str]]:
        """Return name and DuckDB type of a result's columns, without running it."""
        return _types(self._ask("types", query=query)[0])

    def tree(self, expression: str) -> dict[str, Any]:
        """Return DuckDB's syntax tree of an expression, which is not run.

        What the helper sends is looked at as if a stranger had sent it: whoever reads the tree
        takes nothing in it for granted.

        Raises:
            SandboxError: it is not one expression.
        """
        reply, _ = self._ask("tree", query=f"SELECT {expression}")
        try:
            read = json.loads(str(reply["tree"]))
            if read.get("error_type") == "parser":
                raise SandboxError(_shown(read["error_message"]))
            (statement,) = read["statements"]
            (found,) = statement["node"]["select_list"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SandboxError(_shown(error)) from None
        if not isinstance(found, dict):
            raise SandboxError("this is not an expression")
        return found

    def create(
        self, name: str, query: str, parameters: Sequence[object] = (), *, view: bool = False
    ) -> None:
        """Keep the result of a query as a table, in place of an old one; or the query as a view."""
        self._ask("VIEW" if view else "TABLE", name=name, query=query, parameters=parameters)

    def drop(self, name: str) -> None:
        """Forget a table; its memory is free before the next message of any sandbox is answered."""
        if OWN_TABLE.fullmatch(name) is None:
            raise SandboxError(f"{name!r} is not a name for a table here")
        if self._helper is not None:
            self._helper.drop(self._number, name)

    def store(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a frame as a table."""
        import pyarrow as pa  # slow to import, as in `_select`: a session need not wait for it

        try:
            table = frame.to_arrow()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        except (pl.exceptions.PolarsError, pa.ArrowException, ValueError, TypeError) as error:
            raise SandboxError(_shown(error)) from None
        self._ask("store", name=name, block=bytes(sink.getvalue()))

    def _select(
        self, kind: str, query: str, parameters: Sequence[object] = ()
    ) -> tuple[pl.DataFrame, list[tuple[str, str]]]:
        """Return a result, and for a "frame" the DuckDB types of its columns.

        What the helper sends is looked at as if a stranger had sent it.
        """
        import pyarrow as pa

        reply, block = self._ask(kind, query=query, parameters=parameters)
        try:
            table = pa.ipc.open_stream(block).read_all()
            table.validate(full=True)
            frame = pl.from_arrow(table)
        except (pl.exceptions.PolarsError, pa.ArrowException, ValueError, TypeError) as error:
            raise SandboxError(_shown(error)) from None
        types = _types(reply)
        if not isinstance(frame, pl.DataFrame) or {n for n, _ in types} - set(frame.columns):
            raise SandboxError("the result is not a table")
        return frame, types

    def _ask(
        self,
        kind: str,
        *,
        name: str = "",
        query: str = "",
        parameters: Sequence[object] = (),
        block: bytes = b"",
    ) -> Reply:
        """Have the helper do something: the only way to DuckDB.

        What names no table of a sandbox has one answer, as nothing that may run there depends on
        anything but its text (`permitted`): it is asked once.
        """
        question = (kind, query)
        is_known = kind in _QUESTIONS and not parameters and OWN_TABLE.search(query) is None
        message = {"sandbox": self._number, "kind": kind, "name": name, "query": query}
        with self.lock:
            if self._helper is None:
                self._helper = helper()
                weakref.finalize(self, self._helper.forget, self._number)
            known = self._helper.known
            if is_known and (told := known.get(question)) is not None:
                return told
            with self._helper.lock:  # waiting for others doesn't count
                asked = {**message, "parameters": list(parameters)}
                try:
                    reply = self._helper.ask(asked, block, min(self.left, MAX_SECONDS))
                except HelperError as error:
                    raise _limited(str(error)) from None
                self.left -= _seconds(reply[0])
        if "error" in reply[0]:
            said = _shown(reply[0]["error"])
            if reply[0].get("limit"):
                raise _limited(said)
            raise SandboxError(said, Refusal(reply[0].get("class")))
        if "unlisted" in reply[0]:
            raise NotListedError(_shown(reply[0]["unlisted"]))
        if is_known:
            known.put(question, reply)
        return reply

    def domain(self, index: int, domain: Domain) -> str:
        """Return what has the columns `code`, `value` and `upper` of a domain, as FROM takes it.

        Few values are written there; others are stored once, as a table. The row of NULL, if there
        is one, has the last code.
        """
        few = _few_values(domain)
        if few is not None:
            return few
        key = (index, domain)
        if key not in self._domains:
            name = self.new_name("domain")
            self._store_domain(name, domain)
            self._domains[key] = name
        return self._domains[key]

    def cells(self, index: int, domain: Domain) -> pl.DataFrame:
        """Return the values of a domain in the order of their codes, as the column `value`."""
        name = self.domain(index, domain)
        if name not in self._cells:
            self._cells[name] = self.frame(f"SELECT value FROM {name} ORDER BY code")
        return self._cells[name]

    def _store_domain(self, name: str, domain: Domain) -> None:
        values, count, type_ = domain.values, domain.size - domain.nullable, column_type(domain)
        if isinstance(values, range):
            self.create(name, _with_null(_ranged(values, type_), domain))
            return
        texts, uppers = _texts(domain)
        query = _listed("?::VARCHAR[]", "?::VARCHAR[]", count, type_)
        self.create(name, _with_null(query, domain), [texts, uppers])


@lru_cache(maxsize=256)
def _few_values(domain: Domain) -> str | None:
    """Write the rows of a domain, if it has few values, and their texts are plain."""
    values, type_ = domain.values, column_type(domain)
    if isinstance(values, range):
        few = len(values) <= MAX_COMPUTED
        return f"({_with_null(_ranged(values, type_), domain)})" if few else None
    if domain.size > MAX_WRITTEN:
        return None
    texts, uppers = _texts(domain)
    if not all(text.isascii() and text.isprintable() for text in (*texts, *uppers)):
        return None
    first, last = (f"[{', '.join(map(quoted_text, each))}]::VARCHAR[]" for each in (texts, uppers))
    return f"({_with_null(_listed(first, last, len(texts), type_), domain)})"


def _ranged(values: range, type_: str) -> str:
    value = f"(range::HUGEINT + ({values.start})::HUGEINT)::{type_}"
    return f"SELECT range AS code, {value} AS value, {value} AS upper FROM range({len(values)})"


def _listed(texts: str, uppers: str, count: int, type_: str) -> str:
    return (
        f"SELECT code, value::{type_} AS value, upper::{type_} AS upper FROM (SELECT "
        f"unnest(range({count})) AS code, unnest({texts}) AS value, unnest({uppers}) AS upper)"
    )


def _with_null(query: str, domain: Domain) -> str:
    return f"{query} UNION ALL SELECT {domain.size - 1}, NULL, NULL" if domain.nullable else query


def _texts(domain: Domain) -> tuple[list[str], list[str]]:
    """Return the values of a domain as texts, and the last that each stands for."""
    texts = [_text(value) for value in domain.values]
    return texts, texts if domain.uppers is None else [_text(value) for value in domain.uppers]


def column_type(domain: Domain) -> str:
    """Return the DuckDB type in which SQL sees a column with this domain."""
    if domain.type.startswith("DECIMAL(") and domain.column_type not in {"", *FLOATS}:
        return domain.column_type  # which may have more digits: as text, 0.50 is not 0.5
    if domain.type == "DOUBLE" and domain.column_type == "FLOAT":
        return "FLOAT"  # which a number is compared with as a FLOAT: 0.7 is not 0.7::DOUBLE
    return enum_type(map(str, domain.values)) if domain.type == "ENUM" else domain.type


def _text(value: object) -> str:
    return value if isinstance(value, str) else folded(str(value))


def _types(reply: dict[str, Any]) -> list[tuple[str, str]]:
    try:
        return [(str(name), str(type_)) for name, type_ in reply["types"]]
    except (KeyError, TypeError, ValueError):
        raise SandboxError("the result has no types") from None


def _seconds(reply: dict[str, Any]) -> float:
    """Return the seconds that the helper says a reply took, none below zero."""
    said = reply.get("seconds")
    return max(said, 0.0) if isinstance(said, int | float) else 0.0


def _limited(text: str) -> SandboxLimitError:
    return SandboxLimitError(
        f"A computation on public values did not finish: {text}.",
        hint="ask again; if it fails again, use fewer conditions in a statement, or columns with "
        "fewer values.",
    )


def _shown(error: object) -> str:
    """Return what DuckDB, or who reads its result, says, on one line, without names of our own."""
    return printable(_OWN.sub("", str(error).split("\n", 1)[0])[:200]).strip()
