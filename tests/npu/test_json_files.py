"""The readers of QHAS and of the op trace."""

import json

import pytest

from common.messages.errors import PipelineError
from common.npu.op_trace import read_op_trace
from common.npu.qhas import read_qhas
from common.npu.report import Session, report_of
from tests.support.profiles.npu_profiles import DATA, device_run, qhas_content, write_csv, write_qhas


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file.json"


def test_the_figures_of_a_qhas(path):
    qhas = read_qhas(write_qhas(path))
    assert (qhas.inference_us, qhas.execute_us) == (1_361, 1_129)
    assert {resource.timeline_cycles for resource in qhas.resources} == {1_009}
    assert (qhas.dram_read_bytes, qhas.dram_write_bytes, qhas.vtcm_peak_bytes) == (26_634_241, 4_099, 6_619_136)
    assert qhas.busy_share("HMX") == pytest.approx(709 / 1_009)
    assert qhas.busy_share("HVX") == pytest.approx((101 + 211 + 307) / (3 * 1_009))


# In the form of winml-cli's summary of a Snapdragon; the figures are primes.
OPERATORS = {
    "qnn_op_types": {"data": [{"op": "Conv2d", "cycles": 2003, "percent_active_cycles": 61.0, "num_htp_ops": 17}]},
    "qnn_op_instances_nodes": {
        "data": [
            {
                **{"qnn_op": "conv_token_1_2", "qnn_op_type": "Conv2d", "cycles": 701, "percent_active_cycles": 17.0},
                **{"num_dominant_path_cycles_htp_0": 101, "num_dominant_path_cycles_htp_1": 7, "num_htp_ops": 5},
                **{"dram_read": 11, "dram_write": 13, "vtcm_read": 19, "vtcm_write": 23},
            }
        ]
    },
    "htp_op_types": {"data": [{"op": "q::Add.tcm", "cycles": 31, "instances": 3, "vtcm_read": 37}]},
}


def test_the_operators_of_a_qhas(path):
    content = qhas_content()
    content["data"] |= OPERATORS
    path.write_text(json.dumps(content))
    rows = read_qhas(path).operators
    assert [
        (row["npu_operator_kind"], row["npu_operator"], row["npu_cycles"], row["htp_op_count"]) for row in rows
    ] == [
        ("QNN operator type", "Conv2d", 2003, 17),
        ("QNN node", "conv_token_1_2", 701, 5),
        ("HTP operator type", "q::Add.tcm", 31, 3),
    ]
    assert (rows[1]["dominant_path_cycles"], rows[1]["npu_cycles_share"]) == (108, 0.17)
    assert (rows[2]["vtcm_read_bytes"], rows[2]["dominant_path_cycles"]) == (37, None)


def test_a_node_without_a_schematic_has_what_qhas_says_of_it(tmp_path):
    content = qhas_content(total_vtcm_read=41, total_vtcm_write=43, htp_nodes=47)
    content["data"] |= OPERATORS
    qhas = tmp_path / "qhas.json"
    qhas.write_text(json.dumps(content))
    nodes = (("Input", 1, 0), ("conv_token_1_2", 23, 700), ("act", 26, 50))
    files = {"qnn_csv": write_csv(tmp_path / "profile.csv", device_run(nodes)), "qhas": qhas}
    report = report_of([Session(files)], None, {"model": None, "profiling_level": None})
    rows = {row["npu_node"]: row for row in report.tables["npu_nodes"]}
    columns = ("qnn_op_type", "dominant_path_cycles", "htp_op_count", "dram_read_bytes", "vtcm_write_bytes")
    assert [rows["conv_token_1_2"][name] for name in columns] == ["Conv2d", 108, 5, 11, 23]
    assert rows["act"]["dominant_path_cycles"] is rows["act"]["vtcm_read_bytes"] is None
    resources = report.document["resource_utilization"]
    assert [resources[name] for name in ("vtcm_read_bytes", "vtcm_write_bytes", "htp_op_count")] == [41, 43, 47]
    assert len(report.tables["npu_operators"]) == 3


def test_a_qhas_of_another_model_is_refused_unless_it_is_accepted(tmp_path):
    content = qhas_content()
    content["data"] |= OPERATORS
    qhas = tmp_path / "qhas.json"
    qhas.write_text(json.dumps(content))
    files = {"qnn_csv": write_csv(tmp_path / "profile.csv", device_run((("other", 23, 700),))), "qhas": qhas}
    with pytest.raises(PipelineError, match=r"is of another model: nodes with 0\.0% of the cycles"):
        report_of([Session(files)], None, {})
    assert report_of([Session(files)], None, {}, is_partial=True).tables["npu_operators"]


def test_what_a_qhas_lacks_is_unknown(path):
    content = qhas_content()
    content["data"]["htp_overall_summary"]["data"][0] = {"time_us": 5}
    path.write_text(json.dumps(content))
    qhas = read_qhas(path)
    assert (qhas.inference_us, qhas.execute_us, qhas.resources) == (5, None, ())
    assert qhas.busy_share("HMX") is None


def test_threads_of_an_unknown_kind_are_of_no_unit(path):
    """The viewer calls some threads UNK; what they were is not guessed."""
    qhas = read_qhas(write_qhas(path, htp_resources={"data": [{"type": "UNK", "cycles_used": 5}]}))
    assert (qhas.busy_share("HMX"), qhas.busy_share("HVX")) == (None, None)


