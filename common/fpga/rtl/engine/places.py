"""Where a program's tensors and constants are in the card's memory: each begins at a page of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from common.fpga.rtl.engine.design import EngineDesign, words_of
from common.fpga.rtl.engine.network import EngineNetwork, EngineTensor

PAGE_BYTES = 4096  # between the tensors in memory, so that bursts begin at a border


@dataclass
class MemoryPlaces:
    """Addresses of tensors by name, and the first byte that is free."""

    design: EngineDesign
    end: int = 0
    addresses: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, network: EngineNetwork, design: EngineDesign) -> MemoryPlaces:
        """Place what the host writes, what layers write, and constant tensors, in this order."""
        places = cls(design)
        for tensor in (*network.inputs, *(layer.y.whole for layer in network.layers)):
            places.at(tensor)
        for tensor, _ in network.constants:
            places.at(tensor)
        return places

    def at(self, tensor: EngineTensor) -> int:
        """Return the address of the tensor in memory of which this is a part, which is placed if it was not."""
        whole = tensor.whole
        if whole.name not in self.addresses:
            words = whole.height * whole.width * words_of(whole.channels, self.design)
            self.addresses[whole.name] = self.allocate(words * self.design.word_bytes)
        return self.addresses[whole.name]

    def pixel(self, tensor: EngineTensor, line: int, channel: int = 0) -> tuple[int, int]:
        """Return the address of a channel of a line's first pixel, and the bytes from one pixel to the next."""
        stride = words_of(tensor.whole.channels, self.design) * self.design.word_bytes
        pixels = (tensor.first_line + line) * tensor.width
        return self.at(tensor) + pixels * stride + tensor.first_channel + channel, stride

    def allocate(self, size: int) -> int:
        """Return the address of so many further bytes, in whole pages."""
        address = self.end
        self.end += ceil(size / PAGE_BYTES) * PAGE_BYTES
        return address
