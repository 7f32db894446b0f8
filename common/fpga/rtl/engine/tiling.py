"""How a layer is divided into the tiles of an engine.

A tile is a band of result lines and a block of folds along the channels. Its sums may have several parts, if their
operands do not fit the buffers together. While a tile is computed, the next one is loaded into the other halves of the
buffers, and the last one is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from common.fpga.rtl.engine.design import CONSTANT_BYTES, EngineDesign, words_of
from common.fpga.rtl.engine.network import EngineLayer
from common.messages.errors import PipelineError

MOST_PARTS = 32  # sizes of bands, and of blocks, that are tried


@dataclass(frozen=True, slots=True)
class Piece:
    """What one descriptor computes: folds along the channels, over a part of the products of their sums."""

    first_fold: int  # of the result's channels, ``folds`` of them
    folds: int
    first_word: int  # of the input's channels, ``words`` of them
    words: int
    is_first: bool = True  # whether its sums begin at zero
    is_last: bool = True  # whether its sums are complete


@dataclass(frozen=True, slots=True)
class EngineTile:
    """A band of result lines and a block of folds along the channels."""

    first_line: int  # of the result, ``lines`` of them
    lines: int
    first_fold: int
    folds: int
    pieces: tuple[Piece, ...]  # in the order in which they are computed
    loads_input: bool  # whether its band of the input is not there yet
    loads_weights: bool  # whether its block of weights, or the table of row-wise work, is not there yet


@dataclass(frozen=True, slots=True)
class Tiling:
    """A layer as tiles, in the order in which they are computed."""

    layer: EngineLayer
    design: EngineDesign
    tiles: tuple[EngineTile, ...]

    @property
    def window(self) -> int:
        """Positions of the window."""
        return self.layer.kernel[0] * self.layer.kernel[1]

    @property
    def pitch(self) -> int:
        """Words of a pixel of the input."""
        return words_of(self.layer.x.channels, self.design)

    def band(self, tile: EngineTile) -> tuple[int, int]:
        """Return the first input line of a tile and the number of lines, without those that are padding."""
        layer = self.layer
        first = tile.first_line * layer.strides[0] - layer.pads[0]
        last = first + (tile.lines - 1) * layer.strides[0] + layer.reach[0]
        return max(0, first), min(last, layer.x.height) - max(0, first)

    def steps(self, piece: Piece) -> int:
        """Return the steps of a fold of a piece; the last word of the channels has only those that it needs."""
        return self.window * ((piece.words - 1) * self.design.steps_per_word + self.tail_steps(piece))

    def tail_steps(self, piece: Piece) -> int:
        last = piece.first_word + piece.words
        valid = min(self.design.word_bytes, self.layer.x.channels - (last - 1) * self.design.word_bytes)
        return ceil(valid / self.design.simd)

    def weight_words(self, tile: EngineTile) -> int:
        """Return the words of memory of a tile's weights."""
        if not self.layer.is_product:
            return 0
        per_step = self.design.cols * self.design.simd // self.design.word_bytes
        return per_step * sum(piece.folds * self.steps(piece) for piece in tile.pieces)

    def packed_words(self, tile: EngineTile) -> int:
        """Return the words of memory of a tile's weights, or of the table of row-wise work; of a second tensor none."""
        layer = self.layer
        if layer.rows:
            return layer.rows.table.nbytes // self.design.word_bytes
        return 0 if layer.second else self.weight_words(tile)

    def constant_words(self, tile: EngineTile) -> int:
        return self.constant_folds(tile) * self.design.cols * CONSTANT_BYTES // self.design.word_bytes

    def constant_folds(self, tile: EngineTile) -> int:
        """Return the folds of constants of a tile: row-wise work may have the same for all channels."""
        return 1 if self.layer.rows and not self.layer.rows.is_per_channel else tile.folds

    def second_loads(self, tile: EngineTile) -> Iterator[tuple[Piece, int]]:
        """Return the piece and the fold of each load of a second tensor."""
        for piece in tile.pieces:
            for fold in range(piece.first_fold, piece.first_fold + piece.folds):
                yield piece, fold

    def second_rows(self, piece: Piece, fold: int) -> tuple[int, int]:
        """Return the rows of a load of a second tensor, and their words."""
        layer, design = self.layer, self.design
        if layer.second and layer.second.is_turned:
            return min(design.cols, layer.y.channels - fold * design.cols), piece.words
        return self.steps(piece), design.words_per_fold


def tilings(layer: EngineLayer, design: EngineDesign) -> list[Tiling]:
    """Return the ways to divide a layer that fit the buffers.

    Raises:
        PipelineError: there is none.
    """
    _refuse(layer, design)
    folds = ceil(layer.y.channels / design.cols)
    pieces = _pieces(layer, design)
    ways = product([folds] if layer.rows else _parts(folds), _parts(layer.y.height), ("bands", "blocks"))
    divided = (Tiling(layer, design, tuple(_tiles(layer, block, lines, pieces, way))) for block, lines, way in ways)
    found = [tiling for tiling in divided if _fits(tiling)]
    if not found:
        raise PipelineError(layer.node, "not even a line of it fits the buffers", "give deeper buffers")
    return found


