"""Truth 1 with the real runtime: whatever it makes of a model, every microsecond has its source nodes."""

import importlib
import json
import shutil
from functools import cache
from itertools import chain

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest

from common.attribution.contraction_check import contractions
from common.attribution.ownership import attribute
from common.onnx_graph.executed import load_executed_graph
from common.onnx_graph.load import load_model
from common.onnx_graph.reading.naming import expand
from common.onnx_graph.symbols.dimensions import bind_all
from common.runtime.inputs.given import make_feeds
from models.__main__ import BUILDERS
from tests.support.models.half_models import to_half
from tests.support.models.quantized_models import graphs_of, quantize, strip_names
from tests.support.tables.source import source_rows_of_file

profile, count, merge = (
    importlib.import_module(name) for name in ("01_profile_onnx", "02_shapes_flops_bytes", "03_merge_profile_metrics")
)
LEVELS = ("disable", "basic", "extended", "all")
STATIC = ("basic", "extended", "layout", "all")  # what is folded and fused more where every shape is a number
# Model, form and whether its names are gone, as `name[.form][.stripped]`: at which levels it runs.
CASES = {
    "tiny-cnn": LEVELS,
    "tiny-transformer": LEVELS,
    "resnet50": LEVELS,
    "tiny-vit": ("basic", "all"),
    "tiny-vit.qdq": ("basic", "extended", "all"),
    "tiny-vit.qoperator": ("extended", "all"),
    "tiny-vit.dynamic": ("extended",),
    "tiny-bert": ("disable", "extended"),
    "tiny-bert.qdq": ("disable", "all"),
    "tiny-bert.qdq.stripped": ("extended",),
    "tiny-bert.qoperator": ("basic",),
    "tiny-bert.dynamic.stripped": ("basic", "all"),
    "tiny-densenet": ("extended",),
    "tiny-densenet.stripped": ("all",),
    "tiny-densenet.qdq": ("all",),
    "tiny-densenet.qoperator": ("all",),
    "tiny-densenet.dynamic": ("all",),
    "tiny-lstm": ("all",),
    "tiny-loop-nested": ("all",),
    "tiny-scan.stripped": ("basic",),
    "tiny-vit.static": STATIC,
    "tiny-bert.static": STATIC,
    "tiny-transformer.static": STATIC,
    "tiny-cnn.half": ("basic", "all"),
    "tiny-mlp.half": ("extended",),
    "tiny-if": ("all",),
    "tiny-if-loop": ("basic",),
    "tiny-functions": ("all",),
}
# Names that are gone, a layout, a format and two kinds of body; the others are slow.
QUICK = {
    *(("tiny-bert.dynamic.stripped", "all"), ("tiny-transformer.static", "layout"), ("tiny-scan.stripped", "basic")),
    *(("tiny-if-loop", "basic"), ("tiny-cnn.half", "all")),
}
ALL = [(name, level) for name, levels in CASES.items() for level in levels]
SIZES = {"batch": 2, "seq": 5, "N": 1}
LISTS = ("source_nodes", "op_types")
# Nothing but movement, and copies of a node that a quantized tensor has one of for each reader.
MOVEMENT = {"ReorderInput", "ReorderOutput", "Transpose", "Reshape", "Cast", "Split", "Squeeze", "Shape"}
INSERTED = MOVEMENT | {"DequantizeLinear", "QuantizeLinear"}


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """Each model is built once, with its seeded weights."""
    folder = tmp_path_factory.mktemp("models")

    @cache
    def build(name):
        base, *form = name.split(".")
        path = folder / f"{base}.onnx"
        onnx.save(BUILDERS[base](), path)
        for step in form:
            source, path = path, folder / f"{name}.{step}.onnx"
            if step == "stripped":
                onnx.save(strip_names(onnx.load(source)), path)
            elif step == "static":
                onnx.save(_static(onnx.load(source)), path)
            elif step == "half":
                onnx.save(to_half(onnx.load(source)), path)
            else:
                quantize(source, step, path, dimensions=SIZES)
        return path

    return build


def _static(model):
    """The model with every dimension a number."""
    bind_all(model, SIZES)
    return model


