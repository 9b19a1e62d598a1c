"""The group of all commands: errors become messages and exit codes, never tracebacks."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import click

from dpsql.errors import (
    AccuracyError,
    BudgetError,
    DpsqlError,
    ExecutionError,
    LedgerError,
    ReleaseFormatError,
    SchemaError,
    SqlError,
    printable,
)
from dpsql.hints import for_command


class Application(click.Group):
    """A group whose commands may raise any error."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command and exit with a code of `Exit`."""
        arguments = list(sys.argv[1:] if args is None else args)
        if not standalone_mode:
            return super().main(arguments, prog_name, complete_var, False, **extra)
        _accept_any_text()
        code: int = Exit.OK
        try:
            result = super().main(arguments, prog_name, complete_var, False, **extra)
            code = result if isinstance(result, int) else Exit.OK
        except (Exception, KeyboardInterrupt) as error:
            code = exit_of(error)
            _report(error, as_json=_wants_json(arguments))
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; it is not an error if nobody reads the rest of what it prints."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _write_nowhere()
            return None
        return result


GROUPS: tuple[tuple[str, str, frozenset[str]], ...] = (
    (
        "Private rows",
        "--db people.csv --schema people.toml --unit person_id --max-rows 3",
        frozenset(
            {
                *("db", "schema", "unit", "max_rows", "max_groups", "max_values", "references"),
                *("each_row", "public"),
            }
        ),
    ),
    (
        "Account",
        "--ledger accounts/people.ledger --vintage 2026-Q4",
        frozenset({"ledger", "vintage", "accept_schema", "free", "reuse"}),
    ),
    (
        "Budget",
        "--epsilon 1 --delta 1e-9",
        frozenset(
            {
                "epsilon",
                "delta",
                "rho",
                "mu",
                "targets",
                "at_most",
                "assume",
                "keys",
                "bounds",
                "quantiles",
            }
        ),
    ),
    (
        "Planning",
        "--weight by_sex=5 --objective largest",
        frozenset({"weights", "objective", "mechanism", "mechanisms", "accept_gap", "explain"}),
    ),
    (
        "Answers",
        "--confidence 0.95 --suppress-below 10",
        frozenset(
            {"confidence", "groups_above", "suppress_below", "nonnegative", "integers"}
            | {"standard_errors", "report_cut", "report_moved", "up_to", "without_unit"}
        ),
    ),
    (
        "Where it goes",
        "--out release --report report.html",
        frozenset(
            {
                "out",
                "to_csv",
                "to_parquet",
                "to_duckdb",
                "report",
                "style",
                "max_bytes",
                "overwrite",
            }
            | {"as_csv", "as_parquet", "as_json"}
        ),
    ),
)
"""Heading, example and options of each part of a long help."""


_BUDGETS = frozenset({"epsilon", "rho", "mu", "targets", "free"})
"""Options of which a command that takes a budget needs one."""


def _shown(parameter: click.Parameter, ctx: click.Context) -> str:
    """Name a parameter, as the help does."""
    record = parameter.get_help_record(ctx)
    return record[0] if record is not None else parameter.make_metavar(ctx)


class GroupedCommand(click.Command):
    """A command with many options, whose help has them by what they are for.

    If some are missing, one message names all of them.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line.

        Raises:
            click.UsageError: options are missing, and a budget, if it takes one.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter:
            missing = self._missing(ctx, given)
            if len(missing) < 2:
                raise
            listed = f"{', '.join(missing[:-1])} and {missing[-1]}"
            raise click.UsageError(f"Missing are {listed}.", ctx) from None

    def _missing(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name each argument and option that is needed, and not given."""
        values, _, order = self.make_parser(ctx).parse_args(args)
        typed = (str, bool, list, tuple)  # an argument that isn't has a mark of its own
        given = {
            parameter.name
            for parameter in order
            if isinstance(values.get(str(parameter.name)), typed)
        }
        parameters = self.get_params(ctx)
        missing = [
            _shown(parameter, ctx)
            for parameter in parameters
            if parameter.required and parameter.name not in given
        ]
        names = {parameter.name for parameter in parameters}
        if "rho" in names and given.isdisjoint(_BUDGETS):
            missing.append("a budget (--epsilon with --delta, or --rho, or --mu)")
        return missing

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of options below an example."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        for heading, example, names in GROUPS:
            named = [name for name in records if name in names]
            rows = [record for name in named if (record := records.pop(name)) is not None]
            if rows:
                with formatter.section(f"{heading}, as {example}"):
                    formatter.write_dl(rows)
        others = [record for record in records.values() if record is not None]
        if others:
            with formatter.section("Other options"):
                formatter.write_dl(others)


