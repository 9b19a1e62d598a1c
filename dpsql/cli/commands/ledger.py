"""`dpsql ledger`: what was spent on a data set, what is left, and whether that can be trusted."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from dpsql.cli import opening, options, output
from dpsql.cli.options import BudgetOptions, Command, DatabaseOptions, Rows
from dpsql.errors import LedgerError, printable

if TYPE_CHECKING:
    from decimal import Decimal

    from dpsql.privacy import Entry, Ledger


class _ShowFirst(click.Group):
    """`dpsql ledger x.ledger` means `dpsql ledger show x.ledger`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in known else ["show", *args])


_server = click.option(
    "--ledger", "address", metavar="ADDRESS", required=True, help="The server, postgresql://…."
)
_NAMED = {
    "path": click.argument(
        "path",
        type=options.LedgerPlace(exists=True, dir_okay=False, path_type=Path),
        required=False,
        metavar="[PLACE]",
    ),
    "db": options.rows_option(required=False, what="The rows whose ledger it is."),
    "address": click.option(
        "--ledger", "address", metavar="ADDRESS", help="With --db: the server, postgresql://…."
    ),
    "dataset": click.option(
        "--dataset", metavar="NAME", help="With a server's address: which of its ledgers."
    ),
}


def _which(command: Command) -> Command:
    """Give a command the ways to name a ledger, and open the one that is named, as `found`."""
    return options.gathered("found", _NAMED, lambda given: _existing(**given), command)


def _rows_options(command: Command) -> Command:
    """Give a command the ways to name rows that are in files."""
    for option in (
        click.option(
            "--folder",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Or the folder of Parquet files.",
        ),
        options.rows_option(required=False, what="The DuckDB file, or files, charged for."),
    ):
        command = option(command)
    return command


@click.group(cls=_ShowFirst, short_help="Print, set up or check an account.")
def ledger() -> None:
    """Print, set up or check the account of a data set.

    `dpsql ledger PATH` is short for `dpsql ledger show PATH`.
    """


@ledger.command()
@_which
@click.option(
    "--delta",
    type=options.AMOUNT,
    default="1e-9",
    show_default=True,
    help="Where ε is shown.",
)
@options.json_option
def show(found: Ledger, *, delta: Decimal, as_json: bool) -> None:
    """Print what was spent, what is left, and each charge.

    Name the ledger by its PLACE, a file or the address of a server, or the database by --db.
    """
    from dpsql.present.account import charges, left_of, spent_of, total_of

    entries = found.entries()
    if as_json:
        output.say_json(
            {
                "dataset": found.dataset,
                "path": found.place,
                "protected": found.protected._asdict(),
                **output.amounts_json(found, delta),
                "entries": [_document(entry) for entry in entries],
            }
        )
        return
    output.say(f"{found.dataset}, in {found.place}")
    at = Fraction(delta)
    output.say(f"for    {found.protected}")
    output.say(f"total  {total_of(found, delta=at) or 'not fixed'}")
    output.say(f"spent  {spent_of(found, delta=at)}")
    left = left_of(found, delta=at)
    if left is not None:
        output.say(f"left   {left}")
    if entries:
        output.say()
        output.say_table(*charges(entries))


@ledger.command()
@options.rows_option(
    required=False,
    what="The rows [on a server: none, for rows in no file, which are named by --dataset].",
)
@options.typed("ledger")
@click.option(
    "--dataset", metavar="NAME", help="On a server: the ledger's name [the database's file name]."
)
@options.amounts
@options.typed("key_delta")
@options.json_option
def init(
    db: Rows | None,
    ledger: Path | str | None,
    dataset: str | None,
    amounts: BudgetOptions,
    key_delta: Decimal | None,
    *,
    as_json: bool,
) -> None:
    """Fix the total that may be spent on a database, once and for all.

    On a server it also begins the ledger, binds the database to it, and prints what the owner may
    grant to others. Without a database it binds the name to it, for rows that are in no file.
    """
    from dpsql.present.account import total_of
    from dpsql.privacy import GRANTS, begin, begin_named, is_address

    total, made = amounts.needed(), False
    if is_address(ledger) and db is not None:
        _, made = begin(opening.account_of(db), ledger, dataset or "")
    elif dataset is not None and not is_address(ledger):
        raise click.UsageError("--dataset is for a ledger on a server, --ledger postgresql://….")
    if db is not None:
        options_ = DatabaseOptions(db, {"ledger": ledger})
        with opening.session(options_, total=total, key_delta=key_delta) as session:
            opened = session.ledger
    elif is_address(ledger) and dataset is not None:
        opened, made = begin_named(dataset, ledger)
        opened.set_total(total, key_delta=key_delta)
    else:
        raise click.UsageError(
            "Name the database by --db; or the server by --ledger and the rows by --dataset."
        )
    place, account = opened.place, output.account(None, opened, amounts.shown_delta)
    if as_json:
        grants = {"grants": GRANTS} if made else {}
        output.say_json({"path": place, **account.document, **grants})
        return
    output.say(f"total  {total_of(opened, delta=Fraction(amounts.shown_delta))}")
    output.say(f"kept in {place}")
    if made:
        output.say(f"\nSo that others may use it, once for a server:\n\n{GRANTS}")


