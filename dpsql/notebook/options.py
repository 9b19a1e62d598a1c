"""The options of `%dpsql` and `%%dpsql`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from IPython.core.error import UsageError

from dpsql.flags import (
    BUDGET,
    FLAGS,
    Flag,
    bound,
    exact_number,
    key,
    named_number,
    spelling,
    weight,
    whole_number,
)
from dpsql.request import ReleaseOptions, SessionOptions
from dpsql.schema import EACH_ROW

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
    "switch": {"action": "store_true"},
    "off": {"action": "store_false"},
}
"""Kind of flag → how argparse reads it."""
