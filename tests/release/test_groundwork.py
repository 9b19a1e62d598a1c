"""Groundwork of releases: all that was found, drawn or released first, and its charges.

Each record of it in a saved folder is left out and changed in turn, in folders of many kinds, by
someone who knows how a release is sealed.
"""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from typing import Any

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import LedgerError, ReleaseFormatError
from dpsql.release import folder
from dpsql.release.measurements import decode
from tests.release.saved import reseal

pytestmark = pytest.mark.slow  # the folders take long; tests/session/test_wanted.py forges one
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
ROWS = """CREATE TABLE sales AS SELECT ['AA', 'UA', 'DL', 'B6'][i % 4 + 1] AS carrier,
    (i % 4 * 10 + i % 3)::INTEGER AS flight, (i % 97)::DOUBLE AS price, (i % 50)::INTEGER AS delay,
    ['x', 'y'][i % 2 + 1] AS city FROM range(20000) AS t(i)"""
CITIES = "SELECT city, COUNT(*) AS n FROM sales GROUP BY city"
PAIRS = "SELECT carrier, flight, COUNT(*) AS n FROM sales GROUP BY ALL"
SUMS = "SELECT city, SUM(price) AS s FROM sales GROUP BY city"
MEDIANS = "SELECT city, MEDIAN(delay) AS m FROM sales GROUP BY city"
DEARER = "SELECT COUNT(*) AS n FROM sales WHERE price > (SELECT AVG(price) FROM sales)"
OTHERS = "SELECT carrier, COUNT(*) AS n FROM sales GROUP BY carrier"
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "keys": (CITIES, {}),
    "keys of an expression": ("SELECT upper(city) AS c, COUNT(*) AS n FROM sales GROUP BY c", {}),
    "pairs": (PAIRS, {}),
    "bounds": (SUMS, {}),
    "medians": (MEDIANS, {}),
    "a value": (DEARER, {}),
    "all": ({"c": CITIES, "s": SUMS, "m": MEDIANS, "p": PAIRS, "d": DEARER}, {}),
    "adaptive": (PAIRS, {"mechanism": "aim"}),
    "of largest entropy": (f"{CITIES[:12]}carrier, COUNT(*) AS n FROM sales GROUP BY ALL",
                           {"mechanism": "pairs"}),
    "pure": (CITIES, {"mechanism": "laplace", "budget": dpsql.Budget(epsilon=2, delta=0),
                      "keys": dpsql.Keys(delta=1e-9)}),
}  # fmt: skip
RECORDS = "found_keys", "found_bounds", "drawn_quantiles", "released_values"
FREE = "keys", "pairs", "bounds", "medians", "all"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a folder of each kind that was asked for, with its ledger."""
    made, root = {}, tmp_path_factory.mktemp("folders")

    def of(kind, *, free=False):
        if (kind, free) not in made:
            con = duckdb.connect()
            con.execute(ROWS).fetchall()
            session, (asked, options) = dpsql.Session(con), KINDS[kind]
            found = {"keys": dpsql.Keys(), "bounds": dpsql.Bounds()}
            options = {"budget": BUDGET, **found, **options}
            path = root / f"{len(made)}"
            if free:
                session.release(asked, **options)
                options["budget"] = 0
            session.release(asked, out=path, **options)
            made[kind, free] = path, session.ledger
        return made[kind, free]

    return of


@pytest.fixture
def forged(folders, tmp_path):
    """Copy a folder to be forged."""

    def of(kind, *, free=False):
        path, ledger = folders(kind, free=free)
        shutil.rmtree(tmp_path / "forged", ignore_errors=True)
        shutil.copytree(path, tmp_path / "forged")
        return tmp_path / "forged", ledger

    return of


def said_of(path):
    return json.loads((path / "release.json").read_text())


def records(path):
    said = said_of(path)
    return [(name, number) for name in RECORDS for number in range(len(said.get(name, ())))]


def leaves(value, here=()):
    """List where the plain values of a record are; of lists of plain values, the last."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else [*enumerate(value)]
        if isinstance(value, list) and value and not isinstance(value[0], dict | list):
            items = items[-1:]
        return [leaf for name, inner in items for leaf in leaves(inner, (*here, name))]
    return [here]


