"""What an answer asks of the card, in closed form, and which lengths a plan takes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from common.fpga.decoding.demand import answer_demand, answer_lengths, answer_on_host, shown_lengths
from common.generation.decoder import decoder_of
from common.generation.host_times import HostTimes
from common.generation.resident import Resident
from common.messages.errors import UnusableValueError
from common.onnx_graph.load import load_model
from models.__main__ import BUILDERS, save
from models.transformers.decoder import TINY

CACHE_ROW = 2 * TINY.layers * TINY.groups * TINY.head_size * 2  # keys and values in two bytes
MEASURED = {"prompt_token_count": 9, "answer_token_count": 6}


@pytest.fixture
def decoder(tmp_path):
    save(BUILDERS["tiny-grouped-decoder"](), tmp_path / "m.onnx")
    return decoder_of(load_model(tmp_path / "m.onnx", {}, symbolic=True), {}, {})


@pytest.mark.parametrize(("prompt", "tokens", "cached"), [(9, 6, 14), (9, 2, 10), (9, 1, 9)])
def test_the_caches_hold_all_tokens_but_the_last_one_chosen(decoder, prompt, tokens, cached):
    resident = Resident(decoder, "int8")
    demand = answer_demand(resident, prompt, tokens)
    assert len(demand.tokens) == tokens - 1
    assert demand.resident_bytes - resident.weight_bytes == cached * CACHE_ROW
    assert demand.prompt_cache_bytes == prompt * CACHE_ROW
    growth = [after.read_bytes - before.read_bytes for before, after in pairwise(demand.tokens)]
    assert growth == [CACHE_ROW] * len(growth)


def test_lengths_are_those_given_or_those_measured(decoder):
    assert answer_lengths(decoder, MEASURED, None, None) == (9, 6)
    assert answer_lengths(decoder, MEASURED, 3, 7) == (3, 7)
    with pytest.raises(UnusableValueError, match="no prompt was measured"):
        answer_lengths(decoder, {**MEASURED, "prompt_token_count": 0}, None, None)
    with pytest.raises(UnusableValueError, match="100001 tokens"):
        answer_lengths(decoder, MEASURED, 100_001, None)


@pytest.mark.parametrize(
    ("prompt", "tokens", "shown"),
    [(9, 6, [1, 2, 4, 8, 9, 13]), (4, 1, [1, 2, 4]), (1, 2, [1]), (16, 3, [1, 2, 4, 8, 16, 17])],
)
def test_shown_lengths_are_powers_of_two_and_both_ends(prompt, tokens, shown):
    assert shown_lengths(prompt, tokens) == shown


def test_a_host_answer_is_the_sum_of_its_tokens():
    """Tokens after 9, 10 and 11 others at 100 µs and 2 for each; the fastest answer is the pessimistic case."""
    host = HostTimes([(9, 700.0)], 100.0, 2.0, fast=0.5, slow=3.0, longest=11, answer_count=2)
    answer = answer_on_host(host, 9, 4)
    assert answer.prompt_us.cases == pytest.approx((350, 700, 2100))
    assert answer.tokens_us.cases == pytest.approx((180, 360, 1080))
