"""Simulate whole int8 networks on a whole engine, cycle by cycle, with the memory of a board (needs Verilator).

    python -m benchmarks.plans.engine_networks [--fabric ulx3s] [--network resnet8 mobilenet resnet18 encoder]
    python -m benchmarks.plans.engine_networks --board kv260 --network resnet8

Networks: models/classifiers/resnet8.py, which is int8; a MobileNet v1 with depthwise layers and a ResNet-18, both of
64 x 64 pixels; and a transformer encoder of two layers. ONNX Runtime quantizes the latter three here (QDQ, a scale per
channel, calibrated on random samples). Each layer is a call, and so is each head of a product of two tensors. Its
descriptors, weights and constants are packed from the tiles that have the fewest planned cycles.

Checked, with exit code 1 where one fails: every tensor equals the integers of benchmarks/plans/integer_reference.py;
each layer is within one unit of the last place of ONNX Runtime's, which gets the same integers as operands; planned
cycles are within 5 % of the simulated ones in total, and within 10 % for each call. --model takes a quantized model of
your own, with one input, whose batch becomes 1.

Printed too: the cycles that 07 has for the network on an array of this size, with their interval. With --record,
the simulated cycles of networks with right tensors go into a table; that of benchmarks/kernels/engine_runs.py
is one of the families of designs of which 07's intervals learn. With --board, 07 plans each network for that board,
among arrays that the engine can be. The engine then has the size and the buffers of the plan's array, and its memory
the rate of the array's port. Each call of the plan is printed beside the cycles and the interval that 07 has for it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from benchmarks.kernels.engine_runs import EngineCycles, EnginePlace, add_run
from benchmarks.plans.engine_of_plan import PlannedEngine, modelled_cycles, planned_engine, simulated_cycles
from benchmarks.plans.integer_reference import outputs
from benchmarks.process import ROOT
from common.fpga.device.board_files import load_board
from common.fpga.rtl.engine.cycles import PlannedCycles, best_tilings, network_cycles
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import Fabric, load_fabric
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.network import UNSIGNED_MOVE, EngineLayer, EngineNetwork, EngineTensor
from common.fpga.rtl.engine.program import program_of
from common.fpga.rtl.engine.reading.layers import layers_of, of_one_sample
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.engine.simulate import CAUSES, EngineRun, EngineSimulator
from common.fpga.rtl.programs import is_there
from common.messages.errors import PipelineError
from common.runtime.library import ort
from common.view.text import text_table
from models.classifiers.mobilenet_v1 import build_mobilenet_v1
from models.classifiers.resnet import build_resnet18
from models.classifiers.resnet8 import build_tiny_resnet8
from models.transformers.encoder import build_encoder

CONFIGS = ROOT / "configs"
FABRICS = CONFIGS / "fabrics"
NETWORKS = ("resnet8", "mobilenet", "resnet18", "encoder")
IMAGE, CALIBRATION_SAMPLES = 64, 4
MOST_OF_TOTAL, MOST_OF_CALL = 0.05, 0.10
MOST_UNITS = 1  # of the last place
LEAST_OPSET = 13  # whose scales may be of a channel
LIMIT = 50_000_000
COLUMNS = ["call", "planned", "simulated", "error", *CAUSES, "equal"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", default="ulx3s", help="a board of configs/fabrics (default: ulx3s)")
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=NETWORKS, help="default: all")
    parser.add_argument("--model", type=Path, help="a quantized model (QDQ) instead of these")
    parser.add_argument("--rows", type=int, default=8, help="of the array (default: 8)")
    parser.add_argument("--cols", type=int, default=8, help="of the array (default: 8)")
    parser.add_argument("--simd", type=int, default=1, help="products of an element per cycle (default: 1)")
    parser.add_argument("--board", help="of configs/boards: the engine is the array that 07 plans for it")
    parser.add_argument("--multipliers", type=int, default=64, help="at most, of that array (default: 64)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the image (default: 0)")
    parser.add_argument("--record", type=Path, help="add each network's simulated cycles to this table")
    given = parser.parse_args(argv)
    if not is_there("verilator"):
        print("engine_networks: skipped: no verilator; make rtl-tools installs it", file=sys.stderr)
        return 0
    try:
        if given.model:
            models = {given.model.name: read_model(given.model)}
        else:
            models = {name: network_of(name, given.seed) for name in given.network}
        networks = {name: network_in(name, model) for name, model in models.items()}
        fabric = load_fabric(given.fabric, FABRICS)
        if given.board:
            board = load_board(given.board, CONFIGS / "boards")
            engines = {name: planned_engine(models[name], board, given.multipliers) for name in models}
            return max(
                _as_planned(name, models[name], networks[name], engines[name], fabric, given.seed) for name in models
            )
        size = given.rows, given.cols, given.simd
        layers = [layer for network in networks.values() for layer in network.layers]
        buffers = {"word_bytes": min(8, given.cols), "weight_depth": 16384, "channel_depth": 256}
        design = deep_enough(EngineDesign(*size, **buffers), layers)
        print(f"translating {design.name}", file=sys.stderr)
        with EngineSimulator(design) as simulator:
            return max(
                _on_engine(simulator, name, models[name], networks[name], fabric, given.seed, given.record)
                for name in networks
            )
    except PipelineError as problem:
        print(f"engine_networks: error: {problem}", file=sys.stderr)
        return problem.exit_code


def deep_enough(design: EngineDesign, layers: Sequence[EngineLayer]) -> EngineDesign:
    """Return an engine whose buffers hold a line of each layer, its window and a fold of its weights."""
    words = [ceil(layer.x.channels / design.cols) * design.words_per_fold for layer in layers]
    windows = [layer.kernel[0] * layer.kernel[1] for layer in layers]
    least = {
        "input_depth": [2 * layer.reach[0] * layer.x.width * count for layer, count in zip(layers, words, strict=True)],
        "window_depth": [count for layer, count in zip(layers, windows, strict=True) if layer.is_product],
        "weight_depth": [
            2 * window * count * design.steps_per_word
            for layer, window, count in zip(layers, windows, words, strict=True)
            if layer.is_product and layer.groups == 1
        ],
        "partial_depth": [layer.y.width + design.rows for layer in layers],
        "result_depth": [2 * layer.y.width for layer in layers],
    }
    depths = {name: max([getattr(design, name), *found]) for name, found in least.items()}
    return replace(design, **{name: min(1 << (depth - 1).bit_length(), 1 << 16) for name, depth in depths.items()})


def _on_engine(
    simulator: EngineSimulator,
    name: str,
    model: onnx.ModelProto,
    network: EngineNetwork,
    fabric: Fabric,
    seed: int,
    table: Path | None,
) -> int:
    """Simulate a network, and say what 07 has for an array of this size; those with right tensors go into a table."""
    design = simulator.design
    network = on_whole_folds(network, design.cols)
    judged = simulated(simulator, name, model, network, fabric.timing(design.word_bytes), seed)
    modelled, found = modelled_cycles(model, design, fabric), sum(call.cycles for call in judged.run.calls)
    if table and judged.is_equal:  # however near the planned cycles are: a choice by them would flatter the interval
        place = EnginePlace(name, fabric.name, (design.rows, design.cols, design.simd), design.word_bytes)
        add_run(table, EngineCycles(place, found))
    is_inside = modelled.optimistic <= found <= modelled.pessimistic
    print(
        f"07 has {modelled.likely:,.0f} cycles for an array of this size, {modelled.optimistic:,.0f} to "
        f"{modelled.pessimistic:,.0f}; simulated over likely: {found / modelled.likely:.2f}, "
        f"{'inside' if is_inside else 'outside'}"
    )
    return judged.exit_code


def _as_planned(
    name: str, model: onnx.ModelProto, network: EngineNetwork, engine: PlannedEngine, fabric: Fabric, seed: int
) -> int:
    """Simulate a network on the engine of its plan, and print each call of the plan beside its cycles in 07."""
    network = on_whole_folds(network, engine.design.cols)
    timing = engine.timing(fabric.timing(engine.design.word_bytes, engine.array.ports.clock_mhz))
    print(f"{name}: the plan has {engine.array.name}; translating {engine.design.name}", file=sys.stderr)
    with EngineSimulator(engine.design) as simulator:
        judged = simulated(simulator, name, model, network, timing, seed)
    spent = {layer.node: call.cycles for layer, call in zip(network.layers, judged.run.calls, strict=True)}
    rows = [
        [
            call.call.candidate,
            *(f"{each:,.0f}" for each in (cycles.optimistic, cycles.likely, cycles.pessimistic)),
            f"{found:,}",
            f"{found / cycles.likely:.2f}",
            "yes" if cycles.optimistic <= found <= cycles.pessimistic else "no",
        ]
        for call, found in zip(engine.calls, simulated_cycles(engine, network, spent), strict=True)
        for cycles in [engine.cycles(call)]
    ]
    print(text_table(["call of the plan", "least", "likely", "most", "simulated", "over likely", "inside"], rows))
    return judged.exit_code


def read_model(path: Path) -> onnx.ModelProto:
    """Return a model file of one's own, with a batch of one.

    Raises:
        PipelineError: it is no ONNX model.
    """
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except (OSError, DecodeError, onnx.checker.ValidationError) as problem:
        raise PipelineError(path, f"no ONNX model: {problem}") from problem
    return of_one_sample(model)


def network_in(name: str, model: onnx.ModelProto) -> EngineNetwork:
    """Return the layers of a model for the engine.

    Raises:
        PipelineError: it has other than one input, no layer, or what the engine does not compute.
    """
    inputs = _inputs(model)
    if len(inputs) != 1:
        raise PipelineError(name, f"has {len(inputs)} inputs", "give a network of one input")
    network = layers_of(model)
    if not network.layers:
        raise PipelineError(name, "has no layer for the engine")
    return network


def _inputs(model: onnx.ModelProto) -> list[str]:
    constants = {each.name for each in model.graph.initializer}  # old models name them among the inputs
    return [each.name for each in model.graph.input if each.name not in constants]


def network_of(name: str, seed: int) -> onnx.ModelProto:
    """Return one of the int8 networks."""
    if name == "resnet8":
        return build_tiny_resnet8(seed=seed, batch=1)
    if name == "encoder":
        return quantized(build_encoder(seed=seed), seed)
    build = {"mobilenet": build_mobilenet_v1, "resnet18": build_resnet18}[name]
    return quantized(build(seed=seed, batch=1, image=IMAGE), seed)


def quantized(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return a model in int8 by ONNX Runtime's tool, with BatchNormalization folded."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            random = np.random.default_rng(seed + 2)
            self.left = [random.standard_normal(shape).astype(np.float32)] * CALIBRATION_SAMPLES

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            return {"input": self.left.pop()} if self.left else None

    with tempfile.TemporaryDirectory(prefix="engine-model-") as folder:
        paths = [Path(folder) / name for name in ("float.onnx", "folded.onnx", "int8.onnx")]
        onnx.save(model, paths[0])
        session = ort.SessionOptions()
        session.log_severity_level = 3
        session.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        session.optimized_model_filepath = str(paths[1])
        ort.InferenceSession(str(paths[0]), session, providers=["CPUExecutionProvider"])
        folded = onnx.load(paths[1])
        if folded.opset_import[0].version < LEAST_OPSET:
            folded = onnx.version_converter.convert_version(folded, LEAST_OPSET)
        onnx.save(folded, paths[1])
        kinds: dict[str, Any] = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
        quantize_static(paths[1], paths[2], Samples(), quant_format=QuantFormat.QDQ, per_channel=True, **kinds)
        return onnx.load(paths[2])


def sample_of(network: EngineNetwork, seed: int) -> NDArray[np.float32]:
    first = network.inputs[0]
    is_map = first.layout == "map"
    shape = (1, first.channels, first.height, first.width) if is_map else (1, first.height, first.channels)
    return np.random.default_rng(seed + 1).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """A simulated network."""

    run: EngineRun
    is_equal: bool  # whether all tensors have the integers of numpy, and nearly those of ONNX Runtime
    is_near: bool  # whether planned cycles are near, in total and for each call

    @property
    def exit_code(self) -> int:
        return int(not (self.is_equal and self.is_near))


def simulated(
    simulator: EngineSimulator,
    name: str,
    model: onnx.ModelProto,
    network: EngineNetwork,
    timing: MemoryTiming,
    seed: int,
) -> JudgedRun:
    """Simulate one network, and print its calls."""
    (name_of_input,) = _inputs(model)
    entry = next(each for each in model.graph.input if each.name == name_of_input)
    shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
    feeds = {name_of_input: sample_of(network, seed).reshape(shape)}
    expected = outputs(model, feeds)
    divided = best_tilings(network, simulator.design, timing)
    program = program_of(network, divided, simulator.design)
    inputs = {each.name: _signed(each, expected[each.name]).astype(np.int8) for each in network.inputs}
    run = simulator.run(program, inputs, timing, LIMIT)
    planned = network_cycles(network, divided, timing)
    print(f"{name}: {len(network.layers)} calls, {sum(layer.macs for layer in network.layers):,} multiply-accumulates")
    print(text_table(COLUMNS, [*_rows(network, planned, run, expected), _total(planned, run)]))
    units = _units_from_runtime(model, network, feeds, expected)
    print(f"memory: {run.row_miss_cycles:,} cycles opened rows, {run.refresh_cycles:,} waited for refreshes")
    print(f"each layer is within {units} units of the last place of ONNX Runtime's on the same integers")
    is_equal = _are_equal(network, run, expected) and units <= MOST_UNITS
    return JudgedRun(run, is_equal, _is_near(planned, run))


def _signed(tensor: EngineTensor, values: Any) -> NDArray[np.int64]:
    moved = np.asarray(values).astype(np.int64) - (UNSIGNED_MOVE if tensor.is_unsigned else 0)
    return tensor.arranged(moved)


def _is_equal(tensor: EngineTensor, run: EngineRun, expected: Mapping[str, Any]) -> bool:
    """Whether a tensor is the model's; those on the way to one of several parts are none of it."""
    name = tensor.name
    return name not in expected or np.array_equal(run.tensors[name], _signed(tensor, expected[name]))


