"""What a file may say beside memories: a network, a precision for each operand, and a dataflow. Sums by hand."""

import re
from dataclasses import replace

import numpy as np
import pytest

from common.design_space.accelerator.hardware import Network, NothingFitsError
from common.design_space.accelerator.hardware_files import read_hardware
from common.design_space.accelerator.single_buffer import has_single_buffer
from common.design_space.mapping.arrays import torch_namespace
from common.design_space.mapping.cost import cost
from common.design_space.mapping.dataflow import respects
from common.design_space.mapping.mappings import Mappings, parse_mappings
from common.design_space.mapping.space.layer_by_layer import exact
from common.design_space.mapping.space.mapping_problem import MappingProblem
from common.design_space.mapping.traffic import Nests
from common.design_space.search.engines import drawing_engines
from common.files.configuration import Section
from common.messages.errors import ConfigurationError
from common.workload.loop_nests import LoopNest
from tests.support.designs.small_layers import GEMMINI, SMALL, TINY
from tests.support.paths import CONFIGS

TEXT = (CONFIGS / "hardware" / "gemmini.yaml").read_text(encoding="utf-8")
# out[7, 10] = in[7, 15] @ weight[15, 10] in columns of five outputs and rows of three inputs: 1,050 operations.
PRODUCT = LoopNest(p=7, c=15, k=10)
MAPPING = "L3[WIO] K2 P7 - L2[WI] N1 K5X - L1[O] C5 C3X - L0[W] N1"
DRAM, SCRATCHPAD, ACCUMULATOR, REGISTERS = range(4)


def with_level(index, hardware=GEMMINI, **fields):
    levels = [replace(level, **fields) if at == index else level for at, level in enumerate(hardware.levels)]
    return replace(hardware, levels=tuple(levels))


def of(hardware, text=MAPPING, nest=PRODUCT):
    return cost(parse_mappings([text], hardware), Nests.of([nest]), hardware)


# --- the network ----------------------------------------------------------------------------------------------------


def test_a_multicast_costs_the_hops_of_its_first_copy_and_a_link_for_each_further_one():
    wired = with_level(SCRATCHPAD, network=Network(hop_pj_per_byte=1.0, hops=2.0))
    added = of(wired).energy_parts_pj[1 + SCRATCHPAD] - of(GEMMINI).energy_parts_pj[1 + SCRATCHPAD]
    inputs = 210 * 2 + 4 * 210  # five columns take each of the 210 inputs
    weights = 1050 * 2  # each goes to one register
    outputs = 70 * 2  # on their way from the accumulators to DRAM, never back
    assert added == pytest.approx(inputs + weights + outputs)
    assert of(wired).energy_pj - of(GEMMINI).energy_pj == pytest.approx(added)
    assert of(wired).cycles == of(GEMMINI).cycles


def test_partial_sums_that_come_back_cross_the_network_twice():
    text = "L3[WIO] C5 P7 - L2[WI] N1 K10X - L1[O] C3 - L0[W] N1"
    wired = with_level(SCRATCHPAD, network=Network(hop_pj_per_byte=1.0))
    added = of(wired, text).energy_parts_pj[1 + SCRATCHPAD] - of(GEMMINI, text).energy_parts_pj[1 + SCRATCHPAD]
    outputs = 5 * 70 + 4 * 70  # five visits leave, and come back after each but the last
    assert added == pytest.approx(1050 + 1050 + outputs)  # each input to ten columns; 1,050 weights into registers


def test_a_reduction_costs_a_link_for_each_sum_and_an_addition_for_each_pair():
    wired = with_level(ACCUMULATOR, network=Network(hop_pj_per_byte=0.5, addition_pj=0.25))
    added = of(wired).energy_parts_pj[1 + ACCUMULATOR] - of(GEMMINI).energy_parts_pj[1 + ACCUMULATOR]
    sums = 0.5 * 4 * 1050 + 0.25 * 700  # words of four bytes; three rows make 350 sums of 1,050
    operands = 0.5 * (1050 + 1050)  # an input and a weight of a byte for each operation, to one row
    assert added == pytest.approx(sums + operands)


def test_without_multicast_each_copy_reads_and_without_reduction_each_copy_writes():
    unicast = of(with_level(SCRATCHPAD, network=Network(1.0, is_multicast=False)))
    assert unicast.reads[SCRATCHPAD]["input"] == 1050
    assert of(GEMMINI).reads[SCRATCHPAD]["input"] == 210
    alone = of(with_level(ACCUMULATOR, network=Network(1.0, is_reducing=False)))
    assert alone.writes[ACCUMULATOR]["output"] == 1050
    assert of(GEMMINI).writes[ACCUMULATOR]["output"] == 350
    assert alone.reads[SCRATCHPAD] == of(GEMMINI).reads[SCRATCHPAD]


# --- precision ------------------------------------------------------------------------------------------------------


