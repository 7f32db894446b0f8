"""Mutated profiles of every format: each is read, or refused in one line that names the file."""

import json
import random

import onnx
import pytest

from common.foreign_traces.programs import recognised
from common.measurements.imported_profile import RecordedSession, imported_layers, imported_trace
from common.messages.errors import PipelineError
from common.npu.report import Session, report_of
from common.onnx_graph.load import load_model
from models.small.tiny import build_tiny_cnn
from tests.support.paths import ROOT
from tests.support.profiles.npu_profiles import device_run, qhas_content, write_csv
from tests.support.profiles.tflite_logs import tflite_log

DATA, NPU = ROOT / "tests/foreign_traces/data", ROOT / "tests/npu/data"
VALUES = (None, True, -1, 0, 1.5, 1e400, 10**400, "", "x", "\ud800", [], {}, [[]], [{}], {"a": 1}, [1, "a"], 2**63)
CHARACTERS, WORDS = '0;,"\n\t-e.{}[]é\x00', ("1E72864", "NaN", "UNKNOWN", "-5", "9" * 23)
CASES = 60
LAYERS = (
    "Reformatting CopyNode for Input Tensor 0 to /stem/Conv",
    "/stem/Conv",
    "/block/Conv + /block/Relu",
    "{/pool,/f}",
)
TENSORRT = [
    {"count": 3},
    *({"name": name, "timeMs": 3.0, "averageMs": 1.0, "medianMs": 1.0, "percentage": 25.0} for name in LAYERS),
]
OUTPUT = {"Name": "t", "Dimensions": [2, 3], "Format/Datatype": "FP16"}
INFORMATION = {"Layers": [{"Name": "/stem/Conv", "LayerType": "C", "Outputs": [OUTPUT], "Metadata": ""}, "x"]}
AI_HUB = {
    "execution_summary": {"estimated_inference_time": 900, "all_inference_times": [1000, 900]},
    "execution_detail": [
        {"name": name, "type": "Conv2d", "compute_unit": "NPU", "execution_time": 70, "execution_cycles": 700}
        for name in ("_stem_Conv_token_1", "_block_Conv", "_head_Gemm")
    ],
}
TFLITE = tflite_log([("CONV_2D", f"[{name}]:1", 0.1, 1) for name in ("stem/Conv", "block/Conv", "head/Gemm")])
NODES = (("Input", 1, 0), ("/stem/Conv_token_1_2", 23, 700), ("/block/Conv", 24, 300), ("/head/Gemm", 25, 100))


def places(value, place=()):
    """Where the parts of a document are; of a long list only the first ones."""
    if place:
        yield place
    parts = value.items() if isinstance(value, dict) else enumerate(value[:60]) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*place, key))


def mutated(content, random_):
    """A document with one to four parts replaced, removed or doubled, as JSON."""
    content = json.loads(json.dumps(content))
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        if not (known := [*places(content)]):
            break  # all of it was removed
        *way, last = random_.choice(known)
        holder = content
        for key in way:
            holder = holder[key]
        action = random_.random()
        if action < 0.8:
            holder[last] = random_.choice(VALUES)
        elif action < 0.9:
            del holder[last]
        elif isinstance(holder, list):
            holder.insert(last, holder[last])
    return json.dumps(content).replace("Infinity", "1E72864")


def mutated_text(text, random_):
    for _ in range(random_.choice((1, 2, 5))):
        place, action = random_.randrange(len(text)), random_.random()
        before, after = text[:place], text[place:]
        text = {
            0: before + random_.choice(CHARACTERS) + after[1:],
            1: before + after[random_.randrange(40) :],
            2: before + before[-40:] + after,
            3: before + random_.choice(WORDS) + after,
            4: before or "x",
        }[int(5 * action)]
    return text


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny-cnn.onnx"
    onnx.save(build_tiny_cnn(), path)
    return {"tiny": load_model(path, {"batch": 2}).graph, "pytorch": load_model(DATA / "pytorch/model.onnx", {}).graph}


def brought_in(path, executed, model):
    program, session = recognised(path), RecordedSession(path, executed, 2, None, is_partial=True)
    if program == "ONNX Runtime":
        imported_trace(session, model, {"batch": 2})
    else:
        imported_layers(session, program, model)


def reported(**files):
    report_of([Session(files)], None, {})


def kineto(random_, folder, models):
    name = random_.choice(("1.8.1-steps.json", "1.9.1-legacy.json", "2.2.2-plain.json"))
    (folder / "case").write_text(mutated(json.loads((DATA / "pytorch" / name).read_text()), random_))
    brought_in(folder / "case", None, models["pytorch"])


