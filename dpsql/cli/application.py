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
