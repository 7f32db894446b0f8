"""The figures: from a device every one with its source, from the emulator no time."""

import json

import pytest

from common.npu.nodes import npu_nodes
from common.npu.qhas import read_qhas
from common.npu.qnn_csv import read_qnn_csv
from common.npu.report import Chip, Session, chip_rows, report_of
from common.npu.schematic import read_schematic
from common.npu.summary_figures import as_document, execution_summary, median_run, resource_utilization
from common.view.trace.npu_tables import npu_report
from tests.support.profiles.npu_profiles import DATA, device_run, root_row, write_csv, write_qhas

NODES = [("relu", 23, 1009)]
TIMES = ("total_inference_time_ms", "htp_execution_time_ms", "overhead_ms", "throughput_fps", "power_up_time_ms")


def device(path, *totals_us):
    blocks = [device_run(NODES, {"QNN (execute) time": total_us}) for total_us in totals_us]
    finalize = [root_row("QNN (finalize) time", 500, message="FINALIZE")]
    return read_qnn_csv(write_csv(path / "p.csv", finalize, *blocks))


def values(section):
    return {name: figure.value for name, figure in section.items()}


def test_times_of_a_device(tmp_path):
    figures = values(execution_summary(device(tmp_path, 12_500)))
    assert (figures["total_inference_time_ms"], figures["htp_execution_time_ms"]) == (12.5, 11.2)
    assert figures["overhead_ms"] == pytest.approx(1.3)
    assert figures["throughput_fps"] == pytest.approx(80)
    assert (figures["vtcm_acquire_time_ms"], figures["power_up_time_ms"], figures["hardware_threads"]) == (
        0.199,
        0.037,
        4,
    )


def test_the_parts_of_the_overhead_add_up(tmp_path):
    figures = values(execution_summary(device(tmp_path, 13_003)))
    parts = [figures[f"overhead_{part}_ms"] for part in ("host", "rpc", "device")]
    assert parts == [pytest.approx(0.903), pytest.approx(0.4), pytest.approx(0.5)]
    assert sum(parts) == pytest.approx(figures["overhead_ms"])


def test_the_first_run_of_a_session_does_not_decide(tmp_path):
    assert median_run(device(tmp_path, 90_000, 13, 17, 11, 19)).qnn_execute_us == 13
    assert median_run(device(tmp_path, 90_000)).qnn_execute_us == 90_000


def test_a_row_that_a_device_lacks_is_named(tmp_path):
    run = [row for row in device_run(NODES) if "RPC" not in row]
    section = execution_summary(read_qnn_csv(write_csv(tmp_path / "p.csv", run)))
    assert section["overhead_rpc_ms"].value is None
    assert section["overhead_rpc_ms"].unavailable == (
        "the profile does not say it (RPC (execute) time - QNN accelerator (execute) time)"
    )


def test_no_time_of_the_emulator_is_a_figure():
    profile = read_qnn_csv(DATA / "fp16" / "profile.csv")
    schematic = read_schematic(DATA / "fp16" / "schematic.bin")
    section = execution_summary(profile)
    assert {figure.value for figure in section.values()} == {None}
    assert all("emulator" in section[name].unavailable for name in TIMES)
    resources = resource_utilization(profile, npu_nodes(profile, schematic, None, {}), schematic, None)
    assert "emulator" in resources["ddr_bandwidth_mbps"].unavailable
    assert resources["hmx_utilization_percent"].unavailable.endswith("; 1 HTP operators use HMX")
    assert resources["dram_write_bytes"].value == 5 * 7 * 11 * 4


def test_utilization_and_bandwidth_of_a_qhas(tmp_path):
    profile, qhas = device(tmp_path, 12_500), read_qhas(write_qhas(tmp_path / "q.json"))
    section = values(resource_utilization(profile, npu_nodes(profile, None, None, {}), None, qhas))
    assert section["hmx_utilization_percent"] == pytest.approx(100 * 709 / 1_009)
    assert section["vtcm_peak_usage_kb"] == 6_464
    assert section["ddr_bandwidth_mbps"] == pytest.approx((26_634_241 + 4_099) / 1_129)
    assert section["dram_read_bytes"] == 26_634_241
    assert section["htp_op_count"] is None