@ledger.command()
@_rows_options
@click.option(
    "--rows",
    "named",
    metavar="NAME",
    help="Or the name of rows that are in no file, which sessions give as dataset=.",
)
@click.option("--table", metavar="ID", help="Or the id of a Delta table.")
@_server
@click.option("--dataset", metavar="NAME", required=True, help="The ledger's name.")
@options.json_option
def bind(
    db: Rows | None,
    folder: Path | None,
    named: str | None,
    table: str | None,
    address: str,
    dataset: str,
    *,
    as_json: bool,
) -> None:
    """Charge a database, a folder, a table or rows of a name in a ledger of a server."""
    from dpsql.privacy import bind as bound
    from dpsql.privacy import bind_named, bind_table, is_address

    given = [place for place in (db, folder, named, table) if place is not None]
    if len(given) != 1 or not is_address(address):
        raise click.UsageError(
            "Name the rows once, by --db, --folder, --table or --rows; and the server, "
            "postgresql://…."
        )
    if named is not None:
        _say_bound(named, bind_named(named, address, dataset), as_json=as_json)
    elif table is not None:
        _say_bound(table, bind_table(table, address, dataset), as_json=as_json)
    else:
        rows = _rows(db, folder, address)
        _say_bound(rows.name, bound(rows, address, dataset), as_json=as_json)


@ledger.command()
@_rows_options
@_server
@options.json_option
def move(db: Rows | None, folder: Path | None, address: str, *, as_json: bool) -> None:
    """Move the ledger of a database or a folder from its file to a server."""
    from dpsql.privacy import move as moved

    rows = _rows(db, folder, address)
    _say_bound(rows.name, moved(rows, address), as_json=as_json)


@ledger.command()
@_which
@click.option(
    "--release",
    "folders",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    help="A release whose charge the ledger must hold. Repeatable.",
)
@options.json_option
def verify(found: Ledger, *, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check the whole ledger: where it is kept, history, sums and stored measurements."""
    from dpsql.release import Release

    audit = found.audit()
    for folder in folders:
        Release.load(folder, ledger=found)
    if as_json:
        output.say_json({"path": found.place, **asdict(audit), "releases": len(folders)})
        return
    output.say(
        f"{found.place} is intact: {audit.entries:,} charges, {audit.events:,} events, "
        f"{audit.contents:,} stored measurements of {audit.content_bytes:,} bytes"
    )
    for folder in folders:
        output.say(f"{folder}: its charge is in the ledger")


def _rows(db: Rows | None, folder: Path | None, address: str) -> Path:
    """Return the database or the folder that is named."""
    from dpsql.privacy import is_address

    if (db is None) == (folder is None):
        raise click.UsageError("Name the rows by --db or by --folder.")
    if not is_address(address):
        raise click.UsageError("--ledger is the address of a server here, postgresql://….")
    return opening.account_of(db) if db is not None else cast(Path, folder)


def _say_bound(rows: str, ledger: Ledger, *, as_json: bool) -> None:
    if as_json:
        output.say_json({"path": ledger.place, "dataset": ledger.dataset})
    else:
        output.say(f"{printable(rows)} is charged for in {ledger.place}, as {ledger.dataset}")


def _existing(
    path: Path | str | None, db: Rows | None, address: str | None, dataset: str | None
) -> Ledger:
    """Open the ledger that is named; none is made."""
    from dpsql.privacy import Ledger, is_address, ledger_path, open_ledger

    if (path is None) == (db is None):
        raise click.UsageError("Name the ledger's place, or the database by --db.")
    if (dataset is not None and not is_address(path)) or (
        address is not None and (db is None or not is_address(address))
    ):
        raise click.UsageError(
            "A server is named as dpsql ledger … postgresql://… --dataset NAME, or by --db FILE "
            "--ledger postgresql://…."
        )
    if db is None:
        return Ledger.existing(path or "", dataset=dataset or "")
    rows = opening.account_of(db)
    if address is not None:
        return open_ledger(rows, address)
    place = ledger_path(rows)
    if not place.exists():
        shown = printable(db if isinstance(db, str) else rows.name)
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
        **({"delta": entry.delta} if entry.delta else {}),
        "request": entry.request,
    }