def _report(error: BaseException, *, as_json: bool) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and not as_json:
        error.show()  # the help, of many lines
        return
    if isinstance(error, click.UsageError) and not as_json:
        click.UsageError(printable(error.format_message()), error.ctx).show()
        return
    click.echo(describe(error, as_json=as_json), err=True)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Look for the option by hand: a command line that can't be parsed is reported too."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _accept_any_text() -> None:
    """Let characters that the terminal's encoding lacks be written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _write_nowhere() -> None:
    """Point standard output at nothing, so that flushing it at the end does not fail either."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


# ── Exit codes, and what is printed of an error ──────────────────────────────────────────────────


class Exit(IntEnum):
    """The meanings of a command's exit codes, for scripts."""

    OK = 0
    UNEXPECTED = 1
    """A mistake of dpsql itself, or of the system."""
    USAGE = 2
    SQL = 3
    SCHEMA = 4
    BUDGET = 5
    LEDGER = 6
    RELEASE = 7
    """A release folder can't be read or written."""
    EXECUTION = 8
    """Something failed after the charge, which stands."""
    OTHER = 9
    """Too large, a malformed workload, a mechanism that doesn't apply, or no random bits."""
    ACCURACY = 10
    """A plan loses accuracy that it need not: it was printed with a warning, or not charged."""
    INTERRUPTED = 130


_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (SqlError, Exit.SQL),  # before SchemaError: some are both, and then the SQL is to be mended
    (SchemaError, Exit.SCHEMA),
    (BudgetError, Exit.BUDGET),
    (LedgerError, Exit.LEDGER),
    (ReleaseFormatError, Exit.RELEASE),
    (ExecutionError, Exit.EXECUTION),
    (AccuracyError, Exit.ACCURACY),
    (DpsqlError, Exit.OTHER),
    (click.UsageError, Exit.USAGE),
    (click.Abort, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)


def exit_of(error: BaseException) -> Exit:
    """Return the exit code for an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), Exit.UNEXPECTED)


def describe(error: BaseException, *, as_json: bool) -> str:
    """Word an error for the terminal, or as one JSON object."""
    facts = _facts(error)
    if as_json:
        return json.dumps(facts)
    if isinstance(error, DpsqlError):
        text = str(error)
        if error.hint is not None:
            text = text.removesuffix(error.hint) + str(facts["hint"])
    else:
        text = str(facts["message"])
    return "\n".join(printable(line) for line in f"Error: {text}".split("\n"))


def _facts(error: BaseException) -> dict[str, object]:
    """Return what is known of an error, in types that JSON has."""
    hint, span = getattr(error, "hint", None), getattr(error, "span", None)
    return {
        "error": type(error).__name__,
        "message": _message(error),
        "hint": None if hint is None else for_command(hint),
        "sql": getattr(error, "sql", None),
        "span": None if span is None else list(span),
        "statement": getattr(error, "statement", None),
    }


def _message(error: BaseException) -> str:
    if isinstance(error, DpsqlError):
        return error.message
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return "interrupted. What was charged is in the ledger: dpsql ledger --db FILE"
    return f"unexpected: {type(error).__name__}: {error}"
