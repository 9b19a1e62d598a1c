"""`%load_ext dpsql`: cells of SQL in IPython and Jupyter.

`%%dpsql` answers the statements of a cell, `%dpsql` shows the account. Errors that the reader can
mend are shown without a traceback, and stop "Run all" like any other.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, cast

import duckdb
import polars as pl
from IPython.core.error import UsageError

from dpsql.engines.public import is_frame
from dpsql.errors import DpsqlError, printable
from dpsql.flags import (
    BUDGET,
    FLAGS,
    Flag,
    bound,
    bounds_of,
    exact_number,
    key,
    keys_of,
    named_number,
    one_of,
    spelling,
    weight,
    weights_of,
    whole_number,
)
from dpsql.hints import for_cell
from dpsql.planner.plans.plan import Plan
from dpsql.present import account
from dpsql.present.shown import answer_table
from dpsql.privacy import Budget
from dpsql.privacy.finding import RULES
from dpsql.release import Release
from dpsql.request import Free, ReleaseOptions, SessionOptions, SessionPlanOptions, part
from dpsql.schema import EACH_ROW
from dpsql.session import Session
from dpsql.sql.text.script import split_script

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


# ── The options of `%dpsql` and `%%dpsql` ────────────────────────────────────────────────────────


T = TypeVar("T")

DECLARING = tuple(name for name in FLAGS if name in SessionOptions.__annotations__)
"""Options that belong to a session, and not to a cell."""
MADE_UP: Mapping[str, str] = {
    "rows": "how many rows [as many as the release says]",
    "updates": "rounds that bring pairs nearer [0]",
    "seed": "gives the same rows each time",
    "table": "of several tables, the one whose rows are meant",
}
"""Options of rows that are made up."""
STORE = "store the result in this variable"


class _Parser(argparse.ArgumentParser):
    """Options of a magic; what is wrong with them ends the cell and not the kernel."""

    def error(self, message: str) -> NoReturn:
        """Report a usage error."""
        raise UsageError(f"{message}. Options: {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Stop after --help was printed."""
        raise UsageError("no statement was run.")


