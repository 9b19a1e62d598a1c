"""What the catalog of a DuckDB connection says, as a session asks for it."""

from dpsql.engines import data_source
from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.schema import catalog, document, lookup


def read_table(con, parts, declared=None, unit=None):
    return catalog.read_table(DuckDBCatalog(con), parts, declared, unit)


def describe_table(con, parts, declared=None, unit=None):
    return DuckDBSource(con).describe(parts, declared, unit)


def check_declared(con, declared):
    catalog.check_declared(data_source(con), declared)


def verify_unchanged(con, table, declared=None, unit=None):
    catalog.verify_unchanged(data_source(con), table, declared, unit)


def current_database(con):
    return DuckDBSource(con).identity()


def table_names(con, **options):
    return lookup.table_names(DuckDBCatalog(con), **options)


def proposed(con, tables, declared=None):
    return document.proposed(DuckDBCatalog(con), tables, declared)
