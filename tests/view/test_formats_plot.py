"""The picture of speed against agreement: which formats it has, which others beat, and what its title claims."""

import pytest

from common.view.plan.pictures.what_if_plot import draw_formats, format_points
from tests.support.drawn import head, outside


def plan(precision, gain, subject="precision", **others):
    return {
        "what_if_subject": subject,
        "planned_mixture_index": None,
        "precision": precision,
        "latency_speedup_factor": gain,
        "latency_speedup_p5_factor": 0.6 * gain,
        "latency_speedup_p95_factor": 1.5 * gain,
        "is_judged": True,
        **others,
    }


def judged(number_format, share, verdict="survives", **others):
    return {
        "number_format": number_format,
        "quantization_scheme": "per channel, min-max",
        "output_name": "scores",
        "format_verdict": verdict,
        "format_problem": "",
        "is_arithmetic": True,
        "sample_source": "given",
        "judged_sample_count": 500,
        "sqnr_db": 30.0,
        "calibration_sqnr_db": 30.0,
        "top1_agreement_share": share,
        "top1_agreement_low_share": share - 0.02,
        "top1_agreement_high_share": min(1.0, share + 0.01),
        **others,
    }


PLANS = [plan("int8", 5.9, "plan"), plan("fp32", 1.2), plan("bf16", 2.1), plan("fp16", 1.9), plan("int16", 3.0)]
FORMATS = [judged("int8", 0.61, "breaks"), judged("bf16", 0.996), judged("fp16", 0.99), judged("int4", 0.2, "breaks")]


def test_formats_are_those_of_both_tables_and_float_agrees_with_itself():
    points = {point.name: point for point in format_points(PLANS, FORMATS)}
    assert [*points] == ["int8", "fp32", "bf16", "fp16"]  # int16 was not judged, int4 not planned
    assert points["fp32"].agreement == (1.0, 1.0, 1.0)
    assert points["int8"].gain == pytest.approx((5.9, 3.54, 8.85))
    assert points["int8"].is_broken and not points["bf16"].is_broken
    assert [name for name, point in points.items() if point.is_beaten([*points.values()])] == ["fp16"]


def test_the_title_names_the_fastest_format_that_does_not_break_the_model():
    figure = draw_formats(PLANS, FORMATS)
    assert outside(figure) == []
    assert (
        head(figure)[0] == "Of the formats that the model survives, bf16 gains most: 2.10x (1.26 to 3.15), 99.6 % agree"
    )
    broken = [plan("int8", 5.9, "plan"), plan("int16", 3.0)]
    assert head(draw_formats(broken, [judged("int8", 0.6, "breaks"), judged("int16", 0.7, "breaks")]))[0] == (
        "The model survives none of these formats"
    )
    assert (
        head(draw_formats(PLANS, FORMATS, warning="Not judged: the host was busy"))[0]
        == "Not judged: the host was busy"
    )


def test_a_mixture_has_the_agreement_of_its_own_run():
    mixed = plan("int8", 4.1, "mixture", planned_mixture_index=2, what_if_setting="2: int8 and bf16")
    mixtures = [{**judged("int8", share), "mixture_index": index} for index, share in ((1, 0.7), (2, 0.985))]
    points = {point.name: point for point in format_points([*PLANS, mixed], FORMATS, mixtures)}
    assert points["mixture 2: int8 and bf16"].agreement[0] == 0.985
    assert points["int8"].agreement[0] == 0.61
    assert head(draw_formats([*PLANS, mixed], FORMATS, mixtures))[0].startswith(
        "Of the formats that the model survives, mixture 2: int8 and bf16 gains most"
    )


@pytest.mark.parametrize(
    "formats", [[], [judged("int8", 0.9, sample_source="random")], [judged("int8", 0.9, top1_agreement_share=None)]]
)
def test_without_an_agreement_on_samples_nothing_is_drawn(formats):
    assert draw_formats([plan("int8", 5.9, "plan"), plan("bf16", 2.0)], formats) is None


def test_a_plan_that_is_not_judged_is_not_drawn():
    assert [point.name for point in format_points([plan("int8", 5.9, is_judged=False), *PLANS[1:]], FORMATS)] == [
        "fp32",
        "bf16",
        "fp16",
    ]
