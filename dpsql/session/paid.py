"""A paid step on one table beside what is measured: keys that are found, quantiles that are drawn.

What must hold at every line is what `answer.answer` says of its own, and why it does. Nothing is
read before the charge, which is durable before any row is. What is asked is what was verified, on
one snapshot, by statements that the database has bound. No error after the charge carries data. And
what came out is kept before it is handed out, so that a call which ends in between leaves it to the
next one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dpsql.engines.base import Engine
from dpsql.engines.interrupts import EndedStatementError, is_interrupted
from dpsql.errors import ExecutionError, LedgerError
from dpsql.measurement.measure import ChargedPlan, Payable, ready
from dpsql.privacy import Receipt
from dpsql.schema import Table
from dpsql.session.answer import keep
from dpsql.session.data import PrivateData


class KeptOutcome(Protocol):
    """The outcome of a step, as the ledger keeps it."""

    def encode(self) -> bytes:
        """Write it."""


K = TypeVar("K", bound=KeptOutcome)


@dataclass(frozen=True, slots=True)
class PaidStep:
    """A step, and what pays for it.

    Args:
        table: the table whose rows it reads.
        plan: what is charged for.
        check: has the database bind what will be run; reads no row.
        charge: charges, and returns when that is durable.
    """

    table: Table
    plan: Payable
    check: Callable[[], None]
    charge: Callable[[], Receipt]

    def taken(
        self,
        data: PrivateData,
        engine: Engine,
        take: Callable[[ChargedPlan], K],
        begun: Callable[[], bool],
    ) -> tuple[Receipt, K]:
        """Charge for the step, take it, and note that what came of it is handed out.

        Args:
            data: the data.
            engine: reads the rows.
            take: carries it out; whatever it raises never gets out.
            begun: tells whether noise may have been drawn. If a step fails before, its charge pays
                for the next equal question; a statement that was ended from outside hasn't failed.

        Raises:
            StaleSchemaError: the connection or the table is not the one it was.
            ExecutionError: something failed after the charge, which stands.
            DpsqlError: it can't be paid for; nothing was charged.
        """
        receipt: Receipt | None = None
        failure: BaseException | None = None
        try:
            with engine.snapshot():
                data.verify(self.table)
                self.check()
                ready(self.plan)
                receipt = self.charge()
                charged = ChargedPlan(self.plan, receipt, data.ledger)
                try:
                    kept = _noted(data, charged, take, begun)
                    keep(data.ledger, receipt, kept.encode())
                except (KeyboardInterrupt, SystemExit) as error:
                    failure = type(error)()
                except BaseException:  # whatever it was, its text and frames may hold rows
                    failure = ExecutionError()
                if failure is not None:  # outside the handlers, so that it has no context
                    raise failure
            data.declared.source.catalog.forget()  # who goes on looks again
            with suppress(LedgerError):  # at worst, the same is handed out again
                data.ledger.deliver(receipt)
            return receipt, kept
        except BaseException:
            if receipt is not None:
                data.ledger.abandon(receipt)
            raise


def _noted(
    data: PrivateData,
    charged: ChargedPlan,
    take: Callable[[ChargedPlan], K],
    begun: Callable[[], bool],
) -> K:
    """Take a step; if it fails before noise was drawn, note that nothing can come of the charge."""
    try:
        return take(charged)
    except EndedStatementError:
        raise
    except Exception:
        if not begun() and not is_interrupted():
            with suppress(LedgerError):
                data.ledger.fail(charged.receipt)
        raise