def test_an_operand_with_a_precision_of_its_own_takes_more_words():
    wide = with_level(DRAM, element_bytes=(("output", 4),))
    result, plain = of(wide), of(GEMMINI)
    assert result.writes[DRAM] == plain.writes[DRAM] == {"output": 70}  # elements
    # Blocks of 64 words of a byte: 150 weights, 210 inputs, and 280 bytes of outputs in place of 70.
    assert plain.energy_parts_pj[1] == (3 + 4 + 2) * 64 * 100
    assert result.energy_parts_pj[1] == (3 + 4 + 5) * 64 * 100
    assert plain.level_cycles[DRAM] == (150 + 210 + 70) / 8
    assert result.level_cycles[DRAM] == (150 + 210 + 280) / 8


@pytest.mark.parametrize(("scratchpad_bytes", "fits"), [(5 + 2 * 15 + 75 - 5, True), (104, False)])
def test_a_tile_needs_the_room_of_its_precision(scratchpad_bytes, fits):
    wide = with_level(SCRATCHPAD, element_bytes=(("input", 2),)).resized(
        capacity_kib={"scratchpad": scratchpad_bytes / 1024}
    )
    # A tile has a row of 15 inputs of two bytes, and 15 times 5 weights.
    assert of(wide).needed_words[SCRATCHPAD] == 105
    assert of(wide).fits == [fits]


# --- the dataflow ---------------------------------------------------------------------------------------------------

FIXED = {
    "outputs stay at DRAM": with_level(DRAM, TINY, stationary="output"),
    "weights stay at DRAM": with_level(DRAM, TINY, stationary="weight"),
    "inputs stay in the tile": with_level(ACCUMULATOR, TINY, stationary="input"),
    "only pixels and batches step at DRAM": with_level(DRAM, TINY, steps=frozenset("PQNGKC")),
    "no channel steps in the tile": with_level(ACCUMULATOR, TINY, steps=frozenset("PQNRS")),
}


def least_product(nest, hardware):
    """Return the least product of many mappings that the engines may choose, each by itself."""
    problem = MappingProblem(nest, hardware)
    cycles, energy = problem.evaluate(drawing_engines.draw(problem, 20_000, np.random.default_rng(3)))
    return float(np.min(cycles * energy))


@pytest.mark.parametrize("rule", FIXED)
@pytest.mark.parametrize("name", ["product", "groups"])
def test_the_best_mapping_of_a_fixed_dataflow_is_the_best_of_those_that_keep_to_it(rule, name):
    found = exact({name: SMALL[name]}, FIXED[rule])
    mapping = parse_mappings([found.choice[name].choice], TINY)
    assert respects(mapping, FIXED[rule]).all()
    assert found.edp <= least_product(SMALL[name], FIXED[rule]) * (1 + 1e-9)
    assert found.edp >= exact({name: SMALL[name]}, TINY).edp * (1 - 1e-9)


def test_a_fixed_dataflow_excludes_what_was_best():
    free = exact({"product": SMALL["product"]}, TINY)
    only_pixels = TINY
    for level in (DRAM, SCRATCHPAD):  # a loop that may not step at one of them may step at the other
        only_pixels = with_level(level, only_pixels, steps=frozenset("PQN"))
    assert exact({"product": SMALL["product"]}, only_pixels).edp > free.edp * 1.001


def test_loops_that_leave_the_stationary_operand_in_place_are_inside_of_all_others():
    texts = ["L3[WIO] K2 P7 - L2[WI] N1 K5X - L1[O] C5 C3X - L0[W] N1",
             "L3[WIO] P7 K2 - L2[WI] N1 K5X - L1[O] C5 C3X - L0[W] N1"]  # fmt: skip
    mappings = parse_mappings(texts, GEMMINI)
    assert respects(mappings, with_level(DRAM, stationary="weight")).tolist() == [True, False]
    assert respects(mappings, with_level(DRAM, stationary="input")).tolist() == [False, True]
    assert respects(mappings, with_level(DRAM, stationary="output")).tolist() == [True, True]  # none leaves them
    assert respects(mappings, with_level(DRAM, steps=frozenset("KC"))).tolist() == [False, False]


def test_a_dataflow_on_which_nothing_can_run_is_no_search_without_a_result():
    with pytest.raises(NothingFitsError, match="no tile of a layer fits"):
        exact({"product": SMALL["product"]}, with_level(DRAM, TINY.resized(rows=1, columns=1), steps=frozenset("N")))


# --- in PyTorch -----------------------------------------------------------------------------------------------------


