"""ONNX's own backend test cases, with every declared shape but those of the inputs removed.

What a case's inputs bind is bound from its data. Each output's shape must be that of the case's real output or unknown;
what is unknown must become equal once the values of the inputs are given.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pandas as pd
import pytest
from onnx import TensorProto, numpy_helper

from common.graphs.graph import Graph
from common.onnx_graph.counts import count_nodes
from common.onnx_graph.load import LoadedModel, load_model
from common.onnx_graph.rows import metrics_row
from common.view.profile.work_text import left_out

pytestmark = pytest.mark.exhaustive
DATA = Path(onnx.backend.test.__file__).parent / "data"
FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")
LIGHT = sorted(DATA.glob("light/*.onnx"))

# Operators of training. A model that is run has none of them.
TRAINING = {"Adagrad", "Adam", "Gradient", "Momentum", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"}
# Operators without a formula: also a file decoder, an ensemble of trees, and bodies that run once per element of a
# sequence.
NOT_COUNTED = TRAINING | {"ImageDecoder", "TreeEnsemble", "FlexAttention", "SequenceMap", "NonMaxSuppression"}


@dataclass
class Case:
    """A model, and what one run of it was given and gave; what is no array (a sequence, an optional) is a list."""

    name: str
    model: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]


@dataclass
class Outcome:
    """What stage 02 says of a case: without and with the values of its inputs."""

    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unknown_with_values: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def node_cases() -> Iterator[Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        inputs, outputs = case.data_sets[0]
        yield Case(case.name, case.model, [array_of(one) for one in inputs], [array_of(one) for one in outputs])


def folder_cases() -> Iterator[Case]:
    for kind in FOLDERS:
        for path in sorted(DATA.glob(f"{kind}/*/model.onnx")):
            proto = onnx.load(path)
            data = path.parent / "test_data_set_0"
            fed = [value for value in proto.graph.input if value.name not in weights_of(proto)]
            inputs = [stored(data / f"input_{i}.pb", one) for i, one in enumerate(fed)]
            outputs = [stored(data / f"output_{i}.pb", one) for i, one in enumerate(proto.graph.output)]
            yield Case(f"{kind}/{path.parent.name}", proto, inputs, outputs)


def light_cases() -> Iterator[Case]:
    """Their inputs are not stored; each has a fixed shape."""
    for path in LIGHT:
        output = stored(path.with_name(f"{path.stem}_output_0.pb"))
        yield Case(f"light/{path.stem}", onnx.load(path), [], [output])


def weights_of(proto: onnx.ModelProto) -> set[str]:
    """Old models list their weights among the inputs."""
    return {tensor.name for tensor in proto.graph.initializer}


def array_of(value: Any) -> Any:
    """A numpy scalar is the tensor of rank 0 that it stands for."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def stored(path: Path, declared: onnx.ValueInfoProto | None = None) -> Any:
    """A tensor of a data set; a list stands for what is none."""
    if declared is not None and declared.type.WhichOneof("value") != "tensor_type":
        return []
    proto = TensorProto()
    proto.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(proto)


