"""Fixtures of the planner's tests."""

import pytest

from dpsql.planner.mechanisms import querysmasher


@pytest.fixture(params=[True, False], ids=["whole", "spaces"], scope="module")
def quick_cells(request):
    """Small domains are planned as a whole by default; weighted residuals are tested as well."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            _leave_whole_plans_out(patch)
        yield


@pytest.fixture
def never_whole(monkeypatch):
    """Domains are planned by residual spaces, however small they are."""
    _leave_whole_plans_out(monkeypatch)


def _leave_whole_plans_out(patch):
    patch.setattr(querysmasher, "is_quick", lambda workload: False)
    patch.setattr(querysmasher, "MODERATE_WORK", 0)
