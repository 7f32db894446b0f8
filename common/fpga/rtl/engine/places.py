"""Where a program's tensors and constants are in the card's memory, each on pages of its own; what a tile moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil

from common.fpga.rtl.engine.design import EngineDesign, words_of
from common.fpga.rtl.engine.network import EngineNetwork, EngineTensor
from common.fpga.rtl.engine.tiling import EngineTile, Tiling

PAGE_BYTES = 4096  # between the tensors in memory, so that bursts begin at a border
INPUT, WEIGHTS, CONSTANTS, RESIDUAL, TABLE = range(5)  # targets of a load


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
        written = (layer.y.whole for layer in network.layers)
        for tensor in (*network.inputs, *written, *(constant for constant, _ in network.constants)):
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


@dataclass(frozen=True, slots=True)
class Transfer:
    """Words between memory and a buffer, in ``rows`` whose starts are ``stride_bytes`` apart."""

    target: int  # buffer that a load fills
    address: int  # of the first word
    rows: int
    words: int  # of a row
    stride_bytes: int = 0
    offset: int = 0  # words of the buffer's half that are filled before
    is_turned: bool = False  # rows become columns of weights

    def joined(self, word_bytes: int) -> Transfer:
        """Return it with one row where its rows touch."""
        if self.words * word_bytes != self.stride_bytes:
            return self
        return replace(self, rows=1, words=self.rows * self.words, stride_bytes=0)


def loads_of(tiling: Tiling, tile: EngineTile, places: MemoryPlaces, packed: tuple[int, int]) -> Iterator[Transfer]:
    """Yield what a tile loads, in its order; ``packed`` are the addresses of its weights, or table, and constants."""
    layer, design = tiling.layer, tiling.design
    if tile.loads_weights:
        if layer.second:
            offset = 0
            for piece, fold in tiling.second_loads(tile):
                start = piece.first_word * design.word_bytes, fold * design.cols
                is_turned = layer.second.is_turned
                address, stride = places.pixel(layer.second.tensor, *(start[::-1] if is_turned else start))
                yield Transfer(WEIGHTS, address, *tiling.second_rows(piece, fold), stride, offset, is_turned)
                offset += tiling.steps(piece) * design.words_per_fold
        elif words := tiling.packed_words(tile):
            yield Transfer(TABLE if layer.rows else WEIGHTS, packed[0], 1, words)
        yield Transfer(CONSTANTS, packed[1], 1, tiling.constant_words(tile))
    if tile.loads_input:
        first, lines = tiling.band(tile)
        address, stride = places.pixel(layer.x, first)
        yield Transfer(INPUT, address, lines * layer.x.width, tiling.pitch, stride)
    if layer.residual:
        added = pixels_of(tiling, tile, places, layer.residual.other)
        if layer.residual.is_single_pixel:  # the same one for each pixel of the result
            address, _ = places.pixel(layer.residual.other, 0, tile.first_fold * design.cols)
            added = replace(added, address=address, stride_bytes=0)
        yield replace(added, target=RESIDUAL)


def pixels_of(tiling: Tiling, tile: EngineTile, places: MemoryPlaces, tensor: EngineTensor) -> Transfer:
    """Return the transfer of a tile's part of a tensor with the extents of the result."""
    address, stride = places.pixel(tensor, tile.first_line, tile.first_fold * tiling.design.cols)
    rows, words = tile.lines * tiling.layer.y.width, tile.folds * tiling.design.words_per_fold
    return Transfer(0, address, rows, words, stride)
