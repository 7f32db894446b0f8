from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest

from common.files.configuration import TRUST, Constant, Section
from common.files.yaml_file import load_yaml
from common.fpga.device.board import Board, BoardCeilings, Memory, peak_flop_per_s
from common.fpga.device.board_files import load_board, load_ceilings, read_board, read_ceilings
from common.fpga.device.resources import Resources
from common.fpga.planning.request import read_assumptions
from common.fpga.rtl.engine.fabric import load_fabric
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint, combine
from common.messages.errors import ConfigurationError, UnusableValueError
from tests.support.configurations import with_value
from tests.support.paths import CONFIGS

BOARDS = CONFIGS / "boards"
U280 = BOARDS / "u280.yaml"
PROFILE = BOARDS / "u280-seed003.yaml"
FPGA = CONFIGS / "fpga.yaml"
LOGIC = ("lut", "ff", "bram36", "uram", "dsp")
OPEN = {"crosslink_nx_vip": "serial", "ecpix5": "ethernet", "ulx3s": "serial"}  # boards with open tools: their links
NAMES = ("kv260", "u200", "u250", "u280", "u50", "u55c", "ultra96", "v80", "vck190", "zcu102", "zcu104", *OPEN)


def content(path: Path = U280) -> dict[str, Any]:
    return load_yaml(path)


def board(name: str = "u280") -> Board:
    return load_board(name, BOARDS)


def ceilings(name: str) -> BoardCeilings:
    return load_ceilings(name, BOARDS)


def changed(keys: str, value: Any, path: Path = U280) -> dict[str, Any]:
    """The content with one value put in at ``section/key/…``; None takes it out."""
    return with_value(content(path), keys, value)


def paths_of(found: dict[str, Any], above: str = "") -> Iterator[str]:
    """``section/key`` of every entry, at any depth."""
    for key, value in found.items():
        yield above + key
        if isinstance(value, dict):
            yield from paths_of(value, f"{above}{key}/")


# --- all boards -----------------------------------------------------------------------------------------------------


def test_the_folder_holds_these_boards_and_one_profile():
    assert sorted(path.stem for path in BOARDS.glob("*.yaml")) == sorted([*NAMES, "u280-seed003"])


# LUT, flip-flops, 36 Kb blocks, UltraRAM, DSP of the whole device
DEVICES = {
    "u280": (1_303_680, 2_607_360, 2_016, 960, 9_024),
    "u55c": (1_303_680, 2_607_360, 2_016, 960, 9_024),
    "u250": (1_728_000, 3_456_000, 2_688, 1_280, 12_288),
    "u200": (1_182_240, 2_364_480, 2_160, 960, 6_840),
    "u50": (871_680, 1_743_360, 1_344, 640, 5_952),
    "vck190": (899_840, 1_799_680, 967, 463, 1_968),
    "v80": (2_574_208, 5_148_416, 3_741, 1_925, 10_848),
    "kv260": (117_120, 234_240, 144, 64, 1_248),
    "zcu104": (230_400, 460_800, 312, 96, 1_728),
    "zcu102": (274_080, 548_160, 912, 0, 2_520),
    "ultra96": (70_560, 141_120, 216, 0, 360),
    "ulx3s": (83_640 / 1.6, 83_640, 208 / 2, 0, 156),
    "ecpix5": (83_640 / 1.6, 83_640, 208 / 2, 0, 156),
    "crosslink_nx_vip": (32_256 / 1.6, 32_256, 84 / 2, 0, 112 / 2),
}


@pytest.mark.parametrize("name", NAMES)
def test_totals_are_the_sums_of_regions(name):
    found = board(name)
    for index, kind in enumerate(LOGIC):
        assert sum(getattr(region.total, kind) for region in found.regions) == DEVICES[name][index]
    assert astuple(found.total) == (*DEVICES[name], found.memory_port_count)


@pytest.mark.parametrize("name", NAMES)
def test_budgets_never_exceed_what_is_usable_nor_that_the_total(name):
    found = board(name)
    for region, budget in zip(found.regions, found.budgets, strict=True):
        assert region.usable.fits(region.total)
        for kind in LOGIC:
            assert getattr(budget, kind) <= getattr(region.usable, kind)
        assert budget.memory_channels == found.memory_port_count  # the same ports from every region
    assert found.total_budget.fits(found.total)
    assert found.total_budget.dsp == pytest.approx(sum(budget.dsp for budget in found.budgets))