def onnx_runtime(random_, folder, models):
    recorded = DATA / f"onnxruntime-{random_.choice(('1.10.0', '1.18.1', '1.23.2'))}"
    (folder / "case").write_text(mutated(json.loads((recorded / "trace.json").read_text()), random_))
    brought_in(folder / "case", random_.choice((None, recorded / "optimized.onnx")), models["tiny"])


def tensorrt(random_, folder, models):
    (folder / "case").write_text(mutated(TENSORRT, random_))
    brought_in(folder / "case", None, models["tiny"])


def tensorrt_information(random_, folder, models):
    (folder / "profile").write_text(json.dumps(TENSORRT))
    (folder / "case").write_text(mutated(INFORMATION, random_))
    brought_in(folder / "profile", folder / "case", models["tiny"])


def ai_hub(random_, folder, models):
    (folder / "case").write_text(mutated(AI_HUB, random_))
    brought_in(folder / "case", None, models["tiny"])


def tflite(random_, folder, models):
    (folder / "case").write_text(mutated_text(TFLITE, random_))
    brought_in(folder / "case", None, models["tiny"])


def openvino(random_, folder, models):
    (folder / "case").write_text(mutated_text((DATA / "openvino/detailed.csv").read_text(), random_))
    brought_in(folder / "case", None, models["tiny"])


def openvino_graph(random_, folder, models):
    (folder / "case").write_text(mutated_text((DATA / "openvino/executed.xml").read_text(), random_))
    brought_in(DATA / "openvino/detailed.csv", folder / "case", models["tiny"])


def qnn_csv(random_, folder, models):
    text = write_csv(folder / "whole.csv", device_run(NODES), device_run(NODES)).read_text()
    (folder / "case").write_text(mutated_text(text, random_))
    brought_in(folder / "case", None, models["tiny"])


def qhas(random_, folder, models):
    content = qhas_content()
    content["data"]["qnn_op_instances_nodes"] = {"data": [{"qnn_op": "/block/Conv", "cycles": 701, "dram_read": 11}]}
    (folder / "case").write_text(mutated(content, random_))
    reported(qnn_csv=write_csv(folder / "whole.csv", device_run(NODES)), qhas=folder / "case")


def op_trace(random_, folder, models):
    (folder / "case").write_text(mutated(json.loads((NPU / "fp16/qnn_op_trace.json").read_text()), random_))
    reported(qnn_csv=NPU / "fp16/profile.csv", op_trace=folder / "case")


FORMATS = (
    *(kineto, onnx_runtime, tensorrt, tensorrt_information, openvino, openvino_graph, qnn_csv, qhas, op_trace),
    *(ai_hub, tflite),
)


@pytest.mark.slow
@pytest.mark.parametrize("read", FORMATS, ids=lambda read: read.__name__)
def test_mutated_profiles_are_read_or_refused_in_one_line(read, models, tmp_path):
    outcomes = {"read": 0, "refused": 0}
    for number in range(CASES):
        try:
            read(random.Random(f"{read.__name__} {number}"), tmp_path, models)
        except PipelineError as error:
            outcomes["refused"] += 1
            assert "\n" not in str(error), number
            assert str(error).startswith(str(tmp_path)), number
        else:
            outcomes["read"] += 1
    assert all(outcomes.values()), outcomes


NODE = {"cat": "Node", "name": "a_kernel_time", "ts": 1, "dur": 2, "tid": 1, "args": {"op_name": "Conv"}}
RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 9}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tid": [1]}, "has odd thread"),
        ({"tid": {}}, "has odd thread"),
        ({"ts": 10**400}, "lacks its time"),
        ({"args": {"input_type_shape": 1.5}}, "has odd shapes"),
        ({"args": {"output_type_shape": [{"float": 3}]}}, "has odd shapes"),
        ({"args": {"thread_scheduling_stats": {"main_thread": {"Run": [7]}}}}, "has odd figures of its thread pool"),
        ({"args": {"mem_in_use_peak": []}}, "has odd figures of its memory"),
        ({"name": "\ud800_kernel_time"}, "is no JSON from character"),
    ],
)
def test_a_damaged_event_of_the_runtime(changed, problem, models, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([NODE | changed, RUN]))
    with pytest.raises(PipelineError, match=problem):
        brought_in(path, None, models["tiny"])


@pytest.mark.parametrize("value", ["1E72864", "1e400", "[]", '{"a": 1}', '"\\ud800"'])
def test_a_number_that_is_none_in_a_profile_of_tensorrt(value, models, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(TENSORRT).replace("1.0", value))
    with pytest.raises(PipelineError, match=r"not a time|is no JSON"):
        brought_in(path, None, models["tiny"])