def _refuse(layer: EngineLayer, design: EngineDesign) -> None:
    if layer.rows and not design.has_row_work:
        raise PipelineError(layer.node, "is row-wise work", "give an engine with has_row_work")
    if layer.residual and layer.residual.is_factor and not design.has_products:
        raise PipelineError(layer.node, "multiplies two tensors element by element", "give an engine with has_products")
    if layer.second is None:
        return
    if design.simd > 1:
        raise PipelineError(layer.node, "multiplies two tensors", "give an engine with simd 1")
    if design.pack_cols > 1 and (layer.x.zero or layer.second.tensor.zero):
        raise PipelineError(layer.node, "multiplies tensors with zero points", "give an engine with pack_cols 1")
    for part in (layer.x, layer.y, layer.second.tensor):
        if part.whole.channels != part.channels and part.channels % design.cols:
            reason = f"a head of {part.channels} channels is not a whole number of folds of {design.cols}"
            raise PipelineError(layer.node, reason)
    if layer.second.is_turned and layer.x.channels % design.word_bytes:
        raise PipelineError(layer.node, f"{layer.x.channels} channels are no whole words of {design.word_bytes} bytes")


def _parts(whole: int) -> list[int]:
    """Return sizes of parts that divide an extent evenly, or nearly so: the largest ones, and always 1."""
    sizes = sorted({ceil(whole / count) for count in range(1, whole + 1)}, reverse=True)
    return sizes if len(sizes) <= MOST_PARTS else [*sizes[: MOST_PARTS - 1], 1]


def _pieces(layer: EngineLayer, design: EngineDesign) -> list[tuple[Piece, ...]]:
    """Return the pieces of all folds; those of a dense layer are for one fold, and blocks join them."""
    folds = ceil(layer.y.channels / design.cols)
    words = ceil(layer.x.channels / design.word_bytes)
    most = design.window_depth // (layer.kernel[0] * layer.kernel[1])
    if layer.rows:
        return [(Piece(0, folds, 0, words),)] * folds
    if most < 1 and layer.is_product:
        raise PipelineError(layer.node, f"a window of {layer.kernel} does not fit the operand buffer")
    if not layer.is_product:
        per_fold = design.words_per_fold
        return [
            tuple(Piece(fold, 1, word, 1) for word in range(fold * per_fold, min(words, (fold + 1) * per_fold)))
            for fold in range(folds)
        ]
    return [tuple(_parts_of_sums(fold, *_reads(layer, design, fold), most)) for fold in range(folds)]


def _reads(layer: EngineLayer, design: EngineDesign, fold: int) -> tuple[int, int]:
    """Return the words of input channels that a fold reads: first and last plus one."""
    out_of_group, in_of_group = layer.y.channels // layer.groups, layer.x.channels // layer.groups
    last = min((fold + 1) * design.cols, layer.y.channels) - 1
    first_channel = fold * design.cols // out_of_group * in_of_group
    last_channel = (last // out_of_group + 1) * in_of_group
    return first_channel // design.word_bytes, ceil(last_channel / design.word_bytes)


def _parts_of_sums(fold: int, first: int, end: int, most: int) -> Iterator[Piece]:
    count = ceil((end - first) / most)
    size = ceil((end - first) / count)
    for start in range(first, end, size):
        yield Piece(fold, 1, start, min(size, end - start), start == first, start + size >= end)


def _tiles(
    layer: EngineLayer, block: int, lines: int, pieces: list[tuple[Piece, ...]], order: str
) -> Iterator[EngineTile]:
    """Yield the tiles of blocks and bands of so many folds and lines; ``order`` is the outer loop."""
    bands = [(line, min(lines, layer.y.height - line)) for line in range(0, layer.y.height, lines)]
    blocks = [(fold, min(block, len(pieces) - fold)) for fold in range(0, len(pieces), block)]
    pairs = [(a, b) for a in bands for b in blocks] if order == "bands" else [(a, b) for b in blocks for a in bands]
    before: tuple[object, object] = (None, None)
    for band, columns in pairs:
        yield EngineTile(
            *(*band, *columns, _joined(layer, pieces[columns[0] : sum(columns)])),
            loads_input=band != before[0],
            loads_weights=(layer.is_product or layer.rows is not None) and columns != before[1],
        )
        before = band, columns


def _joined(layer: EngineLayer, of_folds: list[tuple[Piece, ...]]) -> tuple[Piece, ...]:
    """Return the pieces of a block: one for all folds that read the same words."""
    if layer.rows:
        return of_folds[0]
    if layer.groups > 1 or not layer.is_product:
        return tuple(piece for pieces in of_folds for piece in pieces)
    return tuple(replace(piece, folds=len(of_folds)) for piece in of_folds[0])


def _fits(tiling: Tiling) -> bool:
    design, layer = tiling.design, tiling.layer
    per_step = design.cols * design.simd // design.word_bytes
    return all(
        tiling.band(tile)[1] * layer.x.width * tiling.pitch <= design.input_depth // 2
        and tiling.weight_words(tile) <= design.weight_depth // 2 * per_step
        and tiling.constant_folds(tile) <= design.channel_depth // 2
        and tile.lines * layer.y.width * tile.folds <= design.result_depth // 2
        and (
            all(piece.is_first and piece.is_last for piece in tile.pieces)
            or ceil(tile.lines * layer.y.width / design.rows) * design.rows * max(piece.folds for piece in tile.pieces)
            <= design.partial_depth
        )
        for tile in tiling.tiles
    )
