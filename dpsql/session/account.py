"""The account of a session: its ledger, and by what it knows the rows that are charged for."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from dpsql.engines.source import DataSource
from dpsql.privacy import Ledger, data_id, is_address, open_ledger, uid_of
from dpsql.privacy.place import IN_MEMORY
from dpsql.request import Declared
from dpsql.schema.facts import Database
from dpsql.session.archive import Archive
from dpsql.session.data import DeclaredData, PrivateData
from dpsql.session.purpose import DataState

_HISTORY = {
    "entry": pl.Int64(),
    "time": pl.String(),
    "state": pl.String(),
    "rho": pl.Float64(),
    "measurements": pl.Boolean(),
    "request": pl.String(),
}


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """A ledger, and the data set that it is opened for."""

    ledger: Ledger
    database: Database
    data: str
    """Tells its rows from those of other data sets of the ledger; see `dpsql.privacy.data_id`."""
    dataset: str | None
    """The name that its owner gave it, if it is in no file."""

    @classmethod
    def of(cls, source: DataSource, declared: Declared) -> Account:
        """Open the ledger of private data, or begin one.

        Raises:
            SchemaError: the data set can't be told now.
            LedgerError: the ledger can't be opened or written, or is another one.
        """
        database = source.identity()
        source.check_ledger(declared.ledger, shared=is_address(declared.ledger))
        ledger = open_ledger(database.file, declared.ledger, declared.dataset)
        return cls(ledger, database, data_id(database.file), declared.dataset)

    def joined(self, data: DeclaredData, declared: Declared) -> PrivateData:
        """Join what is declared with the account, and with what it keeps of earlier releases."""
        state = DataState(declared.vintage, self._known(declared.vintage))
        archive = Archive(self.ledger, data.source, state, declared.accept_schema)
        return PrivateData(data, self.ledger, self.database, archive)

    def _known(self, vintage: str) -> str:
        """Return by what rows of a vintage are known in the ledger.

        Of rows in memory nothing tells whether they are those of an earlier session, but what
        their owner calls them: their vintage, beside the name of the data set if it has one.
        """
        if self.database.file is not None or not vintage:
            return self.data
        if self.dataset is not None:
            return uid_of(self.dataset)
        return "" if self.ledger.dataset == IN_MEMORY else IN_MEMORY

    @property
    def history(self) -> pl.DataFrame:
        """All charges, oldest first; see `Session.history`."""
        rows = [
            (e.seq, e.time, e.state, float(e.mu_squared / 2), bool(e.content), e.request)
            for e in self.ledger.entries()
        ]
        return pl.DataFrame(rows, schema=_HISTORY, orient="row")
