"""Each limit of `docs/reference/limits.md`: reached, and passed by one."""

from __future__ import annotations

import pytest

from streams.errors import Failure
from tests.limits import LIMITS, Limit


@pytest.mark.parametrize("limit", LIMITS, ids=[limit.what for limit in LIMITS])
def test_what_reaches_a_limit_is_taken_and_one_over_is_refused(limit: Limit) -> None:
    limit.reach(limit.most)
    with pytest.raises(Failure, match=limit.told):
        limit.reach(limit.most + limit.step)
