"""The order of keys and of lists in an accelerator's file changes nothing, on every machine of configs/hardware."""

from __future__ import annotations

import random

import pytest
import yaml

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.space.nest_fronts import ALONE, nest_fronts
from common.workload.loop_nests import LoopNest
from tests.support.paths import CONFIGS

FOLDER = CONFIGS / "hardware"
MACHINES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
NESTS = {
    "window": LoopNest(k=6, c=5, p=7, r=3),
    "strided": LoopNest(k=4, q=7, s=3, stride_q=2),
    "depthwise": LoopNest(groups=5, p=7, r=3),
    "product": LoopNest(n=2, k=6, c=7, p=5),
}


def shuffled(value, generator, key=""):
    """Return a value with the keys of all mappings, and the lists but that of the levels, in another order."""
    if isinstance(value, dict):
        keys = [*value]
        generator.shuffle(keys)
        return {key: shuffled(value[key], generator, key) for key in keys}
    if isinstance(value, list):
        entries = [shuffled(entry, generator) for entry in value]
        if key != "levels":
            generator.shuffle(entries)
        return entries
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_a_reordered_file_has_the_same_mappings(name, tmp_path):
    content, generator = yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), random.Random(name)
    small = load_hardware(name, FOLDER).resized(rows=3, columns=4)
    for number in range(2):
        path = tmp_path / str(number) / f"{name}.yaml"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(shuffled(content, generator), sort_keys=False))
        other = load_hardware(str(path), FOLDER).resized(rows=3, columns=4)
        for nest in NESTS.values():
            expected, found = (nest_fronts(nest, hardware, [ALONE]) for hardware in (small, other))
            assert [(point.cycles, point.energy_pj) for point in found.fronts[ALONE]] == [
                (point.cycles, point.energy_pj) for point in expected.fronts[ALONE]
            ]
