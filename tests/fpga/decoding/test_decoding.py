"""A decoder on a card: the law, the memory, the cuts, and what published decoders say about all of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.plans.decoders import (
    CONFIG,
    PUBLISHED,
    disagreements,
    fitted,
    published_prompts,
    published_tokens,
    refereed,
)
from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.decoding.answer import (
    CARD,
    HOST,
    OF_PROMPTS,
    OF_TOKENS,
    AnswerDemand,
    Cut,
    HostAnswer,
    card_rates,
    cut_answer,
)
from common.fpga.decoding.law import CallDemand, CardRates, DecodeLaw, prompt_cases_us, read_law, token_cases_us
from common.fpga.decoding.plan import LengthDemand, best_of, decode_plans, length_rows, plan_rows
from common.fpga.device.board_files import load_board
from common.fpga.kernels.estimate import TimeScatter
from common.fpga.speedup.energy import read_card_energy
from common.intervals import NOTHING, ThreePoint
from common.messages.errors import UnusableValueError
from tests.support.paths import ROOT

U280 = load_board("u280", ROOT / "configs/boards")
ENERGY = read_card_energy(Section.of_file(ROOT / "configs/card_energy.yaml"))
SCATTER = TimeScatter(ThreePoint(2.0, 1.0, 0.5), 0.3, 0.1, 7)
LAW = DecodeLaw(0.5, 10.0, 0.25, SCATTER, SCATTER)
RATES = CardRates(memory_bytes_per_s=400e9, token_flop_per_s=1e12, prompt_flop_per_s=8e12)


def test_a_token_reads_at_its_share_of_the_memory_and_waits_for_each_round():
    cases = token_cases_us(LAW, RATES, CallDemand(macs=1e9, read_bytes=2e9, rounds=13))
    assert cases.likely == pytest.approx(2e9 / 200e9 * 1e6 + 130)
    assert cases.pessimistic == pytest.approx(2 * cases.likely)
    assert cases.optimistic == pytest.approx(0.5 * cases.likely)


def test_no_case_reads_faster_than_the_memory():
    quick = DecodeLaw(0.9, 0.0, 0.25, SCATTER, SCATTER)
    cases = token_cases_us(quick, RATES, CallDemand(1e6, 2e9, 13))
    assert cases.optimistic == pytest.approx(2e9 / 400e9 * 1e6)


def test_few_multipliers_bound_a_token():
    slow = CardRates(400e9, 1e10, 8e12)
    cases = token_cases_us(LAW, slow, CallDemand(1e9, 2e9, 0))
    assert (cases.likely, cases.optimistic) == pytest.approx((2e9 / 1e10 * 1e6,) * 2)  # nothing exceeds the peak


def test_a_prompt_takes_its_share_of_the_peak_and_no_less_than_a_token():
    long = prompt_cases_us(LAW, RATES, CallDemand(macs=3e11, read_bytes=2e9, rounds=13))
    assert long.likely == pytest.approx(6e11 / 2e12 * 1e6)
    assert long.optimistic == pytest.approx(0.5 * long.likely)
    short = prompt_cases_us(LAW, RATES, CallDemand(macs=1e9, read_bytes=2e9, rounds=13))
    assert short.likely == pytest.approx(2e9 / 200e9 * 1e6 + 130)


# --- answers ----------------------------------------------------------------------------------------------------------

TOKENS = [CallDemand(1e8, 1e8 + 1000 * past, 13) for past in range(16, 24)]
DEMAND = AnswerDemand(CallDemand(16e8, 1e8, 13), TOKENS, 200_000_000, 16_000, 2_000, 16)
SURE = HostAnswer(ThreePoint.exactly(50_000.0), ThreePoint.exactly(8 * 20_000.0))


def on_u280(prefill, decode):
    return cut_answer(LAW, U280, DEMAND, SURE, Cut(prefill, decode))


def card_us(call):
    return call.read_bytes / (32 * 14.375e9 * 0.5) * 1e6 + 130


def test_a_whole_answer_on_the_card():
    found = on_u280(CARD, CARD)
    launches, tokens = 9 * U280.launch_us.likely, sum(map(card_us, TOKENS))
    prompt = max(32e8 / (U280.peak_flop_per_s("int8") * 0.25) * 1e6, card_us(DEMAND.prompt))
    link_bytes = 16 * 8 + 8 + 8 * 16  # the prompt, its chosen token, and two tokens for each later call
    link = link_bytes / U280.link.bytes_per_s.likely * 1e6
    assert found.answer_us.likely == pytest.approx(launches + tokens + prompt + link)
    assert found.first_token_us.likely == pytest.approx(prompt + U280.launch_us.likely)
    assert (found.link_bytes, found.token_link_bytes) == (link_bytes, 16)


def test_the_caches_cross_once_between_phases_on_two_sides():
    on_card, from_host, to_host = on_u280(CARD, CARD), on_u280(HOST, CARD), on_u280(CARD, HOST)
    assert from_host.link_bytes == 16_000 + 8 * 16
    assert to_host.link_bytes == 16_000 + 17 * 8
    assert from_host.first_token_us.likely == 50_000
    gained = 50_000 - (on_card.first_token_us.likely)
    extra = (16_000 - 17 * 8) / U280.link.bytes_per_s.likely * 1e6
    assert from_host.answer_us.likely - on_card.answer_us.likely == pytest.approx(gained + extra)
    assert to_host.answer_us.likely > 160_000


def test_no_caches_cross_for_an_answer_of_one_token():
    one = replace(DEMAND, tokens=[])
    alone = HostAnswer(ThreePoint.exactly(50_000.0), NOTHING)
    assert cut_answer(LAW, U280, one, alone, Cut(CARD, HOST)).link_bytes == 17 * 8


def test_the_first_step_of_a_loop_is_a_call_as_the_others():
    """Nine equal steps: nine times the time of one, all by the law of tokens, and no token crosses the link."""
    step = CallDemand(1e9, 1e8, 13)
    loop = AnswerDemand(step, [step] * 8, 200_000_000, 16_000, 0, 0)
    found = cut_answer(LAW, U280, loop, SURE, Cut(CARD, CARD))
    one = token_cases_us(LAW, card_rates(U280), step)
    assert found.parts_us[OF_PROMPTS] == NOTHING
    assert found.parts_us[OF_TOKENS].cases == pytest.approx([9 * us for us in one.cases])
    assert found.first_token_us.likely == pytest.approx(one.likely + U280.launch_us.likely)
    assert (found.link_bytes, found.token_link_bytes) == (16_000, 0)


def test_the_gain_is_amdahls_and_its_odds_are_counted():
    found = on_u280(CARD, CARD)
    assert found.odds.quantiles[2] == pytest.approx(210_000 / found.answer_us.likely, rel=0.03)
    assert found.odds.pays_probability > 0.99
    slow = HostAnswer(ThreePoint.exactly(100.0), ThreePoint.exactly(800.0))
    assert cut_answer(LAW, U280, DEMAND, slow, Cut(CARD, CARD)).odds.pays_probability < 0.01


def plans_on(board, **demands):
    return decode_plans(LAW, board, SURE, {name: (demand, []) for name, demand in demands.items()})


def test_weights_and_caches_must_fit_the_memory():
    large = AnswerDemand(DEMAND.prompt, TOKENS, 8_589_934_593, 16_000, 2_000, 16)
    full = AnswerDemand(DEMAND.prompt, TOKENS, 8_589_934_592, 16_000, 2_000, 16)
    with pytest.raises(
        UnusableValueError, match=r"weights in bf16 and caches take 8\.59 GB, and the u280 has 8\.59 GB"
    ):
        plans_on(U280, bf16=large)
    plans = plans_on(U280, bf16=large, int8=full)
    assert [plan.fits for plan in plans] == [False, True]
    rows = plan_rows(plans, U280, LAW, SURE, ENERGY)
    assert [(row["weight_format"], row["fits_memory"]) for row in rows] == [("bf16", False)] + [("int8", True)] * 3
    assert rows[0]["planned_tokens_per_s"] is None
    assert [row["is_best_plan"] for row in rows].count(True) == 1


def test_rows_have_rates_energy_and_the_moved_share():
    plans = plans_on(U280, int8=DEMAND)
    rows = {(row["prefill_side"], row["decode_side"]): row for row in plan_rows(plans, U280, LAW, SURE, ENERGY)}
    both, later, first = rows["card", "card"], rows["host", "card"], rows["card", "host"]
    assert both["moved_share"] == 1.0
    assert later["moved_share"] == pytest.approx(160 / 210)
    assert first["moved_share"] == pytest.approx(50 / 210)
    assert first["planned_tokens_per_s"] == pytest.approx(50.0)
    mean_us = sum(map(card_us, TOKENS)) / 8 + U280.launch_us.likely + 16 / U280.link.bytes_per_s.likely * 1e6
    assert both["planned_tokens_per_s"] == pytest.approx(1e6 / mean_us)
    assert both["planned_low_tokens_per_s"] < both["planned_tokens_per_s"] < both["planned_high_tokens_per_s"]
    read = sum(call.read_bytes for call in TOKENS) / 8
    pico = 2e8 * 18.7 + read * (48 + 2 * 4.0)
    assert both["card_token_likely_j"] == pytest.approx(41.4 * mean_us / 1e6 + pico / 1e12, rel=1e-6)
    assert first["card_token_likely_j"] is None
    assert best_of(plans)[1].cut == Cut(CARD, CARD)


@pytest.mark.parametrize("word", ["not judged", "not judged for this host"])
def test_a_host_whose_times_are_doubted_has_no_verdict(word):
    for row in plan_rows(plans_on(U280, int8=DEMAND), U280, LAW, SURE, ENERGY, obstacle=word):
        assert (row["verdict"], row["pays_probability"], row["speedup_p50_factor"]) == (word, None, None)


def test_lengths_lie_above_the_roof():
    length = [LengthDemand(past, TOKENS[past - 16], 1000 * past, 20_000.0) for past in (16, 23)]
    rows = length_rows(decode_plans(LAW, U280, SURE, {"int8": (DEMAND, length)}), U280, LAW)
    assert [row["past_token_count"] for row in rows] == [16, 23]
    for row in rows:
        assert row["memory_roof_us"] <= row["planned_token_optimistic_us"] < row["planned_token_likely_us"]


# --- published decoders -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_configuration_has_the_constants_that_published_decoders_give():
    content = load_yaml(PUBLISHED)
    values = fitted(published_tokens(content), published_prompts(content))
    assert disagreements(read_law(Section.of_file(CONFIG)), values) == []


def test_published_rows_are_counted_from_the_sizes_of_their_models():
    rows = {row.name: row for row in published_tokens(load_yaml(PUBLISHED))}
    gpt2 = rows["GPT-2 345M, U280"]
    weights = 24 * 12 * 1024 * 1024 + 1024 * 50257
    assert gpt2.demand.read_bytes == pytest.approx(weights / 2 + 2 * 24 * 1024 * 96)
    assert gpt2.demand.rounds == 97
    four = rows["GPT-2 1.5B, 4 U280"]
    assert four.demand.read_bytes == pytest.approx((48 * 12 * 1536**2 + 1536 * 50257 + 2 * 48 * 1536 * 64) * 2 / 4)
    assert math.isclose(four.time_us, 64 / 72.68 / 127 * 1e6, rel_tol=1e-3)


def test_rates_that_were_found_later_take_no_part_and_are_counted_from_their_sizes():
    content = load_yaml(PUBLISHED)
    later = {row.name: row for row in published_tokens(content, "referees")}
    assert not {*later} & {row.name for row in published_tokens(content)}
    llama = later["Llama-3.2-1B, U280"]
    layer = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192
    assert llama.demand.read_bytes == pytest.approx((16 * layer + 2048 * 128256) / 2 + 2 * 16 * 512 * 512)
    assert (llama.time_us, llama.demand.rounds) == (6940, 65)
    mamba = later["Mamba2-2.7B, VCK190"]
    block = 2560 * (2 * 5120 + 2 * 128 + 80) + 5120 * 2560
    assert mamba.demand.read_bytes == pytest.approx((64 * block + 2560 * 50288) / 2)
    assert mamba.demand.rounds == 129


def test_a_later_rate_is_inside_by_the_interval_of_the_configuration():
    law, (row, *_) = read_law(Section.of_file(CONFIG)), published_tokens(load_yaml(PUBLISHED), "referees")
    for factor, is_held in ((0.47, 1), (0.45, 0), (2.16, 1), (2.18, 0)):
        time_us = factor * (row.demand.read_bytes / (460e9 * law.memory_share) * 1e6 + 65 * law.round_us)
        (family,) = refereed(law, [replace(row, time_us=time_us)])
        assert family.held == is_held
