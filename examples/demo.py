"""Release the Adult census extract: `dpsql demo`, or `python examples/demo.py`.

A script of eleven statements is planned jointly. The expected error of each is printed before
anything is spent, then the first rows of each answer, what was charged and what is left.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import polars as pl
from rich.console import Console
from rich.progress import Progress

import dpsql

HERE = Path(__file__).parent
TOTAL = dpsql.Budget(epsilon=2, delta=1e-9)
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)


def load_adult(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table `adult` with its public declarations and fill it."""
    con.execute((HERE / "adult_schema.sql").read_text(encoding="utf-8")).fetchall()
    columns = ", ".join(
        name
        for (name,) in con.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = 'adult'"
            " ORDER BY column_index"
        ).fetchall()
    )
    parquet = str(HERE / "data" / "adult.parquet")
    con.execute(f"INSERT INTO adult SELECT {columns} FROM read_parquet(?)", [parquet]).fetchall()


def main(report: Path | None = None) -> None:
    """Run the demo in a folder that is removed afterwards; a report of it stays."""
    console = Console()
    script = dpsql.read_script(HERE / "adult_release.sql")
    with tempfile.TemporaryDirectory() as folder:
        con = duckdb.connect(Path(folder) / "adult.duckdb")
        load_adult(con)
        session = dpsql.Session(con, budget=TOTAL)
        show_plan(console, session.plan(script, budget=BUDGET))
        release = run(console, session, script)
        for name in release:
            show_frame(console, name, release.show(name))
        show_account(console, session, release)
        if report is not None:
            place = release.report(report, title="The Adult census extract", ledger=session.ledger)
            console.print(f"report: {place}", highlight=False, soft_wrap=True)
        con.close()


def show_plan(console: Console, plan: dpsql.Plan) -> None:
    """Print what is known before any row is read."""
    console.print("Expected error of each statement, before anything is spent:", style="bold")
    console.print(f"{plan}\n", highlight=False, markup=False, soft_wrap=True)


def run(console: Console, session: dpsql.Session, script: dict[str, str]) -> dpsql.Release:
    """Release the script, with a progress display on a terminal and none in a pipe."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks = {name: progress.add_task(name) for name in ("planning", "counting", "measuring")}
        return session.release(
            script,
            budget=BUDGET,
            confidence=0.95,
            progress=lambda phase, done, of: progress.update(
                tasks[phase], completed=done, total=of
            ),
        )


def show_frame(console: Console, name: str, frame: pl.DataFrame) -> None:
    """Print the first rows of an answer."""
    console.print(f"{name}: {frame.height} rows", style="bold", highlight=False)
    with pl.Config(
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_cols=-1,
        tbl_width_chars=120,
    ):
        console.print(str(frame.head(3)), highlight=False, soft_wrap=True)


def show_account(console: Console, session: dpsql.Session, release: dpsql.Release) -> None:
    """Print what was charged and what is left."""
    ledger = session.ledger
    console.print(f"\ncharged {release.charged}; neighbours: {release.neighbours}", highlight=False)
    console.print(
        f"spent {float(ledger.spent / 2):.5f} of {float(ledger.total / 2):.5f} (rho); "
        f"left {float(session.remaining):.5f}",
        highlight=False,
    )


if __name__ == "__main__":
    main()