def _are_equal(network: EngineNetwork, run: EngineRun, expected: Mapping[str, Any]) -> bool:
    return all(_is_equal(layer.y.whole, run, expected) for layer in network.layers)


def _rows(
    network: EngineNetwork, planned: Sequence[PlannedCycles], run: EngineRun, expected: Mapping[str, Any]
) -> list[list[str]]:
    return [
        [
            *(layer.node, f"{plan.total:,.0f}", f"{spent.cycles:,}", f"{plan.total / spent.cycles - 1:+.1%}"),
            *(f"{spent.by_cause[cause]:,}" for cause in CAUSES),
            "yes" if _is_equal(layer.y.whole, run, expected) else "NO",
        ]
        for layer, plan, spent in zip(network.layers, planned, run.calls, strict=True)
    ]


def _total(planned: Sequence[PlannedCycles], run: EngineRun) -> list[str]:
    plan, cycles = sum(each.total for each in planned), sum(call.cycles for call in run.calls)
    causes = (sum(call.by_cause[cause] for call in run.calls) for cause in CAUSES)
    return ["total", f"{plan:,.0f}", f"{cycles:,}", f"{plan / cycles - 1:+.1%}", *(f"{one:,}" for one in causes), ""]


def _is_near(planned: Sequence[PlannedCycles], run: EngineRun) -> bool:
    pairs = [(plan.total, call.cycles) for plan, call in zip(planned, run.calls, strict=True)]
    total = sum(plan for plan, _ in pairs) / sum(cycles for _, cycles in pairs)
    return abs(total - 1) <= MOST_OF_TOTAL and all(abs(plan / cycles - 1) <= MOST_OF_CALL for plan, cycles in pairs)


