"""Synthetic tables of the stages before 07, for small models and for the real ResNet-50."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import pandas as pd

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.frames import records
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.graphs.source_graph import SourceGraph, build
from common.table_rows import OpEdgesRow

MODEL_ID = "cd" * 32
VIEWS = {"Reshape", "Flatten", "Identity", "Shape"}


@dataclass
class Model:
    """A source graph in the making. Tensors that nobody writes are inputs, or weights if :meth:`weights` says so."""

    sizes: dict[str, int | None] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weight_names: set[str] = field(default_factory=set)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def weights(self, **sizes: int) -> None:
        self.weight_names |= set(sizes)
        self.sizes |= sizes

    def floats(self, *, are_weights: bool = False, **shapes: tuple[int, ...]) -> None:
        """Tensors of float32 by their shapes."""
        self.shapes |= shapes
        self.sizes |= {name: 4 * prod(shape) for name, shape in shapes.items()}
        self.weight_names |= set(shapes) if are_weights else set()

    def add(self, op_type: str, inputs: str, outputs: str, *, name: str = "", **columns: Any) -> str:
        """Append a node; operands and results are words, and the node takes the name of its first result."""
        node = {
            "name": name or f"/{outputs.split(maxsplit=1)[0]}",
            "op_type": op_type,
            "macs": 0,
            "flops": 0,
            **columns,
        }
        self.nodes.append({**node, "inputs": inputs.split(), "outputs": outputs.split()})
        return str(node["name"])

    def edge(self, tensor: str, producer: str, consumer: str, ops: Mapping[str, str]) -> OpEdgesRow:
        size = self.sizes.get(tensor)
        kind = "weight" if tensor in self.weight_names else "activation" if producer else "input"
        return {
            "tensor": tensor,
            "producer": producer,
            "consumer": consumer,
            "dtype": self.dtypes.get(tensor, "float32"),
            "tensor_bytes": size,
            "read_bytes": 0 if ops.get(consumer) in VIEWS else size,
            "written_bytes": 0 if not producer or ops[producer] in VIEWS else size,
            "tensor_kind": kind,
        }

    def edges(self) -> list[OpEdgesRow]:
        ops = {node["name"]: node["op_type"] for node in self.nodes}
        producer = {tensor: node["name"] for node in self.nodes for tensor in node["outputs"]}
        ends = [(tensor, node["name"]) for node in self.nodes for tensor in dict.fromkeys(node["inputs"])]
        ends += [(tensor, "") for tensor in self.outputs]
        return [self.edge(tensor, producer.get(tensor, ""), consumer, ops) for tensor, consumer in ends]

    def graph(self) -> SourceGraph:
        return build({node["name"]: node["op_type"] for node in self.nodes}, self.edges())


@dataclass
class Executed:
    """The executed graph: (name, kind, source nodes, latency µs, energy µJ) in the order of execution."""

    nodes: list[tuple[str, str, list[str], float, float | None]]
    gap_us: float = 0.0
    gap_energy_uj: float | None = 0.0
    static_power_w: float | None = 20.0
    median_ends: tuple[float, float] = (1.0, 1.0)  # of the interval of the median, over the median
    correction_us: tuple[float, float, float] = (0.0, 0.0, 0.0)  # of every node, with its interval
    slow_tenth: float = 1.0  # the 90th percentile over the median
    steady_state: str = "flat"
    notes: tuple[str, ...] = ()  # of the measurement


def edge_row(tensor: str, producer: str, consumer: str, size_bytes: int) -> OpEdgesRow:
    """An activation that both ends move as a whole."""
    return {
        "tensor": tensor,
        "producer": producer,
        "consumer": consumer,
        "dtype": "float32",
        "tensor_bytes": size_bytes,
        "read_bytes": size_bytes,
        "written_bytes": size_bytes,
        "tensor_kind": "activation",
    }


def frame(name: str, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The table of some rows; a cell that a row does not give takes an empty value of the column's kind."""
    empty: dict[str, Callable[[], Any]] = {
        "string": str,
        **dict.fromkeys(("names", "shape", "shapes", "variants"), list),
        "mapping": dict,
        "boolean": bool,
        "integer": lambda: None,
        "number": lambda: None,
    }
    columns = ARTIFACTS[name].columns
    return pd.DataFrame(
        [{column.name: row.get(column.name, empty[column.kind]()) for column in columns} for row in rows],
        columns=[column.name for column in columns],
    )


def metrics(model: Model) -> pd.DataFrame:
    shapes = model.shapes
    rows = [
        {
            "source_node": node["name"],
            "is_counted": True,
            "dtype": "float32",
            "input_shapes": [list(shapes[name]) if name in shapes else None for name in node["inputs"]],
            "output_shapes": [list(shapes[name]) if name in shapes else None for name in node["outputs"]],
            **node,
            "bytes": None,
        }
        for node in model.nodes
    ]
    return frame("op_metrics", rows)


def edges(model: Model) -> pd.DataFrame:
    return frame("op_edges", model.edges())


