"""What turns a hand-off into a card's image: whole networks through the host program, headers, the RTL kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.plans.cosim import image_of, plan_of
from benchmarks.plans.engine_networks import network_of
from benchmarks.plans.quantized_network import run
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import array_ports
from common.fpga.hand_off.build_files import clocks, engine_kernels
from common.fpga.hand_off.files import hand_off_files
from common.fpga.hand_off.units import ComputeUnit, KernelPort
from common.fpga.kernels.systolic.array import build_array
from models.classifiers.resnet8 import build_tiny_resnet8
from tests.support.paths import ROOT

CONFIGS = ROOT / "configs"
SLOW_HOST = 2e8  # MACs per second: everything that can is on the card
XRT_HEADERS = Path("/usr/include/xrt")  # of Debian's libxrt-dev
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++: make rtl-tools")


def handed_over(model, folder, image=None):
    """The hand-off of a plan for a KV260, and the packed data of its model in it; what the command printed."""
    plan = plan_of(model, "kv260", SLOW_HOST, has_chains=False)
    for path, text in hand_off_files(plan, "m.onnx", ["nothing is known"]).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    onnx.save(model, folder / "m.onnx")
    samples = [folder / "samples.npz"] if image else []
    if image:
        np.savez(samples[0], **image)
    command = [sys.executable, "-m", "common.fpga.hand_off", folder, folder / "m.onnx", folder / "data", *samples]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def resnet8(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet8")
    printed = handed_over(build_tiny_resnet8(seed=0, batch=1), folder, image_of(0))
    return folder, printed


def simulated(folder):
    return subprocess.run(
        ["make", "--no-print-directory", "simulate"], cwd=folder, capture_output=True, text=True, check=False
    )


@needs_compiler
@pytest.mark.slow
def test_every_contraction_of_resnet8_runs_through_the_host_program(resnet8):
    folder, printed = resnet8
    assert printed.startswith("10 calls, ")
    assert printed.endswith("\n10 of 10 calls of the plan are packed\n")
    ran = simulated(folder)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "10 calls, 0 bytes differ"
    assert len(re.findall(r"(?m)^\S+ on K\d: (\d+) of \1 equal$", ran.stdout)) == 10
    # The last result is the network's, by numpy on floats between its quantizers: within one step.
    model = onnx.load(folder / "m.onnx")
    expected = run(model, image_of(0))[model.graph.output[0].name].values
    last = (folder / "data" / "manifest.txt").read_text().split()[-1]
    found = np.frombuffer((folder / "data" / last).read_bytes(), np.int8)
    assert np.abs(found - expected.ravel()).max() <= 1
    assert len(np.unique(found)) > 3


@needs_compiler
@pytest.mark.slow
def test_a_wrong_weight_is_found_by_the_host_program(resnet8, tmp_path):
    folder = shutil.copytree(resnet8[0], tmp_path / "off")
    image = bytearray((folder / "data" / "K1.bin").read_bytes())
    image[300] ^= 0x40
    (folder / "data" / "K1.bin").write_bytes(image)
    ran = simulated(folder)
    assert ran.returncode != 0
    assert re.search(r"10 calls, [1-9]\d* bytes differ", ran.stdout)


@needs_compiler
@pytest.mark.slow
def test_depthwise_layers_have_converters_between_them(tmp_path):
    """MobileNet v1 of 64 x 64 pixels: maps change their order before and behind each depthwise layer."""
    printed = handed_over(network_of("mobilenet", 0), tmp_path)
    ran = simulated(tmp_path)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    converted = [line for line in lines if line.startswith("order-of-")]
    assert len(converted) == 26  # two for each of thirteen
    assert lines[-1] == f"{printed.split()[0]} calls, 0 bytes differ"


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(not XRT_HEADERS.exists(), reason="no headers of XRT: apt-get install libxrt-dev")
def test_the_host_program_compiles_with_the_public_headers(tmp_path):
    source = ROOT / "common" / "fpga" / "hand_off" / "templates" / "host.cpp"
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{XRT_HEADERS}"]
    subprocess.run(["g++", *flags, "-c", "-o", tmp_path / "host.o", source], check=True)


def unit_of(size, precision="int8", board_name="u280"):
    board, models = load_board(board_name, CONFIGS / "boards"), load_models(CONFIGS)
    array = build_array(size, precision, array_ports(board), board.macs_per_dsp[precision], models.systolic)
    ports = tuple(KernelPort(f"p{n}", array.ports.port_bits, f"HBM[{n}]") for n in range(array.ports.count))
    return ComputeUnit("K1", "K1", array, "SLR1", ports)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("verilator") is None, reason="no verilator: make rtl-tools")
@pytest.mark.parametrize("size", [(8, 8, 8), (12, 16, 4)])
def test_the_engine_under_axi_is_clean(tmp_path, size):
    files = engine_kernels([unit_of(size)])
    name = next(path for path in files if path.endswith(".v"))
    (tmp_path / "kernel.v").write_text(files[name])
    top = f"engine_{'x'.join(map(str, size))}_int8_kernel"
    command = ["verilator", "--lint-only", "-Wall", "--top-module", top, tmp_path / "kernel.v"]
    subprocess.run(command, check=True)
    assert f"set_property top {top} " in files["rtl/package_kernel.tcl"]
    assert "$name" not in files["rtl/package_kernel.tcl"]
    assert "-ctrl_protocol ap_ctrl_hs" in files["rtl/package_kernel.tcl"]


def test_an_array_that_no_engine_can_be_has_no_rtl_kernel():
    assert engine_kernels([unit_of((8, 8, 16))]) == {}  # a word of 8 bytes has no 16 operands


def test_each_unit_has_its_clock_and_each_array_its_converter():
    unit = unit_of((4, 8, 2))
    hertz = round(unit.engine.clock_mhz * 1e6)
    assert clocks([unit]).splitlines()[1:] == ["[clock]", f"freqHz={hertz}:K1", f"freqHz={hertz}:K1_convert"]
    floats = unit_of((4, 8, 2), "fp32")
    assert "convert" not in clocks([floats])


@pytest.mark.slow
def test_a_model_that_is_none_is_one_line(resnet8, tmp_path):
    (tmp_path / "m.onnx").write_text("nothing")
    command = [sys.executable, "-m", "common.fpga.hand_off", resnet8[0], tmp_path / "m.onnx", tmp_path / "data"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr == f"python -m common.fpga.hand_off: error: {tmp_path / 'm.onnx'}: is no ONNX model\n"
