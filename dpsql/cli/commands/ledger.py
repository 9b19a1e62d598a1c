"""`dpsql ledger`: what was spent on a data set, what is left, and whether that can be trusted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpsql.cli import amounts as money
from dpsql.cli import opening, options, output
from dpsql.cli.options import BudgetOptions, DatabaseOptions
from dpsql.errors import LedgerError, printable

if TYPE_CHECKING:
    from decimal import Decimal

    from dpsql.privacy import Entry, Ledger


class _ShowFirst(click.Group):
    """`dpsql ledger x.ledger` means `dpsql ledger show x.ledger`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in known else ["show", *args])


_path = click.argument("path", type=options.FILE, required=False)
_db = click.option("--db", type=options.FILE, help="The DuckDB file whose ledger it is.")


@click.group(cls=_ShowFirst, short_help="Print, set up or check an account.")
def ledger() -> None:
    """Print, set up or check the account of a data set.

    `dpsql ledger PATH` is short for `dpsql ledger show PATH`.
    """


@ledger.command()
@_path
@_db
@click.option(
    "--delta",
    type=options.AMOUNT,
    default="1e-9",
    show_default=True,
    help="Where ε is shown.",
)
@options.json_option
def show(path: Path | None, db: Path | None, *, delta: Decimal, as_json: bool) -> None:
    """Print what was spent, what is left, and each charge.

    Name the ledger by its PATH, or the database by --db.
    """
    from dpsql.account import CHARGES, charges

    found = _existing(path, db)
    spent, total = found.spent, found.total
    left, entries = found.remaining, found.entries()
    if as_json:
        amounts = {"total": (total, True), "spent": (spent, True), "remaining": (left, False)}
        output.say_json(
            {
                "dataset": found.dataset,
                "path": str(found.path),
                "protected": found.protected._asdict(),
                **{
                    name: None if value is None else money.as_json(value, delta, up=up)
                    for name, (value, up) in amounts.items()
                },
                "entries": [_document(entry) for entry in entries],
            }
        )
        return
    output.say(f"{found.dataset}, in {found.path}")
    shown = "not fixed" if total is None else money.forms(total, delta)
    output.say(f"for    {found.protected}")
    output.say(f"total  {shown}")
    output.say(f"spent  {money.forms(spent, delta)}")
    if left is not None:
        output.say(f"left   {money.forms(left, delta, up=False)}")
    if entries:
        output.say()
        output.say_table(CHARGES, charges(entries))


@ledger.command()
@options.db_option
@options.typed("ledger")
@options.amounts
@options.json_option
def init(db: Path, ledger: Path | None, amounts: BudgetOptions, *, as_json: bool) -> None:
    """Fix the total that may be spent on a database, once and for all."""
    total = amounts.needed()
    with opening.session(DatabaseOptions(db, {"ledger": ledger}), total=total) as session:
        left, place = session.ledger.remaining, session.ledger.path
    account = money.account(None, left, amounts.shown_delta)
    if as_json:
        output.say_json({"path": str(place), **account.document})
        return
    output.say(f"total  {money.forms(total.mu_squared, amounts.shown_delta)}")
    output.say(f"kept in {place}")


@ledger.command()
@_path
@_db
@click.option(
    "--release",
    "folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="A release whose charge the ledger must hold. Repeatable.",
)
@options.json_option
def verify(path: Path | None, db: Path | None, *, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check the whole ledger: file, history, sums and stored measurements."""
    from dpsql.release import Release

    found = _existing(path, db)
    audit = found.audit()
    for folder in folders:
        Release.load(folder, ledger=found)
    if as_json:
        output.say_json({"path": str(found.path), **asdict(audit), "releases": len(folders)})
        return
    output.say(
        f"{found.path} is intact: {audit.entries:,} charges, {audit.events:,} events, "
        f"{audit.contents:,} stored measurements of {audit.content_bytes:,} bytes"
    )
    for folder in folders:
        output.say(f"{folder}: its charge is in the ledger")


def _existing(path: Path | None, db: Path | None) -> Ledger:
    """Open the ledger that is named; none is made."""
    from dpsql.privacy import Ledger, ledger_path

    if path is not None and db is None:
        return Ledger.existing(path)
    if path is not None or db is None:
        raise click.UsageError("Name the ledger's file, or the database by --db.")
    place = ledger_path(db)
    if not place.exists():
        shown = printable(str(db))
        raise LedgerError(
            f"There is no ledger of {shown} yet.",
            hint=f"fix a total with dpsql ledger init --db {shown} --epsilon 3 --delta 1e-9; "
            "the first release makes one too.",
        )
    return Ledger.existing(place)


def _document(entry: Entry) -> dict[str, object]:
    return {
        "seq": entry.seq,
        "time": entry.time,
        "state": entry.state,
        "mu_squared": entry.mu_squared,
        "request": entry.request,
    }
