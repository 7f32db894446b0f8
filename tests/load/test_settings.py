"""Settings of a load test that no service could serve."""

import pytest

from common.load.settings import MOST_BATCH, checked
from common.messages.errors import UnusableValueError


def test_a_batch_that_no_call_could_compute_is_refused():
    assert checked({"batch_max": MOST_BATCH}, {"batch_max"}) == {"batch_max": MOST_BATCH}
    with pytest.raises(UnusableValueError, match="is more than 65,536 requests in one call"):
        checked({"batch_max": 10**40}, {"batch_max"})
