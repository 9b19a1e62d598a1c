"""The public facts about a table: columns and domains, declared or read from the catalog."""

from dpsql.schema.declarations import Schema
from dpsql.schema.domain import Domain
from dpsql.schema.table import Table
from dpsql.schema.units import EACH_ROW, EachRow, Unit

__all__ = ["EACH_ROW", "Domain", "EachRow", "Schema", "Table", "Unit"]