def test_bytes_are_unknown_where_the_viewer_could_not_classify_the_threads(path):
    """It then counts none at all."""
    threads = {"data": [{"type": "UNK", "tid": 256, "cycles_used": 5}]}
    qhas = read_qhas(write_qhas(path, htp_resources=threads, total_dram_read=0, total_dram_write=0))
    assert (qhas.dram_read_bytes, qhas.dram_write_bytes) == (None, None)
    assert read_qhas(write_qhas(path, total_dram_write=0)).dram_write_bytes == 0


def summary(**changed):
    return qhas_content(**changed)["data"]["htp_overall_summary"]["data"][0]


WRAPPED = {
    "a list": lambda row: {"data": {"htp_overall_summary": [row]}},
    "a row": lambda row: {"data": {"htp_overall_summary": row}},
    "without data": lambda row: {"htp_overall_summary": {"data": [row]}},
    "bare threads": lambda row: {"htp_overall_summary": [{**row, "htp_resources": row["htp_resources"]["data"]}]},
}


@pytest.mark.parametrize("form", WRAPPED)
def test_tables_may_be_wrapped_otherwise(path, form):
    path.write_text(json.dumps(WRAPPED[form](summary())))
    assert read_qhas(path) == read_qhas(write_qhas(path.with_name("q.json")))


def test_several_processors_work_side_by_side(path):
    """Times are those of the slowest one, bytes add up, and threads are busy for a share of all runs."""
    second = summary(time_us=1_367, graph_execute_us=1_103, timeline_cycles=2_003, total_dram_read=3, peak_vtcm_alloc=5)
    path.write_text(json.dumps({"data": {"htp_overall_summary": {"data": [summary(), second]}}}))
    qhas = read_qhas(path)
    assert (qhas.inference_us, qhas.execute_us, qhas.vtcm_peak_bytes) == (1_367, 1_129, 6_619_136)
    assert (qhas.dram_read_bytes, qhas.dram_write_bytes) == (26_634_244, 8_198)
    assert qhas.busy_share("HMX") == pytest.approx(2 * 709 / (1_009 + 2_003))
    assert qhas.busy_share("HVX") == pytest.approx(2 * (101 + 211 + 307) / (3 * 1_009 + 3 * 2_003))


def stated(**changed):
    figures = {"hvx_utilization_percent": 72.5, "hmx_utilization_percent": 65.3}
    return {"resource_utilization": {**figures, "vtcm_peak_usage_kb": 768, "ddr_bandwidth_mbps": 1250.5, **changed}}


def test_a_summary_that_states_shares(path):
    path.write_text(json.dumps(stated(hmx_utilization_percent=None)))
    qhas = read_qhas(path)
    assert (qhas.busy_share("HVX"), qhas.busy_share("HMX")) == (pytest.approx(0.725), None)
    assert (qhas.vtcm_peak_bytes, qhas.bandwidth_mbps, qhas.dram_read_bytes) == (768 * 1024, 1250.5, None)


def test_the_op_trace_of_a_recorded_session():
    trace = read_op_trace(DATA / "qdq" / "qnn_op_trace.json")
    assert trace.soc_models == (57,)
    convolution = trace.nodes["conv_token_1"]
    assert (convolution.qnn_op_type, len(convolution.source_nodes)) == ("Conv2d", 4)
    assert "c" not in convolution.source_nodes  # tensors are left out


REFUSED = {
    "no JSON": ("{", r"is no JSON that can be read"),
    "not a number": (json.dumps(qhas_content(time_us=float("nan"))), r"NaN is no number"),
    "a list": ("[]", r"holds no JSON object"),
    "deep": ("[" * 100_000, r"is no JSON that can be read"),
    "another object": ("{}", r"has neither 'htp_overall_summary' nor 'resource_utilization'"),
    "no objects": (
        json.dumps({"data": {"htp_overall_summary": {"data": [5]}}}),
        r"has no list of objects in 'htp_overall_summary'",
    ),
    "no rows": (json.dumps({"data": {"htp_overall_summary": []}}), r"has no row in 'htp_overall_summary'"),
    "more than all": (json.dumps(stated(hvx_utilization_percent=101)), r"HVX was busy for 101 % of the run"),
    "a negative time": (json.dumps(qhas_content(time_us=-1)), r"time_us is -1, not a number of 0 or more"),
    "a text": (json.dumps(qhas_content(time_us="fast")), r"time_us is 'fast', not a number"),
    "a switch": (json.dumps(qhas_content(time_us=True)), r"time_us is True, not a number"),
    "infinity": (json.dumps(qhas_content()).replace("1361", "1e999"), r"time_us is inf, not a number"),
    "too busy": (json.dumps(qhas_content(timeline_cycles=708)), r"HMX was busy for 709 cycles of a run of 708"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_qhas_is_refused_in_one_line(path, case):
    text, message = REFUSED[case]
    path.write_text(text)
    with pytest.raises(PipelineError, match=message) as error:
        read_qhas(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [{}, {"subgraph_traces": [{}]}, {"subgraph_traces": [{"op_mappings": [{}]}]}])
def test_another_op_trace_is_refused(path, content):
    path.write_text(json.dumps(content))
    with pytest.raises(PipelineError, match="has no list of objects"):
        read_op_trace(path)
