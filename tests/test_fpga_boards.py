from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import CommandLineError
from common.fpga.assumptions import read_assumptions
from common.fpga.boards import Board, find_board, peak_flop_per_s, read_board
from common.fpga.figures import Figure, Outlook, combine

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
U280 = CONFIGS / "boards/u280.yaml"
FPGA = CONFIGS / "fpga.yaml"


def content(path: Path = U280) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def u280() -> Board:
    return read_board("u280", U280, content())


def changed(keys: str, value: Any, path: Path = U280) -> dict[str, Any]:
    """The content with one value put in at ``section/key/…``; None takes it out."""
    found = copy.deepcopy(content(path))
    *sections, last = keys.split("/")
    below = found
    for section in sections:
        below = below[section]
    if value is None:
        del below[last]
    else:
        below[last] = value
    return found


def test_peak_is_dsp_times_mac_times_two_times_clock():
    assert peak_flop_per_s(7, 3, 5) == 7 * 3 * 2 * 5e6


def test_u280_int8_peak_at_datasheet_conditions_is_24_5_and_not_the_u200s_18_6():
    assert u280().datasheet_int8_op_per_s() == 9024 * 1.75 * 2 * 775e6
    assert u280().datasheet_int8_op_per_s() == pytest.approx(24.5e12, rel=0.002)
    assert abs(u280().datasheet_int8_op_per_s() - 18.6e12) > 5e12


def test_a_board_that_claims_the_u200s_figure_is_refused():
    with pytest.raises(CommandLineError, match="datasheet_peak does not follow from its own conditions"):
        read_board("u280", U280, changed("datasheet_peak/int8_op_per_s/value", 18.6e12))


def test_u280_ceilings_follow_from_what_the_shell_leaves_and_where_timing_closes():
    board = u280()
    assert board.array_dsp_count == (2733 + 2877 + 2880) * 0.8
    assert board.array_flop_per_s("fp32") == pytest.approx(6792 / 5 * 2 * 300e6)
    assert board.array_flop_per_s("int8") == pytest.approx(6792 * 2 * 2 * 300e6)
    # the brief's other seed takes one DSP per fp32 MAC and gets 5.41e12 out of all of them
    assert board.array_flop_per_s("fp32") < 9024 * 2 * 300e6 / 5
    assert board.memory_bytes_per_s == 32 * 14.375e9 == 460e9


def test_precisions_rank_by_products_per_dsp():
    peaks = [u280().array_flop_per_s(precision) for precision in ("fp32", "bf16", "int16", "int8", "int4")]
    assert peaks == sorted(peaks)
    assert peaks[-1] / peaks[0] == pytest.approx(4 / 0.2)


@pytest.mark.parametrize(
    ("keys", "value", "complaint"),
    [
        ("clock_mhz", None, "clock_mhz is missing"),
        ("clock_mhz/value", "fast", "clock_mhz.value: 'fast' is not a finite number; write large numbers as 1.0e"),
        ("clock_mhz/value", True, "is not a finite number"),
        ("clock_mhz/value", -3, "clock_mhz needs 0 < low <= likely <= high"),
        ("clock_mhz/source", "", "clock_mhz has an empty source"),
        ("clock_mhz/source", None, "clock_mhz.source is missing"),
        ("clock_mhz/trust", "hearsay", "clock_mhz.trust is 'hearsay'; it takes datasheet or vendor"),
        ("clock_mhz/note", "x", "unknown key 'clock_mhz.note'"),
        ("clock_mhz", 300, "clock_mhz is not a mapping"),
        ("colour", "red", "unknown key 'colour'"),
        ("memory/banks", 2, "unknown key 'memory.banks'"),
        ("macs_per_dsp/int4", None, "macs_per_dsp is incomplete; it takes fp32, bf16, int16, int8, int4"),
        ("host_link/launch_us/low", 1000, "host_link.launch_us needs 0 < low <= likely <= high"),
        ("logic/dsp_after_shell_count/value", 9025, "more DSPs are left by the shell than the device has"),
        ("logic/dsp_closure_fraction/value", 1.01, "dsp_closure_fraction is above 1"),
        ("memory/efficiency_fraction/high", 1.01, "memory efficiency is above 1"),
        ("host_link/bytes_per_s/high", 16e9, "the host link is faster than its raw rate"),
        ("power/dynamic_w/high", 170, "static and dynamic power together exceed the card's limit"),
    ],
)
def test_unusable_board_is_refused_with_the_key(keys, value, complaint):
    with pytest.raises(CommandLineError, match=complaint) as raised:
        read_board("u280", U280, changed(keys, value))
    assert str(raised.value).startswith(str(U280))
    assert raised.value.exit_code == 2


def test_board_is_found_by_name_or_path_and_the_error_names_what_is_there(tmp_path):
    assert find_board("u280", CONFIGS / "boards") == U280
    assert find_board(str(U280), tmp_path) == U280
    with pytest.raises(CommandLineError, match=r"'u999' is no board and no YAML file; there is .*u280"):
        find_board("u999", CONFIGS / "boards")


def test_assumptions_are_the_briefs_threshold_and_bands_in_order():
    found = read_assumptions(FPGA, content(FPGA))
    assert found.thresholds["min_share"] == 0.10
    assert found.efficiency_bands["overlay"] == Outlook(0.12, 0.29, 0.72)
    assert found.efficiency_bands["systolic"].cases == (0.80, 0.89, 0.99)
    assert found.launch_per == "group"
    for band in found.efficiency_bands.values():
        assert band.likely == pytest.approx((band.pessimistic * band.optimistic) ** 0.5, abs=0.006)


@pytest.mark.parametrize(
    ("keys", "value", "complaint"),
    [
        ("launch_per", "day", "launch_per is 'day'; it takes group or phase"),
        ("thresholds/min_share", None, "thresholds.min_share is missing"),
        ("thresholds/min_luck", {}, "unknown key 'thresholds.min_luck'"),
        ("efficiency_bands/hls/high", 1.2, "efficiency_bands.hls is above 1"),
        ("bands", {}, "unknown key 'bands'"),
    ],
)
def test_unusable_assumptions_are_refused_with_the_key(keys, value, complaint):
    with pytest.raises(CommandLineError, match=complaint):
        read_assumptions(FPGA, changed(keys, value, FPGA))


def test_a_rate_is_pessimistic_when_low_and_a_cost_when_high():
    figure = Figure(2, 3, 5, "a source", "assumed")
    assert figure.as_rate().cases == (2, 3, 5)
    assert figure.as_cost().cases == (5, 3, 2)
    assert combine(lambda a, b: a * b, figure.as_rate(), Outlook.known(7)).cases == (14, 21, 35)


def test_every_number_of_the_configuration_has_a_source_and_a_trust_mark():
    def numbers(found: Any) -> int:
        if not isinstance(found, dict):
            return 0
        if "value" in found or "likely" in found:
            assert found["source"].strip()
            assert found["trust"] in ("datasheet", "vendor", "published", "derived", "assumed")
            return 1
        assert not any(isinstance(value, int | float) for value in found.values())
        return sum(numbers(value) for value in found.values())

    assert numbers(content(U280)) > 20
    assert numbers(content(FPGA)) == 3 + 4