@pytest.fixture(scope="session")
def counted(tmp_path_factory, model_file):
    """02 does not depend on the level: once per model."""

    @cache
    def run(name):
        out = tmp_path_factory.mktemp(name)
        path = model_file(name)
        symbols = {
            dim.dim_param
            for value in onnx.load(path, load_external_data=False).graph.input
            for dim in value.type.tensor_type.shape.dim
            if dim.dim_param
        }
        dims = [flag for symbol in sorted(symbols) for flag in ("--dim", f"{symbol}={SIZES[symbol]}")]
        flags = ["--model", str(path), *dims, "--out", str(out), "--quiet"]
        assert count.main(flags) == 0
        return out, flags

    return run


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(case, marks=[] if case in QUICK else [pytest.mark.exhaustive], id="-".join(case)) for case in ALL
    ],
)
def merged(request, tmp_path_factory, counted):
    """The folder of one model at one level, through 01, 02 and 03."""
    name, level = request.param
    tables, flags = counted(name)
    out = tmp_path_factory.mktemp(f"{name}-{level}")
    shutil.copytree(tables, out, dirs_exist_ok=True)
    flags = [*flags[:-3], "--out", str(out), "--quiet"]
    measuring = ["--runs", "5", "--warmup", "1", "--threads", "1", "--optimization", level]
    assert profile.main([*flags, *measuring]) == 0
    assert merge.main(["--out", str(out), "--quiet", "--peak-flops", "1e11", "--mem-bw", "1e10"]) == 0
    return name, level, out


@pytest.fixture
def tables(merged):
    """The tables of that folder, read without this project's readers: (op_roofline, node_map, op_metrics, summary)."""
    out = merged[2]
    roofline, node_map, metrics = (
        pd.read_csv(out / f"{table}.csv", keep_default_na=False, na_values={"macs": ""})
        for table in ("op_roofline", "node_map", "op_metrics")
    )
    for column in LISTS:
        roofline[column] = roofline[column].map(json.loads)
    return roofline, node_map, metrics, json.loads((out / "latency_summary.json").read_text())


@pytest.mark.slow
def test_every_executed_node_has_sources_or_serves_a_node_that_has(tables):
    roofline, _, _, _ = tables
    nodes = roofline[roofline["row_kind"] != "gap"]
    with_sources = set(nodes.loc[nodes["source_nodes"].map(bool), "executed_node"])
    bare = nodes[~nodes["source_nodes"].map(bool)]
    assert set(bare["op_type"]) <= INSERTED
    assert set(bare["layout_of"]) <= with_sources
    assert set(bare["row_kind"]) <= {"inserted"}
    assert set(nodes.loc[nodes["source_nodes"].map(bool), "layout_of"]) == {""}


@pytest.mark.slow
def test_every_source_node_is_mapped_once(tables):
    roofline, node_map, metrics, _ = tables
    assert sorted(node_map["source_node"]) == sorted(metrics["source_node"])
    owned = node_map[node_map["rule"] != "removed"]
    ran = owned["executed_node"].isin(roofline["executed_node"])
    assert sorted(owned.loc[ran, "source_node"]) == sorted(chain.from_iterable(roofline["source_nodes"]))
    in_bodies = set(metrics.loc[metrics["body"] != "", "source_node"])
    assert set(owned.loc[~ran, "source_node"]) <= in_bodies  # of a branch that was not taken
    multiplies = metrics.loc[(metrics["macs"] > 0) | metrics["macs"].isna(), "source_node"]  # unknown: in a branch
    assert len(multiplies) and multiplies.isin(owned["source_node"]).all()


def test_two_contractions_share_no_executed_node(tables):
    """No runtime optimization merges two contractions of these models into one node."""
    roofline, _, metrics, _ = tables
    macs = metrics.set_index("source_node")["macs"]
    assert all(sum(macs[source] > 0 for source in sources) <= 1 for sources in roofline["source_nodes"])


def test_all_traced_time_is_in_the_rows(tables):
    roofline, _, _, summary = tables
    nodes = roofline[roofline["row_kind"] != "gap"]
    owned = nodes["source_nodes"].map(bool) | (nodes["layout_of"] != "")
    assert nodes.loc[owned, "raw_total_us"].sum() == pytest.approx(summary["trace_total_us"], rel=1e-12)
    assert roofline["node_latency_us"].sum() == pytest.approx(summary["p50_us"], abs=1e-6)
    assert roofline["latency_share"].sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.slow
