"""The command line. Importing it loads nothing heavy: commands import what they use."""

import click

from dpsql.cli.application import Application
from dpsql.cli.commands.demo import demo
from dpsql.cli.commands.ledger import ledger
from dpsql.cli.commands.releases import report, show, synthetic
from dpsql.cli.commands.schema import schema
from dpsql.cli.commands.statements import compare, plan, query, release, rows

_EXITS = """Exit codes: 0 done, 2 usage, 3 SQL, 4 schema, 5 budget, 6 ledger, 7 release folder, 8
failed after the charge, 9 other, 10 accuracy, 1 unexpected, 130 interrupted."""


_BEGIN = """Differentially private SQL over files of CSV and Parquet, and over DuckDB.

Where to begin, with a file of your own:

\b
  dpsql schema people.csv > people.toml
  dpsql query "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex" \\
      --db people.csv --schema people.toml --epsilon 1 --delta 1e-9

The first command drafts what is public of its columns: decide on those that you ask by. Or look at
an example first, which needs no file:

\b
  dpsql demo
"""


@click.group(cls=Application, help=_BEGIN, epilog=_EXITS)
@click.version_option(package_name="dpsql")
def main() -> None:
    """Run a command."""


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
