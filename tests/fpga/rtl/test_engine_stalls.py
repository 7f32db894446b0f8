"""The engine's Verilog with a host and a memory that stall at random: the results are the same whatever they do."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

from benchmarks.plans.engine_networks import _signed, sample_of
from benchmarks.plans.integer_reference import outputs
from common.fpga.rtl import programs
from common.fpga.rtl.engine.cycles import best_tilings
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.program import program_of
from common.fpga.rtl.engine.reading.layers import layers_of
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.engine.simulate import QUEUES
from tests.support.engine.maps import CASES, added, pooled
from tests.support.engine.rows import CASES as ROW_CASES
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools"),
]
DESIGN = EngineDesign(3, 8, 1, 8, 1024, 64, 1024, 16, 128, 256)  # small buffers: layers have several tiles
TIMING = MemoryTiming(17, 1.5, 6, 200, 23, 4, 128)  # that the tiles are chosen for; the memory here knows none
LAWS = ("never", "uniform", "geometric", "pareto", "refresh", "starved")
LIMIT = 5_000_000  # cycles


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("stalls")
    (path / "engine.v").write_text(DESIGN.verilog(), encoding="utf-8")
    source = str(ROOT / "tests" / "support" / "engine" / "stalls.cpp")
    command = ["verilator", "--cc", "--exe", "--build", "--prefix", "Vengine", "--top-module", DESIGN.name]
    programs.call([*command, "-Wno-fatal", "-O3", "-CFLAGS", "-O1", "--Mdir", "obj_dir", "engine.v", source], path)
    return path


MODELS = {
    "a sum": added,
    "a pool": pooled,
    "parts of sums": CASES["parts of sums"],
    "two heads": ROW_CASES["two heads"],
    "normalization": ROW_CASES["normalization"],
}


@pytest.mark.parametrize("model", MODELS)
def test_stalls_change_no_result(folder, model):
    built = MODELS[model]()
    network = on_whole_folds(layers_of(built), DESIGN.cols)
    program = program_of(network, best_tilings(network, DESIGN, TIMING), DESIGN)
    expected = outputs(built, {"input": sample_of(network, 5)})
    inputs = {each.name: _signed(each, expected[each.name]).astype(np.int8) for each in network.inputs}
    program.filled(inputs).tofile(folder / "before.bin")
    words = [(QUEUES[each.unit], word) for each in program.descriptors for word in each.words]
    np.array(words, np.uint32).tofile(folder / "script.bin")
    results = {layer.y.whole.name: layer.y.whole for layer in network.layers if layer.y.whole.name in expected}
    assert results
    cycles = {}
    for seed, law in enumerate(LAWS):
        (folder / "after.bin").unlink(missing_ok=True)
        flags = ["before.bin", "script.bin", str(DESIGN.word_bytes), law, str(seed), str(LIMIT)]
        command = [folder / "obj_dir" / "Vengine", *flags]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{law}: {done.stderr}"
        cycles[law] = int(done.stdout)
        after = np.fromfile(folder / "after.bin", np.uint8)
        for name, tensor in results.items():
            right = _signed(tensor, expected[name])
            np.testing.assert_array_equal(program.read(after, tensor), right, f"{law}: {name}")
    assert cycles["never"] < min(cycles[law] for law in LAWS[1:])
    assert max(cycles.values()) == cycles["starved"]
