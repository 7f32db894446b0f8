"""The reader of QNN's CSV: recorded files, a device's and the viewer's form, and files that are damaged."""

import re

import pytest

from common.messages.errors import PipelineError, UnusableValueError
from common.npu.qnn_csv import MOST_BYTES, read_qnn_csv
from common.npu.qnn_profile import DEVICE
from tests.support.profiles.npu_profiles import DATA, HEADER, device_run, root_row, write_csv

NODES = [("Input", 2, 13), ("conv", 17, 0), ("relu", 23, 1009), ("Output", 3, 7)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "profile.csv"


@pytest.mark.parametrize(("name", "node_count"), [("fp16", 6), ("qdq", 7)])
def test_a_recorded_profile(name, node_count):
    profile = read_qnn_csv(DATA / name / "profile.csv")
    text = (DATA / name / "profile.csv").read_text()
    totals = [int(cycles) for cycles in re.findall(r",(\d+),CYCLES,BACKEND,ROOT,", text)]
    assert [run.accelerator_cycles for run in profile.runs] == totals
    assert [sum(run.node_cycles.values()) for run in profile.runs] == totals
    assert (len(profile.runs), len(profile.nodes), profile.is_emulated) == (3, node_count, True)
    assert [run.session_index for run in profile.runs] == [0, 0, 0]


def test_the_source_nodes_of_a_recorded_profile():
    nodes = {node.name: node.source_nodes for node in read_qnn_csv(DATA / "qdq" / "profile.csv").nodes}
    assert nodes["conv_token_1"] == (
        "DequantizeLinear_token_8",
        "w_DequantizeLinear",
        "conv_token_1",
        "y_QuantizeLinear",
    )
    assert nodes["Input"] == ()


def test_a_device_tells_of_the_remote_call(path):
    (run,) = read_qnn_csv(write_csv(path, device_run(NODES))).runs
    times = (run.qnn_execute_us, run.rpc_execute_us, run.qnn_accelerator_us, run.accelerator_us)
    assert times == (12_500, 12_100, 11_700, 11_200)
    assert (run.accelerator_busy_us, run.vtcm_acquire_us, run.power_up_us) == (10_900, 199, 37)
    assert (run.hvx_thread_count, run.origin) == (4, DEVICE)
    assert run.node_cycles == {2: 13, 17: 0, 23: 1009, 3: 7}


def test_an_unknown_time_is_unknown(path):
    nodes = [("Input", 2, 13), ("relu", 23, "UNKNOWN")]
    (run,) = read_qnn_csv(write_csv(path, device_run(nodes, {"RPC (execute) time": "UNKNOWN"}))).runs
    assert (run.rpc_execute_us, run.node_cycles) == (None, {2: 13, 23: None})


def test_the_form_of_the_viewer(path):
    """Lines about the viewer first, spaces after commas, every message EXECUTE, and rows of qnn-net-run."""
    rows = [f"9{row[1:]}" for row in device_run(NODES)]
    viewer = [re.sub(r"^9,\w+", "9,EXECUTE", row).replace(",", ", ", 6) for row in rows]
    netrun = "9, EXECUTE, 13001, US, NETRUN, ROOT, Graph 0: resnet"
    lines = ["Log File Created: today", "SDK 2.50", HEADER.replace(",", ", "), "1, INIT, 5, US, NETRUN, ROOT, init"]
    path.write_text(
        "\r\n".join([*lines, netrun, *viewer, netrun, *viewer, "9, EXECUTE IPS, 76.9, INF/SEC, NETRUN, ROOT, "])
    )
    profile = read_qnn_csv(path)
    assert [run.netrun_us for run in profile.runs] == [13_001, 13_001]
    assert [run.qnn_execute_us for run in profile.runs] == [12_500, 12_500]


@pytest.mark.parametrize("name", ["a,b", 'say "no"', "two\nlines", "é ü", "x:OpId_7 (cycles)", "0"])
@pytest.mark.parametrize("has_sources", [True, False])
def test_names_may_hold_anything(path, name, has_sources):
    """As the provider writes them: nothing is quoted or escaped."""
    rows = device_run([(name, 23, 11)])
    if has_sources:
        rows = [f"{row},{name}" if "OpId_23" in row else f"{row}," for row in rows]
    header = f"{HEADER},ONNX Source Ops" if has_sources else HEADER
    (node,) = read_qnn_csv(write_csv(path, rows, header=header)).nodes
    assert (node.op_id, node.name, node.source_nodes) == (23, name, (name,) if has_sources else ())


@pytest.mark.parametrize("has_sources", [True, False])
def test_a_node_without_a_name_is_called_by_its_id(path, has_sources):
    """QNN inserts such nodes, for example the constant operands of a LayerNormalization."""
    rows = [row.replace("x:OpId", "OpId") for row in device_run([("x", 58, 11), ("norm", 61, 17)])]
    rows = [f"{row}," for row in rows] if has_sources else rows
    header = f"{HEADER},ONNX Source Ops" if has_sources else HEADER
    nodes = read_qnn_csv(write_csv(path, rows, header=header)).nodes
    assert [(node.op_id, node.name) for node in nodes] == [(58, "OpId_58"), (61, "norm")]


def test_sessions_that_append_to_one_file(path):
    finalize = [root_row("QNN (finalize) time", 500, message="FINALIZE")]
    run = device_run(NODES)
    profile = read_qnn_csv(write_csv(path, finalize, run, run, finalize, run))
    assert [run.session_index for run in profile.runs] == [0, 0, 1]


DEVICE_ROWS = (
    "RPC (execute) time",
    "QNN accelerator (execute) time",
    "Accelerator (execute excluding wait) time",
    "Number of HVX threads used",
)


@pytest.mark.parametrize("kept", [*DEVICE_ROWS, ""])
@pytest.mark.parametrize("value", ["7", "UNKNOWN"])
def test_one_row_that_only_a_device_writes_makes_it_a_device(path, kept, value):
    """Windows writes no row of the remote call, and any value may be UNKNOWN."""
    rows = [row for row in device_run(NODES) if row.endswith(kept or ")") or not row.endswith(DEVICE_ROWS)]
    rows = [re.sub(r",\d+,", f",{value},", row, count=1) if row.endswith(DEVICE_ROWS) else row for row in rows]
    profile = read_qnn_csv(write_csv(path, rows))
    assert not profile.is_emulated
    is_told = kept and (value == "7" or not kept.startswith("Number"))
    assert profile.evidence.startswith("the profile has HVX threads" if is_told else "the profile does not say")


@pytest.mark.parametrize("level", ["basic", "detailed"])
def test_only_a_count_of_no_threads_makes_it_the_emulator(path, level):
    rows = [row for row in emulated_run(NODES) if level == "detailed" or "(cycles)" not in row]
    profile = read_qnn_csv(write_csv(path, rows))
    assert (profile.is_emulated, profile.evidence) == (
        True,
        "the profile counts 0 HVX threads and times no remote call",
    )
    assert len(profile.nodes) == (4 if level == "detailed" else 0)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_file_that_a_spreadsheet_saved_again(path, separator):
    """Where a comma is the decimal point it separates by semicolons, quotes what holds them, and fills short rows."""
    rows = [separator.join(row.split(",", 6)) for row in device_run([*NODES[:2], ("a;b", 23, 1009), NODES[3]])]
    rows = [re.sub(r"[^;\t]*a;b.*", lambda match: f'"{match[0]}"', row) for row in rows]
    path.write_text("\r\n".join([f"a viewer{separator * 6}", HEADER.replace(",", separator), *rows, separator * 6]))
    profile = read_qnn_csv(path)
    assert [run.accelerator_cycles for run in profile.runs] == [1029]
    assert [node.name for node in profile.nodes] == ["Input", "conv", "a;b", "Output"]


def test_units_in_small_letters_and_levels_of_other_names(path):
    rows = [
        row.replace(",CYCLES,", ",cycles,").replace(",US,", ",us,").replace("SUB-EVENT", "NODE")
        for row in device_run(NODES)
    ]
    (run,) = read_qnn_csv(write_csv(path, rows)).runs
    assert (run.qnn_execute_us, run.node_cycles) == (12_500, {2: 13, 17: 0, 23: 1009, 3: 7})


def test_quotes_around_a_name_with_commas(path):
    rows = [re.sub(r"a,b.*", lambda match: f'"{match[0]}"', row) for row in device_run([("a,b", 23, 11)])]
    assert [node.name for node in read_qnn_csv(write_csv(path, rows)).nodes] == ["a,b"]


def test_one_of_several_graphs_is_chosen(path):
    """A model that the runtime divided: the runs of its graphs take turns."""
    other = [("Input", 2, 3), ("norm", 17, 5)]
    blocks = [device_run(NODES), device_run(other), device_run(NODES), device_run(other)]
    write_csv(path, *blocks)
    first, second = read_qnn_csv(path, 0), read_qnn_csv(path, 1)
    assert [len(first.runs), len(second.runs)] == [2, 2]
    assert [node.name for node in first.nodes] == ["Input", "conv", "relu", "Output"]
    assert [run.accelerator_cycles for run in second.runs] == [8, 8]
    with pytest.raises(UnusableValueError, match=r"2: .* has 2; count them from 0"):
        read_qnn_csv(path, 2)


def test_the_runs_of_qnn_net_run_are_those_of_the_chosen_graph(path):
    netrun = [
        root_row(f"Graph {index}: g{index}", time, message="EXECUTE", source="NETRUN")
        for index, time in ((0, 7), (1, 11))
    ]
    blocks = [netrun[:1], device_run(NODES), netrun[1:], device_run(NODES[1:])]
    write_csv(path, *blocks)
    assert [read_qnn_csv(path, index).runs[0].netrun_us for index in (0, 1)] == [7, 11]


def emulated_run(nodes):
    """The rows that the emulator writes: no remote call, no thread."""
    return [row for row in device_run(nodes, threads=0) if not row.endswith(DEVICE_ROWS[:3])]


def lines_of_a_run():
    return [HEADER, *device_run(NODES), *device_run(NODES)]


def without(event):
    return [line for line in lines_of_a_run() if not line.endswith(event)]


def mixed():
    first, second = device_run(NODES), device_run([(name, op_id, cycles + 1) for name, op_id, cycles in NODES])
    return [HEADER, *(row for pair in zip(first, second, strict=True) for row in pair)]


DAMAGED = {
    "truncated": (
        lines_of_a_run()[:-3],
        r"ends within a run: no row 'QNN \(execute\) time' from line 15 on; 1 before it are whole",
    ),
    "cut in a line": ([*lines_of_a_run()[:-2], "0,NODE,7,CYC"], r"line 26 is no row of a profile: '0,NODE,7,CYC'"),
    "mixed": (mixed(), r"line 3: the run has 'Number of HVX threads used' already; the rows of two runs are mixed"),
    "a lost node": (without("relu:OpId_23 (cycles)"), r"line 13 took 1,029 cycles, but its nodes took 20;"),
    "a changed node": (
        [line.replace(",1009,", ",1013,") for line in lines_of_a_run()],
        r"line 14 took 1,029 cycles, but its nodes took 1,033; rows are lost or of another run",
    ),
    "cut in the name of the first event": (
        [*lines_of_a_run(), "0,BACKEND,4,COUNT,BACKEND,ROOT,Num"],
        r"ends within a run: no row 'QNN \(execute\) time' from line 28 on; 2 before it are whole",
    ),
    "cut in a timestamp": (
        [*lines_of_a_run(), "0,BACKEND,4,COUNT,BACKEND,ROOT,Number of HVX threads used", "0"],
        r"ends within a run: .* from line 28 on",
    ),
    "no number": ([HEADER, *device_run([("relu", 23, "-5")])], r"line 10: '-5' 'CYCLES' is no number of CYCLES"),
    "another unit": (
        [line.replace("12500,US", "12500,NS") for line in lines_of_a_run()],
        r"line 14: '12500' 'NS' is no number of US",
    ),
    "other nodes": (
        [HEADER, *device_run(NODES), *device_run(NODES[1:]), *device_run(NODES)],
        r"holds runs of 2 graphs \(0: 4 nodes, runs: 2; 1: 3 nodes, runs: 1\), or of one whose rows were lost; "
        r"choose one with <graph>, or record it again",
    ),
    "device and emulator": (
        [HEADER, *device_run(NODES), *emulated_run(NODES)],
        r"holds runs of a device and of the emulator; record each into a file of its own",
    ),
    "no run": ([HEADER], r"holds no run"),
    "no profile": (["executed_node,latency_us", "conv,5"], r"is no profile of QNN \(no header"),
    "empty": ([], r"is no profile of QNN"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_line(path, case):
    lines, message = DAMAGED[case]
    path.write_text("\n".join(lines))
    with pytest.raises(PipelineError, match=message) as error:
        read_qnn_csv(path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(path))


ENCODED = {
    "UTF-16": ("\n".join(lines_of_a_run()).encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "bytes": (b"\xb5\x00\xff", r"is no UTF-8 text \(after line 0\)"),
}


@pytest.mark.parametrize("case", ENCODED)
def test_other_encodings_are_refused(path, case):
    content, message = ENCODED[case]
    path.write_bytes(content)
    with pytest.raises(PipelineError, match=message):
        read_qnn_csv(path)


def test_a_mark_of_utf_8_is_passed_over(path):
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines_of_a_run()).encode())
    assert len(read_qnn_csv(path).runs) == 2


def test_a_huge_file_is_refused_before_it_is_parsed(path):
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(PipelineError, match="is larger than 100,000,000 bytes"):
        read_qnn_csv(path)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(PipelineError, match="is not a file"):
        read_qnn_csv(tmp_path)
    with pytest.raises(PipelineError, match="cannot be read"):
        read_qnn_csv(tmp_path / "none.csv")