def undeclared(proto: onnx.ModelProto) -> bytes:
    """The model without what it says of the shapes of its results."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return bare.SerializeToString()


def fed_arrays(case: Case) -> list[tuple[onnx.ValueInfoProto, np.ndarray]]:
    fed = [value for value in case.model.graph.input if value.name not in weights_of(case.model)]
    return [(value, one) for value, one in zip(fed, case.inputs, strict=False) if isinstance(one, np.ndarray)]


def bindings(case: Case) -> dict[str, int]:
    """The named dimensions, from the data (a sequence's are no dimensions of the model)."""
    found: dict[str, int] = {}
    for value, array in fed_arrays(case):
        dims = zip(value.type.tensor_type.shape.dim, array.shape, strict=False)
        found |= {dim.dim_param: size for dim, size in dims if dim.dim_param}
        if value.name in ("nonpad_kv_seqlen", "write_indices"):  # how much of a cache is valid is a dimension as well
            found[value.name] = int(array.max())
    return found


def load(path: Path, case: Case, *, with_values: bool) -> LoadedModel:
    values = {value.name: array for value, array in fed_arrays(case)} if with_values else {}
    return load_model(path, {}, bindings(case), values=values)


def compare(graph: Graph, case: Case) -> tuple[list[str], list[str]]:
    """Outputs of which the shape is wrong, and those of which it is unknown."""
    wrong, unknown = [], []
    for output, real in zip(case.model.graph.output, case.outputs, strict=True):
        if not isinstance(real, np.ndarray):
            continue
        shape = graph.tensors[output.name].shape
        dims = (None,) * real.ndim if shape is None else shape
        text = f"{case.name} {output.name} {shape}, not {real.shape}"
        if len(dims) != real.ndim or any(dim not in (None, size) for dim, size in zip(dims, real.shape, strict=True)):
            wrong.append(text)
        elif None in dims:
            unknown.append(text)
    return wrong, unknown


def examine(path: Path, case: Case) -> Outcome:
    """Everything that 02 does with a model but writing its tables."""
    outcome = Outcome()
    path.write_bytes(undeclared(case.model))
    for with_values in (False, True):
        try:
            loaded = load(path, case, with_values=with_values)
            counts = count_nodes(loaded.graph, loaded.bounds)
            outcome.rows += [metrics_row(loaded, found) for found in counts]
        except Exception as error:
            outcome.failed.append(f"{case.name}: {error!r}")
            return outcome
        wrong, unknown = compare(loaded.graph, case)
        outcome.wrong += wrong
        (outcome.unknown_with_values if with_values else outcome.unknown).extend(unknown)
    return outcome


@pytest.fixture(scope="module")
def node_outcomes(tmp_path_factory):
    path = tmp_path_factory.mktemp("node") / "model.onnx"
    return {case.name: examine(path, case) for case in node_cases()}


@pytest.fixture(scope="module")
def model_outcomes(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders") / "model.onnx"
    return {case.name: examine(path, case) for case in (*folder_cases(), *light_cases())}


@pytest.fixture(scope="module")
def outcomes(node_outcomes, model_outcomes):
    return {**node_outcomes, **model_outcomes}


@pytest.fixture(scope="module")
def rows(outcomes):
    return [row for outcome in outcomes.values() for row in outcome.rows]


@pytest.fixture(scope="module")
def metrics(rows):
    return pd.DataFrame(rows)


def test_nothing_fails(outcomes):
    assert [text for outcome in outcomes.values() for text in outcome.failed] == []


def test_no_shape_is_wrong(outcomes):
    assert [text for outcome in outcomes.values() for text in outcome.wrong] == []


def test_the_values_of_the_inputs_make_every_shape_known(outcomes):
    assert [text for outcome in outcomes.values() for text in outcome.unknown_with_values] == []


def test_every_operator_is_counted_or_listed(rows, metrics):
    bare = metrics[~metrics["is_counted"]]
    assert set(bare["op_type"]) <= NOT_COUNTED
    assert bare[["macs", "flops"]].isna().all(axis=None)
    notes = [note for note in left_out(rows, ()) if note.startswith("no formula counts the work of ")]
    assert len(notes) == (0 if bare.empty else 1)
    assert all(f"{op_type} (" in notes[0] for op_type in set(bare["op_type"]))


def test_what_is_unknown_is_empty_and_listed(rows, metrics):
    unknown = metrics[metrics["flops"].isna() & metrics["is_counted"]]
    listed = " ".join(note for note in left_out(rows, ()) if "depend" in note)
    assert len(unknown) > 0
    assert [op_type for op_type in set(unknown["op_type"]) if f" {op_type} (" not in listed] == []


def test_the_tally(node_outcomes, model_outcomes, metrics, capsys):
    outcomes = [*node_outcomes.values(), *model_outcomes.values()]
    exact = sum(not (outcome.unknown or outcome.wrong or outcome.failed) for outcome in outcomes)
    settled = sum(bool(outcome.unknown) and not outcome.unknown_with_values for outcome in outcomes)
    bare = Counter(metrics.loc[~metrics["is_counted"], "op_type"])
    with capsys.disabled():
        print(
            f"\nbackend cases: {len(node_outcomes):,} node + {len(model_outcomes)} models; {exact:,} exact, "
            f"{len(outcomes) - exact} unknown by data, {settled} of these exact with --input; "
            f"not counted: {', '.join(sorted(bare))}"
        )
    assert len(node_outcomes) > 1800
    assert len(model_outcomes) > 100
    assert exact > 0.8 * len(outcomes)
    assert settled > 300