@pytest.mark.parametrize("name", NAMES)
def test_peaks_follow_from_the_numbers_of_the_file(name):
    """The same sums by a loop over the raw file, without the reader."""
    raw, found = content(BOARDS / f"{name}.yaml"), board(name)
    usable_dsp = 0
    for region in raw["regions"].values():
        usable_dsp += region["usable"]["dsp"]["value"]
    dsp = usable_dsp * raw["closure_fraction"]["dsp"]["value"]
    for precision in PRECISION_BITS:
        macs_per_cycle = dsp * raw["macs_per_dsp"][precision]["value"]
        assert found.peak_flop_per_s(precision) == pytest.approx(2e6 * macs_per_cycle * raw["clock_mhz"]["value"])
    assert ceilings(name).peak_flop_per_s["int8"] == found.peak_flop_per_s("int8")
    assert not ceilings(name).is_given


def test_precisions_rank_by_products_per_dsp_in_each_family():
    order = ("fp64", "fp32", "bf16", "int16", "int8", "int4")
    slices, engines = board("u280"), board("v80")
    assert [slices.macs_per_dsp[name] for name in order] == pytest.approx([1 / 11, 1 / 5, 1 / 2, 1, 2, 4])
    assert [engines.macs_per_dsp[name] for name in order] == pytest.approx([1 / 11, 1, 1, 1, 3, 4])
    assert (slices.dsp_type, engines.dsp_type, board("vck190").dsp_type) == ("DSP48E2", "DSP58", "DSP58")


