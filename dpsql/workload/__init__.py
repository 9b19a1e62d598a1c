"""Linear queries over marginals, without SQL or data."""

from dpsql.workload.factors import (
    AllRange,
    Factor,
    Identity,
    Matrix,
    Prefix,
    Queries,
    Suffix,
    Total,
)
from dpsql.workload.workload import Block, Family, Workload

__all__ = [
    "AllRange",
    "Block",
    "Factor",
    "Family",
    "Identity",
    "Matrix",
    "Prefix",
    "Queries",
    "Suffix",
    "Total",
    "Workload",
]
