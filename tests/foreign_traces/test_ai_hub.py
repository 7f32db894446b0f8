"""Profiles of Qualcomm AI Hub: times, cycles where there are none, and what can be wrong with them."""

import json

import onnx
import pytest

from common.foreign_traces.programs import recognised
from common.foreign_traces.readers.ai_hub import read_ai_hub_profile
from common.measurements.imported_profile import RecordedSession, imported_layers
from common.messages.errors import PipelineError
from common.onnx_graph.load import load_model
from models.small.tiny import build_tiny_cnn

NAMES = ("_stem_Conv_token_1", "_block_Conv", "_pool_MaxPool_2", "_head_GlobalAveragePool", "_head_Gemm")
RUNS_US = [10003, 4205, 4190]


def layer(name, time_us=0, **more):
    return {"name": name, "type": "Conv2d", "compute_unit": "NPU", "execution_time": time_us, **more}


def profile_of(*layers, **summary):
    known = {"estimated_inference_time": 4200, "all_inference_times": RUNS_US, "first_load_time": 1374293}
    return {"execution_summary": {**known, **summary}, "execution_detail": list(layers)}


TIMED = profile_of(*(layer(name, 10 * place) for place, name in enumerate(NAMES, start=1)))


def written(tmp_path, content):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    return path


def test_layers_have_the_times_of_the_profile_and_runs_those_of_the_summary(tmp_path):
    path = written(tmp_path, TIMED)
    assert recognised(path) == "Qualcomm AI Hub"
    profile = read_ai_hub_profile(path)
    assert [layer.mean_us for layer in profile.layers] == [10, 20, 30, 40, 50]
    assert profile.run_us == tuple(RUNS_US)
    assert profile.run_start_us == (0, 10003, 14208)
    assert profile.is_of_device


def test_cycles_divide_the_run_where_layers_have_no_times(tmp_path):
    layers = [layer("a", execution_cycles=300), layer("b", execution_cycles=100), layer("c")]
    profile = read_ai_hub_profile(written(tmp_path, profile_of(*layers)))
    assert [layer.mean_us for layer in profile.layers] == [3150, 1050, 0]
    assert len(profile.notes) == 1 and "allocation" in profile.notes[0]


def test_the_notes_say_where_layers_ran_and_which_have_no_time(tmp_path):
    layers = [layer("a", 30), layer("b", 10, compute_unit="cpu"), layer("c", None)]
    units, untimed = read_ai_hub_profile(written(tmp_path, profile_of(*layers))).notes
    assert "NPU 75%, CPU 25%" in units
    assert untimed.startswith("1 of 3 layers")


def test_the_names_of_layers_are_those_of_the_model(tmp_path):
    onnx.save(build_tiny_cnn(), tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx", {"batch": 1}).graph
    session = RecordedSession(written(tmp_path, TIMED), None, None, None)
    imported = imported_layers(session, "Qualcomm AI Hub", model)
    summary = imported.latency_summary
    assert (summary["matched_time_share"], summary["matched_contraction_share"]) == (1.0, 1.0)
    assert summary["profiled_median_us"] == 4197.5  # the first, slow run is its warm-up
    assert [row["latency_us"] for row in imported.run_latency] == RUNS_US


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"execution_detail": [], "execution_summary": {}}, "has no execution_detail and execution_summary"),
        (profile_of(layer(3)), "has a layer without a name"),
        (profile_of(layer("a", "fast")), "'fast' as a time"),
        (profile_of(layer("a", -1)), "-1 as a time"),
        (profile_of(layer("a"), layer("b")), "holds no time of a layer"),
        (profile_of(layer("a", execution_cycles=9), layer("b", compute_unit="CPU")), "has layers on CPU without"),
        (profile_of(layer("a", 1), all_inference_times=[1, None]), "as a time"),
    ],
)
def test_a_profile_that_is_none_is_refused_in_a_line(content, problem, tmp_path):
    with pytest.raises(PipelineError, match=problem):
        read_ai_hub_profile(written(tmp_path, content))