def test_figures_that_a_summary_states(tmp_path):
    path = tmp_path / "q.json"
    path.write_text(
        json.dumps({"resource_utilization": {"hvx_utilization_percent": 72.5, "ddr_bandwidth_mbps": 1250.5}})
    )
    section = resource_utilization(device(tmp_path, 12_500), [], None, read_qhas(path))
    assert (section["hvx_utilization_percent"].value, section["ddr_bandwidth_mbps"].value) == (
        pytest.approx(72.5),
        1250.5,
    )
    assert section["hvx_utilization_percent"].source == section["ddr_bandwidth_mbps"].source == "QHAS: as stated there"
    assert "QHAS has no HMX thread" in section["hmx_utilization_percent"].unavailable


def test_a_profile_without_nodes_tells_of_no_traffic(tmp_path):
    """The level basic times the runs and names no node."""
    rows = [row for row in device_run(NODES) if "(cycles)" not in row]
    profile = read_qnn_csv(write_csv(tmp_path / "p.csv", rows))
    section = resource_utilization(profile, npu_nodes(profile, None, None, {}), None, None)
    assert {figure.value for figure in section.values()} == {None}


def test_bandwidth_is_bytes_over_the_time_of_the_device(tmp_path):
    schematic = read_schematic(DATA / "fp16" / "schematic.bin")
    emulated = read_qnn_csv(DATA / "fp16" / "profile.csv")
    nodes = [(node.name, node.op_id, 1) for node in emulated.nodes]
    profile = read_qnn_csv(write_csv(tmp_path / "p.csv", device_run(nodes)))
    section = resource_utilization(profile, npu_nodes(profile, schematic, None, {}), schematic, None)
    moved = sum(op.dram_read_bytes + op.dram_write_bytes for op in schematic.ops)
    assert section["ddr_bandwidth_mbps"].value == pytest.approx(moved / 11_200)


def test_every_figure_has_a_source_or_a_reason(tmp_path):
    profile = device(tmp_path, 12_500)
    sections = {"execution_summary": execution_summary(profile)}
    sections["resource_utilization"] = resource_utilization(profile, npu_nodes(profile, None, None, {}), None, None)
    document = as_document(sections, is_emulated=False)
    for title in sections:
        assert document["source"][title].keys() | document["unavailable"][title].keys() == document[title].keys()
        assert not document["source"][title].keys() & document["unavailable"][title].keys()
        assert all(document["source"][title].values())
        assert all(document["unavailable"][title].values())


@pytest.mark.parametrize(
    ("times_us", "total_ms", "stated"),
    [
        ((900, 11, 17, 23), 0.017, "of the median of 3 runs (the first one of each session left out: 4 in all)"),
        (
            (900, 11, 17, 23, 31),
            0.017,
            "of the faster of the two middle runs of 4 (the first one of each session left out: 5 in all)",
        ),
        ((7,), 0.007, "of the only run"),
    ],
)
def test_the_source_says_which_run_the_times_are_of(tmp_path, times_us, total_ms, stated):
    runs = (device_run((("conv", 23, 700),), {"QNN (execute) time": time_us}) for time_us in times_us)
    summary = execution_summary(read_qnn_csv(write_csv(tmp_path / "profile.csv", *runs)))
    total = summary["total_inference_time_ms"]
    assert total.value == total_ms
    assert stated in total.source


def test_without_a_schematic_the_number_of_fused_nodes_is_unknown(tmp_path):
    files = {"qnn_csv": write_csv(tmp_path / "profile.csv", device_run((("conv", 23, 700), ("act", 26, 0))))}
    report = report_of([Session(files)], None, {"model": None, "profiling_level": None})
    assert "2 nodes, an unknown number of them fused into others" in npu_report(report.document, report.tables)
    chips = [Chip(number, npu_nodes(read_qnn_csv(files["qnn_csv"]), None, None, {}), {}, None) for number in (57, 69)]
    assert [row["fused_node_count"] for row in chip_rows(chips)] == [None, None]
