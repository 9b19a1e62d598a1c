"""A folder of `.sql` files is one script, named by its files and always in the same order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dpsql
from dpsql.sql.text import script as folders
from tests.cli.conftest import commands as commands  # a fixture

SQL = "SELECT COUNT(*) AS n FROM people"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_statements_are_named_as_their_files(tmp_path):
    models = write(
        tmp_path / "models",
        {
            "z.sql": f"{SQL};\n",
            "marts/core/b.sql": f"-- about people\n{SQL} GROUP BY sex",
            "marts/a.sql": f"CREATE TABLE a AS {SQL}",
            "Upper.SQL": f"-- name: upper\n{SQL}",
            "c.sql": "SELECT '{{ kept }}' AS k, COUNT(*) AS n FROM people",
            ".hidden.sql": "no",
            ".git/x.sql": "no",
            "schema.yml": "no",
            "readme": "no",
        },
    )
    (models / "linked").symlink_to(tmp_path)
    (models / "folder.sql").mkdir()
    found = dpsql.read_script(models)
    assert list(found) == ["Upper", "c", "a", "b", "z"]
    assert found["b"] == f"{SQL} GROUP BY sex"
    assert found["a"] == found["z"] == SQL
    assert dpsql.read_script(str(models)) == found


@pytest.mark.parametrize("what", ["link", "link to nothing", "link to a folder", "pipe"])
def test_only_plain_files_are_read(tmp_path, what):
    """Errors show a line of the SQL: no line of a file may be in one that isn't in the folder."""
    secret = tmp_path / "secret.txt"
    secret.write_text("user:TOPSECRETHASH:19000", encoding="utf-8")
    models = write(tmp_path / "models", {"b.sql": SQL, "c/d.sql": SQL})
    if what == "pipe":
        os.mkfifo(models / "c" / "a.sql")
    else:
        to = {"link": secret, "link to a folder": tmp_path}.get(what, tmp_path / "nothing")
        (models / "c" / "a.sql").symlink_to(to)
    with pytest.raises(dpsql.DpsqlError, match="not a plain file") as caught:
        dpsql.read_script(models)
    assert "c/a.sql" in str(caught.value)
    assert "TOPSECRET" not in str(caught.value)


def test_a_link_that_takes_the_place_of_a_file_meanwhile_is_not_followed(tmp_path, monkeypatch):
    secret = tmp_path / "secret.txt"
    secret.write_text("user:TOPSECRETHASH:19000", encoding="utf-8")
    models = write(tmp_path / "models", {"a.sql": SQL})
    real = os.stat

    def swapped(path, **how):
        found = real(path, **how)
        if path == "a.sql":
            (models / "a.sql").unlink()
            (models / "a.sql").symlink_to(secret)
        return found

    monkeypatch.setattr(folders.os, "stat", swapped)
    with pytest.raises(OSError, match="symbolic links"):
        dpsql.read_script(models)


def test_the_order_is_that_of_names_whatever_the_system_lists_first(tmp_path, monkeypatch):
    names = [f"s{i}" for i in range(30)]
    models = write(tmp_path / "m", {f"{name}.sql": SQL for name in names})
    real = os.walk

    def backwards(*given, **options):
        for place, below, files in real(*given, **options):
            below.sort(reverse=True)
            yield place, below, sorted(files, reverse=True)

    first = list(dpsql.read_script(models))
    monkeypatch.setattr(folders.os, "walk", backwards)
    assert list(dpsql.read_script(models)) == first == sorted(names)


REFUSED = {
    "two.sql": (f"{SQL}; {SQL}", "has 2 statements"),
    "none.sql": ("-- nothing", "no statement"),
    "by-sex.sql": (SQL, "not an identifier"),
    "<script>.sql": (SQL, "not an identifier"),
    f"{'x' * 70}.sql": (SQL, "not an identifier"),
    ".sql.sql": (SQL, "has no .sql file"),
    "named.sql": (f"-- name: other\n{SQL}", "named other"),
    "filled.sql": ("SELECT COUNT(*) AS n FROM {{ ref('people') }}", "is a template"),
    "blocks.sql": ("{% if x %} SELECT 1 {% endif %}", "is a template"),
    "config.sql": ("{{ config(materialized='table') }} SELECT 1", "is a template"),
    "dashes.sql": ("SELECT {{- x -}}", "is a template"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_where_and_what_to_do(tmp_path, name):
    text, message = REFUSED[name]
    models = write(tmp_path / "m", {f"below/{name}": text})
    with pytest.raises(dpsql.SqlError, match=message) as caught:
        dpsql.read_script(models)
    assert caught.value.hint
    if "no .sql file" not in message:
        assert f"below/{name}" in str(caught.value)


def test_files_that_collide(tmp_path):
    for first, second in (("a/x.sql", "b/x.sql"), ("x.sql", "X.sql"), ("c/y.sql", "Y.SQL")):
        models = write(tmp_path / first.replace("/", "_"), {first: SQL, second: SQL})
        with pytest.raises(dpsql.SqlError, match="Two files are named") as caught:
            dpsql.read_script(models)
        assert caught.value.hint


def test_what_is_not_text_or_too_much(tmp_path, monkeypatch):
    with pytest.raises(dpsql.SqlError, match=r"no \.sql file"):
        dpsql.read_script(tmp_path)
    (tmp_path / "a.sql").write_bytes(b"SELECT '\xff'")
    with pytest.raises(dpsql.SqlError, match="UTF-8") as caught:
        dpsql.read_script(tmp_path)
    assert "a.sql" in str(caught.value)
    large = write(tmp_path / "large", {f"s{i}.sql": f"{SQL} WHERE {i} = 1" for i in range(3)})
    with monkeypatch.context() as patched:
        patched.setattr(folders, "MAX_SCRIPT_BYTES", 100)
        with pytest.raises(dpsql.SqlError, match="longer than 100 bytes"):
            dpsql.read_script(large)
    for limit in ("MAX_STATEMENTS", "MAX_ENTRIES"):
        with monkeypatch.context() as patched:
            patched.setattr(folders, limit, 2)
            with pytest.raises(dpsql.SqlError, match="has more than"):
                dpsql.read_script(large)
    with pytest.raises(OSError, match="No such file"):
        dpsql.read_script(tmp_path / "nowhere")


def test_commands_take_a_folder(commands):
    models = write(
        commands.folder / "models",
        {
            "by_sex.sql": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex",
            "more/ages.sql": "SELECT age, COUNT(*) AS n FROM people GROUP BY age",
        },
    )
    budget = ("--db", commands.db, "--rho", "1")
    said = commands.document("plan", models, *budget)
    assert {row["statement"] for row in said["statements"]} == {"by_sex", "ages"}
    assert commands.document("compare", models, *budget)["queries"] == 102
    out = commands.folder / "out"
    made = commands.document("release", models, *budget, "--out", out)
    assert made["statements"] == ["by_sex", "ages"]
    assert list(dpsql.Release.load(out)) == ["by_sex", "ages"]
    (models / "broken.sql").write_text("SELECT {{ x }} FROM people")
    result = commands.run("release", models, *budget, "--out", commands.folder / "other")
    assert result.exit_code == 3
    assert "dbt compile" in result.stderr
