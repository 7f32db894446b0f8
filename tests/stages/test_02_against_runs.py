"""Numbers by a second way: other bindings, real shapes, sums by hand, and weights that tell who owns what."""

from __future__ import annotations

import hashlib
import importlib
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest
from onnx import TensorProto, helper, numpy_helper

from common.attribution.match import match_nodes
from common.graphs.expressions import at
from common.onnx_graph.counts import FIGURES, count_nodes
from common.onnx_graph.executed import load_executed_graph
from common.onnx_graph.load import load_model
from common.onnx_graph.work import measure
from tests.support.models.onnx_models import FLOAT, INT32, INT64, UINT8, Typed, model, weight, work_of
from tests.support.paths import ROOT
from tests.support.tables.source import source_rows_of_file

stage = importlib.import_module("02_shapes_flops_bytes")
BOOL, INT4, BFLOAT16 = TensorProto.BOOL, TensorProto.INT4, TensorProto.BFLOAT16
MICROSOFT = "com.microsoft"
ADDRESS_SPACE = 3 << 30  # bytes: so that a defect does not take the machine's
MOST_MEMORY = 300 << 10  # KiB, twice what the imports take


def ints(*values):
    return np.array(values, np.int64)


def node(op_type, inputs, outputs, name="", **attributes):
    return helper.make_node(op_type, inputs, outputs, name=name, **attributes)


def branch(name, *nodes):
    """A branch that returns what its last node writes."""
    result = helper.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    return helper.make_graph(nodes, name, [], [result])


def counted(path, bindings=None, values=None):
    loaded = load_model(path, bindings or {}, values=values, symbolic=True)
    return {one.node.name: one for one in count_nodes(loaded.graph, loaded.bounds)}


# --- expressions ----------------------------------------------------------------------------------------------------

EXTENT = node("Shape", ["x"], ["s"], start=0, end=1)
PRODUCT = node("MatMul", ["a", "w"], ["y"], "product")


def kept_rows(*nodes, **weights):
    """Rows of x (n×7) that some nodes keep, times a matrix."""
    return [*nodes, PRODUCT], {"x": ("n", 7)}, {"w": weight(7, 5), "zero": ints(0), **weights}


def image(*nodes, **weights):
    return (
        [*nodes, node("Conv", ["a", "w"], ["y"], "product")],
        {"x": (1, 3, "n", "n")},
        {"w": weight(5, 4, 1, 1), **weights},
    )


def by_extent(comparison, limit):
    """A product where the comparison with the extent holds, two where not."""
    short = branch("short", node("MatMul", ["x", "w"], ["a1"], "one"))
    long = branch("long", node("MatMul", ["x", "w"], ["b1"], "two"), node("MatMul", ["b1", "w"], ["b2"], "three"))
    nodes = [
        EXTENT,
        node(comparison, ["s", "limit"], ["holds"]),
        node("Squeeze", ["holds"], ["c"]),
        node("If", ["c"], ["y"], "if", then_branch=short, else_branch=long),
    ]
    return nodes, {"x": ("n", 7)}, {"w": weight(7, 7), "limit": ints(limit)}


