"""Types of flags: what they take, and the words with which they refuse."""

import argparse

import pytest

from common.cli.flags import flag_types


def test_a_number_between_two_others():
    sessions = flag_types.between(1, 1000)
    assert [sessions(text) for text in ("1", "37", "1000")] == [1, 37, 1000]


@pytest.mark.parametrize("text", ["0", "-1", "1001", "9" * 40, "1.5", "x", ""])
def test_what_is_outside_or_no_whole_number_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not a whole number from 1 to 1,000"):
        flag_types.between(1, 1000)(text)
