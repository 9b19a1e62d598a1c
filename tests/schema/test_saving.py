"""`Schema.save`: what is written is read back to the same, or nothing is written."""

from __future__ import annotations

import os
import stat

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dpsql
from dpsql.errors import SchemaError
from dpsql.schema import EACH_ROW, Domain, Schema, Unit
from dpsql.schema.toml import MAX_BYTES
from tests.schema.strategies import declared_domains, texts
from tests.schema.test_documents import EVERYTHING, load

names = st.one_of(
    texts,
    st.sampled_from(["columns", "unit", "groups", "a.b.c", 'x"]\ny = 1', "\u202e", "rows", "' #"]),
)


def each(keys, values, least=0):
    """Mappings whose keys are told apart by SQL, which ignores case."""
    return st.lists(
        st.tuples(keys, values), min_size=least, max_size=3, unique_by=lambda item: item[0].lower()
    ).map(dict)


@st.composite
def groups(draw):
    columns = draw(st.lists(names, min_size=2, max_size=3, unique_by=str.lower))
    if draw(st.booleans()):
        return tuple(columns), draw(st.sampled_from(["calendar", "airlines"]) | texts)
    rows = st.lists(texts, min_size=len(columns), max_size=len(columns)).map(tuple)
    return tuple(columns), draw(st.lists(rows, min_size=1, max_size=4))


units = st.just(EACH_ROW) | st.builds(
    Unit, names.filter(lambda name: name.strip() != ""), st.integers(1, 1_000_000)
)


@st.composite
def schemas(draw):
    tables = draw(each(names, each(names, declared_domains()), least=1))
    declared = [st.sampled_from(sorted(tables))] if tables else [names]
    return Schema(
        tables,
        units=draw(each(declared[0], units)),
        groups=draw(each(declared[0], st.lists(groups(), min_size=1, max_size=2))),
    )


def same(one: Schema, other: Schema) -> bool:
    tables = [{name: dict(columns) for name, columns in s.items()} for s in (one, other)]
    rest = [(dict(s.units), dict(s.groups)) for s in (one, other)]
    return tables[0] == tables[1] and rest[0] == rest[1]


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(schemas())
def test_what_is_saved_is_read_back(tmp_path, schema):
    path = tmp_path / "schema.toml"
    path.unlink(missing_ok=True)
    schema.save(path)
    assert same(Schema.load(path), schema)


def test_a_schema_file_is_written_again(tmp_path):
    schema = load(tmp_path, EVERYTHING)
    schema.save(str(tmp_path / "again.toml"))
    assert same(Schema.load(tmp_path / "again.toml"), schema)


def test_tables_that_have_units_only_are_declared(tmp_path):
    schema = Schema({}, units={"visits": Unit("person", 3), "zones": EACH_ROW})
    schema.save(tmp_path / "schema.toml")
    assert Schema.load(tmp_path / "schema.toml").units == schema.units


def test_the_command_line_drafts_with_what_was_saved(tmp_path):
    """Both write tables alike: what `dpsql schema --toml` prints of it is saved to the same."""
    from dpsql.schema.catalog import read_table
    from dpsql.schema.document import write_toml

    con = duckdb.connect()
    con.execute("CREATE TABLE t (age INTEGER, month INTEGER, day INTEGER)").fetchall()
    schema = Schema(
        {"t": dict.fromkeys(("age", "month", "day"), Domain.integers(1, 31, nullable=True))},
        groups={"t": [(("month", "day"), "calendar")]},
    )
    schema.save(tmp_path / "schema.toml")
    assert (tmp_path / "schema.toml").read_text() == write_toml([read_table(con, ("t",), schema)])


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text("mine")
    with pytest.raises(SchemaError, match="such a file already") as error:
        Schema({"t": {"b": Domain.boolean()}}).save(path)
    assert "another name" in error.value.hint
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (Schema({"t": {"a": Domain.boolean(), "A": Domain.boolean()}}), "declared twice"),
        (Schema({"t": {"x": Domain.integers(0, 5).as_type("TINYINT")}}), "can't be written"),
        (Schema({"t": {"x": Domain.labels(["\ud800"])}}), "not a Unicode"),
        (Schema({"t": {"x": Domain.labels([f"{i:0999}" for i in range(1100)])}}), f"{MAX_BYTES:,}"),
        (Schema({"t": {"a." * 300: Domain.boolean()}}), "dots"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, schema, message):
    with pytest.raises(SchemaError, match=message) as error:
        schema.save(tmp_path / "schema.toml")
    assert error.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [None, 3, "\0", "no/such/folder/schema.toml"])
def test_places_that_can_not_be_written(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchemaError) as error:
        Schema({}).save(path)
    assert error.value.hint


def test_a_saved_schema_is_an_ordinary_file(tmp_path):
    path = tmp_path / "schema.toml"
    mask = os.umask(0o022)
    try:
        dpsql.Schema({"t": {"b": Domain.boolean()}}).save(path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text().startswith("# What is public about the tables")