HALVES = [EXTENT, node("Div", ["s", "two"], ["h"]), node("Mul", ["h", "two"], ["t"])]
ADVERSARIAL = {
    "down and up": image(
        node("Conv", ["x", "v"], ["d"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("ConvTranspose", ["d", "u"], ["a"], strides=[2, 2]),
        v=weight(8, 3, 3, 3),
        u=weight(8, 4, 2, 2),
    ),
    "even rows": kept_rows(*HALVES, node("Slice", ["x", "zero", "t", "zero"], ["a"]), two=ints(2)),
    "first five": kept_rows(node("Slice", ["x", "zero", "five", "zero"], ["a"]), five=ints(5)),
    "without five": kept_rows(node("Slice", ["x", "five", "end", "zero"], ["a"]), five=ints(5), end=ints(2**60)),
    "last five": kept_rows(node("Slice", ["x", "five", "end", "zero"], ["a"]), five=ints(-5), end=ints(2**60)),
    "every second": kept_rows(
        node("Slice", ["x", "last", "end", "zero", "last2"], ["a"]), last=ints(-1), end=ints(-(2**60)), last2=ints(-2)
    ),
    "at most 600": kept_rows(node("Slice", ["x", "zero", "most", "zero"], ["a"]), most=ints(600)),
    "at most 2048": kept_rows(node("Slice", ["x", "zero", "most", "zero"], ["a"]), most=ints(2048)),
    "best five": kept_rows(
        EXTENT, node("Min", ["s", "five"], ["k"]), node("TopK", ["x", "k"], ["a", "i"], axis=0), five=ints(5)
    ),
    "below 2": by_extent("Less", 2),
    "below 100": by_extent("Less", 100),
    "above 100": by_extent("Greater", 100),
    "exactly 1": by_extent("Equal", 1),
    "below 2000": by_extent("Less", 2000),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_an_expression_holds_far_from_the_samples_or_is_not_given(tmp_path, name):
    nodes, inputs, weights = ADVERSARIAL[name]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, inputs, {"y": None}, weights), path)
    expressions = counted(path)
    for extent in (1, 2, 3, 4, 6, 64, 99, 100, 511, 700, 3000):
        bound = counted(path, {"n": extent})
        assert bound.keys() <= expressions.keys()  # a branch that runs at some extent is in no binding left out
        for key, one in bound.items():
            for figure in FIGURES:
                found = expressions[key].figure(figure)
                assert found is None or at(found, {"n": extent}) == one.figure(figure), (key, figure, extent)


# --- bounds ---------------------------------------------------------------------------------------------------------

# One product or two, against two and an Abs; a product against more FLOPs that are no MACs.
NESTED = branch(
    "outer",
    node(
        "If",
        ["d"],
        ["o"],
        "inner",
        then_branch=branch("one", node("MatMul", ["x", "w"], ["a1"], "m1")),
        else_branch=branch("two", node("MatMul", ["x", "w"], ["b1"], "m2"), node("MatMul", ["b1", "w"], ["b2"], "m3")),
    ),
)
OTHER = branch(
    "other",
    node("MatMul", ["x", "w"], ["c1"], "m4"),
    node("MatMul", ["c1", "w"], ["c2"], "m5"),
    node("Abs", ["c2"], ["c3"], "abs"),
)
PLAIN = branch("plain", node("MatMul", ["x", "w"], ["a1"], "m1"))
LIGHT = branch("light", *(node("Softmax", [f"t{i}" if i else "x"], [f"t{i + 1}"], f"s{i}") for i in range(9)))


@pytest.mark.parametrize(
    ("then", "otherwise"), [(NESTED, OTHER), (OTHER, NESTED), (PLAIN, LIGHT), (LIGHT, PLAIN)], ids=range(4)
)
def test_no_branch_costs_more_than_the_bound_on_the_whole(tmp_path, capsys, then, otherwise):
    path = tmp_path / "model.onnx"
    choice = node("If", ["c"], ["y"], "if", then_branch=then, else_branch=otherwise)
    flags = {name: Typed(BOOL, ()) for name in ("c", "d")}
    onnx.save(model([choice], {"x": (4, 7), **flags}, {"y": None}, {"w": weight(7, 7)}), path)
    runs = [(c, d) for c in (True, False) for d in (True, False)]
    most = dict.fromkeys(("macs", "flops", "bytes"), 0)
    for c, d in runs:
        taken = counted(path, values={"c": np.array(c), "d": np.array(d)})
        most = {name: max(size, sum(one.figure(name) for one in taken.values())) for name, size in most.items()}
    assert stage.main(["--model", str(path), "--out", str(tmp_path / "out")]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("at most")]
    printed = [
        float(part.split()[0]) * {"k": 1000, "kB": 1000}.get(part.split()[1], 1) for part in line[8:].split(", ")[:3]
    ]
    for bound, size in zip(printed, most.values(), strict=True):
        assert bound == pytest.approx(size, rel=0.01)  # reached by a run, and by none exceeded (three digits printed)


def real_work(proto, feeds, graph):
    """Every node's work by the shapes that ONNX Runtime makes."""
    asked = onnx.ModelProto()
    asked.CopyFrom(proto)
    names = [name for one in proto.graph.node for name in one.output]
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = ort.InferenceSession(asked.SerializeToString(), options).run(None, feeds)
    shapes = {name: array.shape for name, array in zip(names, made, strict=True)}
    tensors = {name: replace(one, shape=shapes.get(name, one.shape)) for name, one in graph.tensors.items()}
    return {one.name: measure(replace(graph, tensors=tensors), one) for one in graph.nodes}


ONES = [{"x": np.array([1] * count + [0] * (9 - count), np.float32)} for count in (5, 8, 9)]
INDICES = node("NonZero", ["x"], ["i"], "nonzero")
COLUMN = [node("Cast", ["p"], ["f"], "cast", to=FLOAT), node("Transpose", ["f"], ["a"], "transpose"), PRODUCT]
KEPT = node("Compress", ["x", "c"], ["a"], "compress", axis=0)


@pytest.mark.parametrize(
    ("nodes", "inputs", "weights", "draws"),
    [
        (
            [INDICES, node("Split", ["i"], ["q", "r", "p"], "split", axis=1, num_outputs=3), *COLUMN],
            {"x": (9,)},
            {"w": weight(1, 5)},
            ONES,
        ),
        (
            [INDICES, node("Split", ["i"], ["q", "r", "t", "p"], "split", axis=1, num_outputs=4), *COLUMN],
            {"x": (9,)},
            {"w": weight(1, 5)},
            [ONES[1]],  # eight in four: two in the last part, of nine it is none
        ),
        (
            [KEPT, node("Concat", ["a", "a", "x"], ["b"], "concat", axis=0), node("MatMul", ["b", "w"], ["y"], "m")],
            {"x": (9, 5), "c": Typed(BOOL, (9,))},
            {"w": weight(5, 7)},
            [{"x": np.ones((9, 5), np.float32), "c": np.arange(9) < count} for count in (0, 3, 9)],
        ),
        (
            [KEPT, node("Transpose", ["a"], ["t"], "transpose"), node("MatMul", ["a", "t"], ["y"], "m")],
            {"x": (9, 5), "c": Typed(BOOL, (9,))},
            {},
            [{"x": np.ones((9, 5), np.float32), "c": np.arange(9) < count} for count in (0, 3, 9)],
        ),
    ],
    ids=["three parts", "four parts", "concat", "outer"],
)
def test_no_run_exceeds_a_bound_and_given_values_make_it_exact(tmp_path, nodes, inputs, weights, draws):
    proto, path = model(nodes, inputs, {"y": None}, weights, opset=18), tmp_path / "model.onnx"
    onnx.save(proto, path)
    loaded = load_model(path, {})
    found = {one.node.name: one for one in count_nodes(loaded.graph, loaded.bounds)}
    for feeds in draws:
        real, told = real_work(proto, feeds, loaded.graph), counted(path, values=feeds)
        for name, one in found.items():
            for figure in ("macs", "flops", "bytes"):
                ran, bound = getattr(real[name], figure), one.bounds.get(figure)
                assert one.figure(figure) in (None, ran)
                assert bound is None or ran <= bound, (name, figure)
                assert told[name].figure(figure) == ran


# --- bytes by hand ----------------------------------------------------------------------------------------------------

ROWS = np.zeros((97, 13), np.float32)
BYTES, ZERO = np.zeros((11, 13), np.int8), np.zeros((), np.uint8)
CELL = [(5, 2, 13), weight(1, 28, 13), weight(1, 28, 7)]
THREE, AS_INT4 = {"outputs": [None] * 3}, {"outputs": [Typed(INT4, None)], "opset": 21}
CACHE = [(1, 2, 24), (1, 2, 8), (1, 2, 8), (1, 1, 5, 8), (1, 1, 5, 8), Typed(INT32, (1,)), np.array([7], np.int32)]


@pytest.mark.parametrize(
    ("op_type", "operands", "macs", "weights", "read", "written", "options"),
    [
        # 11 rows of 64 four-bit weights, 22 scales, a zero point byte for each two blocks.
        (
            "MatMulNBits",
            [(3, 64), np.zeros((11, 2, 16), np.uint8), weight(22), np.zeros(11, np.uint8)],
            3 * 64 * 11,
            11 * 32 + 22 * 4 + 11,
            3 * 64 * 4,
            3 * 11 * 4,
            {"domain": MICROSOFT, "K": 64, "N": 11, "bits": 4, "block_size": 32},
        ),
        ("Gather", [ROWS, Typed(INT64, (2, 5))], 0, 10 * 13 * 4, 10 * 8, 10 * 13 * 4, {}),
        ("Gather", [ROWS[:3], Typed(INT64, (2, 5))], 0, 3 * 13 * 4, 10 * 8, 10 * 13 * 4, {}),
        ("Slice", [(11, 13), ints(2), ints(7), ints(0)], 0, 3 * 8, 5 * 13 * 4, 5 * 13 * 4, {}),
        ("Expand", [(1, 13), ints(11, 13)], 0, 2 * 8, 13 * 4, 11 * 13 * 4, {}),
        ("Concat", [Typed(INT4, (3,)), Typed(INT4, (5,))], 0, 0, 2 + 3, 4, {**AS_INT4, "axis": 0}),
        (
            "Conv",
            [Typed(BFLOAT16, (1, 3, 8, 8)), Typed(BFLOAT16, (5, 3, 3, 3))],
            36 * 5 * 27,
            0,
            (3 * 64 + 5 * 27) * 2,
            5 * 36 * 2,
            {"outputs": [Typed(BFLOAT16, None)], "opset": 22},
        ),
        ("DequantizeLinear", [BYTES, weight(11), BYTES[:, 0]], 0, 11 * 13 + 11 * 4 + 11, 0, 11 * 13 * 4, {"axis": 0}),
        (
            "QuantizeLinear",
            [(11, 13), weight(), ZERO],
            0,
            4 + 1,
            11 * 13 * 4,
            11 * 13,
            {"outputs": [Typed(UINT8, None)]},
        ),
        (
            "LSTM",
            CELL,
            5 * 2 * 28 * 20,
            28 * 20 * 4,
            5 * 2 * 13 * 4,
            (5 + 1 + 1) * 2 * 7 * 4,
            THREE | {"hidden_size": 7},
        ),
        # Queries, new keys and values, past of five, a length; the caches are written whole.
        (
            "GroupQueryAttention",
            CACHE,
            3 * 2 * 7 * (8 + 8),
            4,
            (48 + 16 + 16 + 40 + 40) * 4 + 4,
            (48 + 56 + 56) * 4,
            THREE | {"domain": MICROSOFT, "num_heads": 3, "kv_num_heads": 1},
        ),
    ],
)
def test_compulsory_bytes_by_hand(op_type, operands, macs, weights, read, written, options):
    work = work_of(op_type, operands, **options)
    assert (work.macs, work.weight_bytes, work.input_bytes, work.output_bytes) == (macs, weights, read, written)


# --- memory -----------------------------------------------------------------------------------------------------------


LONG = {
    "symbols": (("batch", "seq", 8), node("Unsqueeze", ["v", "zero"], ["y"])),
    "numbers": ((10_000, 1_000), node("Concat", ["v", "v"], ["y"], axis=0)),
}
# The peak of this program alone: ru_maxrss would begin with that of the process which forked it.
WATCHED = """
import importlib, pathlib, re, sys
importlib.import_module("02_shapes_flops_bytes").main(sys.argv[1:])
print(re.search(r"VmHWM:\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_a_long_vector_takes_no_memory(tmp_path, name):
    """ONNX's data propagation writes down a dimension for each element of a vector: gigabytes for a flattened image."""
    path, (shape, last) = tmp_path / "model.onnx", LONG[name]
    weights = {"all": ints(-1), "zero": ints(0)}
    onnx.save(model([node("Reshape", ["x", "all"], ["v"]), last], {"x": shape}, {"y": None}, weights), path)
    ran = subprocess.run(
        [sys.executable, "-c", WATCHED, "--quiet", "--model", str(path), "--out", str(tmp_path / "out")],
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-500:]
    assert len(pd.read_csv(tmp_path / "out" / "op_metrics.csv")) == 2
    assert int(ran.stdout) < MOST_MEMORY


# --- attribution ------------------------------------------------------------------------------------------------------


def equal_convolutions():
    """Two convolutions of one size, which no count of MACs tells apart; the second takes the sum and the activation."""
    random = np.random.default_rng(7)
    filters = {name: random.standard_normal((32, 32, 3, 3)).astype(np.float32) for name in ("w0", "w1", "w2")}
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], "first", pads=[1] * 4),
        node("Conv", ["x", "w1"], ["c1"], "second", pads=[1] * 4),
        node("Add", ["c1", "c0"], ["s"], "add"),
        node("Relu", ["s"], ["r"], "relu"),
        node("Conv", ["r", "w2"], ["y"], "third", pads=[1] * 4),
    ]
    return model(nodes, {"x": (1, 32, 11, 13)}, {"y": None}, filters)


