"""The picture of tokens over the length of the caches, the sentences on a decoder, and their places in the report."""

from __future__ import annotations

import pytest

from common.messages.note_kinds import ENDANGERED
from common.view.findings import Findings
from common.view.plan.decode_text import decode_notes, decode_report, decode_sentence
from common.view.profile.generation_plot import draw_generation, memory_rate
from common.view.profile.generation_text import generation_sentence
from common.view.report.summary_text import answer_of
from common.view.report.warnings_text import TITLES
from tests.support.drawn import head, outside


def token(past, us, *, phase="decode", is_warmup=False):
    moved = {"bytes": 80_000_000 + 10_000 * past, "cache_bytes": 5_000 * past}
    return {"generation_phase": phase, "past_token_count": past, "token_us": us, "is_warmup": is_warmup, **moved}


TOKENS = [
    token(0, 300_000.0, phase="prefill"),
    *(token(past, 1.0, is_warmup=True) for past in (128, 129)),
    *(token(past, 20_000.0 + 10 * past) for past in range(128, 160)),
]
SUMMARY = {
    "tokens_per_s": 46.7,
    "token_p50_us": 21_400.0,
    "joules_per_token_j": 0.158,
    "bound": "memory",
    "memory_roof_share": 0.19,
    "compute_roof_share": 0.02,
    "attained_bytes_per_s": 3.8e9,
    "first_token_us": 300_000.0,
    "prompt_token_count": 128,
}
PLAN = {
    "board": "u280",
    "weight_format": "int4",
    "prefill_side": "card",
    "decode_side": "card",
    "planned_prompt_count": 128,
    "planned_output_count": 33,
    "planned_tokens_per_s": 900.0,
    "planned_low_tokens_per_s": 400.0,
    "planned_high_tokens_per_s": 2000.0,
    "planned_answer_likely_us": 45_000.0,
    "host_answer_us": 986_000.0,
    "host_tokens_per_s": 46.7,
    "memory_roof_share": 0.84,
    "bound": "memory",
    "verdict": "pays",
    "speedup_p5_factor": 9.0,
    "speedup_p50_factor": 21.0,
    "speedup_p95_factor": 44.0,
    "measured_length_count": 159,
    "doubts": (),
}


def length(past, weight_format="int4"):
    return {
        "weight_format": weight_format,
        "past_token_count": past,
        "planned_token_pessimistic_us": 2_400.0,
        "planned_token_likely_us": 1_100.0 + past,
        "planned_token_optimistic_us": 500.0,
        "memory_roof_us": 90.0,
        "card_cache_bytes": 2_500 * past,
    }


def test_the_picture_has_the_tokens_after_the_warm_up_and_both_roofs():
    figure = draw_generation(TOKENS, SUMMARY, [length(1), length(160), length(7, "bf16")], PLAN)
    times, caches = figure.axes
    lines = {line.get_label(): line for line in times.get_lines()}
    assert len(lines["host, measured"].get_xdata()) == 32
    assert lines["host, measured"].get_ydata()[0] == pytest.approx(21.28)
    assert lines["host's roof"].get_ydata()[0] == pytest.approx((80_000_000 + 1_280_000) / 20e9 * 1e3)
    assert [*lines["card, planned"].get_xdata()] == [1, 160]
    assert [*lines["card, planned"].get_ydata()] == pytest.approx([1.101, 1.26])
    assert caches.get_lines()[0].get_ydata()[-1] == pytest.approx(0.795)
    assert caches.get_lines()[1].get_ydata()[-1] == pytest.approx(0.4)
    title, subtitle = head(figure)
    assert title.startswith("A token after 159 others takes 21.6 ms, 5.29 times")
    assert title.endswith("on a u280 in int4 1.26 ms")  # the planned curve after 159 tokens, not the mean of the answer
    assert "20.0 GB/s" in subtitle
    assert outside(figure) == []


def test_a_mean_over_the_planned_answer_is_named_so():
    """The plan ends before the longest measured length: no planned time is beside it."""
    title, _ = head(draw_generation(TOKENS, SUMMARY, [length(1), length(140)], PLAN))
    assert title.endswith("on a u280 in int4 1.11 ms on average over the planned answer")


def test_without_a_bandwidth_there_is_no_roof_and_without_a_second_token_no_picture():
    figure = draw_generation(TOKENS, SUMMARY | {"memory_roof_share": None})
    assert [line.get_label() for line in figure.axes[0].get_lines()] == ["host, measured"]
    assert "no roof" in head(figure)[1]
    assert memory_rate(None) is None
    assert draw_generation(TOKENS[:1], SUMMARY) is None


def test_the_first_sentence_is_in_tokens():
    assert decode_sentence(PLAN) == (
        "46.7 tokens/s, bound by weight traffic at 84 % of memory bandwidth; a u280 in int4: 900 (400 to 2000), pays; "
        "accuracy in int4 not judged"
    )
    on_host = decode_sentence(PLAN | {"decode_side": "host", "verdict": "undecided", "bound": None})
    assert on_host == "46.7 tokens/s; with its prompts on a u280, an answer takes 45.0 ms instead of 986 ms, undecided"
    one = decode_sentence(PLAN | {"host_tokens_per_s": None})
    assert one == "an answer of one token takes 986 ms on the host and 45.0 ms with a u280"
    assert generation_sentence(SUMMARY).startswith(
        "46.7 tokens/s, median 21.4 ms and 158 mJ each, bound by weight traffic at 19 % of memory bandwidth"
    )
    few = generation_sentence(SUMMARY | {"token_p50_us": None})  # tokens too few for the limits of a median
    assert few.startswith("46.7 tokens/s and 158 mJ each, bound")
    assert "bound by arithmetic at 2 % of the peak" in generation_sentence(SUMMARY | {"bound": "compute"})


def test_the_report_begins_with_it():
    assert answer_of(Findings({}, {"decode_summary": PLAN})) == decode_sentence(PLAN)
    assert answer_of(Findings({}, {"generation_summary": SUMMARY})) == generation_sentence(SUMMARY)


def test_every_kind_of_note_has_a_title_in_the_report():
    assert set(TITLES) == set(ENDANGERED)


def test_a_row_that_does_not_fit_and_doubts_are_said():
    row = {
        **dict.fromkeys(("planned_tokens_per_s", "planned_low_tokens_per_s", "planned_high_tokens_per_s")),
        **dict.fromkeys(("planned_first_token_likely_us", "planned_answer_likely_us", "card_token_likely_j")),
        **{"board": "u280", "weight_format": "bf16", "prefill_side": "card", "decode_side": "card"},
        **{"fits_memory": False, "card_resident_bytes": 13_500_000_000, "card_memory_bytes": 8_589_934_592},
        **{"token_link_bytes": None, "verdict": "unknown", "logits_link_us": 3.0, "prefill_engines": ""},
    }
    notes = decode_notes([row], PLAN | {"doubts": ("the host was busy",), "planned_output_count": 64})
    assert notes[0] == "the host was busy: no plan is judged"
    assert "up to 159 tokens in the caches, and the answer ends at 190" in notes[1]
    assert notes[2] == "in bf16, weights and caches take 13.5 GB, and the u280 has 8.59 GB"
    assert "does not fit" in decode_report([row], PLAN)
