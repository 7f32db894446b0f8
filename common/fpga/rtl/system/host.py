"""The host of an engine behind a link: it loads a program, feeds inputs, and reads what the network wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.fpga.rtl.engine.design import words_of
from common.fpga.rtl.engine.network import Bytes, EngineTensor
from common.fpga.rtl.engine.program import Program
from common.fpga.rtl.engine.simulate import QUEUES
from common.fpga.rtl.system.link import HostLink
from common.messages.errors import PipelineError

STORED, CYCLES = 0x08, 0x10  # addresses of the engine's registers
COUNT_MODULO = 1 << 16  # of stores that are over
MOST_POLLS = 1_000_000


@dataclass(frozen=True, slots=True)
class AddressMap:
    """Where the link finds the parts of a system, as byte addresses."""

    memory: int  # that the engine reads and writes; its first byte is the engine's address 0
    engine: int  # the engine's registers
    reset: int  # a register whose bit 0 resets the engine


@dataclass(frozen=True, slots=True)
class EngineHost:
    """A program on an engine behind a link. ``load`` it once, then ``run`` it on as many inputs as there are."""

    link: HostLink
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
