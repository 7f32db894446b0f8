"""Times on the host at other lengths than the measured ones."""

from __future__ import annotations

import pytest

from common.generation.host_times import host_times
from common.messages.errors import UnusableValueError


def token(answer, index, phase, past, new, us, *, is_warmup=False):
    return {
        "answer_index": answer,
        "token_index": index,
        "is_warmup": is_warmup,
        "generation_phase": phase,
        "past_token_count": past,
        "new_token_count": new,
        "token_us": us,
    }


def answer(number, prompt, count, factor=1.0, **more):
    """An answer whose tokens take 1,000 µs and 3 for each one before them, and whose prompt takes 100 a token."""
    first = token(number, 0, "prefill", 0, prompt, 100.0 * prompt * factor, **more)
    rest = [
        token(number, place, "decode", past, 1, (1000 + 3 * past) * factor, **more)
        for place, past in enumerate(range(prompt, prompt + count - 1), start=1)
    ]
    return [first, *rest]


def test_a_token_grows_on_a_line_and_a_prompt_between_lengths():
    rows = [*answer(0, 16, 9, 5.0, is_warmup=True), *answer(1, 16, 9), *answer(2, 16, 9)]
    found = host_times([*rows, *answer(3, 48, 9)])
    assert found.token_us(1000) == pytest.approx(4000)
    assert (found.prompt_us(16), found.prompt_us(32), found.prompt_us(48)) == pytest.approx((1600, 3200, 4800))
    assert (found.prompt_us(96), found.prompt_us(12)) == pytest.approx((9600, 1200))
    assert found.prompt_us(4) == pytest.approx(1000)  # one token with none before it takes as long
    assert (found.fast, found.slow, found.longest) == pytest.approx((1.0, 1.0, 55))


def test_the_spread_is_that_of_the_answers():
    found = host_times([*answer(1, 16, 9, 0.9), *answer(2, 16, 9, 1.2)])
    assert (found.fast, found.slow) == pytest.approx((0.9 / 1.05, 1.2 / 1.05))


def test_one_answer_says_nothing_of_the_spread():
    assert [host_times(answer(1, 16, 9)).doubts, host_times([*answer(1, 16, 9), *answer(2, 16, 9)]).doubts] == [
        ["one counted answer gives the host's times no interval"],
        [],
    ]


def test_a_line_that_falls_is_a_mean():
    rows = [token(1, place, "decode", 10 + place, 1, us) for place, us in enumerate((1300.0, 1200.0, 1100.0))]
    assert host_times(rows).token_us(10_000) == pytest.approx(1200)


def test_a_growth_within_its_error_is_a_mean():
    rows = [
        token(1, place, "decode", 10 + place, 1, us) for place, us in enumerate((1000.0, 1200.0, 900.0, 1150.0, 1250.0))
    ]
    assert host_times(rows).token_us(10_000) == pytest.approx(1100)


def test_tokens_without_others_before_them_say_nothing():
    with pytest.raises(UnusableValueError, match="no token after the first one"):
        host_times([token(1, 0, "prefill", 0, 9, 400.0)])
    with pytest.raises(UnusableValueError, match="holds no prompt"):
        host_times([token(1, 0, "decode", 9, 1, 400.0)]).prompt_us(9)
