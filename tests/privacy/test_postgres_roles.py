"""Roles of the ledger's server: what they are for works, and what they may not do fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction as Q
from typing import Any

import psycopg
import pytest

from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy import GRANTS, Budget, Ledger
from dpsql.privacy.amount import EVERY, Amount
from dpsql.privacy.event import Event, TableRows
from dpsql.privacy.postgres import bind, create, find
from tests.helpers import postgres
from tests.privacy.ledger_tools import CONTENT, PURPOSE, answer, spend

pytestmark = pytest.mark.postgres

LINE = "SELECT dpsql.append(ledger, seq + 1, $${}$$, NULL) FROM dpsql.ledger"  # as an analyst may


@pytest.fixture
def owned(server: postgres.Postgres, address: str) -> Iterator[Ledger]:
    """A ledger of a role that isn't a superuser, with a charge for each state."""
    server.query("CREATE ROLE ann LOGIN")
    server.query("CREATE ROLE bob LOGIN")
    server.query("CREATE ROLE eve LOGIN")
    server.query("CREATE ROLE owner LOGIN CREATEROLE")
    server.query("GRANT CREATE ON DATABASE postgres TO owner")
    try:
        owner = server.address(user="owner")
        ledger = postgres.begun(owner, "adult")
        ledger.set_total(Budget(rho=1))
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(GRANTS)  # as dpsql ledger init prints it
            connection.execute("GRANT dpsql_analyst TO ann")
            connection.execute("GRANT dpsql_auditor TO bob")
        ledger.deliver(answer(ledger))
        answer(ledger)
        spend(ledger)
        yield ledger
    finally:
        server.query("DROP SCHEMA IF EXISTS dpsql CASCADE")
        server.query("REVOKE ALL ON DATABASE postgres FROM owner")
        for role in ("ann", "bob", "eve", "dpsql_analyst", "dpsql_auditor", "owner"):
            server.query(f"DROP ROLE IF EXISTS {role}")


def test_an_analyst_can_do_what_a_session_does(owned: Ledger, server: postgres.Postgres) -> None:
    ledger = Ledger(find(server.address(user="ann")))
    receipt = answer(ledger)
    ledger.deliver(receipt)
    assert ledger.content(ledger.entries()[-1]) == CONTENT
    assert ledger.audit() == owned.audit()
    with pytest.raises(BudgetError):
        spend(ledger, 0.7)
    with pytest.raises(LedgerError, match="doesn't allow") as caught:
        Ledger(create(server.address(user="ann"), "another")[0])
    assert "dpsql_analyst" in str(caught.value.hint)
    with pytest.raises(LedgerError, match="doesn't allow"):
        bind(server.address(user="ann"), find(server.address()), "ab" * 16)


def test_only_the_owner_fixes_a_total(owned: Ledger, server: postgres.Postgres) -> None:
    store, _ = create(server.address(user="owner"), "open")
    ledger = Ledger(find(server.address(user="ann"), dataset="open"))
    with pytest.raises(LedgerError, match="doesn't allow"):
        ledger.set_total(Budget(rho=9))
    Ledger(store).set_total(Budget(rho=9))
    assert ledger.total == 18


def test_an_auditor_reads_and_that_is_all(owned: Ledger, server: postgres.Postgres) -> None:
    ledger = Ledger(find(server.address(user="bob")))
    assert ledger.entries() == owned.entries()
    assert ledger.audit().contents == 2
    for use in (lambda: spend(ledger), lambda: ledger.set_total(Budget(rho=1))):
        with pytest.raises(LedgerError, match="doesn't allow"):
            use()


def test_others_see_nothing(owned: Ledger, server: postgres.Postgres) -> None:
    with pytest.raises(LedgerError, match="doesn't allow"):
        find(server.address(user="eve"))


ROWS = TableRows(PURPOSE.table, PURPOSE.schema, (PURPOSE.unit,), "ab")
CHARGE = Event(
    "charged", "11", Amount({EVERY: Q(1, 5)}), (ROWS,), "ab", "ab", owner="o", time="2026"
)


def line(**fields: Any) -> str:
    """The text of a charge with some of it changed."""
    said = json.loads(CHARGE.text) | fields
    return json.dumps({name: value for name, value in said.items() if value is not None})


def amount(text: str, delta: object = None) -> dict[str, Any]:
    return {"mu_squared": {"*": text}} | ({} if delta is None else {"delta": delta})


