"""Which files are the rows of a version of a Delta table, and whose account these are in."""

from __future__ import annotations

import os
import shutil

import duckdb
import pyarrow as pa
import pytest

from dpsql.engines.delta import LOG, version_of
from dpsql.errors import SchemaError

deltalake = pytest.importorskip("deltalake")
ROWS = pa.table({"sex": ["F", "M", None, "F"]})
OTHERS = pa.table({"sex": ["M"] * 7})


def made(path, rows=ROWS):
    """Make a table, and return its one file."""
    deltalake.write_deltalake(str(path), rows)
    (file,) = path.glob("*.parquet")
    return file


def called(path, file, name):
    """Let the log of a table give a file another name."""
    log = path / LOG / "00000000000000000000.json"
    log.write_text(log.read_text().replace(file.name, name))


def rows_of(place):
    files = list(version_of(str(place), None).files)
    with duckdb.connect() as con:
        return con.execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchone()[0]


FOLDERS = ["a b", "ü", "a#b", 'a"b', "a`b", "a, b", "a;b", "a+b", "a'b", "a:b", "a=b", "_a", "a^b"]


@pytest.mark.parametrize("name", FOLDERS)
def test_files_are_those_of_the_folder_whatever_it_is_called(tmp_path, name):
    """The names that the log's reader tells have some characters of folders coded."""
    file = made(tmp_path / "rows")
    path = tmp_path / name
    shutil.copytree(tmp_path / "rows", path)
    found = version_of(str(path), None)
    assert found.files == (str(path / file.name),)
    assert rows_of(path) == 4


def test_a_folder_of_another_name_has_nothing_of_it(tmp_path):
    """As coded, the names of one are those of the other: files of that were counted for it."""
    path, other = tmp_path / "a b", tmp_path / "a%20b"
    file = made(tmp_path / "rows")
    for folder in (path, other):
        shutil.copytree(tmp_path / "rows", folder)
    file = path / file.name
    assert version_of(str(path), None).files == (str(file),)
    shutil.rmtree(other / LOG)
    other.joinpath(LOG).mkdir()
    # What reads its log would read that of the other one, whose account was its own then.
    with pytest.raises(SchemaError, match="%") as caught:
        version_of(str(other), None)
    assert caught.value.hint
    assert version_of(f"file://{tmp_path}/a%20b", None) == version_of(str(path), None)


@pytest.mark.parametrize(
    ("logged", "name"),
    [("a%20b", "a b"), ("a b", "a b"), ("%C3%BC", "ü"), ("a%2520b", "a%20b"), ("b%2Fc", "b/c")],
)
def test_names_of_files_are_decoded_once(tmp_path, logged, name):
    path = tmp_path / "rows"
    file = made(path)
    (path / name).parent.mkdir(exist_ok=True)
    file.rename(path / name)
    called(path, file, logged)
    assert version_of(str(path), None).files == (str(path / name),)
    assert rows_of(path) == 4


@pytest.mark.parametrize(
    "name",
    [
        "{other}", "file://{other}", "FILE:{other}", "s3://bucket/0.parquet", "../other/0.parquet",
        "..%2Fother%2F0.parquet", "%2E%2E/other/0.parquet", "x//0.parquet", "./0.parquet", "",
    ],
)  # fmt: skip
def test_files_that_are_named_outside_of_the_folder_are_refused(tmp_path, name):
    """A clone that names the files of another table has its rows, which have an account there."""
    other, path = tmp_path / "other", tmp_path / "rows"
    file = made(path)
    other.mkdir()
    shutil.copy(file, other / "0.parquet")
    called(path, file, name.format(other=other / "0.parquet"))
    with pytest.raises(SchemaError, match="in its folder") as caught:
        version_of(str(path), None)
    assert "AS SELECT" in caught.value.hint


def test_a_file_that_a_link_leads_to_is_in_the_account_of_its_folder_too(tmp_path):
    """Its rows had a second account otherwise, that of the table with the link."""
    other, path = tmp_path / "other", tmp_path / "rows"
    linked = made(other)
    shutil.copytree(other, path)
    assert version_of(str(path), None).roots == (path,)
    (path / linked.name).unlink()
    (path / linked.name).symlink_to(linked)
    assert version_of(str(path), None).roots == (other, path)
    (tmp_path / "link").symlink_to(path)
    assert version_of(str(tmp_path / "link"), None) == version_of(str(path), None)


def test_a_table_has_one_account_however_it_is_named(tmp_path, monkeypatch):
    path = tmp_path / "lake" / "rows"
    made(path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    names = [
        str(path), f"{path}/", f"file://{path}", f"FILE:{path}", f"file://localhost{path}",
        f"{tmp_path}//lake/./rows", f"{tmp_path}/lake/../lake/rows", f"{tmp_path}/link/rows",
        os.path.join(".", "lake", "rows"), "lake/rows",
    ]  # fmt: skip
    found = [version_of(name, None) for name in names]
    assert all(one == found[0] for one in found)
    assert found[0].roots == (path,)


def test_a_table_without_files_has_no_rows(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "rows"), ROWS.slice(0, 0))
    found = version_of(str(tmp_path / "rows"), None)
    assert found.files == ()
    assert found.roots == (tmp_path / "rows",)
