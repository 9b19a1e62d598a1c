"""Linear queries over marginals, without SQL or data."""

from dpsql.linalg.matrices import StructuredMatrix as Queries
from dpsql.workload.factors import (
    AllRange,
    CircularRange,
    Factor,
    Identity,
    Matrix,
    Measure,
    Prefix,
    Ranges,
    Suffix,
    Total,
)
from dpsql.workload.workload import Block, Family, Workload

__all__ = [
    "AllRange",
    "Block",
    "CircularRange",
    "Factor",
    "Family",
    "Identity",
    "Matrix",
    "Measure",
    "Prefix",
    "Queries",
    "Ranges",
    "Suffix",
    "Total",
    "Workload",
]
