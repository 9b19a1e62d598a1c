"""From a file of CSV to a first private table: what is typed, and what comes out.

    python -m tests.benchmarks.first_table x.csv sex 'labels = ["f", "m"]' age 'number = [0, 99]'

Types the two commands of `dpsql` as a new user would, in a folder of their own with a copy of the
file, and puts in between the entries of the two columns in place of their drafts. With the names of
the columns alone the draft is taken as `--values` makes it, with no edit at all. Prints what was
typed, how many lines of the draft were edited, and the answer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dpsql.schema.document import TODO
from dpsql.schema.entries import toml_key


def typed(folder: Path, *command: str) -> str:
    """Run a command as it is typed in a folder."""
    shown = " ".join(part if part.isalnum() or "-" in part[:2] else repr(part) for part in command)
    print(f"$ dpsql {shown}", flush=True)
    arguments = [sys.executable, "-m", "dpsql", *command]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def edited(draft: str, entries: dict[str, str]) -> tuple[str, int]:
    """Put entries into the lines of their columns, and count these."""
    lines, count = draft.split("\n"), 0
    for i, line in enumerate(lines):
        for name, entry in entries.items():
            if line.removeprefix(TODO).startswith(f"{toml_key(name)} = {{"):
                lines[i] = f"{toml_key(name)} = {{ {entry} }}"
                count += 1
    return "\n".join(lines), count


def main(file: str, key: str, *rest: str) -> None:
    """Make a table of averages by a key."""
    with tempfile.TemporaryDirectory() as place:
        folder, name = Path(place), Path(file).name
        shutil.copy(file, folder / name)
        values = rest[1] if len(rest) == 3 else rest[0]
        entries = {key: rest[0], values: rest[2]} if len(rest) == 3 else {}
        draft = typed(folder, "schema", name, *([] if entries else ["--values"]))
        text, count = edited(draft, entries)
        (folder / "schema.toml").write_text(text)
        print(f"  {text.count(' = {')} columns drafted, {count} edited")
        table = name.split(".")[0]
        sql = (
            f'SELECT "{key}", COUNT(*) AS n, AVG("{values}") AS mean FROM "{table}" '
            f'GROUP BY "{key}" ORDER BY n DESC LIMIT 5'
        )
        budget = ("--epsilon", "1", "--delta", "1e-9")
        print(typed(folder, "query", sql, "--db", name, "--schema", "schema.toml", *budget))
        print(*sorted(path.name for path in folder.iterdir()))


if __name__ == "__main__":
    main(*sys.argv[1:])
