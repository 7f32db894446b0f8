"""What is asked of a plan: requests, what-if questions, defaults and given speedups, each value with its limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from common.files.configuration import Section
from common.fpga.device.board_files import load_board
from common.fpga.offload.baselines import GroupClass, Thresholds, rule_criteria
from common.fpga.offload.effort import Effort, Endless
from common.fpga.planning.request import Request, plan_requests, read_assumptions, require_speedup, what_if_request
from common.messages.errors import ConfigurationError, UnusableValueError
from common.workload.formats import WiderLayers
from tests.support.paths import ROOT

BOARDS = ROOT / "configs" / "boards"
LIMITS = Thresholds(min_share=0.1, min_intensity_flop_per_byte=8.0, min_fused_share=0.1)


@pytest.fixture(scope="module")
def request_() -> Request:
    return Request(load_board("u280", BOARDS), "int8", "group", LIMITS, {"K1": 3.0}, Effort(1.0))


def ask(request, text, overlay_of=lambda board: None):
    return what_if_request(request, text, lambda name: load_board(name, BOARDS), overlay_of)


def test_a_question_keeps_what_it_does_not_name(request_):
    asked = ask(request_, "K2=5.5")
    assert asked == replace(request_, given_speedups={"K1": 3.0, "K2": 5.5})


def test_given_speedups_do_not_hold_for_another_board_format_or_clock(request_):
    for text in ("board=u50", "precision=int4", "clock-mhz=211", "launch-per=phase"):
        assert ask(request_, text).given_speedups == {}
        assert ask(request_, f"{text},K1=7").given_speedups == {"K1": 7.0}
    assert ask(request_, "precision=int8").given_speedups == {"K1": 3.0}


@pytest.mark.parametrize("text", ["clock-mhz=211,board=u50", "board=u50, clock-mhz=211"])
def test_a_clock_is_that_of_the_board_in_the_question_in_either_order(request_, text):
    assert (ask(request_, text).board.name, ask(request_, text).board.clock_mhz) == ("u50", 211.0)


def test_an_overlay_is_loaded_for_another_board_and_computes_in_int8_only(request_):
    asked_for = []
    ask(request_, "board=u50", asked_for.append)
    assert [board.name for board in asked_for] == ["u50"]
    ask(request_, "K1=2", asked_for.append)
    assert len(asked_for) == 1
    assert ask(request_, "precision=int4", lambda board: object()).overlay is None


@pytest.mark.parametrize("text", ["precision=int8,precision=int4", "K1=2, K1=3", "board=u50,clock-mhz=7,board=u50"])
def test_a_question_gives_each_key_once(request_, text):
    with pytest.raises(UnusableValueError, match=r"<what_if>: .*given more than once"):
        ask(request_, text)


def test_an_unknown_board_in_a_question_is_the_questions_fault(request_):
    with pytest.raises(UnusableValueError, match=r"^<what_if>: board=u51: ") as error:
        ask(request_, "board=u51")
    assert "<board>" not in str(error.value)


@pytest.mark.parametrize("text", ["", "speed=3", "precision=fp64", "Kx=3"])
def test_an_unknown_key_of_a_question_is_refused_with_the_known_ones(request_, text):
    with pytest.raises(UnusableValueError, match=r"^<what_if>: .* is unknown; known: board=NAME, precision=fp32\|"):
        ask(request_, text)


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "fast"])
def test_a_clock_that_is_no_positive_number_is_refused(request_, value):
    with pytest.raises(UnusableValueError, match=rf"<what_if>: 'clock-mhz={value}': '{value}' is no positive number"):
        ask(request_, f"clock-mhz={value}")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"precision": "fp64"}, "<precision>: 'fp64' is unknown; known: fp32, "),
        ({"launch_per": "layer"}, "<launch_per>: 'layer' is unknown; known: group, phase"),
        ({"precision": "int8", "wider": WiderLayers("int4", frozenset())}, "<mixed_with>: int4 is no wider than int8"),
        (
            {"precision": "int8", "wider": WiderLayers("bf16", frozenset()), "objective": "throughput"},
            "<mixed_with>: does not go with an objective of throughput",
        ),
    ],
)
def test_a_request_names_the_quantity_that_it_cannot_have(request_, change, complaint):
    with pytest.raises(UnusableValueError, match=complaint):
        replace(request_, **change)


@pytest.mark.parametrize("value", [0.0, 9.99e-4, 1.01e6, float("inf"), float("nan")])
def test_a_speedup_outside_the_possible_range_is_refused(value):
    with pytest.raises(
        UnusableValueError, match=r"<kernel_speedup>: .* is no speedup of a kernel; give 0\.001 to 1e\+06"
    ):
        require_speedup(value)


def test_the_defaults_in_the_repository_are_read():
    defaults = read_assumptions(Section.of_file(ROOT / "configs" / "fpga.yaml"))
    assert (defaults["min_share"], defaults["launch_per"]) == (0.10, "group")
    assert set(defaults) == {
        "min_share",
        "min_intensity_flop_per_byte",
        "min_fused_share",
        "launch_per",
        "time_limit",
        "effort",
    }


def test_a_request_without_the_settings_of_one_plan_is_for_latency_on_the_catalogue_alone():
    defaults = read_assumptions(Section.of_file(ROOT / "configs" / "fpga.yaml"))
    requests = plan_requests({**defaults, "board": "u280", "precision": "int8"}, ROOT / "configs", Endless())
    request = requests.request
    assert (request.objective, request.overlay, request.given_speedups, requests.what_if) == ("latency", None, {}, {})


def test_a_default_search_time_of_zero_is_refused():
    constant = {"value": 0.1, "source": "a test", "trust": "assumed"}
    names = ("min_share", "min_intensity_flop_per_byte", "min_fused_share")
    content = {"thresholds": dict.fromkeys(names, constant), "launch_per": "group", "time_limit": 60, "effort": 0}
    with pytest.raises(ConfigurationError, match="effort is 0, which is no search time"):
        read_assumptions(Section(Path("fpga.yaml"), content))


@pytest.mark.parametrize(
    ("members", "is_taken"),
    [
        (GroupClass("large and intense", ((0,),), 0.11, 0.01, True, 8.0, 0.0), True),
        (GroupClass("large in energy, and fusable", ((0,),), 0.01, 0.11, True, None, 0.1), True),
        (GroupClass("small", ((0,),), 0.1, 0.1, True, 9.0, 0.5), False),
        (GroupClass("irregular", ((0,),), 0.5, None, False, 9.0, 0.5), False),
        (GroupClass("neither intense nor fusable", ((0,),), 0.5, 0.5, True, 7.9, 0.09), False),
        (GroupClass("unknown", ((0,),), None, None, True, None, None), False),
    ],
    ids=lambda value: value.label if isinstance(value, GroupClass) else "",
)
def test_the_criteria_of_a_class_say_what_the_rule_does_with_it(members, is_taken):
    assert rule_criteria(members, LIMITS).is_taken == is_taken


@pytest.mark.parametrize("precision", ["fp32", "int16", "int8"])
def test_a_plan_that_would_need_ai_engines_is_refused(request_, precision):
    """Networks attain more on a VCK190's AI engines than its DSPs have at their peak."""
    vck190 = load_board("vck190", BOARDS)
    with pytest.raises(UnusableValueError, match=r"400 AI engines, which have no model.*1.46 to 2.94 TFLOP/s"):
        Request(vck190, precision, "group", LIMITS, {}, Effort(1.0))
    assert Request(vck190, "bf16", "group", LIMITS, {}, Effort(1.0)).board is vck190
    with pytest.raises(UnusableValueError, match="give another board"):
        ask(replace(request_, precision=precision), "board=vck190")