ATTACKS = {
    "change a charge": "UPDATE dpsql.chain SET event = replace(event, '1/5', '1/500')",
    "delete a charge": "DELETE FROM dpsql.chain WHERE seq = (SELECT max(seq) FROM dpsql.chain)",
    "truncate": "TRUNCATE dpsql.chain CASCADE",
    "spend backwards": "UPDATE dpsql.ledger SET spent_over = 0",
    "raise the total": "UPDATE dpsql.ledger SET total_over = 1000",
    "no total": "UPDATE dpsql.ledger SET total_over = NULL, total_under = NULL",
    "another head": "UPDATE dpsql.ledger SET seq = 0",
    "delete the ledger": "DELETE FROM dpsql.ledger",
    "insert a line": "INSERT INTO dpsql.chain SELECT ledger, 99, event, hash, kind, request"
    " FROM dpsql.chain LIMIT 1",
    "insert a ledger": "INSERT INTO dpsql.ledger (ledger, format, dataset, hash)"
    " VALUES (repeat('0', 32), 3, 'x', repeat('0', 64))",
    "change what was measured": "UPDATE dpsql.measurement SET content = 'x'",
    "age what was measured": "UPDATE dpsql.measurement SET stored = stored - interval '1 day'",
    "delete what was measured": "DELETE FROM dpsql.measurement",
    "bind": "INSERT INTO dpsql.binding SELECT repeat('0', 32), ledger FROM dpsql.ledger",
    "unbind": "DELETE FROM dpsql.binding",
    "rebind": "UPDATE dpsql.binding SET ledger = ledger",
    "no triggers": "ALTER TABLE dpsql.chain DISABLE TRIGGER ALL",
    "no rules": "SET session_replication_role = replica",
    "no constraint": "ALTER TABLE dpsql.ledger DROP CONSTRAINT within_total",
    "drop": "DROP SCHEMA dpsql CASCADE",
    "own function": "CREATE OR REPLACE FUNCTION dpsql.append(wanted text, number bigint,"
    " event text, content bytea) RETURNS text LANGUAGE sql AS 'SELECT 1::text'",
    "own function beside": "CREATE FUNCTION dpsql.mine() RETURNS text LANGUAGE sql AS 'SELECT 1'",
    "grant oneself the owner": "GRANT owner TO ann",
    "be the owner": "SET ROLE owner",
    "lock rows without the function": "SELECT * FROM dpsql.ledger FOR UPDATE",
    "lock the table": "LOCK TABLE dpsql.chain IN ACCESS EXCLUSIVE MODE",
    "the owner's function": "SELECT dpsql.write(ledger, seq + 1, '{}', NULL) FROM dpsql.ledger",
    "a second total": LINE.format(
        json.dumps({"kind": "total", "format": 3, "amounts": amount("9/1")})
    ),
    "a total that is hidden": LINE.format(
        '{"kind":"bound","kind":"total","format":3,"amounts":{"mu_squared":{"*":"9/1"}}}'
    ),
    "a negative charge": LINE.format(line(amounts=amount("-1/5"))),
    "a negative denominator": LINE.format(line(amounts=amount("1/-5"))),
    "a charge of nothing": LINE.format(line(amounts=amount("0/1"))),
    "divided by nothing": LINE.format(line(amounts=amount("1/0"))),
    "a decimal charge": LINE.format(line(amounts=amount("0.2"))),
    "a charge in NaN": LINE.format(line(amounts=amount("NaN/1"))),
    "a charge of infinity": LINE.format(line(amounts=amount("Infinity/1"))),
    "a charge without an amount": LINE.format(line(amounts=None)),
    "an amount of null": LINE.format(line(amounts={"mu_squared": {"*": None}})),
    "a charge on another root": LINE.format(line(amounts={"mu_squared": {"ab": "1/5"}})),
    "an amount and another root": LINE.format(
        line(amounts={"mu_squared": {"*": "1/500", "ab": "1/5"}})
    ),
    "a delta where none is set aside": LINE.format(line(amounts=amount("1/5", "1/9"))),
    "a negative delta": LINE.format(line(amounts=amount("1/5", "-1/9"))),
    "a delta of nothing": LINE.format(line(amounts=amount("1/5", "0/1"))),
    "a delta divided by nothing": LINE.format(line(amounts=amount("1/5", "1/0"))),
    "a decimal delta": LINE.format(line(amounts=amount("1/5", "0.1"))),
    "a delta that is a number": LINE.format(line(amounts=amount("1/5", 1))),
    "a delta of null": LINE.format(line(amounts={**amount("1/5"), "delta": None})),
    "a delta in NaN": LINE.format(line(amounts=amount("1/5", "NaN/1"))),
    "a delta alone": LINE.format(line(amounts={"delta": "1/9"})),
    "a huge delta": LINE.format(line(amounts=amount("1/5", "1/1" + "0" * 5000))),
    "spend delta backwards": "UPDATE dpsql.ledger SET spent_delta_over = -1",
    "raise the total of delta": "UPDATE dpsql.ledger SET total_delta_over = 1",
    "no constraint of delta": "ALTER TABLE dpsql.ledger DROP CONSTRAINT delta_within_total",
    "the owner's sums": "SELECT dpsql.plus(ARRAY[0, 1], '1/2')",
    "more than is left": LINE.format(line(amounts=amount("7/5000") | amount("7001/5000"))),
    "a huge amount": LINE.format(line(amounts=amount("1" + "0" * 5000 + "/1"))),
    "another kind": LINE.format(line(kind="forgiven")),
    "a kind of null": '{"format":3,"kind":null}'.join(LINE.split("{}")),
    "an upgrade": LINE.format(line(kind="upgraded", amounts=None)),
    "another format": LINE.format(line(format=4)),
    "no event": LINE.format("nothing"),
    "control characters": LINE.format(line(owner="o").replace("2026", "2026\n")),
    "an amount on a release": LINE.format(line(kind="released")),
    "a release of nothing": LINE.format(line(kind="released", amounts=None)),
    "a delivery of nothing": LINE.format(line(kind="delivered", amounts=None)),
    "a failure of nothing": LINE.format(line(kind="failed", amounts=None)),
    "another try at nothing": LINE.format(line(kind="retried", amounts=None)),
    "another number": LINE.replace("seq + 1", "seq + 2").format(CHARGE.text),
    "the last number": LINE.replace("seq + 1", "seq").format(CHARGE.text),
    "content without a digest": LINE.replace("NULL", "'x'::bytea").format(CHARGE.text),
}