def another(value):
    """Return another value of the same form."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return value + 1
    try:
        return str((Fraction(value) + Fraction(1, 10**7)) / 2)
    except ValueError:
        return value + "x"


def change(record, leaf):
    *outer, last = leaf
    for name in outer:
        record = record[name]
    record[last] = another(record[last])


@pytest.mark.parametrize("free", [False, True], ids=["paid", "free"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_that_nobody_changed(folders, kind, free):
    if free and kind not in FREE:
        return
    path, ledger = folders(kind, free=free)
    loaded = dpsql.Release.load(path, ledger=ledger)
    assert records(path)
    charges = {one.request for one in loaded.facts.groundwork.charges}
    for source in loaded.sources[-1:] if not free else ():
        assert set(source.groundwork) == charges
    if loaded.facts.biased:
        return
    for name, sql in loaded.facts.statements.items():
        again = loaded.query(sql)
        assert_frame_equal(loaded[name].select(again.columns), again, rel_tol=1e-6)


@pytest.mark.parametrize("free", [False, True], ids=["paid", "free"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_is_left_out_is_missed(forged, kind, free):
    if free and kind not in FREE:
        return
    path, _ = forged(kind, free=free)
    for name, number in records(path):
        path, _ = forged(kind, free=free)
        reseal(path, lambda said: said[name].pop(number))  # noqa: B023
        with pytest.raises(ReleaseFormatError):
            dpsql.Release.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_is_left_out_with_its_charge_is_missed(forged, kind):
    """The measurements say for which charges there is what they rest on besides."""
    path, ledger = forged(kind)
    for name, number in records(path):
        path, ledger = forged(kind)

        def without(said):
            gone = said[name].pop(number)  # noqa: B023
            charges = gone.get("charges", [gone.get("charge")])
            kept = [one for other in RECORDS for of in said.get(other, ())
                    for one in of.get("charges", [of.get("charge")])]  # fmt: skip
            kept += said["rests_also_on"]
            said["charges"] = [one for one in said["charges"] if one not in charges or one in kept]
            for other in RECORDS:
                if not said.get(other, [1]):
                    del said[other]
            if not any(other in said for other in RECORDS):
                del said["charges"]
                aside = "key_delta" in said["budget"]["asked"]
                said["format"] = folder.ASIDE if aside else folder.FORMAT

        before = {charge["request"] for charge in said_of(path)["charges"]}
        reseal(path, without)
        after = {charge["request"] for charge in said_of(path).get("charges", ())}
        if after == before:  # another record rests on it as well
            continue
        with pytest.raises(ReleaseFormatError, match="rest on other charges"):
            dpsql.Release.load(path)
        with pytest.raises(ReleaseFormatError):
            dpsql.Release.load(path, ledger=ledger)


@pytest.mark.parametrize("kind", ["all", "keys of an expression", "pure"])
def test_whatever_is_changed_of_a_record_the_ledger_contradicts(forged, kind):
    path, ledger = forged(kind)
    text, said, passed = (path / "release.json").read_text(), said_of(path), set()
    for name, number in records(path):
        for leaf in leaves(said[name][number]):
            (path / "release.json").write_text(text)
            reseal(path, lambda said: change(said[name][number], leaf))  # noqa: B023
            try:
                dpsql.Release.load(path, ledger=ledger)
            except (ReleaseFormatError, LedgerError):
                continue
            passed.add((name, leaf))
    # Statements are vouched for by nobody; and a quantile is known by its name, wherever it stands.
    assert {leaf for name, leaf in passed if leaf[0] not in {"at", "statement"}} == set()


@pytest.mark.parametrize("field", ["charges", "format"])
def test_charges_belong_to_the_format(forged, field):
    path, _ = forged("keys")
    reseal(path, lambda said: said.pop(field))
    with pytest.raises(ReleaseFormatError):
        dpsql.Release.load(path)


def test_measurements_keep_their_groundwork(folders):
    path, ledger = folders("all")
    (*_, entry) = ledger.entries()
    (source,) = decode(ledger.content(entry))
    assert len(source.groundwork) == len(set(source.groundwork)) > 3
    assert said_of(path)["format"] == folder.GROUNDED
