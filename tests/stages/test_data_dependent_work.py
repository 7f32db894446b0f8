"""Work that data decide, through 01, 02 and 03 with the real runtime: what ran is counted by its shapes, and marked."""

import importlib
import json

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto, helper

from tests.support.models.onnx_models import Typed, model, weight

profile, count, merge = (
    importlib.import_module(name) for name in ("01_profile_onnx", "02_shapes_flops_bytes", "03_merge_profile_metrics")
)
ROWS, CHOSEN, WIDTH, FEATURES = 13, 5, 7, 11
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def merged(tmp_path, capsys):
    """The executed nodes of a model that runs on given inputs, and what 03 printed."""

    def run(proto, **inputs):
        path, out = tmp_path / "model.onnx", tmp_path / "out"
        onnx.save(proto, path)
        given = []
        for name, array in inputs.items():
            np.save(tmp_path / f"{name}.npy", array)
            given += ["--input", f"{name}={tmp_path / name}.npy"]
        common = ["--out", str(out), "--quiet"]
        assert count.main(["--model", str(path), *common]) == 0
        measuring = ["--runs", "5", "--warmup", "1", "--threads", "1", "--idle", "10ms"]
        assert profile.main(["--model", str(path), *common, *measuring, *given]) == 0
        capsys.readouterr()
        assert merge.main(["--out", str(out), "--peak-flops", "1e11", "--mem-bw", "1e10"]) == 0
        roofline = pd.read_csv(out / "op_roofline.csv", keep_default_na=False, na_values={"macs": ""})
        return roofline[roofline["row_kind"] != "gap"].set_index("executed_node"), capsys.readouterr()

    return run


def selection(*tail):
    """The rows of x whose flag is set go through the nodes of the tail, which begins at ``chosen``."""
    nodes = [
        helper.make_node("NonZero", ["flags"], ["found"], name="nonzero"),
        helper.make_node("Squeeze", ["found", "first"], ["rows"], name="squeeze"),
        helper.make_node("Gather", ["x", "rows"], ["chosen"], name="gather", axis=0),
        *tail,
    ]
    inputs = {"x": (ROWS, WIDTH), "flags": Typed(TensorProto.INT64, (ROWS,))}
    weights = {"first": np.array([0]), "w": weight(WIDTH, FEATURES), "b": weight(FEATURES), "v": weight(FEATURES, 3)}
    return model(nodes, inputs, {"y": None}, weights)


def flags():
    return np.array([1] * CHOSEN + [0] * (ROWS - CHOSEN))


@pytest.mark.slow
def test_a_product_of_the_rows_that_data_choose(merged):
    proto = selection(
        helper.make_node("Gemm", ["chosen", "w", "b"], ["h"], name="wide"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "v"], ["y"], name="narrow"),
    )
    nodes, printed = merged(proto, flags=flags())
    wide, narrow = nodes.loc["fused wide"], nodes.loc["narrow"]
    assert (wide["macs"], narrow["macs"]) == (CHOSEN * WIDTH * FEATURES, CHOSEN * FEATURES * 3)
    outputs = CHOSEN * FEATURES
    assert int(wide["flops"]) == 2 * wide["macs"] + 2 * outputs  # one for the bias, one for the Relu
    assert [int(wide[name]) for name in ("weight_bytes", "input_bytes", "output_bytes")] == [
        4 * (WIDTH + 1) * FEATURES,
        4 * CHOSEN * WIDTH,
        4 * outputs,
    ]
    assert set(nodes["work_source"]) == {"counted", "executed"}
    assert wide["bound"] and wide["arithmetic_intensity_flop_per_byte"]
    macs = int(wide["macs"] + narrow["macs"])
    assert f"0 MACs counted from the model's shapes, {macs} (100.0 %) from the shapes that ran" in printed.out
    assert "contractions: 2 of 2 matched, MACs agree for 0, 2 known only by the shapes that ran" in printed.out
    assert "100.0% of the MACs depend on data" in printed.err
    assert "without MACs" not in printed.err


def branch(rows):
    """A graph without inputs that multiplies x by a weight of ``rows`` rows."""
    node = helper.make_node("MatMul", [f"w{rows}", "x"], ["m"], name=f"multiply{rows}")
    return helper.make_graph([node], f"of{rows}", [], [helper.make_tensor_value_info("m", 1, (rows, FEATURES))])


@pytest.mark.slow
@pytest.mark.parametrize("taken", [True, False])
def test_the_branch_that_ran_has_its_work(merged, taken):
    node = helper.make_node("If", ["k"], ["y"], name="if", then_branch=branch(3), else_branch=branch(5))
    inputs = {"x": (WIDTH, FEATURES), "k": Typed(TensorProto.BOOL, ())}
    proto = model([node], inputs, {"y": None}, {"w3": weight(3, WIDTH), "w5": weight(5, WIDTH)})
    nodes, printed = merged(proto, k=np.array(taken))
    macs = (3 if taken else 5) * WIDTH * FEATURES
    assert nodes["macs"].sum() == macs
    assert f"{macs} (100.0 %) from the shapes that ran" in printed.out


@pytest.mark.slow
def test_a_loop_counts_the_passes_that_it_ran(merged):
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["carried", "w"], ["next"], name="step"),
            helper.make_node("Identity", ["go"], ["goes_on"], name="same"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, (3, WIDTH)),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, (3, WIDTH)),
        ],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], name="loop", body=body)
    inputs = {"x": (3, WIDTH), "n": Typed(TensorProto.INT64, ())}
    nodes, _ = merged(model([node], inputs, {"y": None}, {"w": weight(WIDTH, WIDTH)}), n=np.array(17))
    step = nodes[nodes["op_type"] == "MatMul"].iloc[0]
    assert (step["macs"], step["work_source"]) == (17 * 3 * WIDTH * WIDTH, "executed")
    assert json.loads(step["source_nodes"]) == ["step"]


@pytest.mark.slow
def test_a_loop_whose_state_grows_counts_each_pass_by_its_own_shapes(merged):
    """Each of 17 passes adds a row to the state and multiplies all rows."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["carried", "row"], ["grown"], name="grow", axis=0),
            helper.make_node("MatMul", ["grown", "w"], ["product"], name="step"),
            helper.make_node("Identity", ["go"], ["goes_on"], name="same"),
            helper.make_node("ReduceSum", ["product"], ["sum"], name="sum", keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, (None, WIDTH)),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("grown", TensorProto.FLOAT, (None, WIDTH)),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, ()),
        ],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "sums"], name="loop", body=body)
    inputs = {"x": (3, WIDTH), "n": Typed(TensorProto.INT64, ())}
    weights = {"w": weight(WIDTH, FEATURES), "row": weight(1, WIDTH)}
    nodes, printed = merged(model([node], inputs, {"y": None, "sums": None}, weights), n=np.array(17))
    rows = sum(range(4, 4 + 17))
    step = nodes[nodes["op_type"] == "MatMul"].iloc[0]
    assert (step["macs"], step["work_source"]) == (rows * WIDTH * FEATURES, "executed")
    assert int(step["executed_macs"]) == step["macs"]
    assert int(step["output_bytes"]) == 4 * rows * FEATURES
    assert "differ" not in printed.err