def _units_from_runtime(
    model: onnx.ModelProto, network: EngineNetwork, feeds: Mapping[str, NDArray[Any]], expected: Mapping[str, Any]
) -> int:
    """Return by how many units of the last place a layer differs at most from ONNX Runtime's on the same operands."""
    made = {name: node for node in model.graph.node for name in node.output}
    worst = 0
    for y in {layer.y.whole.name: layer.y.whole for layer in network.layers if layer.y.whole.name in expected}.values():
        reads = _operands(network, y.name, expected)
        part = _part(model, made, list(reads.values()), y)
        session = ort.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, {name: expected[name] for name in reads})
        worst = max(worst, int(np.abs(found.astype(np.int64) - expected[y.name].astype(np.int64)).max()))
    return worst


def _operands(network: EngineNetwork, name: str, expected: Mapping[str, Any]) -> dict[str, EngineTensor]:
    """Return the tensors of the model of which a tensor is computed, by name; constants are none of them."""
    constants, found = {tensor.name for tensor, _ in network.constants}, {}
    for tensor in (each for layer in network.layers if layer.y.whole.name == name for each in layer.reads):
        if tensor.name in expected:
            found[tensor.name] = tensor
        elif tensor.name not in constants:
            found |= _operands(network, tensor.name, expected)
    return found


