"""One check for reading and writing: columns, order, kinds, ranges, keys."""

import numpy as np
import pandas as pd
import pytest

from common.artifacts.catalogue import ARTIFACTS, Artifact
from common.artifacts.checks.schema import conform, decode_cells, encode_cells, schema
from common.artifacts.columns import Column
from common.messages.errors import PipelineError


def edges(**changes):
    frame = {"tensor": ["a", "b"], "producer": ["", "x"], "consumer": ["x", ""], "tensor_bytes": [3, None]}
    return pd.DataFrame({**frame, **changes})


def runs(**changes):
    frame = {"is_profiled": [True], "run_index": [0], "is_warmup": [False], "start_us": [0.0], "latency_us": [7.0]}
    return pd.DataFrame({**frame, **changes})


def test_columns_come_back_in_their_order_and_kinds():
    frame = conform("executed_edges", edges()[["tensor_bytes", "consumer", "tensor", "producer"]])
    assert list(frame.columns) == ["tensor", "producer", "consumer", "tensor_bytes"]
    assert frame["tensor_bytes"].dtype == "Int64"
    assert frame["tensor_bytes"].isna().tolist() == [False, True]
    assert frame["producer"].tolist() == ["", "x"]


def test_an_unknown_text_is_an_empty_one():
    frame = conform("executed_edges", edges(producer=[None, np.nan], tensor=["a", "b"]))
    assert frame["producer"].tolist() == ["", ""]


def test_numbers_in_a_text_column_stay_text():
    """Networks name their tensors 1, 2, 3."""
    assert conform("executed_edges", edges(tensor=[1, 2]))["tensor"].tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "frame", "message"),
    [
        ("executed_edges", edges().drop(columns="consumer"), r"the table lacks consumer$"),
        ("executed_edges", edges(extra=[1, 2]), r"the table does not know extra$"),
        ("executed_edges", edges(extra=1).drop(columns="tensor"), r"lacks tensor and does not know extra"),
        (
            "executed_edges",
            edges(**{f"more{index}": 1 for index in range(7)}),
            r"does not know more0, more1, more2, more3, more4 and 2 more$",
        ),
        (
            "executed_edges",
            edges(tensor_bytes=[3, -5]),
            r"column tensor_bytes: -5 is not at least 0$",
        ),
        ("executed_edges", edges(tensor_bytes=[3, 5.5]), r"column tensor_bytes is not of kind integer"),
        ("executed_edges", edges(tensor_bytes=[3, 2**70]), r"column tensor_bytes is not of kind integer"),
        ("executed_edges", edges(tensor_bytes=[3, "many"]), r"column tensor_bytes is not of kind integer"),
        ("executed_edges", edges(tensor="a", producer="p", consumer="c"), r"key tensor, producer, consumer: .* twice"),
        ("run_latency", runs(latency_us=[float("inf")]), r"column latency_us: inf is not a finite number"),
        ("run_latency", runs(latency_us=[float("nan")]), r"column latency_us: a cell is empty$"),
        ("run_latency", runs(latency_us=["fast"]), r"column latency_us is not of kind number"),
        ("run_latency", runs(is_warmup=["maybe"]), r"column is_warmup is not of kind boolean \('maybe' is neither"),
        ("run_latency", runs(is_warmup=[None]), r"column is_warmup is not of kind boolean"),
        ("run_latency", runs(run_index=[None]), r"column run_index: a cell is empty$"),
    ],
)
def test_what_does_not_conform(name, frame, message):
    with pytest.raises(PipelineError, match=rf"^{name}\.csv: .*{message}"):
        conform(name, frame)


def test_one_of_the_allowed_words():
    frame = pd.DataFrame({"executed_node": ["a"], "source_node": ["b"], "rule": ["guess"]})
    with pytest.raises(PipelineError, match=r"node_map\.csv: column rule: 'guess' is not one of nchwc_name, "):
        conform("node_map", frame)
    assert len(conform("node_map", frame.assign(rule="removed"))) == 1


def test_an_empty_table_has_its_kinds():
    frame = conform("run_latency", pd.DataFrame(columns=[column.name for column in ARTIFACTS["run_latency"].columns]))
    assert len(frame) == 0
    assert [str(kind) for kind in frame.dtypes] == ["bool", "Int64", "bool", "float64", "float64"]


def test_lists_are_json_in_a_cell():
    columns = {column.name: [None] for column in ARTIFACTS["op_metrics"].columns}
    shapes = [[[3, "N"], [], None]]
    frame = pd.DataFrame(
        {**columns, "input_shapes": shapes, "output_shapes": [[]], "kernel_shape": [[]], "strides": [[]]}
    )
    encoded = encode_cells("op_metrics", frame)
    assert encoded["input_shapes"].tolist() == ['[[3,"N"],[],null]']
    assert decode_cells("op_metrics", encoded)["input_shapes"].tolist() == shapes


def test_a_list_cell_that_is_no_json():
    with pytest.raises(PipelineError, match=r"column kernel_shape holds a cell that is not JSON"):
        decode_cells("op_metrics", pd.DataFrame({"kernel_shape": ["3x3"]}))


def test_a_cell_is_encoded_as_itself_and_not_as_an_equal_one():
    """1, 1.0 and True are one key of a dict, and three texts of JSON."""
    names = {column.name: [None] * 4 for column in ARTIFACTS["op_metrics"].columns}
    cells = [[1], [1.0], [True], (1,)]
    encoded = encode_cells("op_metrics", pd.DataFrame({**names, "strides": cells, "kernel_shape": cells}))
    assert encoded["strides"].tolist() == ["[1]", "[1.0]", "[true]", "[1]"]


@pytest.fixture
def settings_table(monkeypatch):
    """A table with a mapping in each row."""
    columns = (Column("item", "string", ""), Column("settings", "mapping", ""))
    monkeypatch.setitem(ARTIFACTS, "settings", Artifact("settings", "settings.csv", "table", "", columns, ("item",)))
    yield
    schema.cache_clear()


@pytest.mark.usefixtures("settings_table")
def test_mappings_are_json_in_a_cell():
    cells = [{"pads": [1, 2], "mode": "nearest"}, {}]
    frame = conform("settings", pd.DataFrame({"item": ["a", "b"], "settings": cells}))
    encoded = encode_cells("settings", frame)
    assert encoded["settings"].tolist() == ['{"pads":[1,2],"mode":"nearest"}', "{}"]
    assert decode_cells("settings", encoded)["settings"].tolist() == cells


@pytest.mark.usefixtures("settings_table")
@pytest.mark.parametrize("cell", [None, [1], "{}", 3, {1: "a number as the key"}])
def test_only_a_mapping_from_names_is_a_mapping(cell):
    with pytest.raises(PipelineError, match=r"settings\.csv: column settings is not of kind mapping"):
        conform("settings", pd.DataFrame({"item": ["a"], "settings": [cell]}))


@pytest.mark.usefixtures("settings_table")
def test_a_mapping_cell_that_is_no_json():
    with pytest.raises(PipelineError, match=r"column settings holds a cell that is not JSON"):
        decode_cells("settings", pd.DataFrame({"settings": ["{pads"]}))
