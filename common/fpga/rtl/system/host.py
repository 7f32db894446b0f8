"""The host of an engine behind a serial link: it loads a program, feeds inputs, and reads what the network wrote.

The link carries the bursts of LiteX's UARTBone (litex/soc/cores/uart.py, Stream2Wishbone): a command, a number of
words, the address of the first one in words of four bytes, and the words; the most significant byte comes first. A
burst has at most 255 words, at addresses that grow, or all at one address.
"""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.design import words_of
from common.fpga.rtl.engine.network import Bytes, EngineTensor
from common.fpga.rtl.engine.program import Program
from common.fpga.rtl.engine.simulate import QUEUES
from common.messages.errors import PipelineError

WRITE, READ, WRITE_TO_ONE = 0x01, 0x02, 0x03
MOST_WORDS = 255
STATUS, STORED, CYCLES = 0x00, 0x08, 0x10  # addresses of the engine's registers
COUNT_MODULO = 1 << 16  # of stores that are over
MOST_POLLS = 1_000_000


class Line(Protocol):
    """A serial line, or a simulated one: bytes there and back, in their order."""

    def write(self, data: bytes, /) -> object: ...

    def read(self, count: int, /) -> bytes: ...


class SerialLine:
    """A serial line of the system, such as /dev/ttyUSB0: eight bits, no parity; a context manager.

    Raises:
        PipelineError: there is no such line, or it has no such rate.
    """

    def __init__(self, path: Path, baud: int) -> None:
        if (speed := getattr(termios, f"B{baud}", None)) is None:
            raise PipelineError(
                str(path), f"has no rate of {baud} baud", "give one of termios, such as 115200 or 1000000"
            )
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NOCTTY)
            tty.setraw(self._file)
            attributes = termios.tcgetattr(self._file)
            attributes[4] = attributes[5] = speed
            termios.tcsetattr(self._file, termios.TCSANOW, attributes)
        except (OSError, termios.error) as problem:
            raise PipelineError(str(path), "is no serial line that opens", str(problem)) from problem

    def __enter__(self) -> SerialLine:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def write(self, data: bytes, /) -> None:
        """Send bytes."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]

    def read(self, count: int, /) -> bytes:
        """Return what came, at most so many bytes."""
        return os.read(self._file, count)


@dataclass(frozen=True, slots=True)
class AddressMap:
    """Where the link finds the parts of a system, as byte addresses.

    Attributes:
        memory: that the engine reads and writes; its first byte is the engine's address 0.
        engine: the engine's registers.
        reset: a register whose bit 0 resets the engine.
    """

    memory: int
    engine: int
    reset: int


@dataclass(frozen=True, slots=True)
class Link:
    """Words of 32 bits over a line."""

    line: Line

    def write(self, address: int, words: NDArray[np.uint32], *, is_one_address: bool = False) -> None:
        """Write words from a byte address on, or all of them to that address."""
        command = WRITE_TO_ONE if is_one_address else WRITE
        for first in range(0, len(words), MOST_WORDS):
            part = words[first : first + MOST_WORDS]
            at = address if is_one_address else address + 4 * first
            self.line.write(_header(command, len(part), at) + part.astype(">u4").tobytes())

    def read(self, address: int, count: int) -> NDArray[np.uint32]:
        """Read words from a byte address on.

        Raises:
            PipelineError: the line ended.
        """
        parts = [np.zeros(0, np.uint32)]
        for first in range(0, count, MOST_WORDS):
            part = min(MOST_WORDS, count - first)
            self.line.write(_header(READ, part, address + 4 * first))
            data = self._exactly(4 * part)
            parts.append(np.frombuffer(data, ">u4").astype(np.uint32))
        return np.concatenate(parts)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (more := self.line.read(count - len(data))):
                raise PipelineError("link", "gives no answer", "see that the board is on, and its design loaded")
            data += more
        return data


def _header(command: int, count: int, address: int) -> bytes:
    return bytes((command, count)) + (address // 4).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class EngineHost:
    """A program on an engine behind a link. ``load`` it once, then ``run`` it on as many inputs as there are."""

    link: Link
    places: AddressMap
    program: Program

    def load(self) -> None:
        """Write weights, constants and tables to memory."""
        self.link.write(self.places.memory, _words(self.program.memory))

    def run(self, inputs: Mapping[str, Bytes]) -> tuple[dict[str, Bytes], int]:
        """Return the outputs for inputs, both (channels, height, width) of int8 by name, and the cycles that it took.

        Raises:
            PipelineError: the line ended, or the engine does not end.
        """
        program, link, places = self.program, self.link, self.places
        link.write(places.reset, np.array([1], np.uint32))
        filled = program.filled(inputs)
        for tensor in program.network.inputs:
            first, size = self._extent(tensor)
            link.write(places.memory + first, _words(filled[first : first + size]))
        for descriptor in program.descriptors:
            words = np.array(descriptor.words, np.uint32)
            link.write(places.engine + QUEUES[descriptor.unit], words, is_one_address=True)
        self._wait(sum(descriptor.unit == "store" for descriptor in program.descriptors))
        memory = np.zeros(len(program.memory), np.uint8)
        for tensor in program.network.outputs:
            first, size = self._extent(tensor.whole)
            memory[first : first + size] = link.read(places.memory + first, size // 4).astype("<u4").view(np.uint8)
        found = {tensor.name: program.read(memory, tensor.whole) for tensor in program.network.outputs}
        return found, int(link.read(places.engine + CYCLES, 1)[0])

    def _extent(self, tensor: EngineTensor) -> tuple[int, int]:
        """Return the address of a tensor in the engine's memory, and its bytes."""
        design = self.program.design
        words = tensor.height * tensor.width * words_of(tensor.channels, design)
        return self.program.addresses[tensor.name], words * design.word_bytes

    def _wait(self, stores: int) -> None:
        for _ in range(MOST_POLLS):
            (stored,) = self.link.read(self.places.engine + STORED, 1)
            if stored % COUNT_MODULO == stores % COUNT_MODULO:
                return
        raise PipelineError("engine", "does not end", "see the counters of its waiting (docs/BUILD.md)")


def _words(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(data).view("<u4").astype(np.uint32)
