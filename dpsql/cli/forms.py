"""Forms of answers: printed as a table, CSV, Parquet or JSON, to a new file, to folders."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from dpsql.cli import options, output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl

    from dpsql.cli.output import AccountReport
    from dpsql.present.exports import Style
    from dpsql.privacy import Ledger
    from dpsql.release import Release

Form = Literal["csv", "parquet", "json"]
About: TypeAlias = "Callable[[Mapping[str, Any]], Mapping[str, Any]]"
"""Makes the metadata of a file, given its name, rows and checksum."""
_ENDINGS: dict[str, Form] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "json",
}


@dataclass(frozen=True, slots=True)
class FrameForm:
    """The form in which one frame is handed out."""

    as_csv: bool
    as_parquet: bool
    out: Path | None

    def check(self, *, as_json: bool, alone: bool = True) -> None:
        """Refuse forms that exclude each other, and a file that can't be written.

        Args:
            as_json: whether JSON is asked for, too: beside a file it is what is printed.
            alone: whether there is a frame at all.

        Raises:
            click.UsageError: they can't be meant together.
            ReleaseFormatError: the file exists, or can't be made.
        """
        from dpsql.present.disk import check_file

        if self.as_csv and self.as_parquet:
            raise click.UsageError("Choose one of --csv and --parquet.")
        if not alone and (self.as_csv or self.as_parquet or self.out):
            raise click.UsageError(
                "--csv, --parquet and --out are for one statement; dpsql release answers several."
            )
        if self.out is None and as_json and (self.as_csv or self.as_parquet):
            raise click.UsageError("Choose one of --csv, --parquet and --json.")
        if self.out is None and self.as_parquet and sys.stdout.isatty():
            raise click.UsageError("Parquet is not for terminals: add --out FILE, or > FILE.")
        if self.out is not None:
            self._form()
            for path in (self.out, _beside(self.out)):
                check_file(path)

    def _form(self) -> Form:
        """Return the form of the file: as is said, or as it is called."""
        if self.as_csv or self.as_parquet:
            return "csv" if self.as_csv else "parquet"
        form = _ENDINGS.get("" if self.out is None else self.out.suffix.lower())
        if form is None:
            raise click.UsageError(
                "--out needs a name that ends in .csv, .parquet or .json, or --csv or --parquet."
            )
        return form

    def say(
        self,
        frame: pl.DataFrame,
        account: AccountReport | None,
        *,
        as_json: bool,
        about: About | None = None,
    ) -> None:
        """Hand a frame out, and say beside it what was charged and what is left.

        Args:
            frame: what is handed out.
            account: what is said.
            as_json: whether all of it is JSON.
            about: makes the metadata that go beside a file.
        """
        document = {} if account is None else account.document
        if self.out is not None:
            self._write(frame, self.out, about)
            if as_json:
                listed = {"out": str(self.out), "columns": frame.columns, "rows": frame.height}
                listed |= {} if about is None else {"metadata": str(_beside(self.out))}
                output.say_json({**listed, **document})
                return
            output.say(f"{self.out}: {output.counted(frame.height, 'row')}")
        elif as_json:
            output.say_json({**_whole(frame), **document})
            return
        elif self.as_csv:
            output.say_csv(frame)
        elif self.as_parquet:
            from dpsql.present.formats import parquet_bytes

            click.echo(bytes(parquet_bytes(frame)), nl=False)
        else:
            output.say_frame(frame)
        for line in () if account is None else account.lines:
            output.note(line)

    def _write(self, frame: pl.DataFrame, path: Path, about: About | None) -> None:
        """Write the file, and its metadata before it: a file never stands without them."""
        from dpsql.present.disk import as_json, digest_of, new_file, write
        from dpsql.present.formats import csv_text, of_file, parquet_bytes

        form = self._form()
        said = None
        try:
            with new_file(path) as draft:
                if form == "parquet":
                    write(draft, parquet_bytes(frame))
                else:
                    whole = (
                        csv_text(frame) if form == "csv" else f"{output.json_text(_whole(frame))}\n"
                    )
                    write(draft, whole.encode())
                if about is not None:
                    file = of_file(path.name, frame.height, digest_of(draft))
                    with new_file(_beside(path)) as beside:
                        write(beside, as_json(about(file)).encode())
                    said = _beside(path)
        except BaseException:
            if said is not None:
                said.unlink(missing_ok=True)
            raise


def _beside(path: Path) -> Path:
    """Return where the metadata of a file are."""
    return path.with_name(f"{path.name}.metadata.json")


def _whole(frame: pl.DataFrame) -> dict[str, object]:
    return {"columns": frame.columns, "rows": frame.to_dicts()}


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Other places to which a release is written."""

    to_csv: Path | None
    to_parquet: Path | None
    to_duckdb: Path | None
    report: Path | None
    style: Style
    max_bytes: int | None
    overwrite: bool

    def __bool__(self) -> bool:
        return any(place is not None for place in self._places)

    @property
    def _places(self) -> tuple[Path | None, ...]:
        return self.to_csv, self.to_parquet, self.to_duckdb, self.report

    def check(self, out: Path | None = None) -> None:
        """Refuse places that can't be written, before anything is charged.

        Args:
            out: the folder to which the release itself goes.

        Raises:
            click.UsageError: there is nothing to overwrite, or a place is named twice.
            ReleaseFormatError: one exists, or can't be made.
        """
        from dpsql.present.disk import check_file
        from dpsql.present.exports import check_place
        from dpsql.present.reported import check_report

        if self.max_bytes is not None and self.report is None:
            raise click.UsageError(
                "--max-bytes is for --report: add that, with a file, or leave it out."
            )
        if self.style != "plain" and self.report is None:
            raise click.UsageError(
                "--style is for --report: add that, with a file, or leave it out."
            )
        if self.overwrite and not self:
            raise click.UsageError(
                "--overwrite is for --to-csv, --to-parquet, --to-duckdb and --report."
            )
        named = [p.absolute() for p in (out, *self._places) if p is not None]
        if len(set(named)) < len(named):
            raise click.UsageError(
                "Two of --out, --to-csv, --to-parquet, --to-duckdb and --report name one place."
            )
        for folder in (self.to_csv, self.to_parquet):
            if folder is not None:
                check_place(folder, overwrite=self.overwrite)
        if self.to_duckdb is not None and not self.overwrite:
            check_file(self.to_duckdb)
        if self.report is not None:
            size = options.most_bytes(self.max_bytes)
            check_report(self.report, overwrite=self.overwrite, max_bytes=size)

    def write(self, release: Release, ledger: Ledger | None = None) -> list[str]:
        """Write a release, and return where it is.

        Args:
            release: the release.
            ledger: says what is left, in a report.
        """
        if self.to_csv is not None:
            release.to_csv(self.to_csv, overwrite=self.overwrite)
        if self.to_parquet is not None:
            release.to_parquet(self.to_parquet, overwrite=self.overwrite)
        if self.to_duckdb is not None:
            release.to_duckdb(self.to_duckdb, overwrite=self.overwrite)
        if self.report is not None:
            release.report(
                self.report,
                ledger=ledger,
                style=self.style,
                max_bytes=options.most_bytes(self.max_bytes),
                overwrite=self.overwrite,
            )
        return [str(place) for place in self._places if place is not None]