# In TOPS: DSPs × MAC per DSP × 2 × MHz / 1e6, and what the vendor prints.
HEADLINES = {
    "u280": (9_024 * 1.75 * 2 * 775 / 1e6, 24.5),
    "u250": (12_288 * 1.75 * 2 * 775 / 1e6, 33.3),
    "u200": (6_840 * 1.75 * 2 * 775 / 1e6, 18.6),
    "u50": (5_952 * 1.75 * 2 * 775 / 1e6, 16.2),
    "vck190": (1_968 * 3 * 2 * 1150 / 1e6, 13.6),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_vendors_headline_follows_from_its_conditions_or_is_declared_absent(name):
    found = board(name)
    if name not in HEADLINES:
        assert found.datasheet_peak is None
        assert found.datasheet_int8_op_per_s() is None
        assert len(content(BOARDS / f"{name}.yaml")["datasheet_peak"]["absent"]) > 20
        return
    computed, printed = HEADLINES[name]
    assert found.datasheet_peak is not None
    assert found.datasheet_peak.int8_op_per_s == pytest.approx(printed * 1e12)
    assert found.datasheet_int8_op_per_s() == pytest.approx(computed * 1e12)
    assert computed == pytest.approx(printed, rel=0.01)


def test_every_number_of_the_configuration_has_a_source_and_a_trust_mark():
    def numbers(found: Any) -> int:
        if not isinstance(found, dict):
            return 0
        if "value" in found or "likely" in found:
            assert len(found["source"].strip()) > 8
            assert found["trust"] in TRUST
            return 1
        assert not any(isinstance(value, int | float) for value in found.values())
        return sum(numbers(value) for value in found.values())

    for path in BOARDS.glob("*.yaml"):
        assert numbers(content(path)) > (5 if path == PROFILE else 35)
    assert numbers(content(FPGA)["thresholds"]) == 3


def test_trust_marks_tell_what_was_read_from_what_is_recalled():
    raw = content()
    assert raw["device"]["lut"]["trust"] == "datasheet"
    assert raw["regions"]["SLR0"]["usable"]["lut"]["trust"] == "vendor"
    assert raw["regions"]["SLR0"]["usable"]["ff"]["trust"] == "recalled"
    assert raw["macs_per_dsp"]["fp64"]["trust"] == "recalled"


def test_the_engines_that_the_vendor_runs_on_embedded_boards_close_there():
    """PG338: a B4096 takes 98,525 flip-flops, 255 block RAM and 710 DSPs, a B1600 312 DSPs and 127.5 block RAM."""
    zcu102, ultra96 = board("zcu102").total_budget, board("ultra96").total_budget
    assert Resources(lut=51_388, ff=98_525, bram36=255, dsp=710).times(3).fits(zcu102)
    assert Resources(lut=51_388, ff=98_525, bram36=255, dsp=710).times(4).shortfall(zcu102)
    assert Resources(lut=36_745, ff=56_267, bram36=127.5, dsp=312).fits(ultra96)


# --- U280 -----------------------------------------------------------------------------------------------------------


def test_u280_is_what_the_data_sheets_say_digit_for_digit():
    found = board()
    assert [region.total.dsp for region in found.regions] == [2880, 3072, 3072]
    assert [region.usable.lut for region in found.regions] == [369_000, 333_000, 367_000]
    assert [region.usable.bram36 for region in found.regions] == [507, 468, 512]
    assert [region.usable.dsp for region in found.regions] == [2733, 2877, 2880]
    assert astuple(found.closure)[:5] == (0.70, 0.50, 0.80, 0.80, 0.80)
    assert (found.memory.channel_count, found.memory.channel_bytes_per_s) == (32, 14.375e9)
    assert found.memory.bytes_per_s == 460e9
    assert found.memory.capacity_bytes == 8 * 2**30
    assert round(found.memory.efficiency.optimistic * 460) == 425
    assert (found.link.kind, found.link.raw_bytes_per_s) == ("pcie", 15.75e9)
    assert (found.link.bytes_per_s.pessimistic, found.link.bytes_per_s.optimistic) == (8.5e9, 12e9)
    assert (found.launch_us.pessimistic, found.launch_us.optimistic) == (130, 50)
    assert found.limit_w == 225
    macs = found.macs_per_dsp
    assert [macs[name] for name in ("int8", "int4", "int16", "bf16", "fp32")] == [2, 4, 1, 1 / 2, 1 / 5]


def test_u280_budget_of_a_region_is_what_is_usable_times_closure():
    found = board()
    expected = (369_000 * 0.7, 746_000 * 0.5, 507 * 0.8, 320 * 0.8, 2733 * 0.8, 32)
    assert astuple(found.budget(found.regions[0])) == pytest.approx(expected)
    assert found.total_budget.lut == pytest.approx((369_000 + 333_000 + 367_000) * 0.7)
    assert found.usable.dsp == 2733 + 2877 + 2880 == 8490


def test_u280_int8_peak_never_reads_the_u200s_18_6():
    found = board()
    stated, computed = found.datasheet_peak, found.datasheet_int8_op_per_s()
    assert stated is not None
    assert computed is not None
    for peak in (stated.int8_op_per_s, computed, found.peak_flop_per_s("int8")):
        assert abs(peak / 18.6e12 - 1) > 0.05
    assert f"{computed / 1e12:.1f}" == "24.5"
    assert found.peak_flop_per_s("int8") == pytest.approx(6792 * 2 * 2 * 300e6)  # 8.15 TOPS for what closes at 300 MHz


def test_a_u280_that_claims_the_u200s_figure_is_refused():
    with pytest.raises(ConfigurationError, match="datasheet_peak does not follow from its own conditions"):
        read_board(Section(U280, changed("datasheet_peak/int8_op_per_s/value", 18.6e12)))


def test_u280_fp32_peak_takes_five_dsps_per_multiply_add():
    assert board().peak_flop_per_s("fp32") == pytest.approx(6792 / 5 * 2 * 300e6)
    # the profile's 5.41e12 is one DSP per multiply-add, and all of them
    assert pytest.approx(5.41e12, rel=0.001) == 9024 * 2 * 300e6
    assert ceilings("u280-seed003").peak_flop_per_s["fp32"] / board().peak_flop_per_s("fp32") > 6


# --- ceilings -------------------------------------------------------------------------------------------------------


def test_peak_is_dsp_times_mac_times_two_times_clock_times_pumping():
    assert peak_flop_per_s(7, 3, 5) == 7 * 3 * 2 * 5e6
    assert peak_flop_per_s(7, 3, 5, 2) == 7 * 3 * 2 * 5e6 * 2
    once = board().peak_flop_per_s("int8")
    assert replace(board(), dsp_pumping=2.0).peak_flop_per_s("int8") == 2 * once


def test_memory_bandwidth_is_channels_times_the_slower_of_channel_and_port():
    memory = board().memory
    assert memory.bandwidth_bytes_per_s(16, 256, 333) == pytest.approx(16 * 32 * 333e6)
    assert round(memory.bandwidth_bytes_per_s(16, 256, 333) / 1e9, 1) == 170.5
    assert memory.bandwidth_bytes_per_s(32, 256, 450) == 32 * 14.375e9  # a port carries 14.4e9
    assert memory.bandwidth_bytes_per_s(7, 512, 300) == 7 * 14.375e9
    assert memory.bandwidth_bytes_per_s(1, 64, 100) == 0.8e9


@pytest.mark.parametrize("channels", [0, -1, 33])
def test_channels_that_are_not_there_are_refused(channels):
    with pytest.raises(UnusableValueError, match=rf"<channels>: {channels} is not possible; give 1 to 32"):
        board().memory.bandwidth_bytes_per_s(channels, 256, 300)


def test_power_limits_the_u50s_memory_as_a_whole_and_not_its_channels():
    memory = board("u50").memory
    assert memory.bytes_per_s == 316e9 < 32 * 14.375e9
    assert memory.bandwidth_bytes_per_s(32, 256, 450) == 316e9
    assert memory.bandwidth_bytes_per_s(16, 256, 333) == pytest.approx(170.496e9)


def test_an_embedded_boards_memory_has_one_channel_and_four_ports():
    assert board("kv260").memory.bytes_per_s == board("zcu104").memory.bytes_per_s == 19.2e9
    assert board("ultra96").memory.bytes_per_s == 4.26e9
    assert board("kv260").memory_port_count == 4
    assert board("u280").memory_port_count == 32


def test_bandwidths_of_the_other_cards():
    assert board("u250").memory.bytes_per_s == board("u200").memory.bytes_per_s == 4 * 19.2e9
    assert board("u55c").memory.bytes_per_s == 460e9
    assert board("v80").memory.bytes_per_s == pytest.approx(819.2e9)
    assert board("v80").link.raw_bytes_per_s == pytest.approx(8 * 32e9 * 128 / 130 / 8, rel=0.001)
    assert board().link.raw_bytes_per_s == pytest.approx(16 * 8e9 * 128 / 130 / 8, rel=0.001)


def test_a_boards_ceilings_carry_what_kernels_attain_of_the_memory():
    found = ceilings("u280")
    assert found.memory_bytes_per_s == 460e9
    assert found.attained_bytes_per_s.cases == pytest.approx((460e9 * 0.31, 460e9 * 0.65, 460e9 * 0.924))
    assert (found.based_on, found.absent) == ("u280", {})


def test_the_profile_yields_the_notebooks_ceilings_and_says_what_it_lacks():
    found = ceilings("u280-seed003")
    assert found.peak_flop_per_s == {"fp32": 5.41e12, "int8": 18.6e12, "int4": 37.2e12}
    assert found.attained_bytes_per_s.cases == (300e9, 300e9, 300e9)
    assert (found.memory_bytes_per_s, found.clock_mhz) == (460e9, 300)
    assert found.is_given
    assert found.based_on == "u280"
    assert set(found.absent) == {"bf16", "int16", "fp64"}


def test_the_profile_is_no_board_to_plan_with():
    with pytest.raises(ConfigurationError, match="gives ceilings and no resources to plan with; use board u280"):
        load_board("u280-seed003", BOARDS)


@pytest.mark.parametrize(
    ("keys", "value", "complaint"),
    [
        ("given_ceilings/absent/bf16", None, "needs a peak for each number format, or a reason why there is none"),
        ("given_ceilings/absent/bf16", "", "given_ceilings.absent.bf16 is not a text, or is empty"),
        ("given_ceilings/absent/fp8", "too new", "needs a peak for each number format"),
        ("given_ceilings/peak_flop_per_s/int8/value", -1, "needs 0 < low <= likely <= high"),
        ("given_ceilings/attained_bytes_per_s/value", 461e9, "attained_bytes_per_s is above theoretical_bytes_per_s"),
        ("given_ceilings/colour", "red", "unknown key 'given_ceilings.colour'"),
        ("given_ceilings", [], "given_ceilings is not a mapping"),
        ("based_on", None, "based_on is missing"),
    ],
)
def test_an_unusable_profile_is_refused_with_the_key(keys, value, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        read_ceilings(Section(PROFILE, changed(keys, value, PROFILE)))


# --- hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_embedded_boards_share_memory_with_a_host_that_was_not_profiled(name):
    found = board(name)
    is_embedded = name in {"kv260", "zcu104", "zcu102", "ultra96", "vck190"}
    assert found.link.kind == ("shared_memory" if is_embedded else OPEN.get(name, "pcie"))
    assert found.own_processor.startswith("Arm Cortex-A") == is_embedded
    if is_embedded:  # a copy reads and writes each byte in the same memory
        assert found.link.bytes_per_s.optimistic <= found.memory.bytes_per_s / 2


@pytest.mark.parametrize("name", OPEN)
def test_a_board_with_open_tools_has_the_device_and_the_memory_of_its_fabric(name):
    """Two files give the same board: one for plans, one for engines that are placed and routed."""
    planned, routed = board(name), load_fabric(name, CONFIGS / "fabrics")
    cells = routed.device.cells
    halves = 2 if routed.device.family == "nexus" else 1  # multipliers of 9 x 9 bits, of which two make one
    assert (planned.total.lut * 1.6, planned.total.ff) == (cells.lut, cells.ff)
    assert (2 * planned.total.bram36, halves * planned.total.dsp) == (cells.block_ram, cells.multiplier)
    assert planned.memory.bytes_per_s == pytest.approx(routed.memory_bytes_per_s)
    assert planned.family == routed.device.family


def test_ai_engines_are_declared_and_said_to_be_unmodelled():
    found = board("vck190")
    assert found.ai_engines is not None
    assert found.ai_engines.count == 400
    assert found.ai_engines.int8_op_per_s == pytest.approx(400 * 128 * 2 * 1.3e9, rel=0.001)
    assert any("AI engines (133 INT8 TOPS by the vendor) are not modelled" in note for note in found.notes)
    assert found.ai_engines.fp32_flop_per_s.cases == (1.46e12, 1.675e12, 2.94e12)
    assert found.peak_flop_per_s("fp32") < 1.46e12  # what its DSPs reach is less than the least of these
    assert any("networks attain 1.46 to 2.94 TFLOP/s in fp32 on them" in note for note in found.notes)
    assert board("v80").ai_engines is None
    assert board("u280").notes == ()


# --- hostile files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "value", "complaint"),
    [
        ("clock_mhz", None, "clock_mhz is missing"),
        ("clock_mhz/value", "fast", "clock_mhz.value is 'fast', which is not a finite number; write large numbers"),
        ("clock_mhz/value", True, "is not a finite number"),
        ("clock_mhz/value", float("nan"), "is not a finite number"),
        ("clock_mhz/value", -3, "clock_mhz needs 0 < low <= likely <= high"),
        ("clock_mhz/source", "", "clock_mhz.source is not a text, or is empty"),
        ("clock_mhz/source", None, "clock_mhz.source is missing"),
        ("clock_mhz/trust", "hearsay", "clock_mhz.trust is 'hearsay'; it takes datasheet or vendor"),
        ("clock_mhz/note", "x", "unknown key 'clock_mhz.note'"),
        ("clock_mhz", 300, "clock_mhz is not a mapping"),
        ("title", 7, "title is not a text, or is empty"),
        ("title", " ", "title is not a text, or is empty"),
        ("family", "stratix", "family is 'stratix'; it takes ultrascale. or versal or ecp5 or nexus"),
        ("family", "versal", "versal devices have DSP58s; correct the figures"),
        ("colour", "red", "unknown key 'colour'"),
        ("memory/banks", 2, "unknown key 'memory.banks'"),
        (
            "memory/kind",
            "sram",
            "memory.kind is 'sram'; it takes hbm or ddr4 or lpddr4 or ddr3 or sdram or hyperram",
        ),
        ("memory/channel_count/value", 2.5, "memory.channel_count is 2.5; it takes a whole number"),
        ("macs_per_dsp/int4", None, "macs_per_dsp is incomplete; it takes fp64, fp32, bf16, int16, int8, int4"),
        ("host_link/launch_us/low", 1000, "host_link.launch_us needs 0 < low <= likely <= high"),
        ("device/dsp/value", 9025, "regions add up to 9024 dsp, but the device has 9025"),
        ("regions/SLR1/total/lut/value", 432001, "regions add up to 1.30368e.06 lut, but the device has"),
        ("regions/SLR1/usable/dsp/value", 3073, "regions.SLR1 has less dsp than its shell leaves"),
        ("regions/SLR1/usable/uram/value", -1, "regions.SLR1.usable.uram is negative"),
        ("regions/SLR1/usable/bram36", None, "regions.SLR1.usable.bram36 is missing"),
        ("regions/SLR1/colour", 3, "unknown key 'regions.SLR1.colour'"),
        ("regions", {}, "regions add up to 0 lut, but the device has"),
        ("regions", ["SLR0"], "regions is not a mapping"),
        ("closure_fraction/dsp/value", 1.01, "a closure_fraction is above 1"),
        ("closure_fraction/dsp/value", 0, "the shell and closure leave no DSP"),
        ("memory/efficiency_fraction/high", 1.01, "memory efficiency is above 1"),
        ("host_link/bytes_per_s/high", 16e9, "the host link is faster than its raw rate"),
        ("power/dynamic_w/high", 170, "static and dynamic power together exceed the board's limit"),
        ("datasheet_peak", {"absent": ""}, "datasheet_peak.absent is not a text, or is empty"),
    ],
)
def test_unusable_board_is_refused_with_the_key(keys, value, complaint):
    with pytest.raises(ConfigurationError, match=complaint) as raised:
        read_board(Section(U280, changed(keys, value)))
    assert str(raised.value).startswith(str(U280))
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("found", [[1, 2], None, "u280", 7, {}], ids=repr)
def test_a_file_that_is_no_board_at_all_is_refused(found):
    for read in (read_board, read_ceilings):
        with pytest.raises(ConfigurationError, match=r"is not a mapping|is missing"):
            read(Section(U280, found))


@pytest.mark.slow
@pytest.mark.parametrize("path", list(paths_of(content())))
def test_any_entry_that_is_missing_or_of_another_type_gives_one_line(path):
    with pytest.raises(ConfigurationError):
        read_board(Section(U280, changed(path, None)))
    for junk in (["x"], {"x": 1}, -1):
        with pytest.raises(ConfigurationError) as raised:
            read_board(Section(U280, changed(path, junk)))
        assert "\n" not in str(raised.value)


def test_board_is_found_by_name_or_path_and_the_error_names_what_is_there(tmp_path):
    assert load_board(str(U280), tmp_path) == load_board("u280", BOARDS)
    complaint = r"<board>: 'u999' is neither a known board nor a YAML file; known: .*u280.*zcu104"
    with pytest.raises(UnusableValueError, match=complaint):
        load_board("u999", BOARDS)


@pytest.mark.parametrize(("name", "similar"), [("u28", "u280"), ("ZCU104", "zcu104"), ("zcu140", "zcu104")])
def test_a_misspelt_board_is_answered_with_the_one_that_was_meant(name, similar):
    with pytest.raises(UnusableValueError, match=rf"; did you mean {similar}.*\? known: crosslink_nx_vip, "):
        load_board(name, BOARDS)


def test_a_memory_without_a_stated_limit_has_none():
    memory = Memory("hbm", 3, 7e9, ThreePoint.exactly(0.5), 11, 256)
    assert memory.bytes_per_s == 21e9
    assert Resources().memory_channels == 0


# --- figures and assumptions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "value", "complaint"),
    [
        ("launch_per", "day", "launch_per is 'day'; it takes group or phase"),
        ("thresholds/min_share", None, "thresholds.min_share is missing"),
        ("thresholds/min_luck", {}, "unknown key 'thresholds.min_luck'"),
        ("effort", 0, "effort is 0, which is no search time"),
        ("effort", "long", "effort is 'long', which is not a finite number"),
        ("bands", {}, "unknown key 'bands'"),
    ],
)
def test_unusable_assumptions_are_refused_with_the_key(keys, value, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        read_assumptions(Section(FPGA, changed(keys, value, FPGA)))


def test_a_rate_is_pessimistic_when_low_and_a_cost_when_high():
    figure = Constant(2, 3, 5, "a source", "assumed")
    assert figure.as_rate().cases == (2, 3, 5)
    assert figure.as_cost().cases == (5, 3, 2)
    assert combine(lambda a, b: a * b, figure.as_rate(), ThreePoint.exactly(7)).cases == (14, 21, 35)


@pytest.mark.parametrize("name", NAMES)
def test_the_documents_table_says_what_the_file_says(name):
    """docs/FPGA.md, "Ceilings of a board": logic, clock, bandwidth and peaks of each board."""
    text = (CONFIGS.parent / "docs" / "FPGA.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    cells = [cell.strip().replace(",", "") for cell in row.strip("|").split("|")]
    found = board(name)
    assert [float(cell) for cell in cells[1:5]] == [
        getattr(found.total, kind) for kind in ("lut", "bram36", "uram", "dsp")
    ]
    assert float(cells[6]) == found.clock_mhz
    assert float(cells[8]) == pytest.approx(found.memory.bytes_per_s / 1e9, rel=1e-3)
    assert float(cells[9]) == pytest.approx(found.peak_flop_per_s("int8") / 1e12, abs=0.006)
    assert float(cells[10]) == pytest.approx(found.peak_flop_per_s("fp32") / 1e12, abs=0.0006)