def profile(executed: Executed) -> pd.DataFrame:
    total_us = sum(node[3] for node in executed.nodes) + executed.gap_us
    rows = [
        {
            "executed_node": name,
            "row_kind": kind,
            "op_type": "Op",
            "source_nodes": sources,
            "node_latency_us": latency,
            "latency_share": latency / total_us,
            "energy_uj": energy,
            "energy_source": "modelled",
        }
        for name, kind, sources, latency, energy in executed.nodes
    ]
    gap = {
        "executed_node": "(gap)",
        "row_kind": "gap",
        "node_latency_us": executed.gap_us,
        "energy_source": "modelled",
        "latency_share": executed.gap_us / total_us,
        "energy_uj": executed.gap_energy_uj,
    }
    return frame("ops_profile", [*rows, gap])


def latencies(executed: Executed) -> pd.DataFrame:
    names = ("correction_us", "correction_low_us", "correction_high_us")
    correction = dict(zip(names, executed.correction_us, strict=True))
    ones = {column.name: 1 for column in ARTIFACTS["op_latency"].columns if column.kind in ("integer", "number")}
    rows = [
        {**ones, "executed_node": name, "op_type": "Op", "corrected_median_us": us, **correction}
        for name, _, _, us, _ in executed.nodes
    ]
    return frame("op_latency", rows)


def latency_summary(executed: Executed) -> dict[str, Any]:
    median = sum(node[3] for node in executed.nodes) + executed.gap_us
    low, high = (median * end for end in executed.median_ends)
    content: dict[str, Any] = {
        column.name: {} if column.kind == "mapping" else 1 for column in ARTIFACTS["latency_summary"].columns
    }
    content |= {"provider": "CPUExecutionProvider", "graph_optimization": "all", "sample_count": 100}
    content |= {"p50_us": median, "p50_low_us": low, "p50_high_us": high, "p90_us": executed.slow_tenth * median}
    return content | {"steady_state": executed.steady_state, "is_alternating": True}


def schedule(executed: Executed) -> pd.DataFrame:
    rows, start = [], 0.0
    for index, (name, _, _, latency, _) in enumerate(executed.nodes):
        times = dict.fromkeys(("earliest_start_us", "latest_start_us", "sequential_start_us"), start)
        start += latency
        times |= dict.fromkeys(("earliest_finish_us", "sequential_finish_us"), start)
        rows.append(
            {
                "executed_node": name,
                "op_type": "Op",
                "execution_index": index,
                "node_latency_us": latency,
                "slack_us": 0.0,
                "is_critical": True,
                **times,
            }
        )
    return frame("op_schedule", rows)


def summary(executed: Executed) -> dict[str, Any]:
    energies = [node[4] for node in executed.nodes] + [executed.gap_energy_uj]
    known = [energy for energy in energies if energy is not None]
    columns = dict.fromkeys(column.name for column in ARTIFACTS["energy_summary"].columns)
    columns |= {"energy_uj": sum(known) if len(known) == len(energies) else None}
    return {
        **columns,
        "energy_source": "modelled",
        "energy_boundary": "",
        "static_power_source": "given",
        "static_power_w": executed.static_power_w,
    }


def small() -> tuple[Model, Executed]:
    """Two 3×3 convolutions with a MaxPool between, a Gemm behind a Flatten; the runtime inserts a reorder."""
    model = Model(outputs=["y"])
    model.floats(x=(1, 16, 61, 67), a=(1, 32, 61, 67), r=(1, 32, 61, 67), p=(1, 32, 30, 33), b=(1, 64, 30, 33))
    model.floats(f=(1, 63_360), y=(1, 7))
    model.floats(are_weights=True, w=(32, 16, 3, 3), v=(64, 32, 3, 3), u=(7, 63_360))
    window = {"kernel_shape": [3, 3], "strides": [1, 1], "groups": 1, "batch_count": 1}
    macs = 61 * 67 * 32 * 16 * 9
    model.add("Conv", "x w", "a", macs=macs, flops=2 * macs, **window, m_count=61 * 67, k_count=144, n_count=32)
    model.add("Relu", "a", "r", flops=61 * 67 * 32)
    model.add("MaxPool", "r", "p", flops=4 * 30 * 33 * 32, kernel_shape=[2, 2], strides=[2, 2])
    macs = 30 * 33 * 64 * 32 * 9
    model.add("Conv", "p v", "b", macs=macs, flops=2 * macs, **window, m_count=30 * 33, k_count=288, n_count=64)
    model.add("Flatten", "b", "f")
    macs = 7 * 63_360
    model.add("Gemm", "f u", "y", macs=macs, flops=2 * macs, batch_count=1, m_count=1, k_count=63_360, n_count=7)
    executed = Executed(
        [
            ("reorder", "inserted", [], 31.0, 1_009.0),
            ("conv_a", "node", ["/a", "/r"], 5_003.0, 300_007.0),
            ("pool", "node", ["/p"], 211.0, 10_007.0),
            ("conv_b", "node", ["/b"], 2_503.0, 150_001.0),
            ("gemm", "node", ["/f", "/y"], 401.0, 20_011.0),
        ],
        gap_us=17.0,
        gap_energy_uj=101.0,
    )
    return model, executed


