"""The command line. Importing it loads nothing heavy: commands import what they use."""

import click

from dpsql.cli.application import Application
from dpsql.cli.commands.compare import compare
from dpsql.cli.commands.demo import demo
from dpsql.cli.commands.ledger import ledger
from dpsql.cli.commands.plan import plan
from dpsql.cli.commands.query import query
from dpsql.cli.commands.release import release
from dpsql.cli.commands.report import report
from dpsql.cli.commands.rows import rows
from dpsql.cli.commands.schema import schema
from dpsql.cli.commands.show import show
from dpsql.cli.commands.synthetic import synthetic


@click.group(cls=Application)
@click.version_option(package_name="dpsql")
def main() -> None:
    """Differentially private SQL over DuckDB.

    Exit codes: 0 done, 2 usage, 3 SQL, 4 schema, 5 budget, 6 ledger, 7 release folder, 8 failed
    after the charge, 9 other, 1 unexpected, 130 interrupted.
    """


for _command in (
    demo,
    schema,
    plan,
    compare,
    release,
    query,
    rows,
    ledger,
    show,
    report,
    synthetic,
):
    main.add_command(_command)
