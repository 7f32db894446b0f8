"""A system around an engine: a link, byte by byte, that reaches its registers and its memory; and its simulation."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import astuple
from pathlib import Path
from string import Template

from common.fpga.rtl.engine import design as engine
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.programs import call
from common.fpga.rtl.system.host import AddressMap

FOLDER = Path(__file__).resolve().parent
PLACES = AddressMap(memory=0x0000_0000, engine=0x8000_0000, reset=0x8000_0100)  # of bridge.v


def system_name(design: EngineDesign) -> str:
    return f"system_of_{design.name}"


def system_verilog(design: EngineDesign) -> str:
    """Return the whole text; the top module is :func:`system_name`, whose memory is behind an AXI4 port."""
    top = Template((FOLDER / "system.v").read_text(encoding="utf-8"))
    bridge = (FOLDER / "bridge.v").read_text(encoding="utf-8")
    return (
        design.verilog()
        + bridge
        + top.substitute(
            name=system_name(design), engine=design.name, word_bytes=design.word_bytes, msb=8 * design.word_bytes - 1
        )
    )


class SimulatedSystem:
    """A system with a memory that stalls, by Verilator, whose link is a pair of pipes; a context manager.

    Time passes in it while bytes of its link are under way, and it waits for the next byte without passing of time.

    Raises:
        PipelineError: Verilator is missing, or failed.
    """

    def __init__(self, design: EngineDesign, timing: MemoryTiming, memory_bytes: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="system-")
        folder = Path(self._folder.name)
        (folder / "system.v").write_text(system_verilog(design), encoding="utf-8")
        command = ["verilator", "--cc", "--exe", "--build", "--prefix", "Vsystem", "--top-module", system_name(design)]
        flags = ["-Wno-fatal", "-O3", "-CFLAGS", f"-O1 -I{engine.FOLDER}", "--Mdir", "obj_dir"]
        call([*command, *flags, "-j", str(os.cpu_count() or 1), "system.v", str(FOLDER / "main.cpp")], folder)
        numbers = [str(value) for value in (design.word_bytes, memory_bytes, *astuple(timing))]
        program = str(folder / "obj_dir" / "Vsystem")
        self._process = subprocess.Popen([program, *numbers], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def __enter__(self) -> SimulatedSystem:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._folder.cleanup()

    def write(self, data: bytes, /) -> None:
        """Send bytes over the link."""
        assert self._process.stdin is not None
        left = memoryview(data)
        while left:
            left = left[self._process.stdin.write(left) :]

    def read(self, count: int, /) -> bytes:
        """Return what came over the link, at most so many bytes; nothing where the simulation ended."""
        assert self._process.stdout is not None
        return self._process.stdout.read(count) or b""