def frame_form(command: options.Command) -> options.Command:
    """Give a command that answers with one frame the options of its form, as `form`."""
    return options.gathered("form", _FRAME, lambda given: FrameForm(**given), command)


def elsewhere(command: options.Command) -> options.Command:
    """Give a command that answers with a release the options of other places, as `elsewhere`."""
    return options.gathered("elsewhere", _ELSEWHERE, lambda given: Elsewhere(**given), command)


_PATH: Any = click.Path(path_type=Path)
_FRAME = {
    "as_csv": click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV."),
    "as_parquet": click.option(
        "--parquet",
        "as_parquet",
        is_flag=True,
        help="Write all rows to standard output as Parquet.",
    ),
    "out": click.option(
        "--out",
        type=_PATH,
        metavar="FILE",
        help="Write all rows to a new file: .csv, .parquet or .json, or as --csv or --parquet say.",
    ),
}
_ELSEWHERE = {
    "to_csv": click.option(
        "--to-csv",
        type=_PATH,
        metavar="DIR",
        help="A new folder with a CSV file for each statement, and metadata.",
    ),
    "to_parquet": click.option(
        "--to-parquet", type=_PATH, metavar="DIR", help="The same, with Parquet files."
    ),
    "to_duckdb": click.option(
        "--to-duckdb",
        type=_PATH,
        metavar="FILE",
        help="A new DuckDB database with a table for each statement.",
    ),
    "report": click.option(
        "--report",
        type=_PATH,
        metavar="FILE",
        help="A new HTML page for people, with all answers, errors and the promise.",
    ),
    "style": options.style,
    "max_bytes": options.max_bytes,
    "overwrite": click.option(
        "--overwrite", is_flag=True, help="Replace answers that such an option wrote before."
    ),
}