def test_the_traced_time_is_that_of_the_raw_trace(merged, tables):
    """A second way that shares no code: sum the kernel events of the runs after the warm-up run."""
    events = json.loads((merged[2] / "ort_trace.json").read_text())
    if (tables[2]["body"] != "").any():
        return  # events nest: their plain sum counts the bodies twice
    runs = [e for e in events if e.get("name") == "model_run"]
    warm = runs[1:]
    assert len(warm) == tables[3]["profiled_sample_count"]
    kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    spans = [(run["ts"], run["ts"] + run["dur"]) for run in warm]
    inside = sum(e["dur"] for e in kernels if any(start <= e["ts"] <= end for start, end in spans))
    assert inside == pytest.approx(tables[3]["trace_total_us"], rel=1e-12)


def test_no_work_is_lost_or_counted_twice(tables):
    roofline, _, metrics, _ = tables
    counted = roofline["work_source"] == "counted"  # the others' work depends on data, or they are inserted
    assert roofline.loc[counted, "macs"].sum() == metrics["macs"].sum()
    assert roofline["macs"].sum() > 0
    assert metrics["macs"].isna().any() or roofline.loc[~counted, "macs"].sum() == 0


def test_every_chain_ends_at_its_group(tables, merged, model_file):
    """Owned source nodes hang together: each but the first is beside another of its group in the source graph."""
    model, _ = expand(onnx.load(model_file(merged[0]), load_external_data=False))
    nodes = {node.name: node for graph in graphs_of(model.graph) for node in graph.node}
    for sources in tables[0]["source_nodes"]:
        reached, rest = {*sources[:1]}, set(sources[1:])
        while near := {name for name in rest if any(_touch(nodes[name], nodes[other]) for other in reached)}:
            reached |= near
            rest -= near
        assert not rest


def _touch(one, other):
    return bool(set(one.output) & set(other.input) or set(other.output) & set(one.input))


def test_the_stage_itself_finds_nothing_to_object_to(merged):
    """Its own check: what it says of contractions is in the sidecar."""
    notes = json.loads((merged[2] / "op_roofline.meta.json").read_text())["notes"]
    objections = [note for note in notes if "differ" in note or "without" in note or "at most one" in note]
    # Where 8 channels fill a block, the runtime computes a lone BatchNormalization as a convolution, and 03 says so.
    converted = "nodes without MACs run as contractions: "
    others = [note for note in objections if not note.startswith(converted)]
    named = [
        name
        for note in objections
        if note not in others
        for name in note.removeprefix(converted).split("; ")[0].split(", ")
    ]
    assert not others
    assert not [name for name in named if "BatchNormalization" not in name]


def test_executed_macs_are_those_of_the_source_or_of_padded_channels(tables):
    roofline = tables[0]
    known = roofline[(roofline["executed_macs"] != "") & (roofline["macs"] > 0)]
    assert len(known) or (roofline["macs"].fillna(0) == 0).all()
    differs = known[known["executed_macs"].astype(float) != known["macs"]]
    assert set(differs["domain"]) <= {"com.microsoft.nchwc"}
    assert (differs["executed_macs"].astype(float) > differs["macs"]).all()


def test_fused_convolutions_of_resnet50_hold_what_was_fused(merged, tables):
    name, level, _ = merged
    if name != "resnet50":
        return
    kinds = [tuple(types) for types in tables[0]["op_types"] if "Conv" in types]
    assert len(kinds) == 53  # 1 stem + 16 blocks x 3 + 4 projections
    fused = {
        "disable": {("Conv",): 53},
        "basic": {("Conv", "BatchNormalization"): 53},
        # 1 stem + 16 x 2 have a ReLU behind them; 4 projections and 16 last ones do not.
        "extended": {("Conv", "BatchNormalization", "Relu"): 33, ("Conv", "BatchNormalization"): 20},
    }
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    if level == "all":  # the sum runs in the last convolution of a block, or in the projection beside it
        assert counts[("Conv", "BatchNormalization", "Relu")] == 33
        assert counts[("Conv", "BatchNormalization", "Add", "Relu")] == 16
        assert counts[("Conv", "BatchNormalization")] == 4
    else:
        assert counts == fused[level]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-if", "tiny-if-loop"])
