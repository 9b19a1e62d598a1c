"""The group of all commands: errors become messages and exit codes, never tracebacks."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from dpsql.cli.exits import Exit, describe, exit_of
from dpsql.errors import printable


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
            found = super().main(arguments, prog_name, complete_var, False, **extra)
            code = found if isinstance(found, int) else Exit.OK
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
            {"db", "schema", "unit", "max_rows", "max_groups", "references", "each_row", "public"}
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
        frozenset({"epsilon", "delta", "rho", "mu", "targets", "at_most", "assume"}),
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
        given = {one.name for one in order if isinstance(values.get(str(one.name)), typed)}
        parameters = self.get_params(ctx)
        found = [_shown(one, ctx) for one in parameters if one.required and one.name not in given]
        names = {one.name for one in parameters}
        if "rho" in names and given.isdisjoint(_BUDGETS):
            found.append("a budget (--epsilon with --delta, or --rho, or --mu)")
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each group of options below an example."""
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        records = {option.name: option.get_help_record(ctx) for option in options}
        for heading, example, names in GROUPS:
            named = [name for name in records if name in names]
            rows = [found for name in named if (found := records.pop(name)) is not None]
            if rows:
                with formatter.section(f"{heading}, as {example}"):
                    formatter.write_dl(rows)
        others = [found for found in records.values() if found is not None]
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
