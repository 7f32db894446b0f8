"""FA-DOSA's interface: the graph, its parameters, three costs, and the loop of its README."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from math import log, prod

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pytest import approx

from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.single_buffer import single_buffer
from common.design_space.fa_dosa import (
    ComputationGraph,
    ConditionalPerformanceModel,
    FusionParameters,
    MappingParameters,
    calculate_hardware_config,
    calculate_macs,
    calculate_penalty_loss,
    parse_onnx_to_graph,
)
from common.design_space.fa_dosa.accounting import ACTIVATED, fa_dosa_cost, fa_dosa_kernels
from common.messages.errors import PipelineError, UnusableValueError
from models.__main__ import BUILDERS
from tests.support.models.one_node import f32, i64, node_of, session_of
from tests.support.paths import CONFIGS, ROOT
from tests.support.tables.source import source_rows_of_file

CONV = {"N": 2, "K": 7, "C": 5, "P": 13, "Q": 11, "R": 3, "S": 3, "stride_p": 2}
RELU = {"N": 2, "G": 7, "P": 13, "Q": 11}


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="comes with requirements-torch.txt")


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory):
    path = tmp_path_factory.mktemp("resnet18") / "resnet18.onnx"
    onnx.save(BUILDERS["resnet18"](has_weights=False, batch=1), path)
    return path


def chain():
    graph = ComputationGraph()
    graph.add_layer("conv", CONV, "Conv")
    graph.add_layer("relu", RELU, "Relu")
    graph.add_layer("pool", {"N": 2, "G": 7}, "GlobalAveragePool")
    graph.add_edge("conv", "relu")
    graph.add_edge("relu", "pool")
    graph.add_fusion_group(["conv", "relu"])
    return graph


def with_probability(graph, probability):
    fusion = FusionParameters(graph)
    fusion.logits.data[:] = log(probability / (1 - probability)) if 0 < probability < 1 else (probability - 0.5) * 1e9
    return fusion


# --- graph ------------------------------------------------------------------------------------------------------------


def test_multiply_accumulates_are_the_product_of_the_loops():
    assert calculate_macs(CONV) == 2 * 7 * 5 * 13 * 11 * 3 * 3
    assert calculate_macs({**CONV, "G": 17}) == 17 * calculate_macs(CONV)


def test_a_layer_has_the_work_and_the_bytes_of_its_loops():
    conv, relu = (chain().layers[name] for name in ("conv", "relu"))
    assert (conv.macs, relu.macs) == (calculate_macs(CONV), 0)
    rows, columns = 12 * 2 + 3, 10 + 3
    assert conv.tensor_bytes == {"input": 4 * 2 * 5 * rows * columns, "weight": 4 * 315, "output": 4 * 2 * 7 * 143}
    assert relu.tensor_bytes == {"input": 4 * 2 * 7 * 143, "weight": 0, "output": 4 * 2 * 7 * 143}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda graph: graph.add_layer("conv", CONV, "Conv"), "<layer>: there are two of the name 'conv'"),
        (lambda graph: graph.add_layer("x", {"H": 3}, "Conv"), "<dims>: 'H' is 3; give whole numbers above 0"),
        (lambda graph: graph.add_layer("x", {"K": 0}, "Conv"), "<dims>: 'K' is 0"),
        (lambda graph: graph.add_layer("x", {"K": 2.5}, "Conv"), "<dims>: 'K' is 2.5"),
        (lambda graph: graph.add_edge("conv", "fc"), "<layer>: 'fc' is not in the graph"),
        (lambda graph: graph.add_fusion_group(["fc"]), "<layer>: 'fc' is not in the graph"),
        (lambda graph: graph.add_fusion_group(["pool", "relu"]), "no edge goes from 'pool' to 'relu'"),
        (lambda graph: graph.add_fusion_group(["relu", "pool"]), "'relu' is in a group already"),
    ],
)
def test_what_is_no_part_of_a_graph_is_refused(change, problem):
    graph = chain()
    with pytest.raises(UnusableValueError, match=re.escape(problem)):
        change(graph)
    assert (list(graph.layers), len(graph.fusion_groups)) == (["conv", "relu", "pool"], 1)


# --- parameters -------------------------------------------------------------------------------------------------------


def test_without_pytorch_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for parameters in (MappingParameters, FusionParameters):
        with pytest.raises(PipelineError, match=r"torch: is not installed; run: pip install -r requirements-torch.txt"):
            parameters(chain())


def test_a_mapping_has_a_tile_for_each_loop(torch):
    mapping = MappingParameters(chain())
    tile = mapping.get_mapping_by_original_name("conv")
    assert {loop: size.item() for loop, size in tile.items()} == approx(
        {loop: CONV.get(loop, 1) ** 0.5 for loop in "NGKCPQRS"}
    )
    with pytest.raises(UnusableValueError, match="'fc' has no mapping"):
        mapping.get_mapping_by_original_name("fc")


def test_a_probability_is_of_a_group_in_any_order_and_0_of_no_group(torch):
    fusion = with_probability(chain(), 0.3)
    assert fusion.get_fusion_probability(["relu", "conv"]).item() == approx(0.3)
    assert fusion.get_fusion_probability(["relu", "pool"]).item() == 0


def test_the_penalty_adds_up_what_factors_lack_to_one(torch):
    graph = ComputationGraph()
    graph.add_layer("fc", {"K": 8, "C": 5}, "Gemm")
    mapping = MappingParameters(graph)
    assert calculate_penalty_loss(mapping).item() == 0
    mapping.log_tiles.data[:] = torch.log(torch.tensor([1.0, 1, 10, 0.25, 1, 1, 1, 1]))
    # the tile of C lacks 0.75; the 0.8 steps over tiles of K lack 0.2
    assert calculate_penalty_loss(mapping).item() == approx(0.75 + 0.2)


# --- costs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0, 0.25, 1])
def test_costs_written_out(torch, probability):
    graph = chain()
    conv, relu, pool = (sum(layer.tensor_bytes.values()) for layer in graph.layers.values())
    between = 4 * 2 * 7 * 143
    latency, energy, area = ConditionalPerformanceModel()(
        MappingParameters(graph), with_probability(graph, probability), graph
    )
    root = {loop: size**0.5 for loop, size in CONV.items() if loop != "stride_p"}
    rows, columns = (root["P"] - 1) * 2 + (root["R"] - 1) + 1, (root["Q"] - 1) + (root["S"] - 1) + 1
    words = root["N"] * root["C"] * rows * columns + prod(root[loop] for loop in "KCRS")
    kib = 4 * (words + prod(root[loop] for loop in "NKPQ")) / 1024
    moved = conv + relu + pool - probability * 2 * between
    macs = calculate_macs(CONV)
    apart, fused = max(macs / 1000, conv / 100) + relu / 100, max(macs / 1000, (conv + relu - 2 * between) / 100)
    assert float(area.detach()) == approx(0.0001 * kib)
    assert float(energy.detach()) == approx(moved * (2.5 + 0.25 + 0.0001 * kib))
    assert float(latency.detach()) == approx((1 - probability) * apart + probability * fused + pool / 100)


def test_what_another_layer_reads_is_written_although_it_is_fused(torch):
    graph = chain()
    graph.add_layer("sum", RELU, "Add")
    before = ConditionalPerformanceModel()(MappingParameters(graph), with_probability(graph, 1), graph)
    graph.add_edge("conv", "sum")
    after = ConditionalPerformanceModel()(MappingParameters(graph), with_probability(graph, 1), graph)
    kib = float(calculate_hardware_config(MappingParameters(graph), graph)["buffer_kib"].detach())
    written = 4 * 2 * 7 * 143
    assert float((after[1] - before[1]).detach()) == approx(written * (2.75 + 0.0001 * kib))


def test_gradients_are_difference_quotients(torch):
    graph, model, step = chain(), ConditionalPerformanceModel(), 1e-6
    mapping, fusion = MappingParameters(graph), with_probability(graph, 0.3)
    for cost in range(3):
        for parameter in (mapping.log_tiles, fusion.logits):
            parameter.grad = None
        model(mapping, fusion, graph)[cost].backward()
        for parameter in (mapping.log_tiles, fusion.logits):
            for place in np.ndindex(*parameter.shape):
                ends = []
                for sign in (1, -1):
                    parameter.data[place] += sign * step
                    ends.append(float(model(mapping, fusion, graph)[cost].detach()))
                    parameter.data[place] -= sign * step
                found = 0.0 if parameter.grad is None else float(parameter.grad[place])
                assert found == approx((ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-3)


def test_parameters_of_another_graph_and_other_accelerators_are_refused(torch):
    graph, gemmini = chain(), load_hardware("gemmini", CONFIGS / "hardware")
    mapping = MappingParameters(graph)
    with pytest.raises(UnusableValueError, match="gemmini has the memories"):
        ConditionalPerformanceModel(gemmini)
    with pytest.raises(UnusableValueError, match="gemmini has the memories"):
        calculate_hardware_config(mapping, graph, gemmini)
    graph.add_layer("sum", RELU, "Add")
    for layers, other in ((mapping, graph), (MappingParameters(ComputationGraph()), ComputationGraph())):
        with pytest.raises(UnusableValueError, match="<mapping>: has other layers than the graph, or none"):
            ConditionalPerformanceModel()(layers, FusionParameters(other), other)


@pytest.mark.parametrize(("probability", "fused", "megabytes"), [(0, (), None), (1, ACTIVATED, 84.6)])
def test_at_0_and_1_the_costs_are_those_of_the_kernels(torch, resnet18, probability, fused, megabytes):
    graph = parse_onnx_to_graph(resnet18)
    mapping = MappingParameters(graph)
    latency, energy, area = (
        float(cost.detach())
        for cost in ConditionalPerformanceModel()(mapping, with_probability(graph, probability), graph)
    )
    rows, source = source_rows_of_file(resnet18, {})
    known = fa_dosa_cost(
        fa_dosa_kernels(rows, source, fused), single_buffer(load_hardware("fa-dosa", CONFIGS / "hardware"))
    )
    moved = energy / (2.75 + 0.0001 * area / 0.0001)
    vectors = 3 * 4 * 4800 if fused else 0  # scale, mean and variance of 4,800 channels, which folding leaves out
    assert moved == approx(known.moved_bytes + vectors, rel=1e-9)
    assert latency == approx(known.cycles, rel=1e-3 if fused else 1e-9)
    assert megabytes is None or moved / 1e6 == approx(megabytes, rel=0.005)


# --- the loop of the README -------------------------------------------------------------------------------------------


def log_sum(costs, torch):
    return sum(torch.log(cost + 1e-9) for cost in costs)


@pytest.mark.parametrize("rate", [1e-5, 0.05])
def test_the_loss_falls_with_adam(torch, rate):
    graph, model = chain(), ConditionalPerformanceModel()
    mapping, fusion = MappingParameters(graph), FusionParameters(graph)
    groups = [{"params": mapping.parameters()}, {"params": fusion.parameters()}]
    optimizer, losses = torch.optim.Adam(groups, lr=rate), []
    for _ in range(50):
        optimizer.zero_grad()
        loss = log_sum(model(mapping, fusion, graph), torch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(after < before for before, after in pairwise(losses))
    assert float(fusion.get_fusion_probability(["conv", "relu"]).detach()) > 0.5


def test_the_loss_falls_without_end_as_the_buffer_shrinks_penalty_or_not(torch):
    graph, model = chain(), ConditionalPerformanceModel()
    mapping, fusion = MappingParameters(graph), FusionParameters(graph)
    start, losses = mapping.log_tiles.detach().clone(), []
    for shift in (0, 30, 60, 90):
        mapping.log_tiles.data[:] = start - shift
        logs = [float(torch.log(cost).detach()) for cost in model(mapping, fusion, graph)]
        losses.append(sum(logs) + float(calculate_penalty_loss(mapping).detach()))
    # N, G and C of the input shrink with the tiles; a window keeps one element
    assert losses[1] - losses[2] == approx(90, rel=1e-3)
    assert losses[2] - losses[3] == approx(90, rel=1e-3)
    assert losses[0] - losses[3] > 200
    assert float(calculate_penalty_loss(mapping).detach()) <= 3 * 8  # one for each tile


def test_the_example_of_the_documentation_runs(torch, resnet18, monkeypatch, capsys):
    text = (ROOT / "docs" / "DESIGN_SPACE.md").read_text(encoding="utf-8")
    section = re.search(r"^## FA-DOSA's interface\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    code, after = re.search(r"```python\n(.*?)```\n\n(.*)", section, re.DOTALL).groups()
    shown = re.match(r"(?: {4}.*\n)+", after)[0]
    monkeypatch.chdir(resnet18.parent)
    exec(compile(code, "DESIGN_SPACE.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [line[4:] for line in shown.splitlines()]


# --- ONNX -------------------------------------------------------------------------------------------------------------

MAP, KERNEL, VECTOR = f32(2, 6, 13, 11), f32(7, 6, 3, 3), np.abs(f32(6))
POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
# Operator: its operands, how many of them are weights, its attributes, how many outputs, its multiply-accumulates.
OPERATORS = {
    "Conv": ([MAP, KERNEL], 1, {"strides": [2, 1]}, 1, 2 * 7 * 6 * 6 * 9 * 9),
    "Relu": ([MAP], 0, {}, 1, 0),
    "LeakyRelu": ([MAP], 0, {}, 1, 0),
    "Sigmoid": ([MAP], 0, {}, 1, 0),
    "Tanh": ([MAP], 0, {}, 1, 0),
    "Clip": ([MAP, np.float32(0), np.float32(6)], 2, {}, 1, 0),
    "BatchNormalization": ([MAP, VECTOR, VECTOR, VECTOR, VECTOR], 4, {}, 1, 0),
    "Add": ([MAP, MAP + 1], 0, {}, 1, 0),
    "MaxPool": ([MAP], 0, POOL, 1, 0),
    "AveragePool": ([MAP], 0, POOL, 1, 0),
    "GlobalAveragePool": ([MAP], 0, {}, 1, 0),
    "LpPool": ([MAP], 0, POOL, 1, 0),
    "Gemm": ([f32(5, 7), f32(7, 11), f32(11)], 2, {}, 1, 5 * 7 * 11),
    "MatMul": ([f32(3, 5, 7), f32(7, 11)], 1, {}, 1, 3 * 5 * 7 * 11),
    "Flatten": ([MAP], 0, {}, 1, 0),
    "Reshape": ([MAP, i64([2, -1])], 1, {}, 1, 0),
    "Concat": ([MAP, MAP + 1], 0, {"axis": 1}, 1, 0),
    "Split": ([MAP, i64([2, 4])], 1, {"axis": 1}, 2, 0),
    "Mul": ([MAP, MAP + 1], 0, {}, 1, 0),
    "Div": ([MAP, MAP + 1], 0, {}, 1, 0),
    "Sub": ([MAP, MAP + 1], 0, {}, 1, 0),
    "Dropout": ([MAP], 0, {}, 1, 0),
    "Identity": ([MAP], 0, {}, 1, 0),
}
MOVES_NOTHING = {"Flatten", "Reshape", "Dropout", "Identity"}


@pytest.mark.parametrize("op_type", OPERATORS)
def test_an_operator_of_the_list_is_a_layer_with_its_work_and_bytes(op_type, tmp_path):
    operands, weights, attributes, outputs, macs = OPERATORS[op_type]
    node = node_of(op_type, operands, range(outputs), **attributes)
    fed = [f"x{index}" for index in range(len(operands) - weights)]
    results = session_of(node, operands, inputs=fed, opset=18).run(None, dict(zip(fed, operands, strict=False)))
    path = tmp_path / "model.onnx"
    onnx.save(one_node(node, operands, fed), path)
    layer = parse_onnx_to_graph(path).layers["node"]
    assert (layer.op_type, layer.macs) == (op_type, macs)
    assert layer.tensor_bytes["output"] == (0 if op_type in MOVES_NOTHING else sum(result.nbytes for result in results))
    assert layer.nest.n * layer.nest.groups * layer.nest.k * layer.nest.p * layer.nest.q == results[0].size
    assert macs in (0, layer.nest.macs)


def one_node(node, operands, fed):
    """The model of one node, its weights with their values; the shapes of its results are left to be found."""
    arrays = {f"x{index}": np.asarray(operand) for index, operand in enumerate(operands)}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, arrays[name].shape) for name in fed]
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items() if name not in fed]
    returned = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "one node", inputs, returned, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_a_network_has_its_layers_edges_and_groups(resnet18):
    graph = parse_onnx_to_graph(str(resnet18))
    assert sum(layer.macs for layer in graph.layers.values()) == 1_814_073_344
    contractions = [layer for layer in graph.layers.values() if layer.op_type in ("Conv", "Gemm")]
    assert [layer.macs for layer in contractions] == [layer.nest.macs for layer in contractions]
    assert ("/relu/Relu", "/maxpool/MaxPool") in graph.edges
    assert graph.fusion_groups[0] == ("/conv1/Conv", "/bn1/BatchNormalization", "/relu/Relu")
    assert len(graph.fusion_groups) == 20  # every convolution has a normalization, 9 of them an activation
    assert sorted(map(len, graph.fusion_groups)) == [2] * 11 + [3] * 9
    pool = graph.layers["/maxpool/MaxPool"].nest
    assert (pool.groups, pool.p, pool.r, pool.stride_p) == (64, 56, 3, 2)


def test_an_open_dimension_and_a_size_that_depends_on_data_are_refused(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(BUILDERS["tiny-cnn"](), path)
    with pytest.raises(UnusableValueError, match=r"dimension 'batch' \(input\[0\]\) not bound"):
        parse_onnx_to_graph(path)
    assert parse_onnx_to_graph(path, {"batch": 3}).layers
    onnx.save(one_node(node_of("NonZero", [MAP], range(1)), [MAP], ["x0"]), path)
    with pytest.raises(PipelineError, match="node: what it computes or moves is not known before a run"):
        parse_onnx_to_graph(path)