def write_tables(folder: Path, model: Model, executed: Executed) -> Path:
    """Write what 01 to 05 would have written."""
    mapped = [
        {"executed_node": name, "source_node": source, "rule": "output_tensor"}
        for name, _, sources, _, _ in executed.nodes
        for source in sources
    ]
    stages = {
        "01_profile_onnx.py": {"op_latency": latencies(executed)},
        "02_shapes_flops_bytes.py": {"op_metrics": metrics(model), "op_edges": edges(model)},
        "03_merge_profile_metrics.py": {"node_map": frame("node_map", mapped)},
        "04_critical_path.py": {"op_schedule": schedule(executed)},
        "05_energy_estimate.py": {"ops_profile": profile(executed)},
    }
    for stage, tables in stages.items():
        record = Provenance(stage, stage, model_id=MODEL_ID, model_path="synthetic.onnx")
        record.notes = list(executed.notes) if stage.startswith("01") else []
        with Transaction(folder, record) as transaction:
            for name, table in tables.items():
                transaction.add_table(name, table)
            if stage.startswith("01"):
                transaction.add_document("latency_summary", latency_summary(executed))
            if stage.startswith("05"):
                transaction.add_document("energy_summary", summary(executed))
    return folder


def resnet50() -> Model:
    """The source graph of ``models/classifiers/resnet.py`` at batch 1, with shapes by onnx and MACs by hand."""
    from onnx import numpy_helper, shape_inference  # noqa: F401 (onnx takes a quarter of a second; few tests need it)

    from models.classifiers.resnet import build_resnet50

    proto = build_resnet50(batch=1)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}
    model = Model(weight_names=set(shapes), shapes=shapes)
    for tensor in proto.graph.initializer:
        tensor.ClearField("raw_data")
    inferred = shape_inference.infer_shapes(proto)
    for value in (*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output):
        shapes[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    model.sizes = {name: 4 * prod(shape) for name, shape in shapes.items()}
    for node in proto.graph.node:
        macs, columns = 0, {}
        if node.op_type in ("Conv", "Gemm"):
            weight = shapes[node.input[1]]
            macs = prod(shapes[node.output[0]]) * prod(weight[1:])
            columns = {"kernel_shape": list(weight[2:]), "groups": 1 if node.op_type == "Conv" else None}
            rows = 1 if node.op_type == "Gemm" else prod(shapes[node.output[0]][2:])
            k = prod(weight[1:])
            columns |= {"batch_count": 1, "m_count": rows, "k_count": k, "n_count": weight[0]}
            columns["strides"] = next((list(a.ints) for a in node.attribute if a.name == "strides"), [])
        flops = 2 * macs or prod(shapes[node.output[0]])
        if node.op_type == "MaxPool":
            columns = {"kernel_shape": [3, 3], "strides": [2, 2]}
        model.add(
            node.op_type, " ".join(node.input), " ".join(node.output), name=node.name, macs=macs, flops=flops, **columns
        )
    model.outputs = ["output"]
    return model


def executed_resnet50(model: Model, *, total_us: float = 64_000.0) -> Executed:
    """As the runtime fuses it: a node per convolution with its BatchNorm, Add and Relu; time by MACs."""
    owner: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for node in model.nodes:
        owners = [owner[tensor] for tensor in node["inputs"] if tensor in owner]
        fuses = node["op_type"] in ("BatchNormalization", "Add", "Relu") and owners
        leader = max(owners, key=list(groups).index) if fuses else node["name"]
        groups.setdefault(leader, []).append(node["name"])
        owner |= dict.fromkeys(node["outputs"], leader)
    macs = {node["name"]: node["macs"] for node in model.nodes}
    whole = sum(macs.values())
    nodes = []
    for leader, members in groups.items():
        latency = 0.93 * total_us * sum(macs[name] for name in members) / whole or total_us / 400
        nodes.append((f"{leader}_nchwc", "node", members, latency, 60.0 * latency))
    nodes.insert(1, ("reorder", "inserted", [], total_us / 100, 0.6 * total_us))
    return Executed(nodes, gap_us=total_us / 50, gap_energy_uj=20.0 * total_us / 50)


def upstream_rows(
    model: Model, executed: Executed, mapped: Sequence[tuple[str, str]]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, Any]]]:
    """Return the rows of the tables and the documents that a workload is made of, without files.

    Args:
        model: the source graph.
        executed: what the runtime executed of it.
        mapped: executed node and source node, pair by pair.
    """
    rows = {
        "op_metrics": records(metrics(model)),
        "op_edges": records(edges(model)),
        "node_map": [{"executed_node": name, "source_node": source} for name, source in mapped],
        "op_latency": records(latencies(executed)),
        "ops_profile": records(profile(executed)),
        "op_schedule": records(schedule(executed)),
    }
    return rows, {"latency_summary": latency_summary(executed), "energy_summary": summary(executed)}
