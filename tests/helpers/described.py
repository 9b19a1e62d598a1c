"""What the catalog of a DuckDB connection says, as a session asks for it."""

from functools import partial

from dpsql.engines import views
from dpsql.engines.catalog import DuckDBCatalog
from dpsql.schema import catalog, lookup, proposals


def read_table(con, parts, declared=None, unit=None):
    return catalog.read_table(DuckDBCatalog(con), parts, declared, unit)


def describe_table(con, parts, declared=None, unit=None):
    return views.describe_table(DuckDBCatalog(con), parts, declared, unit)


def check_declared(con, declared):
    catalog.check_declared(DuckDBCatalog(con), declared, partial(describe_table, con))


def verify_unchanged(con, table, declared=None, unit=None):
    describe = partial(describe_table, con)
    catalog.verify_unchanged(DuckDBCatalog(con), table, declared, unit, describe)


def current_database(con):
    return lookup.current_database(DuckDBCatalog(con))


def table_names(con, **options):
    return lookup.table_names(DuckDBCatalog(con), **options)


def proposed(con, tables, declared=None):
    return proposals.proposed(DuckDBCatalog(con), tables, declared)