def optimized(proto, path, level):
    options = ort.SessionOptions()
    options.graph_optimization_level, options.optimized_model_filepath = level, str(path)
    options.log_severity_level = 3
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(path)
    digests = {
        one.name: hashlib.sha256(numpy_helper.to_array(one).tobytes()).hexdigest() for one in saved.graph.initializer
    }
    return {one.name: [digests.get(name) for name in one.input] for one in saved.graph.node}


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_the_owner_is_the_node_whose_weights_change_with_the_source_node(tmp_path, level):
    proto, level = equal_convolutions(), getattr(ort.GraphOptimizationLevel, level)
    onnx.save(proto, tmp_path / "source.onnx")
    before = optimized(proto, tmp_path / "executed.onnx", level)
    _, source = source_rows_of_file(tmp_path / "source.onnx", {})
    executed, names = load_executed_graph(tmp_path / "executed.onnx", {}), ("first", "second", "third")
    owners = {match.source_node: match.executed_node for match in match_nodes(source, executed, set(names))}
    for name, filters in zip(names, proto.graph.initializer, strict=True):
        changed = onnx.ModelProto()
        changed.CopyFrom(proto)
        [tensor] = [one for one in changed.graph.initializer if one.name == filters.name]
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) + 1, tensor.name))
        after = optimized(changed, tmp_path / "changed.onnx", level)
        assert [key for key in before if before[key] != after[key]] == [owners[name]]