@pytest.mark.parametrize("role", ["ann", "bob", "eve"])
def test_what_roles_may_not_do(owned: Ledger, server: postgres.Postgres, role: str) -> None:
    """All of it fails, and the ledger says what it said."""
    before = owned.audit(), owned.entries(), owned.remaining
    assert before[2] == Q(2) - Q(3, 5)
    went = []
    with psycopg.connect(server.address(user=role), autocommit=True) as connection:
        for name, statement in ATTACKS.items():
            try:
                cursor = connection.execute(statement)
            except psycopg.Error:
                continue
            went.append((name, cursor.statusmessage))
        with suppress(psycopg.Error):  # a warning for some, that nothing was granted
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA dpsql TO {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(ATTACKS["delete a charge"])
    assert went == []
    assert (owned.audit(), owned.entries(), owned.remaining) == before
    assert Ledger(find(server.address())).remaining == before[2]
    spend(owned)


def test_the_attacks_would_work_but_for_the_rules(owned: Ledger, server: postgres.Postgres) -> None:
    """That none of them is refused for a slip in its text: a charge as it should be goes in."""
    with psycopg.connect(server.address(user="ann"), autocommit=True) as connection:
        connection.execute(LINE.format(line(request="12", amounts=amount("1/7"))))
        more = LINE.format(line(request="13", amounts=amount("1258/1000")))
        with pytest.raises(psycopg.errors.CheckViolation, match="within_total"):
            connection.execute(more)  # 7/5 - 1/7 is left, which is a little less
        for request in ("12", "12"):
            with pytest.raises(psycopg.DatabaseError, match="does not follow"):
                connection.execute(LINE.format(line(request=request, amounts=amount("1/7"))))
        found = connection.execute("SELECT spent_over, spent_under FROM dpsql.ledger").fetchone()
    assert found is not None
    assert Q(int(found[0]), int(found[1])) == Q(3, 5) + Q(1, 7)


def test_the_server_adds_up_delta(owned: Ledger, server: postgres.Postgres) -> None:
    store, _ = create(server.address(user="owner"), "keys")
    ledger = Ledger(store)
    ledger.set_total(Budget(rho=1), key_delta=1e-10)
    head = "SELECT spent_delta_over, spent_delta_under FROM dpsql.ledger WHERE dataset = 'keys'"
    append = f"{LINE} WHERE dataset = 'keys'"
    with psycopg.connect(server.address(user="ann"), autocommit=True) as connection:
        for part in ("1/30000000000", "1/15000000000"):
            with pytest.raises(psycopg.errors.CheckViolation, match="delta_within_total"):
                connection.execute(append.format(line(request="12", amounts=amount("1/7", "1/9"))))
            said = line(request=part[2:6], amounts=amount("1/7", part))
            connection.execute(append.format(said))
        with pytest.raises(psycopg.errors.CheckViolation, match="delta_within_total"):
            connection.execute(
                append.format(line(request="12", amounts=amount("1/7", f"1/1{'0' * 100}")))
            )
        connection.execute(append.format(line(request="12", amounts=amount("1/7"))))
        found = connection.execute(head).fetchone()
    assert found is not None
    assert Q(int(found[0]), int(found[1])) == Q(1, 10**10)
    for change in ("spent_delta_over = 0", "total_delta_over = 2", "total_delta_under = 1"):
        with (
            psycopg.connect(server.address(user="owner"), autocommit=True) as connection,
            pytest.raises(psycopg.DatabaseError, match="only appended"),
        ):
            connection.execute(
                f"UPDATE dpsql.ledger SET seq = seq + 1, kept = kept + 1, {change}"
                " WHERE dataset = 'keys'"
            )


def test_the_server_knows_what_may_become_of_a_charge(
    owned: Ledger, server: postgres.Postgres
) -> None:
    """Whatever a client sends, it is refused unless it is the next step of one of these ways."""
    kinds = ("charged", "failed", "retried", "released", "delivered")
    ways = [
        ("charged", "failed", "retried", "released", "delivered"),
        ("charged", "released", "delivered"),
    ]
    possible = {way[:n] for way in ways for n in range(len(way) + 1)}
    with psycopg.connect(server.address(user="ann"), autocommit=True) as connection:
        for number, done in enumerate(sorted(possible)):
            for step in (*done, *kinds):
                amounts = amount("1/500") if step == "charged" else None
                said = LINE.format(line(kind=step, request=f"{number:02}", amounts=amounts))
                so_far = tuple(
                    row[0] for row in connection.execute(
                        "SELECT kind FROM dpsql.chain WHERE request = %s ORDER BY seq",
                        (f"{number:02}",),
                    )
                )  # fmt: skip
                if (*so_far, step) in possible:
                    connection.execute(said)
                    continue
                with pytest.raises(psycopg.DatabaseError, match="does not follow"):
                    connection.execute(said)


def test_the_owner_is_kept_from_slips(owned: Ledger, server: postgres.Postgres) -> None:
    statements = [name for name in ATTACKS if ATTACKS[name].startswith(("UPDATE", "DELETE", "TR"))]
    with psycopg.connect(server.address(user="owner"), autocommit=True) as connection:
        connection.execute(ATTACKS["bind"])
        for name in statements:
            with pytest.raises(psycopg.Error):
                connection.execute(ATTACKS[name])
    owned.audit()


def test_what_an_analyst_can_still_do(owned: Ledger, server: postgres.Postgres) -> None:
    """It is said in the docs: to stop everybody by what is no event. It gives nothing back."""
    with psycopg.connect(server.address(user="ann"), autocommit=True) as connection:
        connection.execute(LINE.format('{"format":3,"kind":"bound","request":"1"}'))
    with pytest.raises(LedgerError, match="entry"):
        spend(owned)
    with psycopg.connect(server.address()) as connection:
        (spent,) = connection.execute("SELECT spent_over FROM dpsql.ledger").fetchone() or ()
    assert spent > 0


def test_the_server_computes_the_same_hashes(owned: Ledger, server: postgres.Postgres) -> None:
    """Also of a text with quotes, and backslashes, of which the chain's JSON has its own."""
    hostile = 'a"b\\c/d\u00e9'
    receipt = owned.charge(Q(1, 7), asked=Budget(mu=1), purpose=PURPOSE)
    with owned.store.writing() as now:
        event = Event("released", receipt.request, content=hashlib.sha256(b"").hexdigest())
        now.append(event, b"")
    store, _ = create(server.address(user="owner"), hostile)
    other = Ledger(store)
    spend(other)
    assert other.audit().entries == 1
    assert owned.audit().contents == 3
