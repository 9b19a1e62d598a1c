"""One BLAS thread for each worker: several workers' threads wait for each other."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    with threadpool_limits(1, "blas"):
        yield
