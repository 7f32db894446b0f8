"""A whole system: what its host program says over the link, and what the Verilog makes of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tty

import numpy as np
import onnx
import pytest

from benchmarks.plans import system as command
from benchmarks.plans.engine_networks import network_in, read_model
from benchmarks.plans.integer_reference import outputs
from common.fpga.rtl import programs
from common.fpga.rtl.engine.cycles import best_tilings
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.program import program_of
from common.fpga.rtl.engine.reading.layers import layers_of
from common.fpga.rtl.system import link, simulate
from common.fpga.rtl.system.host import EngineHost
from common.fpga.rtl.system.link import HostLink, SerialLine
from common.fpga.rtl.system.simulate import PLACES, simulated_litex, simulated_system, system_name, system_verilog
from common.messages.errors import PipelineError
from tests.support.engine.maps import CASES
from tests.support.paths import ROOT

needs_verilator = pytest.mark.skipif(not programs.is_there("verilator"), reason="no verilator: make rtl-tools")
LITEX = ROOT / ".venv-litex" / "bin" / "python"
NARROW = EngineDesign(3, 4, 2, 4, 512, 16, 256, 8, 64, 128, 8, has_row_work=False)
WIDE = EngineDesign(2, 8, 1, 8, 512, 16, 256, 8, 64, 128, 8, has_row_work=False)
STALLS = MemoryTiming(17, 1.5, 6, 200, 23, 4, 128)


class Words:
    """What is behind a link, in Python: words by address, and a count that grows with each read of it."""

    def __init__(self):
        self.words, self.answers, self.bursts = {}, b"", []

    def write(self, data):
        while data:
            kind, count, address = data[0], data[1], 4 * int.from_bytes(data[2:6], "big")
            self.bursts.append((kind, count, address))
            data = data[6:]
            for place in range(count):
                at = address if kind == 3 else address + 4 * place
                if kind == 2:
                    self.answers += self.words[at].to_bytes(4, "big")
                else:
                    self.words[at], data = int.from_bytes(data[:4], "big"), data[4:]

    def read(self, count):
        answer, self.answers = self.answers[:count], self.answers[count:]
        return answer


def test_bursts_have_at_most_255_words_and_come_back_as_they_went():
    behind = Words()
    values = np.arange(1, 601, dtype=np.uint32) * 0x01020304
    HostLink(behind).write(0x1000, values)
    assert behind.bursts == [(1, 255, 0x1000), (1, 255, 0x1000 + 4 * 255), (1, 90, 0x1000 + 4 * 510)]
    assert np.array_equal(HostLink(behind).read(0x1000, 600), values)
    HostLink(behind).write(0x80000040, values[:3], is_one_address=True)
    assert behind.bursts[-1] == (3, 3, 0x80000040)
    assert behind.words[0x80000040] == values[2]


def test_a_line_that_ends_is_one_line():
    class Ended(Words):
        def read(self, count):
            return b""

    ended = Ended()
    ended.words[0] = 1
    with pytest.raises(PipelineError, match="link: gives no answer"):
        HostLink(ended).read(0, 1)


def test_a_serial_line_carries_all_bytes_as_they_are(tmp_path):
    master, slave = os.openpty()
    tty.setraw(master)
    every = bytes(range(256))
    try:
        with SerialLine(os.ttyname(slave), 1_000_000) as line:
            line.write(every)
            assert os.read(master, 256) == every
            os.write(master, every)
            assert line.read(256) == every
        with pytest.raises(PipelineError, match="has no rate of 123 baud"):
            SerialLine(os.ttyname(slave), 123)
    finally:
        os.close(slave)
        os.close(master)
    with pytest.raises(PipelineError, match="is no serial line that opens"):
        SerialLine(tmp_path / "none", 115200)


def test_a_serial_line_without_an_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(link, "MOST_SILENT_TENTHS_S", 1)  # a longer one would not hang for ever, either
    master, slave = os.openpty()
    with SerialLine(os.ttyname(slave), 1_000_000) as line:
        try:
            with pytest.raises(PipelineError, match="link: gives no answer; see that the board is on"):
                HostLink(line).read(0, 1)
            assert os.read(master, 6) == bytes((2, 1, 0, 0, 0, 0))  # what it asked for
        finally:
            os.close(slave)
            os.close(master)
        with pytest.raises(PipelineError, match=r"the serial line failed; .*Input/output error"):
            line.write(b"more")


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("design", [NARROW, WIDE], ids=["words of 4 bytes", "words of 8 bytes"])
def test_a_system_answers_image_after_image_with_the_integers_of_numpy(design):
    """Two images, weights loaded once; the memory stalls. The host sees nothing but the link."""
    program = convolution(design)
    with simulated_system(design, STALLS, len(program.memory)) as simulated:
        answers_images(program, HostLink(simulated), PLACES)


@needs_verilator
@pytest.mark.slow
@pytest.mark.skipif(not LITEX.exists(), reason="no LiteX: see docs/BUILD.md")
def test_a_system_of_litex_and_litedram_answers_alike():
    program = convolution(NARROW)
    with simulated_litex(NARROW, LITEX) as (simulated, places):
        answers_images(program, HostLink(simulated), places)


@needs_verilator
@pytest.mark.slow
def test_a_python_without_litex_is_one_line(capsys):
    assert command.main(["--litex", sys.executable]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"system: error: {sys.executable}: ")
    assert "No module named 'litedram'" in last
    assert last.endswith("; docs/BUILD.md says how to install LiteX")


def test_a_python_that_is_not_there_is_one_line_and_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told = f"{tmp_path / 'none'}: not found; docs/BUILD.md says how to install LiteX"
    with pytest.raises(PipelineError, match=f"^{re.escape(told)}$"), simulated_litex(NARROW, tmp_path / "none"):
        pass
    assert not [*tmp_path.iterdir()]


def test_a_system_that_fails_at_its_beginning_ends_with_its_folder(tmp_path, monkeypatch):
    """A register of the SDRAM is missing when the program already runs: it reads to the end of its link, and ends."""
    begun = []

    class Kept(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            begun.append(self)

    def called(command, folder):
        if command[0] == "verilator":
            program = folder / "obj_dir" / "Vlitex_system"
            program.parent.mkdir()
            program.write_text("#!/bin/sh\nexec cat\n", encoding="utf-8")
            program.chmod(0o755)
        else:
            found = {"registers": {}, "initialisation": [["a step", 0, 0, "DFII_COMMAND_CS", 0]]}
            (folder / "litex_system.json").write_text(json.dumps(found), encoding="utf-8")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(simulate, "call", called)
    monkeypatch.setattr(subprocess, "Popen", Kept)
    with pytest.raises(KeyError, match="sdram_dfii_pi0_address"), simulated_litex(NARROW, tmp_path / "python"):
        pass
    assert [program.returncode is not None for program in begun] == [True]
    assert not [*tmp_path.iterdir()]


def convolution(design):
    network = layers_of(CASES["several words, a stride"]())
    return program_of(network, best_tilings(network, design, STALLS), design)


def answers_images(program, host_link, places):
    (x,), (y,) = program.network.inputs, program.network.outputs
    host = EngineHost(host_link, places, program)
    host.load()
    seen = []
    for seed in (1, 2):
        image = np.random.default_rng(seed).uniform(-8, 8, (1, x.channels, x.height, x.width)).astype(np.float32)
        expected = outputs(CASES["several words, a stride"](), {"input": image})
        found, cycles = host.run({x.name: expected[x.name].reshape(x.channels, x.height, x.width)})
        assert np.array_equal(found[y.name].reshape(-1), expected[y.name].reshape(-1))
        seen.append(cycles)
    assert not np.array_equal(found[y.name], 0 * found[y.name])
    assert seen[0] == pytest.approx(seen[1], rel=0.1), "a reset clears the counters"


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("design", [NARROW, WIDE], ids=["words of 4 bytes", "words of 8 bytes"])
def test_the_linter_has_nothing_to_say_of_a_system(design, tmp_path):
    (tmp_path / "system.v").write_text(system_verilog(design), encoding="utf-8")
    flags = ["verilator", "--lint-only", "-Wall", "--top-module", system_name(design), "system.v"]
    done = subprocess.run(flags, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_verilator
@pytest.mark.slow
def test_the_host_program_runs_a_whole_network(capsys):
    assert command.main(["--model", "resnet8", "--images", "1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^0 .* yes$", printed, re.MULTILINE)


def test_a_line_that_is_none_is_one_line(tmp_path, capsys):
    assert command.main(["--line", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"system: error: {tmp_path / 'none'}: ")


def test_a_model_file_whose_batch_is_open_has_a_batch_of_one(tmp_path):
    model = CASES["several words, a stride"]()
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "m.onnx")
    (x,) = network_in("m", read_model(tmp_path / "m.onnx")).inputs
    assert (1, x.channels, x.height, x.width) == tuple(shape)