def _reading(read: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse show why a text is refused."""

    def convert(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _identifier(text: str) -> str:
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a variable")
    return text


def _parser(prog: str, description: str) -> _Parser:
    """Make a parser with the options that both magics have."""
    parser = _Parser(prog=prog, description=description, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--con",
        metavar="NAME",
        help="a connection or dpsql.Session [con, or the only one]; or a path, people.csv",
    )
    _add(parser, *DECLARING, *BUDGET)
    add(
        "--each-row",
        dest="unit",
        action="store_const",
        const=EACH_ROW,
        help=_help(FLAGS["each_row"]),
    )
    add("--budget", type=_identifier, metavar="NAME", help="a dpsql.Budget")
    return parser


def _add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options that `dpsql.flags` describes."""
    for name in names:
        flag = FLAGS[name]
        more = dict(_KINDS.get(flag.kind, {}))
        if flag.kind == "choice":
            more = {"choices": flag.choices, "default": flag.choices[0]}
        elif flag.kind not in {"switch", "off"}:
            more["metavar"] = flag.metavar or "NAME"
        parser.add_argument(spelling(name), dest=name, help=_help(flag), **more)


def _help(flag: Flag) -> str:
    return flag.help[0].lower() + flag.help[1:].removesuffix(".")


def line_parser() -> argparse.ArgumentParser:
    """Make the parser of `%dpsql`."""
    parser = _parser("%dpsql", "Show what was spent and what is left, or make up rows.")
    add = parser.add_argument
    add("--total", action="store_true", help="fix the total: the budget given")
    _add(parser, "key_delta")
    add("--synthetic", metavar="NAME", help="make up rows of this release, which is free")
    for name, said in MADE_UP.items():
        add(f"--{name}", type=str if name == "table" else _reading(whole_number), help=said)
    add("--quality", action="store_true", help="show how near these rows are")
    add("--out", dest="into", type=_identifier, metavar="NAME", help=STORE)
    return parser


def cell_parser() -> argparse.ArgumentParser:
    """Make the parser of `%%dpsql`."""
    parser = _parser("%%dpsql", "Answer SQL with differential privacy.")
    add = parser.add_argument
    _add(parser, *(name for name in FLAGS if name in ReleaseOptions.__annotations__), "free")
    add("--out", dest="into", type=_identifier, metavar="NAME", help=STORE)
    add("--plan", action="store_true", help="plan only: spend nothing")
    return parser


_KINDS: Mapping[str, Mapping[str, Any]] = {
    "texts": {"action": "append"},
    "single": {"action": "append"},
    "bounds": {"type": _reading(bound), "action": "append"},
    "whole": {"type": _reading(whole_number)},
    "number": {"type": float},
    "amount": {"type": _reading(exact_number)},
    "pairs": {"type": _reading(named_number), "action": "append", "default": []},
    "weights": {"type": _reading(weight), "action": "append", "default": []},
    "keys": {"type": _reading(key), "action": "append"},
    "share": {"type": _reading(exact_number)},
    "switch": {"action": "store_true"},
    "off": {"action": "store_false"},
}
"""Kind of flag → how argparse reads it."""


P = ParamSpec("P")

NAME = "dpsql"
_SIGNS = "./\\*?["
"""Signs of paths and patterns, which no variable has in its name."""


class Shell(Protocol):
    """The part of IPython's shell that is used."""

    user_ns: dict[str, Any]
    magics_manager: Any

    def register_magic_function(
        self, func: Callable[..., Any], magic_kind: str, magic_name: str
    ) -> None:
        """Let users call a function as a magic of this kind and name."""


def load_ipython_extension(shell: Shell) -> None:
    """Add the magics `%dpsql` and `%%dpsql`."""
    magics = Magics(shell)
    shell.register_magic_function(magics.line, "line", NAME)
    shell.register_magic_function(magics.cell, "cell", NAME)


def unload_ipython_extension(shell: Shell) -> None:
    """Take the magics away; accounts in memory are forgotten."""
    manager = shell.magics_manager
    for kind in ("line", "cell"):
        manager.magics[kind].pop(NAME, None)
    vars(manager.user_magics).pop(NAME, None)


@dataclass(frozen=True, slots=True)
class AccountView:
    """The account of a session at one moment, for display."""

    text: str
    html: str = field(repr=False)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


@dataclass(frozen=True, slots=True)
class _Kept:
    """The session of a connection, and how it was declared."""

    session: Session
    declared: Mapping[str, object]


class Magics:
    """The two magics, and the sessions that they made.

    A connection has one session for as long as the kernel runs, so that an account in memory is
    not forgotten between cells.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._sessions: dict[int | str, _Kept] = {}
        """By id of a connection, which its session keeps alive, or by path."""
        self._line_parser, self._cell_parser = line_parser(), cell_parser()

    def line(self, line: str) -> AccountView | pl.DataFrame | None:
        """Show what was spent and what is left, or make up rows; with --total, fix the total."""
        given = self._line_parser.parse_args(_words(line))
        return _shortly(self._account if given.synthetic is None else self._synthetic, given)

    def cell(self, line: str, cell: str) -> pl.DataFrame | Release | Plan | None:
        """Answer the statements of a cell: one as a frame, several as a release."""
        return _shortly(self._answer, self._cell_parser.parse_args(_words(line)), cell)

    def _synthetic(self, given: argparse.Namespace) -> pl.DataFrame | None:
        release = self._variable(given.synthetic)
        if not isinstance(release, Release):
            raise UsageError(
                f"{given.synthetic} is no Release, which %%dpsql --out keeps of several."
            )
        how = {"updates": given.updates or 0, "seed": given.seed, "table": given.table}
        rows = release.synthetic(given.rows, **how)
        quality = given.quality and release.synthetic_quality(rows, table=given.table)
        return self._handed_out(rows if quality is False else quality, given.into)

    def _account(self, given: argparse.Namespace) -> AccountView:
        if given.quality or any(getattr(given, name) is not None for name in (*MADE_UP, "into")):
            raise UsageError("These options are for --synthetic NAME, with a release.")
        session = self._session(given)
        if given.total:
            session.ledger.set_total(self._budget(given), key_delta=given.key_delta)
        elif any(getattr(given, name) is not None for name in (*BUDGET, "budget", "key_delta")):
            raise UsageError("A budget belongs to a cell; to fix the total add --total.")
        ledger = session.ledger
        text = f"spent: {account.spent_of(ledger)}\nleft: {_left(session)}"
        return AccountView(text, account.account_card(ledger))

    def _answer(self, given: argparse.Namespace, cell: str) -> pl.DataFrame | Release | Plan | None:
        if given.at_most and not given.targets:
            raise UsageError("--at-most is for --target, with a budget: --rho 0.5 for example.")
        session = self._session(given)
        statements = dict(split_script(cell))
        budget: Budget | Free | None
        budget = None if given.targets else 0 if given.free else self._budget(given)
        asked = dict(vars(given))
        asked |= {name: dict(asked[name]) or None for name in ("targets", "assume")}
        asked["weights"] = _weights(given.weights)
        for name, rule in RULES.items():
            asked[name] = None if asked[name] is None else rule(asked[name])
        result: pl.DataFrame | Release | Plan
        if given.plan:
            plan = part(asked, SessionPlanOptions)
            result = session.plan(statements, budget=cast("Budget | None", budget), **plan)
        else:
            asked["at_most"] = self._budget(given) if given.at_most else None
            release = session.release(statements, budget=budget, **part(asked, ReleaseOptions))
            result = release if len(release) > 1 else next(iter(release.values()))
            if release.charged is not None and session.remaining is not None:
                finds = budget is not None and release.facts.rests_on_found
                charged = budget if finds else release.charged
                sys.stdout.write(f"charged: {charged}; left: {_left(session)}\n")
            if len(release) == 1 and given.into is None:
                result = _as_answer(release)
        return self._handed_out(result, given.into)

    def _handed_out(self, result: T, into: str | None) -> T | None:
        if into is None:
            return result
        self._shell.user_ns[into] = result
        return None

    def _budget(self, given: argparse.Namespace) -> Budget:
        if given.budget is not None:
            budget = self._variable(given.budget)
            if not isinstance(budget, Budget):
                raise UsageError(f"{given.budget} is not a dpsql.Budget.")
            return budget
        stated = {name: getattr(given, name) for name in BUDGET}
        return Budget(**{name: value for name, value in stated.items() if value is not None})

    def _session(self, given: argparse.Namespace) -> Session:
        """Return the session that a cell uses, and make it if it is the first one."""
        source = self._source(given.con)
        declared = {n: v for n in DECLARING if (v := getattr(given, n)) not in (None, [], False)}
        if isinstance(source, Session):
            if declared:
                raise UsageError("A Session has its declarations: leave these options out.")
            return source
        place = os.path.realpath(source) if isinstance(source, str) else id(source)
        kept = self._sessions.get(place)
        if kept is None:
            kept = _Kept(Session(source, **self._declarations(declared)), declared)
            self._sessions[place] = kept
        elif declared and not kept.declared and not {"ledger", "dataset"} & declared.keys():
            # The account alone was asked for until now, by %dpsql: it goes on.
            again = kept.session.redeclared(**self._declarations(declared))
            kept = self._sessions[place] = _Kept(again, declared)
        elif declared and declared != kept.declared:
            raise UsageError(
                "These rows were declared otherwise in an earlier cell; make a dpsql.Session "
                "for other declarations, and name it by --con."
            )
        return kept.session

    def _declarations(self, declared: Mapping[str, Any]) -> dict[str, Any]:
        """Look up the variables that options name."""
        declarations = dict(declared)
        if isinstance(declarations.get("unit"), list):
            declarations["unit"] = one_of(declarations["unit"])
        if isinstance(declarations.get("max_rows"), list):
            declarations["max_rows"] = _bounds(declarations["max_rows"])
        if isinstance(declarations.get("references"), list):
            declarations["references"] = _keys(declarations["references"])
        if "schema" in declarations:
            named = declarations["schema"]
            declarations["schema"] = named if self._is_place(named) else self._variable(named)
        names = declarations.get("public", [])
        if any(is_frame(self._shell.user_ns.get(name)) for name in names):
            declarations["public"] = {name: self._variable(name) for name in names}
        return declarations

    def _source(self, name: str | None) -> Session | duckdb.DuckDBPyConnection | str:
        """Find the connection, session or files: as named, `con`, or the only one there is."""
        kinds = (Session, duckdb.DuckDBPyConnection)
        space = self._shell.user_ns
        if name is None and not isinstance(space.get("con"), kinds):
            sources = {id(v): n for n, v in space.items() if n[0] != "_" and isinstance(v, kinds)}
            if len(sources) != 1:
                raise UsageError(
                    f"There are {len(sources)} connections and sessions; name one by --con, or a "
                    "file: --con people.csv."
                )
            (name,) = sources.values()
        if name is not None and self._is_place(name):
            return name
        source = self._variable(name or "con")
        if not isinstance(source, kinds):
            raise UsageError(f"{name} is neither a DuckDB connection nor a dpsql.Session.")
        return source

    def _is_place(self, name: str) -> bool:
        """Whether files are named, and no variable."""
        is_written = not name.isidentifier() and any(sign in name for sign in _SIGNS)
        return name not in self._shell.user_ns and (is_written or os.path.exists(name))

    def _variable(self, name: str) -> Any:
        if name not in self._shell.user_ns:
            raise UsageError(f"There is no variable {name}.")
        return self._shell.user_ns[name]


def _as_answer(release: Release) -> pl.DataFrame:
    """Return the one answer of a release, which a cell shows with standard errors and a picture.

    The frame itself has variances. What is made of it is shown as any frame.
    """
    (name,) = release
    frame = release[name].clone()
    page = "".join([answer_table(frame), *release.beside(name)])
    shown = {"text/plain": str(release.show(name)), "text/html": page}
    vars(frame)["_repr_mimebundle_"] = lambda **_: shown  # IPython asks for it by this name
    return frame


def _bounds(given: list[tuple[str, int]]) -> int | dict[str, int] | None:
    try:
        return bounds_of(given)
    except ValueError as error:
        raise UsageError(f"--max-rows: {error}.") from None


def _weights(given: list[tuple[str, float]]) -> dict[str, float] | str | None:
    try:
        return weights_of(given)
    except ValueError as error:
        raise UsageError(f"--weight: {error}.") from None


def _keys(given: list[tuple[str, str]]) -> dict[str, str] | None:
    try:
        return keys_of(given)
    except ValueError as error:
        raise UsageError(f"--reference: {error}.") from None


def _left(session: Session) -> str:
    return account.left_of(session.ledger) or "not limited"


def _shortly(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make IPython show only the message of an error that the reader can mend."""
    try:
        return work(*args, **kwargs)
    except DpsqlError as error:
        error.hint = None if error.hint is None else for_cell(error.hint)
        lines = [printable(line) for line in f"{type(error).__name__}: {error}".split("\n")]
        vars(error)["_render_traceback_"] = lambda: lines  # IPython asks for it by this name
        raise error from None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"The options can't be read: {error}.") from None