def test_what_follows_copes_with_a_branch_that_was_not_taken(tmp_path, model_file, counted, name):
    """Its nodes have a row in node_map and none in op_roofline, and their work is unknown."""
    tables, flags = counted(name)
    shutil.copytree(tables, tmp_path, dirs_exist_ok=True)
    out = ["--out", str(tmp_path), "--quiet"]
    assert profile.main([*flags[:-3], *out, "--runs", "5", "--warmup", "1", "--threads", "1"]) == 0
    assert merge.main([*out, "--peak-flops", "1e11", "--mem-bw", "1e10"]) == 0
    for stage in ("04_critical_path", "05_energy_estimate", "07_fpga_candidates"):
        needs_power = ["--avg-power-w", "17"] if stage.startswith("05") else []
        assert importlib.import_module(stage).main([*out, *needs_power]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_what_the_group_computes_is_what_the_executed_node_computes(tmp_path, model_file, level):
    """A second way that shares no code: both graphs give all their tensors, and they must agree number by number."""
    path = model_file("resnet50")
    saved = tmp_path / "executed.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3  # that a graph optimized for this processor is no good elsewhere is known
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.optimized_model_filepath = str(saved)
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    image = {"input": np.random.default_rng(7).standard_normal((1, 3, 224, 224), dtype=np.float32)}
    source, executed = _all_tensors(onnx.load(path), image), _all_tensors(onnx.load(saved), image)

    (metrics, graph), ran = source_rows_of_file(path, {"N": 1}), load_executed_graph(saved, {"N": 1})
    assert contractions(metrics) == {name for name, node in graph.nodes.items() if node.op_type in ("Conv", "Gemm")}
    owned = attribute(graph, ran, contractions(metrics)).sources
    assert {node.name for node in ran.nodes if node.name not in owned} <= {
        node.name for node in ran.nodes if node.op_type.startswith("Reorder")
    }
    for name, sources in owned.items():
        made, wanted = executed[ran.by_name[name].outputs[0]], source[graph.nodes[sources[-1]].outputs[0]]
        assert any(_close(layout, wanted) for layout in _layouts(made)), (name, sources)
        if len(sources) > 1:  # the comparison tells a group from one that is a node too short
            shorter = source[graph.nodes[sources[-2]].outputs[0]]
            is_same = shorter.shape == wanted.shape and _close(shorter, wanted)
            assert is_same or not any(_close(layout, shorter) for layout in _layouts(made)), (name, sources)


def test_groups_of_a_static_model_compute_what_their_executed_nodes_do(merged, tables, model_file, tmp_path):
    """The same by numbers alone, whatever the layout: what leaves a group is what its executed node writes."""
    name, level, _ = merged
    if not name.endswith("static"):
        return
    path, saved = model_file(name), tmp_path / "executed.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    options.optimized_model_filepath = str(saved)
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    graph = load_model(path, {}).graph
    feeds = make_feeds(graph, {}, 7)
    source, executed = _all_tensors(onnx.load(path), feeds), _all_tensors(onnx.load(saved), feeds)
    ran = load_executed_graph(saved, {})
    heavy = 0
    for row in tables[0][tables[0]["source_nodes"].map(bool)].itertuples():
        written = [out for one in row.source_nodes for out in graph.by_name[one].outputs]
        leaves = [
            out for out in written if out in graph.outputs or {*graph.consumers.get(out, ())} - {*row.source_nodes}
        ]
        made = [np.sort(executed[out], axis=None) for out in ran.by_name[row.executed_node].outputs if out]
        wanted = np.sort(source[leaves[-1]], axis=None)
        is_padded = row.domain.endswith("nchwc")
        assert is_padded or any(_close(values, wanted) for values in made), (row.executed_node, row.source_nodes)
        heavy += row.macs > 0
    assert heavy == (tables[2]["macs"] > 0).sum()


def _close(made, wanted):
    return made.shape == wanted.shape and np.allclose(made, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def _layouts(values):
    """A tensor as it is, and read as the runtime's blocked layout: channels in blocks of 8 or 16, innermost."""
    yield values
    if values.ndim == 4:
        n, c, h, w = values.shape
        for block in (8, 16):
            if c % block == 0:
                yield values.reshape(n, c // block, h, w, block).transpose(0, 1, 4, 2, 3).reshape(n, c, h, w)


def _all_tensors(model, feeds):
    """Every tensor of a graph, run as it is written."""
    returned = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in returned]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, feeds), strict=True))
