"""The words at each level of deep hierarchies: two outputs of Timeloop that its authors publish.

github.com/Accelergy-Project/timeloop-accelergy-exercises, commit 7252362, `baseline_designs/example_designs/NAME/
example_AlexNet_layer1_outputs/timeloop-mapper.stats.txt`. Read from it: the loops of each level, the cycles, and the
accesses of each level (scalar reads, updates and fills of an instance, times the utilized instances).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.design_space.accelerator.hardware import Fanout
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest
from tests.support.designs.small_layers import GEMMINI

CONV1 = LoopNest(k=96, c=3, p=55, q=55, r=11, s=11, stride_p=4, stride_q=4)

# By machine: name, operands and fan-out of each level, the mapping, cycles, and the accesses of each level by operand.
EXAMPLES = {
    "eyeriss_like": (
        [
            ("dram", "weight input output", ""),
            ("shared_glb", "input output", "K"),
            ("dummy", "", "S"),
            ("ifmap_spad", "input", ""),
            ("weights_spad", "weight", ""),
            ("psum_spad", "output", ""),
        ],
        "L5[WIO] Q55 C3 - L4[IO] P55 K12X - L3[] N1 S11X - L2[I] N1 - L1[W] R11 - L0[O] K8",
        798_600,
        {
            "dram": {"weight": 1_916_640, "input": 412_005, "output": 290_400},
            "shared_glb": {"input": 412_005 + 412_005, "output": 580_800 + 871_200 + 290_400},
            "ifmap_spad": {"input": (798_600 + 37_455) * 132},
            "weights_spad": {"weight": (798_600 + 14_520) * 132},
            "psum_spad": {"output": (774_400 + 798_600 + 72_600) * 132},
        },
    ),
    "simba_like": (
        [
            ("dram", "weight input output", ""),
            ("global_buffer", "input output", "K"),
            ("pe_input_buffer", "input", "K"),
            ("pe_weight_buffer", "weight", ""),
            ("pe_accu_buffer", "output", "C"),
            ("pe_weight_regs", "weight", ""),
        ],
        "L5[WIO] P55 - L4[IO] N1 K12X - L3[I] N1 K4X - L2[W] R11 S11 - L1[O] K2 C3X - L0[W] Q55",
        732_050,
        {
            "dram": {"weight": 34_848, "input": 154_587, "output": 290_400},
            "global_buffer": {"input": 154_587 + 154_587, "output": 0 + 290_400 + 290_400},
            "pe_input_buffer": {"input": (2_196_150 + 154_587) * 12},
            "pe_weight_buffer": {"weight": (39_930 + 726) * 48},
            "pe_accu_buffer": {"output": (726_000 + 732_050 + 6_050) * 48},
            "pe_weight_regs": {"weight": (732_050 + 13_310) * 144},
        },
    ),
}


def machine(levels):
    """An accelerator with given levels; all sizes are Gemmini's, because no count depends on them."""
    made = [
        replace(
            GEMMINI.levels[0],
            name=name,
            holds=frozenset(holds.split()),
            copies="one",
            fanouts=(Fanout((loop,), "columns"),) if loop else (),
        )
        for name, holds, loop in levels
    ]
    return replace(GEMMINI, levels=tuple(made))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_accesses_of_each_level_are_timeloops(name):
    levels, mapping, cycles, accesses = EXAMPLES[name]
    hardware = machine(levels)
    result = cost(parse_mappings([mapping], hardware), Nests.of([CONV1]), hardware)
    assert result.compute_cycles.tolist() == [cycles]
    for index, level in enumerate(hardware.levels):
        verbs = result.reads[index], result.writes[index]
        ours = {operand: sum(float(np.sum(verb.get(operand, 0))) for verb in verbs) for operand in level.holds}
        assert ours == pytest.approx(accesses.get(level.name, {})), level.name
