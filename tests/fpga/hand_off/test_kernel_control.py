"""The whole engine as an RTL kernel: simulated through its control port, and the script that packages it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import astuple

import numpy as np
import pytest

from benchmarks.plans.integer_reference import outputs
from common.fpga.hand_off.build_files import engine_kernel
from common.fpga.rtl.engine import design as engine
from common.fpga.rtl.engine.cycles import best_tilings
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.program import laid_out, program_of
from common.fpga.rtl.engine.reading.layers import layers_of
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.engine.simulate import QUEUES
from tests.support.engine.maps import CASES
from tests.support.paths import ROOT

needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="no verilator: make rtl-tools")
needs_tcl = pytest.mark.skipif(shutil.which("tclsh") is None, reason="no tclsh: apt-get install tcl")
SMALL = EngineDesign(3, 4, 2, 4, 512, 16, 256, 8, 64, 128, 8)
STALLS = MemoryTiming(17, 1.5, 6, 200, 23, 4, 128)
START, DONE, IDLE = 1, 2, 4  # of the control register (UG1393, "RTL Kernels", ap_ctrl_hs)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    """The kernel under a host and a card, by Verilator."""
    folder = tmp_path_factory.mktemp("kernel")
    files = engine_kernel(SMALL, 250)
    (folder / "kernel.v").write_text(files[f"rtl/{SMALL.name}.v"], encoding="utf-8")
    command = ["verilator", "--cc", "--exe", "--build", "--prefix", "Vkernel", "--top-module", f"{SMALL.name}_kernel"]
    flags = ["-Wno-fatal", "-O3", "-CFLAGS", f"-O1 -std=c++17 -I{engine.FOLDER}", "--Mdir", "obj_dir"]
    bench = ROOT / "tests" / "support" / "engine" / "kernel.cpp"
    subprocess.run([*command, *flags, "kernel.v", bench], cwd=folder, check=True, capture_output=True)
    return folder


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize("case", ["several words, a stride", "addition"])
def test_a_network_runs_through_the_control_port(simulation, case):
    """Registers, start, done and idle as ap_ctrl_hs says; two images one after the other, equal to numpy's integers."""
    model = CASES[case]()
    network = on_whole_folds(layers_of(model), SMALL.cols)
    program = program_of(network, best_tilings(network, SMALL, STALLS), SMALL)
    (source,) = network.inputs
    program.filled({source.name: np.zeros((source.channels, source.height, source.width), np.int8)}).tofile(
        simulation / "memory.bin"
    )
    entries = [(word, QUEUES[each.unit]) for each in program.descriptors for word in each.words]
    np.array(entries, "<u4").tofile(simulation / "list.bin")
    images = [
        np.random.default_rng(seed).uniform(-8, 8, (1, source.channels, source.height, source.width)).astype(np.float32)
        for seed in (5, 6)
    ]
    expected = [outputs(model, {"input": image}) for image in images]
    arguments = []
    for run, values in enumerate(expected):
        shaped = np.asarray(values[source.name]).reshape(source.channels, source.height, source.width)
        laid_out(shaped.astype(np.int8), SMALL).tofile(simulation / f"image.{run}.bin")
        arguments += [f"image.{run}.bin", str(program.addresses[source.name])]
    numbers = [str(value) for value in (SMALL.word_bytes, 5_000_000, *astuple(STALLS))]
    command = [simulation / "obj_dir" / "Vkernel", "memory.bin", "list.bin", *numbers, *arguments]
    ran = subprocess.run(command, cwd=simulation, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    controls = [list(map(int, found)) for found in re.findall(r"control (\d+) (\d+) (\d+) (\d+) cycles", ran.stdout)]
    assert len(controls) == 2, ran.stdout
    for before, behind, at_end, afterwards in controls:
        assert (before, behind, at_end & DONE, afterwards) == (IDLE, START, DONE, IDLE)  # done is cleared by the read
    assert ran.stdout.count("register 1\n") == 5, ran.stdout
    for run, values in enumerate(expected):
        memory = np.fromfile(simulation / f"after.{run}.bin", np.uint8)
        written = {layer.y.whole.name: layer.y.whole for layer in network.layers}
        for y in (written[name] for name in written if name in values):
            wanted = np.asarray(values[y.name]).reshape(y.channels, y.height, y.width)
            np.testing.assert_array_equal(program.read(memory, y), wanted, y.name)
            assert len(np.unique(wanted)) > 4, "the result says little"
    first, second = (expected[run][network.outputs[0].name] for run in (0, 1))
    assert (np.asarray(first) != np.asarray(second)).any()


# --- the script that packages it --------------------------------------------------------------------------------------

# Every command that Tcl does not know is printed with its arguments, and its result is its own text.
RECORDER = """
proc unknown {args} { puts [join $args "\\x1f"]; return "<[join $args]>" }
set argv {xcu280-fsvh2892-2L-e}
source [lindex $::env(SCRIPT)]
"""
# The commands of Vitis_Accel_Examples, rtl_kernels/rtl_vadd/scripts/package_kernel.tcl and gen_xo.tcl, in their order,
# less those that describe, and with the options that they are given there, in UG835 or in UG1393 ("package_xo").
DOCUMENTED = {
    "create_project": {"-force", "-part"},
    "add_files": {"-norecurse"},
    "update_compile_order": {"-fileset"},
    "ipx::package_project": {"-root_dir", "-vendor", "-library", "-taxonomy", "-import_files", "-force"},
    "ipx::current_core": set(),
    "ipx::associate_bus_interfaces": {"-busif", "-clock"},
    "ipx::add_bus_parameter": {"-quiet"},
    "ipx::add_memory_map": {"-quiet"},
    "ipx::add_address_block": {"-quiet"},
    "ipx::add_register": {"-quiet"},
    "ipx::add_register_parameter": {"-quiet"},
    "ipx::create_xgui_files": set(),
    "ipx::update_checksums": set(),
    "ipx::check_integrity": {"-kernel"},
    "ipx::save_core": set(),
    "close_project": {"-delete"},
    "package_xo": {"-force", "-xo_path", "-kernel_name", "-ip_directory", "-ctrl_protocol"},
}
BESIDE = {"set_property": set(), "current_fileset": set(), "ipx::get_bus_interfaces": {"-of"}}


@pytest.fixture(scope="module")
def packaging(tmp_path_factory):
    """The commands of the script as Tcl calls them, and the Verilog that it packages."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "rtl").mkdir()
    files = engine_kernel(SMALL, 241.5)
    for path, text in files.items():
        (folder / path).write_text(text, encoding="utf-8")
    environment = {"SCRIPT": str(folder / "rtl" / "package_kernel.tcl"), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["tclsh"], input=RECORDER, env=environment, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.returncode == 0
    return [line.split("\x1f") for line in ran.stdout.splitlines()], files[f"rtl/{SMALL.name}.v"]


@needs_tcl
def test_the_script_calls_the_documented_commands_in_their_order(packaging):
    calls, _ = packaging
    known = DOCUMENTED | BESIDE
    assert {call[0] for call in calls} == set(known)
    for name, *arguments in calls:
        assert {each for each in arguments if each.startswith("-")} <= known[name], name
    assert [*dict.fromkeys(call[0] for call in calls if call[0] in DOCUMENTED)] == [*DOCUMENTED]
    assert calls[0][-2:] == ["-part", "xcu280-fsvh2892-2L-e"]


@needs_tcl
def test_the_script_states_the_registers_and_buses_of_the_verilog(packaging):
    calls, verilog = packaging
    top, stated = verilog[verilog.index(f"module {SMALL.name}_kernel") :], {}
    for name, key, value, of in (call for call in calls if call[0] == "set_property" and len(call) == 4):
        assert name == "set_property"
        if key in ("address_offset", "size"):
            register = of.strip("<>").split()[2]
            stated.setdefault(register, {})[key] = int(value, 0)
    written = {int(place, 16): name for place, name in re.findall(r"8'h(\w+): (?!s_axi)(\w+)(?:\[[\d:]+\])? <=", top)}
    assert written == {0x00: "start", 0x10: "memory", 0x14: "memory", 0x1C: "list", 0x20: "list", 0x28: "count"}
    assert stated.pop("CTRL") == {"address_offset": 0, "size": 32}
    for register, places in stated.items():
        first, size = places["address_offset"], places["size"]
        assert [place for place, name in written.items() if name == register] == [*range(first, first + size // 8, 4)]
    assert set(stated) == set(written.values()) - {"start"}
    buses = {call[2] for call in calls if call[0] == "ipx::associate_bus_interfaces"}
    assert buses == set(re.findall(r"(\w+)_arvalid,?$", top[: top.index(");")], re.MULTILINE))
    assert ["set_property", "value", "241500000"] in [call[:3] for call in calls]
    package = next(call for call in calls if call[0] == "package_xo")
    assert package[package.index("-kernel_name") + 1] == f"{SMALL.name}_kernel"
    assert package[package.index("-ctrl_protocol") + 1] == "ap_ctrl_hs"
