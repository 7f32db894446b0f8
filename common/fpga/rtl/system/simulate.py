"""A system around an engine: a link, byte by byte, that reaches its registers and its memory; and its simulation."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from math import ceil
from pathlib import Path
from string import Template

import numpy as np

from common.fpga.rtl.engine import design as engine
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.programs import call
from common.fpga.rtl.system.host import AddressMap
from common.fpga.rtl.system.link import MOST_WORDS, HostLink
from common.messages.errors import PipelineError

FOLDER = Path(__file__).resolve().parent
PLACES = AddressMap(memory=0x0000_0000, engine=0x8000_0000, reset=0x8000_0100)  # of bridge.v
DFII_BITS = {  # of registers of LiteDRAM (litedram/dfii.py)
    **{"DFII_CONTROL_SEL": 1, "DFII_CONTROL_CKE": 2, "DFII_CONTROL_ODT": 4, "DFII_CONTROL_RESET_N": 8},
    **{"DFII_COMMAND_CS": 1, "DFII_COMMAND_WE": 2, "DFII_COMMAND_CAS": 4, "DFII_COMMAND_RAS": 8},
}


def system_name(design: EngineDesign) -> str:
    return f"system_of_{design.name}"


def system_verilog(design: EngineDesign) -> str:
    """Return the whole text; the top module is :func:`system_name`, whose memory is behind an AXI4 port."""
    bridge, top = ((FOLDER / name).read_text(encoding="utf-8") for name in ("bridge.v", "system.v"))
    word_bytes = design.word_bytes
    values = {"name": system_name(design), "engine": design.name, "word_bytes": word_bytes, "msb": 8 * word_bytes - 1}
    return design.verilog() + bridge + Template(top).substitute(values)


class PipedProgram:
    """A program whose standard input and output are a link."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def write(self, data: bytes, /) -> None:
        assert self._process.stdin is not None
        left = memoryview(data)
        while left:
            left = left[self._process.stdin.write(left) :]

    def read(self, count: int, /) -> bytes:
        """Return what came over the link, at most so many bytes; nothing where the simulation ended."""
        assert self._process.stdout is not None
        return self._process.stdout.read(count) or b""


@contextmanager
def simulated_system(design: EngineDesign, timing: MemoryTiming, memory_bytes: int) -> Iterator[PipedProgram]:
    """Begin a system with a memory that stalls, by Verilator, whose link is a pair of pipes; end it at the end.

    Time passes in it while bytes of its link are under way, and it waits for the next byte without passing of time.
    A PipelineError says that Verilator is missing, or failed.
    """
    with tempfile.TemporaryDirectory(prefix="system-") as name:
        folder = Path(name)
        (folder / "system.v").write_text(system_verilog(design), encoding="utf-8")
        sources = ["--top-module", system_name(design), "system.v", str(FOLDER / "main.cpp")]
        arguments = [str(value) for value in (design.word_bytes, memory_bytes, *astuple(timing))]
        with _begun([_translated(folder, "system", sources), *arguments]) as program:
            yield program


@contextmanager
def simulated_litex(design: EngineDesign, python: Path) -> Iterator[tuple[PipedProgram, AddressMap]]:
    """Begin the same with LiteX's bus and link, LiteDRAM, and its model of an SDRAM, initialised over the link.

    With it come the places of its parts.

    Raises:
        PipelineError: Verilator is missing, or the given Python has no LiteX.
    """
    with tempfile.TemporaryDirectory(prefix="system-") as name:
        folder = Path(name)
        try:
            call([str(python), str(FOLDER / "litex_system.py"), design.name, str(design.word_bytes), "."], folder)
        except PipelineError as error:
            raise PipelineError(str(python), error.problem, "docs/BUILD.md says how to install LiteX") from error
        (folder / "engine.v").write_text(design.verilog(), encoding="utf-8")
        sources = ["--top-module", "litex_system", "litex_system.v", "engine.v", str(FOLDER / "litex_main.cpp")]
        found = json.loads((folder / "litex_system.json").read_text(encoding="utf-8"))
        registers: Mapping[str, int] = found["registers"]
        with _begun([_translated(folder, "litex_system", sources)]) as program:
            _initialise(HostLink(program), registers, found["initialisation"])
            yield program, AddressMap(found["memory"], found["engine"], registers["main_engine_reset"])


def _translated(folder: Path, top: str, sources: Sequence[str]) -> str:
    """Let Verilator translate the sources of a top module; return the program."""
    prefix = f"V{top}"
    command = ["verilator", "--cc", "--exe", "--build", "--prefix", prefix, "-Wno-fatal", "-O3"]
    flags = ["-CFLAGS", f"-O1 -I{engine.FOLDER} -I{FOLDER}", "--Mdir", "obj_dir", "-j", str(os.cpu_count() or 1)]
    call([*command, *flags, *sources], folder)
    return str(folder / "obj_dir" / prefix)


@contextmanager
def _begun(command: Sequence[str]) -> Iterator[PipedProgram]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        yield PipedProgram(process)


def _initialise(link: HostLink, registers: Mapping[str, int], steps: Sequence[tuple[str, int, int, str, int]]) -> None:
    """Give the SDRAM its first commands, as litedram/init.py lists them, and then leave it to LiteDRAM."""

    def put(name: str, value: int) -> None:
        link.write(registers[f"sdram_dfii_{name}"], np.array([value], np.uint32))

    for _, address, bank, command, cycles in steps:
        put("pi0_address", address)
        put("pi0_baddress", bank)
        bits = sum(DFII_BITS[name] for name in command.split("|"))
        if command.startswith("DFII_CONTROL"):
            put("control", bits)
        else:
            put("pi0_command", bits)
            put("pi0_command_issue", 1)
        for _ in range(ceil(cycles / MOST_WORDS)):  # time passes with bytes on the link
            link.read(registers["sdram_dfii_control"], MOST_WORDS)
    put("control", DFII_BITS["DFII_CONTROL_SEL"])
