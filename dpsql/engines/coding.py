"""How rows get their cells: columns, classes of cells, and keys that are computed of a row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dpsql.engines.base import Keys, Marginal, Merged, cells_counted
from dpsql.engines.columns import CodedColumn
from dpsql.linalg.arrays import Ints
from dpsql.rows.measure import RowMeasure
from dpsql.rows.types import BOOLEAN
from dpsql.schema import Table
from dpsql.schema.names import quoted_name


@dataclass(frozen=True, slots=True)
class Coding:
    """How rows get their cells: columns, classes of cells, and keys that are computed of a row."""

    table: Table
    merged: Merged = field(default_factory=dict)
    keys: Keys = field(default_factory=dict)

    def size(self, name: str) -> int:
        """Return into how many cells, or classes of them, an attribute is counted."""
        return cells_counted(self.table, name, self.merged)

    def column(self, name: str, alias: str) -> CodedColumn:
        """Return the SQL for one attribute."""
        value = f"({self.keys[name].value})" if name in self.keys else quoted_name(name)
        domain, leaves_out = self.table.columns[name], self.table.leaves_out(name)
        return CodedColumn(value, alias, domain, leaves_out=leaves_out)

    def truth(self, marginal: Marginal) -> str | None:
        """Return the one key of a marginal that is of two cells, true and what isn't."""
        found = [name for name in marginal if self._is_truth(name)]
        return found[0] if len(found) == 1 else None

    def true(self, name: str) -> int:
        """Return the cell of what is true."""
        return int(self._cells_of_truths(name)[1])

    def _is_truth(self, name: str) -> bool:
        if name not in self.keys or self.table.columns[name].type != BOOLEAN.name:
            return False
        false, true, *null = self._cells_of_truths(name)
        return self.size(name) == 2 and true not in (false, *null)

    def _cells_of_truths(self, name: str) -> Ints:
        """Return the cells of false and true, and of NULL if there is one."""
        return self.merged.get(name, np.arange(self.table.columns[name].size))

    def read(self, names: Iterable[str], measures: Iterable[RowMeasure]) -> list[str]:
        """List the columns of the table that attributes and measures are made of."""
        found = {m for measure in measures for m in measure.columns}
        for name in names:
            found |= self.keys[name].columns if name in self.keys else {name}
        return [n for n in (*self.table.columns, *self.table.undeclared) if n in found]