def test_pytorch_counts_the_same_and_has_the_gradient_of_a_network():
    pytest.importorskip("torch", reason="comes with requirements-torch.txt")
    torch = torch_namespace()
    hardware = with_level(SCRATCHPAD, with_level(DRAM, element_bytes=(("output", 4),)), network=Network(1.5, hops=3.0))
    hardware = with_level(ACCUMULATOR, hardware, network=Network(0.5, addition_pj=0.25))
    mappings = parse_mappings([MAPPING], hardware)
    temporal = torch.asarray(mappings.temporal).requires_grad_()
    other = Mappings(temporal, torch.asarray(mappings.spatial), torch.asarray(mappings.order))
    theirs = cost(other, Nests.of([PRODUCT], torch), hardware, xp=torch)
    assert theirs.energy_pj.detach().numpy() == pytest.approx(of(hardware).energy_pj)
    theirs.energy_parts_pj[1 + SCRATCHPAD].sum().backward()
    with_wires = float(temporal.grad[0, DRAM, 4])  # of P at DRAM: weights come into the registers again at each step
    temporal.grad = None
    bare = with_level(SCRATCHPAD, hardware, network=None)
    cost(other, Nests.of([PRODUCT], torch), bare, xp=torch).energy_parts_pj[1 + SCRATCHPAD].sum().backward()
    assert with_wires - float(temporal.grad[0, DRAM, 4]) == pytest.approx(150 * 3 * 1.5)


# --- the file -------------------------------------------------------------------------------------------------------

FIGURE = "{value: 2, source: s, trust: assumed}"
NETWORK = f"    network: {{hop_pj_per_byte: {FIGURE}, hops: {FIGURE}, addition_pj: {FIGURE}, multicast: false}}\n"
WIDE = f"{{weight: {FIGURE}, input: {{value: 1, source: s, trust: assumed}}}}"
SCRATCHPAD_NAME = "  - name: scratchpad\n"


def read(tmp_path, text):
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return read_hardware(Section.of_file(file))


def scratchpad_with(lines, words="{value: 1, source: *arch, trust: published}"):
    head, tail = TEXT.split(SCRATCHPAD_NAME)
    tail = tail.replace("word_bytes: {value: 1, source: *arch, trust: published}", f"word_bytes: {words}", 1)
    return head + SCRATCHPAD_NAME + lines + tail


def test_a_file_gives_a_network_a_precision_for_each_operand_and_a_dataflow(tmp_path):
    lines = NETWORK + "    steps: [K, C]\n    stationary: weight\n"
    level = read(tmp_path, scratchpad_with(lines, WIDE)).level("scratchpad")
    assert level.network == Network(2.0, 2.0, 2.0, is_multicast=False, is_reducing=True)
    assert (level.steps, level.stationary) == (frozenset("KC"), "weight")
    assert (level.word_bytes, level.bytes_of("weight"), level.bytes_of("input")) == (1, 2, 1)
    assert level.element_words("weight") == 2


def test_a_note_says_what_the_figures_of_a_file_leave_out(tmp_path):
    (line,) = [line for line in TEXT.splitlines() if line.startswith("not_covered:")]
    stated = read(tmp_path, TEXT.replace(line, 'not_covered: "this and that"'))
    assert stated.notes == ("the figures of mine leave out this and that",)
    assert read(tmp_path, TEXT.replace(line, "")).notes == ()


def test_a_level_may_hold_nothing_and_be_a_network_alone(tmp_path):
    junction = (
        "  - name: bus\n    word_bytes: {value: 1, source: s, trust: assumed}\n"
        f"    energy: {{base_pj_per_byte: {{value: 0, source: s, trust: assumed}}}}\n{NETWORK}"
    )
    hardware = read(tmp_path, TEXT.replace("  - name: accumulator\n", junction + "  - name: accumulator\n"))
    assert hardware.level("bus").holds == frozenset()
    text = "L4[WIO] K2 P7 - L3[WI] N1 K5X - L2[] N1 - L1[O] C5 C3X - L0[W] N1"
    result = of(hardware, text)
    assert result.reads[1] == of(GEMMINI).reads[1]
    # 1,050 inputs and weights of a byte, and 70 outputs, each over two links of 2 pJ.
    assert result.energy_pj - of(GEMMINI).energy_pj == pytest.approx((1050 + 1050 + 70) * 2 * 2)


def test_a_buffer_with_these_fields_is_no_single_buffer(tmp_path):
    text = (CONFIGS / "hardware" / "fa-dosa.yaml").read_text(encoding="utf-8")
    assert has_single_buffer(read(tmp_path, text))
    assert not has_single_buffer(read(tmp_path, text.replace("  - name: buffer\n", f"  - name: buffer\n{NETWORK}")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (scratchpad_with("    steps: [K, Z]\n"), "steps has a word that is not known"),
        (scratchpad_with("    stationary: result\n"), "stationary is 'result'; it takes input or weight or output"),
        (scratchpad_with("", f"{{weight: {FIGURE}}}"), "word_bytes is not given for each operand that the level holds"),
        (scratchpad_with("", WIDE.replace("input", "output")), "word_bytes is not given for each operand"),
        (
            scratchpad_with(NETWORK.replace("multicast: false", "multicast: 3")),
            "network.multicast is 3; it takes true or false",
        ),
        (scratchpad_with(NETWORK.replace("hops:", "links:")), "unknown key 'levels[1].network.links'"),
    ],
)
def test_a_field_that_cannot_be_used_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(ConfigurationError, match=re.escape(message)) as failure:
        read(tmp_path, text)
    assert "\n" not in str(failure.value)
