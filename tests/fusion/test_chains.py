"""Chains of layers: the rows that they hold, by executing them band by band, and which groups form one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from common.fusion.border import border
from common.fusion.chains import ChainStage, find_chains, hold, rows_held, rows_read
from common.fusion.groups import fuse
from tests.support.models.fusion_graphs import conv_block, random_model
from tests.support.models.onnx_models import model
from tests.support.tables.fpga import Model

RNG = np.random.default_rng(7)
ROWS, COLUMNS = 23, 11


@dataclass
class Layer:
    """A convolution over rows and columns of one image, padded by the same number on all sides."""

    weight: np.ndarray  # (out channels, in channels, K, K)
    stride: int
    padding: int

    def run(self, image: np.ndarray) -> np.ndarray:
        padded = np.pad(image, ((0, 0), (self.padding,) * 2, (self.padding,) * 2))
        return self.rows(padded)

    def rows(self, padded: np.ndarray) -> np.ndarray:
        """All rows that fit into an input whose padding is in it."""
        kernel = self.weight.shape[2]
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(1, 2))
        return np.einsum("chwij,ocij->ohw", windows[:, :: self.stride, :: self.stride], self.weight)


def layer(outputs: int, inputs: int, kernel: int, stride: int = 1, padding: int = 0) -> Layer:
    return Layer(RNG.integers(-3, 4, (outputs, inputs, kernel, kernel)).astype(np.int64), stride, padding)


def stages_of(layers: list[Layer], image: np.ndarray) -> list[ChainStage]:
    stages = []
    for one in layers:
        result = one.run(image)
        kernel = one.weight.shape[2]
        stages.append(
            ChainStage(
                images=1,
                in_rows=image.shape[1],
                in_row_elements=image.shape[0] * image.shape[2],
                out_rows=result.shape[1],
                out_row_elements=result.shape[0] * result.shape[2],
                out_row_positions=result.shape[2],
                window_rows=kernel,
                stride_rows=one.stride,
                macs=result.size * image.shape[0] * kernel**2,
            )
        )
        image = result
    return stages


@dataclass
class Execution:
    """A chain that passes rows on: each layer computes a row once, from rows that are still there."""

    layers: list[Layer]
    image: np.ndarray
    band: int
    stages: list[ChainStage]
    made: list[int] = field(default_factory=list)
    lines: list[dict[int, np.ndarray]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    window: list[int] = field(default_factory=list)  # input rows in the first layer's own buffer
    input_rows_read: list[int] = field(default_factory=list)  # each time that one crosses the border
    macs: int = 0

    def run(self) -> np.ndarray:
        count = len(self.layers)
        self.made, self.lines, self.held = [0] * count, [{} for _ in range(count)], [0] * count
        self.advance(count - 1, self.stages[-1].out_rows)
        return np.stack([self.lines[-1][row] for row in sorted(self.lines[-1])], axis=1)

    def new_rows(self, level: int) -> int:
        """Rows that a layer makes at a time: those of the band times the strides behind it, if there are as many."""
        rows = min(self.band, self.stages[-1].out_rows)
        for stage in reversed(self.stages[level + 1 :]):
            rows = min(rows * stage.stride_rows, stage.in_rows)
        return rows

    def advance(self, level: int, until: int) -> None:
        """Make rows of one layer up to ``until``, asking the layer before for what they need."""
        one, stage = self.layers[level], self.stages[level]
        while self.made[level] < until:
            first = self.made[level]
            last = min(until, first + self.new_rows(level)) - 1
            low = first * one.stride - one.padding
            high = last * one.stride - one.padding + stage.window_rows
            window = [self.take(level - 1, row, low, min(high, stage.in_rows)) for row in range(low, high)]
            shape = (one.weight.shape[1], self.width(level))
            rows = np.stack([np.zeros(shape, np.int64) if row is None else row for row in window], axis=1)
            result = one.rows(np.pad(rows, ((0, 0), (0, 0), (one.padding,) * 2)))
            self.lines[level] |= {first + index: result[:, index] for index in range(result.shape[1])}
            self.macs += result.size * one.weight[0].size
            self.held[level] = max(self.held[level], len(self.lines[level]))
            self.made[level] = last + 1

    def width(self, level: int) -> int:
        return self.stages[level].in_row_elements // self.layers[level].weight.shape[1]

    def take(self, level: int, row: int, low: int, high: int) -> np.ndarray | None:
        """One row of what a layer reads, None for padding; rows below ``low`` are needed by nobody any more."""
        if row < 0 or row >= self.stages[level + 1].in_rows:
            return None
        if level < 0:
            self.window = [known for known in self.window if known >= low]
            if row not in self.window:
                self.window.append(row)
                self.input_rows_read.append(row)
            return self.image[:, row]
        for old in [known for known in self.lines[level] if known < low]:
            del self.lines[level][old]
        self.advance(level, high)
        return self.lines[level][row]


CHAINS = {
    "3x3, 3x3": [layer(5, 3, 3, 1, 1), layer(7, 5, 3, 1, 1)],
    "3x3, 3x3 with stride": [layer(5, 3, 3, 1, 1), layer(7, 5, 3, 2, 1)],
    "strides in front": [layer(5, 3, 5, 2, 2), layer(7, 5, 3, 2, 1), layer(2, 7, 3)],
    "bottleneck": [layer(2, 3, 1), layer(2, 2, 3, 1, 1), layer(7, 2, 1)],
    "pool behind": [layer(5, 3, 3, 1, 1), layer(7, 5, 3, 1, 1), layer(3, 7, 2, 2)],
    "window below its stride": [layer(5, 3, 3, 1, 1), layer(7, 5, 1, 3), layer(3, 7, 3)],
    "seven and five": [layer(5, 3, 7, 1, 3), layer(2, 5, 5, 1, 2), layer(3, 2, 3, 1, 0), layer(2, 3, 3, 1, 1)],
}


@pytest.mark.parametrize("band", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("layers", CHAINS.values(), ids=CHAINS)
def test_a_chain_run_by_bands_equals_its_layers_and_holds_the_rows_that_are_said(layers, band):
    image = RNG.integers(-5, 6, (3, ROWS, COLUMNS)).astype(np.int64)
    stages = stages_of(layers, image)
    execution = Execution(layers, image, band, stages)
    result = execution.run()
    expected = image
    for one in layers:
        expected = one.run(expected)
    np.testing.assert_array_equal(result, expected)
    said = rows_held(stages, band)
    assert all(held <= most for held, most in zip(execution.held, said, strict=False))
    if band <= 2:  # taller bands end at the edge of these small maps before a buffer is full
        assert execution.held[:-1] == said
    assert execution.input_rows_read == sorted(set(execution.input_rows_read))  # none crosses the border twice
    assert execution.macs <= sum(stage.macs for stage in stages)  # and none is computed twice
    if all(needs_every_row(stage, one) for stage, one in zip(stages, layers, strict=True)):
        crossed = len(execution.input_rows_read) * stages[0].in_row_elements + result.size
        assert crossed == 3 * ROWS * COLUMNS + stages[-1].out_rows * stages[-1].out_row_elements
        assert execution.macs == sum(stage.macs for stage in stages)


def random_chain(seed: int) -> list[Layer]:
    chance = random.Random(seed)
    channels, chain = 3, []
    for _ in range(chance.randint(2, 4)):
        kernel, outputs = chance.choice((1, 2, 3, 5)), chance.choice((1, 2, 5))
        chain.append(layer(outputs, channels, kernel, chance.choice((1, 1, 2)), chance.randint(0, kernel // 2)))
        channels = outputs
    return chain


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_any_chain_holds_no_more_rows_than_said(seed):
    layers = random_chain(seed)
    image = RNG.integers(-5, 6, (3, 61, 37)).astype(np.int64)
    stages = stages_of(layers, image)
    for band in (1, 3, stages[-1].out_rows):
        execution = Execution(layers, image, band, stages)
        result = execution.run()
        expected = image
        for one in layers:
            expected = one.run(expected)
        np.testing.assert_array_equal(result, expected)
        assert all(held <= most for held, most in zip(execution.held, rows_held(stages, band), strict=False))
        assert execution.input_rows_read == sorted(set(execution.input_rows_read))


def test_the_runtime_computes_the_same_as_a_chain_run_by_bands():
    layers = CHAINS["strides in front"]
    image = RNG.integers(-5, 6, (3, ROWS, COLUMNS)).astype(np.int64)
    nodes, weights = [], {}
    for index, one in enumerate(layers):
        names = [f"t{index}", f"w{index}"]
        attributes = {"strides": [one.stride] * 2, "pads": [one.padding] * 4}
        nodes.append(helper.make_node("Conv", names, [f"t{index + 1}"], **attributes))
        weights[f"w{index}"] = one.weight.astype(np.float32)
    proto = model(nodes, {"t0": (1, 3, ROWS, COLUMNS)}, {f"t{len(layers)}": None}, weights)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"t0": image[None].astype(np.float32)})
    result = Execution(layers, image, 2, stages_of(layers, image)).run()
    np.testing.assert_array_equal(result, expected[0])  # whole numbers below 2²⁴ are exact


def needs_every_row(stage: ChainStage, one: Layer) -> bool:
    """Whether the last window ends with the last row and no window skips one."""
    last = (stage.out_rows - 1) * stage.stride_rows + stage.window_rows - one.padding
    return last >= stage.in_rows and stage.window_rows >= stage.stride_rows


def square(rows: int, elements: int, kernel: int = 1, stride: int = 1) -> ChainStage:
    return ChainStage(1, rows, elements, rows // stride, elements, 56, kernel, stride, 7)


def test_rows_by_hand():
    assert rows_read(square(23, 7, 5, 3), 2) == 3 * (2 - 1) + 5
    assert rows_read(square(6, 7, 5, 3), 2) == 6  # there are no more
    chain = [square(24, 7, 3), square(24, 7, 3, 2), square(12, 7, 5)]
    # band of 2: the last reads 1·(2 − 1) + 5 = 6 rows; the middle makes 2 new ones of them and reads 2·(2 − 1) + 3 = 5
    assert rows_held(chain, 2) == [5, 6]


def test_bottleneck_of_resnet50_by_hand():
    """Rows of 56 columns: 1×1 from 256 to 64, 3×3, 1×1 back to 256, plus what came in."""
    stages = [
        ChainStage(1, 56, 56 * 256, 56, 56 * 64, 56, 1, 1, 1),
        ChainStage(1, 56, 56 * 64, 56, 56 * 64, 56, 3, 1, 1),
        ChainStage(1, 56, 56 * 64, 56, 56 * 256, 56, 1, 1, 1),
    ]
    found = hold(stages, 8, 70_000, keeps_input=True)
    # two rows have at least 64 positions; 4 rows before the 3×3, 2 behind it, and 2 + 2 of the block's input
    assert found.band_rows == 2
    assert found.band_count == 28
    assert found.buffer_bytes == 56 * (64 * 4 + 64 * 2 + 256 * 4)
    assert found.weight_bytes == 70_000
    assert hold(stages, 16, 70_000).buffer_bytes == 2 * 56 * 64 * (4 + 2)


def test_first_pair_of_vgg16_by_hand():
    """3 to 64 to 64 channels, 3 × 3 each, on 224 × 224: three rows between them are kept for each new one."""
    stages = [
        ChainStage(1, 224, 224 * 3, 224, 224 * 64, 224, 3, 1, 224 * 224 * 3 * 64 * 9),
        ChainStage(1, 224, 224 * 64, 224, 224 * 64, 224, 3, 1, 224 * 224 * 64 * 64 * 9),
    ]
    found = hold(stages, 8, 38_720)
    assert (found.band_rows, found.band_count, found.buffer_bytes) == (1, 224, 3 * 224 * 64)


def test_heavy_weights_pass_once_by_whole_maps():
    stages = [ChainStage(3, 7, 7 * 5, 7, 7 * 11, 7, 3, 1, 1), ChainStage(3, 7, 7 * 11, 7, 7 * 13, 7, 3, 1, 1)]
    stages.append(ChainStage(3, 7, 7 * 13, 7, 7 * 2, 7, 1, 1, 1))
    found = hold(stages, 4, 1_000_000)
    # of three images both maps that the middle layer touches, half a byte an element
    assert found.bytes == found.buffer_bytes == (3 * 7 * 7 * (11 + 13) + 1) // 2
    assert (found.band_rows, found.band_count, found.weight_bytes) == (7, 1, 0)
    kept = hold(stages, 4, 1_000_000, keeps_input=True)
    assert kept.buffer_bytes == (3 * 7 * 7 * (11 + 13 + 5) + 1) // 2


def test_a_residual_holds_the_rows_between_its_ends():
    """Executed: from the first row that is still to be added to the last that the first layer has read."""
    layers = [layer(3, 3, 1), layer(3, 3, 3, 1, 1), layer(3, 3, 5, 1, 2), layer(3, 3, 1)]
    image = RNG.integers(-5, 6, (3, ROWS, COLUMNS)).astype(np.int64)
    stages = stages_of(layers, image)
    for band in (1, 2, 3, 7):
        execution = Execution(layers, image, band, stages, made=[0] * 4, lines=[{} for _ in layers], held=[0] * 4)
        most = 0
        for first in range(0, ROWS, band):
            execution.advance(3, min(first + band, ROWS))
            most = max(most, max(execution.input_rows_read) - first + 1)
        assert most <= min(ROWS, band + sum(stage.window_rows - 1 for stage in stages))


# --- which groups form a chain ----------------------------------------------------------------------------------------


def conv_stage(rows: int = 13) -> ChainStage:
    return ChainStage(1, rows, 7, rows, 7, 7, 3, 1, 11)


def chains_of(model: Model, **stages: ChainStage) -> list[list[str]]:
    """Chains as names of heads; all groups of a window or a product are stages unless given otherwise."""
    graph = model.graph()
    groups = fuse(graph)
    known = {
        index: stages.get(group.heads[0].lstrip("/"), conv_stage())
        for index, group in enumerate(groups)
        if group.kind in ("conv", "gemm", "pool")
    }
    return [[groups[index].heads[0] for index in chain] for chain in find_chains(graph, groups, known, 3)]


def straight(*op_types: str) -> Model:
    model, x = Model(outputs=[f"t{len(op_types) - 1}"]), "x"
    model.weights(w=7)
    for index, op_type in enumerate(op_types):
        model.add(op_type, x if "Pool" in op_type else f"{x} w", f"t{index}")
        x = f"t{index}"
    return model


def test_every_run_of_two_or_three_is_a_chain():
    expected = [["/t0", "/t1"], ["/t0", "/t1", "/t2"], ["/t1", "/t2"], ["/t1", "/t2", "/t3"], ["/t2", "/t3"]]
    assert chains_of(straight("Conv", "Conv", "MaxPool", "Conv")) == expected
    assert chains_of(straight("Gemm", "Gemm")) == [["/t0", "/t1"]]


def test_pools_alone_and_maps_before_a_product_are_no_chain():
    assert chains_of(straight("MaxPool", "AveragePool")) == []
    assert chains_of(straight("Conv", "Gemm")) == []


def test_a_result_that_others_read_or_the_graph_returns_ends_a_chain():
    model = straight("Conv", "Conv", "Conv")
    model.outputs.append("t0")
    assert chains_of(model) == [["/t1", "/t2"]]
    model.add("Sigmoid", "t1", "z")
    model.outputs.append("z")
    assert chains_of(model) == []


def test_a_map_of_another_size_ends_a_chain():
    assert chains_of(straight("Conv", "Conv"), t1=conv_stage(rows=11)) == []
    assert chains_of(straight("Conv", "Conv"), t1=replace(conv_stage(), images=2)) == []


def test_a_residual_block_is_a_chain_up_to_its_addition_and_the_shortcut_is_none():
    model = Model(outputs=["y"])
    branch = conv_block(model, conv_block(model, "x", "a"), "b", activation=False)
    shortcut = conv_block(model, "x", "s", activation=False)
    model.add("Add", f"{branch} {shortcut}", "y")
    # The addition stands in the group of the shortcut, which comes last: the branch enters it behind its window.
    assert chains_of(model) == [["/a_c", "/b_c"]]


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_any_graph_keep_what_passes_between_their_groups_inside(seed):
    graph = random_model(seed).graph()
    groups = fuse(graph)
    stages = {index: conv_stage() for index, group in enumerate(groups) if group.kind in ("conv", "gemm")}
    for chain in find_chains(graph, groups, stages):
        nodes = [name for index in chain for name in groups[index].nodes]
        written = [tensor.tensor for tensor in border(graph, nodes) if tensor.role == "write"]
        assert written == list(graph.nodes[nodes[-1]].outputs)[: len(written)]
        assert len(chain) == len(set(chain)) > 1
        for before, after in pairwise(chain):
            (tail,) = graph.nodes[groups[before].nodes[-1]].outputs
            assert {graph.nodes[name].name for name in graph.consumers[tail]} <= set(groups[after].nodes)


def test_the_random_graphs_have_chains():
    found = 0
    for seed in range(40):
        graph = random_model(seed).graph()
        groups = fuse(graph)
        stages = {index: conv_stage() for index, group in enumerate(groups) if group.kind in ("conv", "gemm")}
        found += len(find_chains(graph, groups, stages))
    assert found > 20
