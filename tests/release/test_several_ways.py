"""Tables that lead to their units by several ways, as in OMOP and MIMIC; and by a column's name."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError
from tests.helpers.inserted import insert
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

HUGE = dpsql.Budget(rho=Fraction(10**13))
NAMES = ("person", "visit", "drug", "note")
TABLES = """
    CREATE TABLE person (person_id INTEGER{key}, sex VARCHAR NOT NULL CHECK (sex IN ('f', 'm')));
    CREATE TABLE visit (visit_id INTEGER{key}, person_id INTEGER{to_person},
        ward INTEGER NOT NULL CHECK (ward BETWEEN 0 AND 3));
    CREATE TABLE drug (person_id INTEGER{to_person}, visit_id INTEGER{to_visit},
        dose INTEGER NOT NULL CHECK (dose BETWEEN 0 AND 9));
    CREATE TABLE note (visit_id INTEGER{to_visit});
"""
ENFORCED = {
    "key": " PRIMARY KEY",
    "to_person": " REFERENCES person (person_id)",
    "to_visit": " REFERENCES visit (visit_id)",
}
PLAIN = dict.fromkeys(ENFORCED, "")
REFERENCES = {
    "visit.person_id": "person.person_id",
    "drug.person_id": "person.person_id",
    "drug.visit_id": "visit.visit_id",
    "note.visit_id": "visit.visit_id",
}
TO_VISITS = {name: key for name, key in REFERENCES.items() if key == "visit.visit_id"}
BOUNDS = {"person": 1, "visit": 3, "drug": 4, "note": 3}
WAYS = {
    "by FOREIGN KEYs": (ENFORCED, "person", {}),
    "by declared keys": (PLAIN, "person", REFERENCES),
    "by a name": (PLAIN, "person_id", TO_VISITS),
}
"""How the tables lead to their units: the keys, the unit, and the references that are declared."""
SCRIPTS = [
    {"a": "SELECT dose, COUNT(*) AS n FROM drug GROUP BY 1"},
    {
        "a": "SELECT ward, SUM(dose) AS n FROM drug JOIN visit ON drug.visit_id = visit.visit_id "
        "GROUP BY 1",
        "b": "SELECT COUNT(*) AS n FROM drug",
    },
    {"a": "SELECT ward, COUNT(*) AS n FROM note JOIN visit USING (visit_id) GROUP BY 1"},
    {
        "a": "SELECT COUNT(*) AS n FROM visit v WHERE EXISTS (SELECT 1 FROM drug d WHERE "
        "d.person_id = v.person_id AND d.dose > 4)"
    },
    {
        "a": "SELECT COUNT(DISTINCT person_id) AS n FROM drug WHERE dose > 2",
        "b": "SELECT ward, COUNT(*) AS n FROM visit GROUP BY 1",
    },
]


def rows(seed, persons=12, apart=None):
    """Rows of each person. Half of the drugs say another person than the visit does.

    None refers to a visit of the person `apart` from outside: as long as there is such a row, the
    database doesn't let that person go.
    """
    rng = random.Random(seed)  # noqa: S311
    visits = Counter({i: rng.choice([0, 1, 2, 5]) for i in range(persons)})
    places = [(i, 100 * i + n) for i in range(persons) for n in range(visits[i])]
    found = {}
    for i in range(persons):
        met = [visit for who, visit in places if who == i or who != apart] + [None]
        own = [visit for who, visit in places if who == i] + [None]
        drugs = [(i, rng.choice(rng.choice([own, met])), rng.randrange(10)) for _ in range(5)]
        found[i] = {
            "person": [(i, rng.choice("fm"))],
            "visit": [(visit, i, rng.randrange(4)) for who, visit in places if who == i],
            "drug": drugs[: rng.randrange(6)],
            "note": [(rng.choice(own[:-1]),) for _ in range(4) if own[:-1]],
        }
    return found


def database(keys, found, without=None):
    con = duckdb.connect()
    con.execute(TABLES.format(**keys))
    for name in NAMES:
        insert(con, name, [row for i, own in found.items() if i != without for row in own[name]])
    return con


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(120))
def test_neighbors_differ_by_what_is_charged(seed):
    """Rows of others may say that they are of a visit of the one who comes or goes."""
    rng = random.Random(seed)  # noqa: S311
    how = list(WAYS)[seed % len(WAYS)]
    keys, key, references = WAYS[how]
    bounds = {**BOUNDS, "drug": rng.choice([1, 2, 4]), "visit": rng.choice([1, 3])}
    units = {name: dpsql.Unit(key, bounds) for name in NAMES}
    if how == "by a name":
        units["note"] = dpsql.Unit("visit.person_id", bounds)
    schema = dpsql.Schema({}, units=units, references=references)
    asked = {"script": SCRIPTS[seed % len(SCRIPTS)], "schema": schema}
    gone = rng.randrange(12)
    found = rows(seed, apart=gone if keys is ENFORCED else None)
    budget = dpsql.Budget(rho=Fraction(1, 2))
    whole = recorded(database(keys, found), asked, budget=budget)
    fewer = recorded(database(keys, found, without=gone), asked, budget=budget)
    check_alike(whole, fewer)
    assert spent(whole, fewer) <= charged(whole)


@pytest.mark.parametrize("how", WAYS)
def test_a_row_follows_the_way_that_was_taken(how):
    """A drug is of the person that it names, whoever's visit it names besides."""
    keys, key, references = WAYS[how]
    con = database(keys, rows(3))
    unit = dpsql.Unit(key, {"visit": 99, "drug": 99, "person": 1}, references=references)
    session = dpsql.Session(con, unit=unit)

    def ask(sql):
        return session.query(sql, budget=HUGE).select("ward", "n").sort("ward").rows()

    sql = (
        "SELECT ward, COUNT(*) AS n FROM drug JOIN visit ON drug.visit_id = visit.visit_id{} "
        "GROUP BY 1"
    )
    met = dict(con.sql(sql.format(" AND drug.person_id = visit.person_id")).fetchall())
    every = dict(con.sql(sql.format("")).fetchall())
    assert met != every
    assert {ward: round(n) for ward, n in ask(sql.format("")) if round(n)} == met
    plan = session.plan({"q": sql.format("")}, budget=HUGE)
    who = "person.person_id" if references is not TO_VISITS else "person_id"
    way = "drug.person_id → person" if references is not TO_VISITS else "drug.person_id"
    assert plan.neighbours == (
        f"add or remove one {who} with all of its rows, of which at most 99 are kept; its rows are "
        f"found in drug by {way}"
    )


def test_names_alone_say_nothing_of_tables_of_units():
    """Customers and suppliers with an id each are not the same units."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, s INTEGER); CREATE TABLE suppliers (id "
        "INTEGER PRIMARY KEY); CREATE TABLE logs (id VARCHAR); CREATE TABLE visits (id INTEGER)"
    )
    same, keys = "no FOREIGN KEYs say that these are the same", "declare the keys that lead to one"
    for other, said, hint in (
        ("suppliers", same, keys),
        ("logs", "Rows of different units can't meet", "each of the tables in its own statement"),
    ):
        units = {"visits": dpsql.Unit("id", 3), other: dpsql.Unit("id", 3)}
        session = dpsql.Session(con, schema=dpsql.Schema({}, units=units))
        script = {"a": "SELECT COUNT(*) FROM visits", "b": f"SELECT COUNT(*) FROM {other}"}
        with pytest.raises(SqlError, match=same):
            session.plan(script, budget=HUGE)
        of = f"SELECT 1 FROM {other} o WHERE o.id = v.id"
        sql = f"SELECT COUNT(*) FROM visits v WHERE EXISTS ({of})"
        with pytest.raises(SqlError, match=said) as caught:
            session.plan(sql, budget=HUGE)
        assert hint in caught.value.hint