def _part(
    model: onnx.ModelProto, made: Mapping[str, onnx.NodeProto], reads: Sequence[EngineTensor], writes: EngineTensor
) -> onnx.ModelProto:
    """Return the nodes from some quantized tensors to another one as a model of its own."""
    nodes: list[onnx.NodeProto] = []
    wanted, seen = [writes.name], {tensor.name for tensor in reads}
    while wanted:
        name = wanted.pop()
        if name in seen or name not in made:
            continue
        seen.add(name)
        nodes.append(made[name])
        wanted += made[name].input
    order = {node.output[0]: place for place, node in enumerate(model.graph.node)}
    nodes = sorted({node.output[0]: node for node in nodes}.values(), key=lambda node: order[node.output[0]])
    needed = {name for node in nodes for name in node.input}
    constants = [each for each in model.graph.initializer if each.name in needed]
    inputs = [_declared(tensor) for tensor in {each.name: each for each in reads}.values()]
    graph = onnx.helper.make_graph(nodes, "part", inputs, [_declared(writes)], constants)
    part = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    part.ir_version = model.ir_version
    return part


def _declared(tensor: EngineTensor) -> onnx.ValueInfoProto:
    kind = onnx.TensorProto.UINT8 if tensor.is_unsigned else onnx.TensorProto.INT8
    return onnx.helper.make_tensor_value_info(tensor.name, kind, None)


if __name__ == "__main__":
    sys.exit(main())
