"""Tables of a server that an earlier version made, which had no sum of δ.

tests/fixtures/ledgers/layout_1.sql is `DDL` of version 7698172.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction as Q
from pathlib import Path

import psycopg
import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import GRANTS, Budget, Ledger, begin
from dpsql.privacy.amount import EVERY, Amount
from dpsql.privacy.event import FORMAT, Event, TableRows
from dpsql.privacy.history import History
from dpsql.privacy.postgres import bring_up, create, find
from dpsql.privacy.store import line_after
from tests.helpers import postgres
from tests.privacy.ledger_tools import CONTENT, PURPOSE, answer
from tests.privacy.test_delta import pay

pytestmark = pytest.mark.postgres

OLD = Path(__file__).parents[1] / "fixtures" / "ledgers" / "layout_1.sql"
BOUND = TableRows(PURPOSE.table, PURPOSE.schema, (PURPOSE.unit,))
ROWS = TableRows(PURPOSE.table, PURPOSE.schema, (PURPOSE.unit,), PURPOSE.vintage)
EVENTS = [
    Event("total", amounts=Amount({EVERY: Budget(epsilon=1, delta=1e-9).mu_squared})),
    Event("bound", "ab", rows=(BOUND,)),
    Event("charged", "cd", Amount({EVERY: Q(1, 700)}), (ROWS,), "ab", "cd", owner="o"),
]


@pytest.fixture
def old(server: postgres.Postgres, address: str) -> Iterator[str]:
    """A ledger in such tables, of a role that isn't a superuser, with an analyst."""
    for role in ("owner LOGIN CREATEROLE", "ann LOGIN"):
        server.query(f"CREATE ROLE {role}")
    server.query("GRANT CREATE ON DATABASE postgres TO owner")
    history = History(FORMAT, "ab" * 16, "adult")
    try:
        with psycopg.connect(server.address(user="owner"), autocommit=True) as connection:
            connection.execute(OLD.read_text())
            connection.execute(GRANTS)
            connection.execute("GRANT dpsql_analyst TO ann")
            connection.execute(
                "INSERT INTO dpsql.ledger (ledger, format, dataset, hash) VALUES (%s, 3, %s, %s)",
                (history.ledger, history.dataset, history.hash),
            )
            for event in EVENTS:
                line = line_after(history, event)
                connection.execute(
                    "SELECT dpsql.write(%s, %s, %s, NULL)", (history.ledger, line.seq, line.text)
                )
        yield server.address(user="owner")
    finally:
        server.query("DROP SCHEMA IF EXISTS dpsql CASCADE")
        server.query("REVOKE ALL ON DATABASE postgres FROM owner")
        for role in ("ann", "dpsql_analyst", "dpsql_auditor", "owner"):
            server.query(f"DROP ROLE IF EXISTS {role}")


def check(ledger: Ledger) -> None:
    stated = Budget(epsilon=1, delta=1e-9)
    assert (ledger.total, ledger.spent) == (stated.mu_squared, Q(1, 700))
    assert (ledger.total_delta, ledger.spent_delta, ledger.remaining_delta) == (0, 0, 0)
    ledger.set_total(stated)
    with pytest.raises(LedgerError, match="fixed before"):
        ledger.set_total(stated, key_delta=1e-10)
    assert ledger.audit().events == 3


def test_the_owner_brings_tables_up(old: str, server: postgres.Postgres) -> None:
    for address in (old, server.address(user="ann")):
        with pytest.raises(LedgerError, match="have version 1; this dpsql needs version 2") as said:
            find(address)
        assert "dpsql ledger init" in str(said.value.hint)
    with pytest.raises(LedgerError, match="doesn't allow"):
        bring_up(server.address(user="ann"))
    bring_up(old)
    bring_up(old)
    check(Ledger(find(old)))
    analyst = Ledger(find(server.address(user="ann")))
    receipt = answer(analyst, rho=Q(1, 10**4))
    assert analyst.content(analyst.entries()[-1]) == CONTENT
    analyst.deliver(receipt)
    keys = Ledger(create(old, "keys")[0])
    keys.set_total(Budget(rho=1), key_delta=1e-9)
    pay(keys)
    assert keys.audit().entries == 1


@pytest.mark.parametrize("named", ["adult", "another"])
def test_init_brings_tables_up(named: str, old: str, tmp_path: Path) -> None:
    if named == "adult":
        assert not create(old, named)[1]
    else:
        begin(tmp_path / "people.duckdb", old, named)
    check(Ledger(find(old, dataset="adult")))
