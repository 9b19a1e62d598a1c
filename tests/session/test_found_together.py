"""Groups by several columns of which nobody knows values: those that many units have are found."""

from __future__ import annotations

import json
import shutil

import duckdb
import pytest

import dpsql
from dpsql.release import folder

LARGE = dpsql.Budget(rho=10**9)
BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
KEYS = dpsql.Keys(delta="1e-9")
PAIRS = "SELECT carrier, flight, COUNT(*) AS n FROM t GROUP BY carrier, flight"
COUNTS = {
    name: f"SELECT {name}, COUNT(*) AS n FROM t GROUP BY {name}" for name in ("carrier", "flight")
}


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t AS SELECT i AS id, i % 400 AS person, (i % 40)::INTEGER AS flight,
            ['A,A', '1:', '', NULL][i % 4 + 1] AS carrier, i % 7 AS x,
            DATE '2020-01-01' + (i % 5)::INTEGER AS d,
            TIMESTAMP '2020-01-01 10:00:00' + to_hours((i % 50)::INTEGER) AS moment
        FROM range(6000) r (i)
    """)
    return con


def session_of(con, unit=None, **options):
    more = {} if unit is None else {"unit": unit, "max_rows": 20}
    return dpsql.Session(con, **more, **options)


def rows_of(frame, *names):
    return sorted((row for row in frame.select(*names).rows() if round(row[-1] or 0)), key=repr)


ASKED = {
    "carrier, flight": ["(carrier, flight)"],
    "flight, carrier": ["(carrier, flight)"],
    "carrier, flight, d": ["(carrier, d, flight)"],
    "upper(carrier), flight // 10": ["(flight // 10, upper(carrier))"],
    "carrier, date_trunc('day', moment)": ["(carrier, date_trunc('day', moment))"],
    "carrier, CAST(moment AS DATE)": ["(CAST(moment AS DATE), carrier)"],
    "carrier, month(d)": ["carrier"],  # months are known
    "carrier, flight > 3": ["carrier"],
    "carrier || '!', flight, carrier": ["(carrier || '!', carrier, flight)"],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("unit", [None, "person"])
@pytest.mark.parametrize("keys", ASKED)
def test_groups_by_all_that_was_found_are_counted(con, keys, unit):
    names = [f"k{i}" for i in range(len(keys.split(", ")) if "'day'" not in keys else 2)]
    parts = keys.split(", ") if "'day'" not in keys else ["carrier", "date_trunc('day', moment)"]
    listed = ", ".join(f"{part} AS {name}" for part, name in zip(parts, names, strict=True))
    sql = f"SELECT {listed}, COUNT(*) AS n FROM t GROUP BY ALL"
    session = session_of(con, unit)
    with pytest.raises(dpsql.SchemaError, match="no public domain") as refused:
        session.query(sql, budget=BUDGET)
    assert "keys=dpsql.Keys()" in str(refused.value.hint)
    release = session.release({"a": sql}, budget=LARGE, keys=KEYS)
    counted = [(*key, round(n)) for *key, n in rows_of(release["a"], *names, "n")]
    assert counted == sorted(con.execute(sql).fetchall(), key=repr)
    assert [found.label for found in release.facts.found] == ASKED[keys]
    assert session.history["state"].to_list() == ["delivered"] * 2


ALL = "SELECT carrier, flight, COUNT(*) AS n FROM"
STATEMENTS = [
    "SELECT carrier, flight, a.name, COUNT(*) AS n FROM t JOIN airlines a ON code = carrier "
    "GROUP BY ALL",
    f"{ALL} t WHERE x > 2 GROUP BY ALL",
    "SELECT flight + 1 AS f, carrier || '!' AS c, COUNT(*) AS n FROM t GROUP BY carrier, flight",
    "SELECT carrier, flight, SUM(CASE WHEN x > 3 THEN 2 ELSE 0 END) AS n FROM t GROUP BY ALL",
    "SELECT carrier, flight, COUNT(DISTINCT person) AS n FROM t GROUP BY ALL",
    "SELECT carrier, flight, carrier = '1:' AND flight > 8 AS b, COUNT(*) AS n FROM t GROUP BY ALL",
    "SELECT carrier, flight, SUM(COUNT(*)) OVER (PARTITION BY carrier) AS n FROM t GROUP BY 1, 2",
    f"{ALL} t GROUP BY ALL HAVING flight < 9 ORDER BY carrier, flight",
    f"WITH c AS (SELECT carrier, flight FROM t WHERE x > 1) {ALL} c GROUP BY ALL",
    f"{ALL} t GROUP BY ALL UNION ALL {ALL} t WHERE x = 1 GROUP BY carrier, flight",
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sql", STATEMENTS)
def test_whatever_stands_around_them_is_what_duckdb_says(con, sql):
    con.execute(
        "CREATE TABLE airlines AS FROM (VALUES ('A,A', 'One'), ('1:', 'Two')) v (code, name)"
    )
    session = session_of(con, "person", public=["airlines"])
    release = session.release({"a": sql}, budget=LARGE, keys=KEYS)
    names = [name for name in release["a"].columns if not name.endswith("_variance")]
    counted = [(*key, round(n)) for *key, n in rows_of(release["a"], *names)]
    assert counted == sorted(con.execute(sql).fetchall(), key=repr)
    assert [found.label for found in release.facts.found] == ["(carrier, flight)"]


ORDERS = {
    (PAIRS, COUNTS["carrier"]): {"carrier", "(carrier, flight)"},
    (PAIRS, COUNTS["carrier"], COUNTS["flight"]): {"carrier", "flight"},
    ("SELECT carrier, flight, COUNT(*) AS n FROM t GROUP BY ROLLUP (1, 2)",): {"carrier", "flight"},
}


@pytest.mark.parametrize("statements", ORDERS)
def test_the_order_of_statements_decides_nothing(con, statements):
    for asked in (statements, statements[::-1]):
        fresh = duckdb.connect()
        fresh.register("rows", con.sql("FROM t").pl())
        fresh.execute("CREATE TABLE t AS FROM rows")
        release = session_of(fresh).release([*asked], budget=LARGE, keys=KEYS)
        assert {found.label for found in release.facts.found} == ORDERS[statements]
        for sql, frame in zip(asked, release.values(), strict=True):
            names = [name for name in frame.columns if not name.endswith("_variance")]
            counted = [(*key, round(n)) for *key, n in rows_of(frame, *names)]
            assert counted == sorted(con.execute(sql).fetchall(), key=repr)


def test_values_that_were_found_of_each_make_groups_where_they_are_there(con):
    session = session_of(con)
    for name in ("carrier", "flight"):
        session.find_keys("t", name, budget=LARGE, keys=KEYS)
    release = session.release([PAIRS], budget=LARGE)
    assert {found.label for found in release.facts.found} == {"carrier", "flight"}


def test_pairs_are_found_by_themselves_and_kept(con, tmp_path):
    session = session_of(con)
    found = session.find_keys("t", ["flight", "carrier"], budget=LARGE, keys=KEYS)
    true = con.sql("SELECT carrier, flight, count(*) FROM t GROUP BY ALL").fetchall()
    assert sorted(found.keys, key=repr) == sorted([(c, f) for c, f, _ in true], key=repr)
    counted = {(c, f): round(n) for c, f, n in found.counts.rows()}
    assert found.counts.columns == ["carrier", "flight", "units"]
    assert counted == {(c, f): n for c, f, n in true}
    assert "(NULL, 3), (NULL, 7)" in repr(found)
    again = session.find_keys("t", ["carrier", "flight"], budget=0)
    assert again.keys == found.keys
    release = session.release({"a": PAIRS}, budget=LARGE)
    assert "values of t.(carrier, flight) were found" in " ".join(release.summary().split())
    for called in (["carrier", "flight"], ("FLIGHT", "carrier"), "(carrier, flight)"):
        assert release.found_keys("t", called).keys == found.keys
    for called in (["carrier"], [], "carrier", ["carrier", "flight", "d"]):
        with pytest.raises(dpsql.SchemaError, match="No values"):
            release.found_keys("t", called)
    release.save(tmp_path / "saved")
    saved = dpsql.Release.load(tmp_path / "saved", ledger=session.ledger)
    assert saved["a"].equals(release["a"])
    assert saved.found_keys("t", ["carrier", "flight"]).keys == found.keys
    asked = "SELECT flight, carrier, 2 * COUNT(*) AS n FROM t GROUP BY ALL"
    counted = {(c, f): round(n) for f, c, n in saved.query(asked).select("flight", "carrier", "n")
               .rows() if round(n)}  # fmt: skip
    assert counted == {(c, f): 2 * n for c, f, n in true}
    assert saved.query(asked).equals(release.query(asked))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["parts"].pop(),
        lambda found: found["parts"].append(["d", "DATE"]),
        lambda found: found["parts"].__setitem__(1, ["flight", "DATE"]),
        lambda found: found["keys"].__setitem__(0, "1,1:ab"),
        lambda found: found["keys"].__setitem__(0, "no list"),
    ],
)
def test_a_folder_of_other_lists_of_values_is_refused(con, tmp_path, change):
    session = session_of(con)
    release = session.release({"a": PAIRS}, budget=LARGE, keys=KEYS)
    release.save(tmp_path / "saved")
    shutil.copytree(tmp_path / "saved", tmp_path / "forged")
    document = tmp_path / "forged" / "release.json"
    content = json.loads(document.read_text())
    del content["sha256"]
    change(content["found_keys"][0]["computed"])
    document.write_text(folder.as_json({**content, "sha256": folder._digest(content)}))
    with pytest.raises((dpsql.errors.ReleaseFormatError, dpsql.errors.LedgerError)):
        dpsql.Release.load(tmp_path / "forged", ledger=session.ledger)


def test_what_is_assumed_are_pairs(con):
    session = session_of(con, "person")
    plans = [
        session.plan(PAIRS, budget=BUDGET, keys=dpsql.Keys(), assume={"t.(carrier, flight)": n})
        for n in (30, 3000)
    ]
    assert 'assume={"t.(carrier, flight)": 2500}' in plans[0].notes[0]
    assert [plan.expected_error()["rows"].sum() for plan in plans] == [31, 3001]
    assert session.history.is_empty()


def test_counts_take_scores_of_pairs_along(con):
    frame = session_of(con).query(PAIRS, budget=BUDGET, keys=dpsql.Keys())
    (of_pairs,) = set(frame.filter(frame["flight"].is_not_null())["n_variance"].round(3))
    (other,) = frame.filter(frame["carrier"] == "(other)")["n_variance"]
    assert of_pairs < 0.51 * other


def test_hints_of_pairs_can_be_typed(con):
    session = session_of(con)
    with pytest.raises(dpsql.errors.BudgetError, match="were found before") as refused:
        session.release([PAIRS], budget=0, keys=KEYS)
    assert "pass a budget" in str(refused.value.hint)
    with pytest.raises(dpsql.errors.BudgetError) as refused:
        session.release({"a": PAIRS}, targets={"a": 5}, at_most=BUDGET, keys=KEYS)
    call = str(refused.value.hint).partition("find them first: ")[2].rstrip(".")
    assert '["carrier", "flight"]' in call
    found = eval(call, {"session": session, "dpsql": dpsql})  # noqa: S307
    assert found.column == "(carrier, flight)"


@pytest.mark.parametrize(
    ("column", "error", "said"),
    [
        ([], dpsql.errors.ArgumentError, "no list of several"),
        (["carrier"], dpsql.errors.ArgumentError, "no list of several"),
        (["carrier", "carrier"], dpsql.errors.ArgumentError, "no list of several"),
        (["carrier", "nothing"], dpsql.SchemaError, "no column"),
        (["carrier", 3], dpsql.SchemaError, "no column"),
        (["carrier", "person"], dpsql.SchemaError, "person"),
        (["carrier", "moment"], dpsql.SchemaError, "can't be found together"),
        (["carrier", "known"], dpsql.SchemaError, "can't be found together"),
        (["carrier", "flight", "moment"], dpsql.SchemaError, "can't be found together"),
        (["carrier", "month(d)"], dpsql.SchemaError, "can't be found together"),
    ],
)
def test_what_is_no_list_of_unknown_values_is_refused_for_nothing(con, column, error, said):
    con.execute("ALTER TABLE t ADD COLUMN known BOOLEAN")
    session = session_of(con, "person")
    with pytest.raises(error, match=said):
        session.find_keys("t", column, budget=BUDGET)
    assert session.history.is_empty()


@pytest.mark.parametrize("count", [5, 8, 9])
def test_so_many_columns_are_found_together_or_each_by_itself(count):
    con = duckdb.connect()
    listed = ", ".join(f"i % 2 + {n} AS c{n}" for n in range(count))
    con.execute(f"CREATE TABLE wide AS SELECT {listed} FROM range(2000) r (i)")
    keys = ", ".join(f"c{n}" for n in range(min(count, 8)))
    sql = f"SELECT {keys}, COUNT(*) AS n FROM wide GROUP BY ALL"
    release = dpsql.Session(con).release([sql], budget=LARGE, keys=KEYS)
    (frame,) = release.values()
    names = keys.split(", ")
    assert len(release.facts.found) == 1
    counted = [(*key, round(n)) for *key, n in rows_of(frame, *names, "n")]
    assert counted == sorted(con.execute(sql).fetchall(), key=repr)
    if count > 8:
        with pytest.raises(dpsql.DpsqlError):
            dpsql.Session(con).find_keys("wide", [f"c{n}" for n in range(count)], budget=BUDGET)
        session = dpsql.Session(con)
        every = ", ".join(f"c{n}" for n in range(count))
        sql = f"SELECT {every}, COUNT(*) AS n FROM wide GROUP BY ALL"
        with pytest.raises(dpsql.DpsqlError) as refused:
            session.release([sql], budget=LARGE, keys=KEYS)
        assert "||" not in str(refused.value)
        assert session.history.is_empty()


def test_the_label_for_others_is_that_of_the_columns_whatever_their_order(con):
    con.execute(
        "CREATE TABLE q AS SELECT ['(other)', 'b'][i % 2 + 1] AS a, i % 3 AS n "
        "FROM range(3000) r (i)"
    )
    con.execute("INSERT INTO q SELECT 'rare' || i, i + 100 FROM range(500) r (i)")
    schema = {"q": {"a": dpsql.Domain.keys(other="<none>")}}
    for keys in ("a, n", "n, a"):
        sql = f"SELECT {keys}, COUNT(*) AS m FROM q GROUP BY {keys}"
        fresh = duckdb.connect()
        fresh.register("rows", con.sql("FROM q").pl())
        fresh.execute("CREATE TABLE q AS FROM rows")
        frame = dpsql.Session(fresh, schema=schema).query(sql, budget=LARGE, keys=KEYS)
        counted = {(a, n): round(m) for a, n, m in frame.select("a", "n", "m").rows()}
        assert counted["<none>", None] == 500
        assert counted["(other)", 0] == 500
        assert len(counted) == 7


def test_hostile_names_of_columns_are_found_as_hints_say(con):
    con.execute("""
        CREATE TABLE odd AS SELECT 'a' || i % 3 AS "a ""b", i % 4 AS "units", i % 5 AS "x y"
        FROM range(3000) r (i)
    """)
    session = session_of(con)
    sql = """SELECT "a ""b", units, "x y", COUNT(*) AS n FROM odd GROUP BY ALL"""
    with pytest.raises(dpsql.errors.BudgetError) as refused:
        session.release({"a": sql}, targets={"a": 5}, at_most=BUDGET, keys=KEYS)
    call = str(refused.value.hint).partition("find them first: ")[2].rstrip(".")
    found = eval(call, {"session": session, "dpsql": dpsql})  # noqa: S307
    assert found.counts.columns == ['a "b', "units", "x y", "u_units"]
    release = session.release({"a": sql}, budget=LARGE)
    assert release.found_keys("odd", ["x y", "units", 'a "b']).keys == found.keys
    days = session.find_keys("t", ["carrier", "CAST(moment AS DATE)"], budget=LARGE, keys=KEYS)
    assert len(days) == 12
