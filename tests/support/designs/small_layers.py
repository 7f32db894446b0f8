"""Layers small enough to go through every mapping, and an accelerator in which some of their tiles do not fit."""

from __future__ import annotations

from common.design_space.accelerator.hardware_files import load_hardware
from common.workload.loop_nests import LoopNest
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")
TINY = GEMMINI.resized(rows=3, columns=4, capacity_kib={"scratchpad": 48 / 1024, "accumulator": 4 * 8 * 4 / 1024})
SMALL = {
    "window": LoopNest(k=4, c=3, p=6, r=3, stride_p=2),
    "product": LoopNest(k=6, c=6, p=4),
    "batch": LoopNest(n=2, k=4, q=4, s=3),
    "groups": LoopNest(k=2, c=2, p=4, groups=3),
}
