"""Fixtures of the planner's tests."""

import pytest

from dpsql.planner import querysmasher


@pytest.fixture(params=[True, False], ids=["whole", "spaces"], scope="module")
def quick_cells(request):
    """Small domains are planned as a whole by default; weighted residuals are tested as well."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            patch.setattr(querysmasher, "is_quick", lambda workload: False)
        yield
