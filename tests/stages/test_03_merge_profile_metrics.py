"""Stage 03 through its command line, on tables as 01 and 02 would write them, all of them small primes.

source:    x[7,11] -- MatMul(w[11,13]) -- product -- Relu -- out[7,13]
executed:  x -- reorder -- blocked -- fused(w) -- out, and where wanted `lonely -- z`, which touches nothing
"""

import importlib
import json

import onnx
import pandas as pd
import pytest
from onnx import helper

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.artifacts.transaction import Transaction
from common.messages.errors import CommandLineError, PipelineError, UpstreamError
from tests.support.models.onnx_models import model, weight
from tests.support.processes.command_lines import run_stage
from tests.support.tables.energy import MODEL_ID, host_ceilings, latency_summary, provenance

stage = importlib.import_module("03_merge_profile_metrics")
CPU = "synthetic"
BOTH = ("--peak-flops", "1e9", "--mem-bw", "1e8")
X, W, OUT = 4 * 7 * 11, 4 * 11 * 13, 4 * 7 * 13  # bytes: 308, 572, 364
MACS = 7 * 11 * 13
FLOPS = 2 * MACS + 7 * 13  # and one for each element of the Relu
FUSED_US, REORDER_US, P50_US = 13.0, 5.0, 23.0


pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "tables"
    write_profile(folder)
    write_counts(folder)
    return folder


def ones(table):
    empty = {"names": [], "shape": [], "shapes": [], "variants": [], "mapping": {}}
    return {column.name: empty.get(column.kind, 1) for column in ARTIFACTS[table].columns}


def timed(name, op_type, latency_us, total_us, shape, index):
    texts = {"executed_node": name, "op_type": op_type, "domain": "", "provider": "CPUExecutionProvider"}
    flags = {"uses_thread_pool": True, "is_correction_dominated": False, "execution_index": index}
    traced = {"output_shapes": [shape], "output_dtypes": ["float32"], "raw_total_us": total_us}
    return ones("op_latency") | texts | flags | traced | {"corrected_median_us": latency_us}


def write_profile(folder, *, lonely_total_us=0.0, p50_us=P50_US, threads=2, fused="FusedMatMul"):
    """What 01 writes; with a node that touches no other where it has a time."""
    nodes = [
        helper.make_node("ReorderInput", ["x"], ["blocked"], name="reorder", domain="com.microsoft.nchwc"),
        helper.make_node(fused, ["blocked", "w"], ["out"], name="fused", domain="com.microsoft"),
    ]
    rows = [
        timed("reorder", "ReorderInput", REORDER_US, 53.0, [7, 11], 0),
        timed("fused", fused, FUSED_US, 131.0, [7, 13], 1),
    ]
    if lonely_total_us:
        nodes.append(helper.make_node("RandomNormal", [], ["z"], name="lonely", shape=[2]))
        rows.append(timed("lonely", "RandomNormal", 0.0, lonely_total_us, [2], 2))
    executed = model(nodes, {"x": (7, 11)}, {"out": (7, 13)}, {"w": weight(11, 13)})
    record = provenance("01_profile_onnx.py")
    record.host = {"cpu_model": CPU}
    total_us = sum(row["raw_total_us"] for row in rows)
    with Transaction(folder, record) as transaction:
        transaction.add_bytes("executed_graph", executed.SerializeToString())
        transaction.add_table("op_latency", pd.DataFrame(rows))
        transaction.add_document(
            "latency_summary", latency_summary(p50_us=p50_us, threads=threads, trace_total_us=total_us)
        )


def write_counts(folder, *, model_id=MODEL_ID, macs=MACS):
    """What 02 writes."""
    metrics = [
        ones("op_metrics")
        | {"source_node": name, "op_type": op_type, "domain": "", "model_part": "", "dtype": "float32"}
        | counts
        for name, op_type, counts in (
            ("multiply", "MatMul", {"macs": macs, "flops": 2 * macs, "is_counted": True}),
            ("relu", "Relu", {"macs": 0, "flops": 7 * 13, "is_counted": True}),
        )
    ]
    edges = [
        ("x", "", "multiply", X, 0, "input"),
        ("w", "", "multiply", W, 0, "weight"),
        ("product", "multiply", "relu", OUT, OUT, "activation"),
        ("out", "relu", "", OUT, OUT, "output"),
    ]
    rows = [
        {"tensor": tensor, "producer": producer, "consumer": consumer, "tensor_bytes": size, "read_bytes": size}
        | {"written_bytes": written, "dtype": "float32", "tensor_kind": kind}
        for tensor, producer, consumer, size, written, kind in edges
    ]
    with Transaction(folder, provenance("02_shapes_flops_bytes.py", model_id=model_id)) as transaction:
        transaction.add_table("op_metrics", pd.DataFrame(metrics))
        transaction.add_table("op_edges", pd.DataFrame(rows))


def write_ceilings(folder, **changes):
    with Transaction(folder, provenance("00_host_ceilings.py", model_id="")) as transaction:
        transaction.add_document("host_ceilings", host_ceilings(cpu_model=CPU, **changes))
    return folder / "host_ceilings.json"


def merged(out, *flags):
    assert stage.main(["--out", str(out), *flags]) == 0
    return pd.read_csv(out / "op_roofline.csv", index_col="executed_node", keep_default_na=False)


def number(text):
    return float(text) if text != "" else None


# --- the tables -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fused_node_has_the_work_and_the_traffic_of_its_group(out):
    row = merged(out, *BOTH).loc["fused"]
    assert json.loads(row["source_nodes"]) == ["multiply", "relu"]
    assert json.loads(row["op_types"]) == ["MatMul", "Relu"]
    assert (row["row_kind"], row["layout_of"], row["dtype"], row["op_type"]) == ("node", "", "float32", "FusedMatMul")
    assert [number(row[key]) for key in ("macs", "flops")] == [1001, 2093]
    moved = [number(row[key]) for key in ("weight_bytes", "input_bytes", "output_bytes", "bytes")]
    assert moved == [572, 308, 364, 1244]  # what lies between MatMul and Relu is not moved
    assert number(row["attained_flop_per_s"]) == pytest.approx(2093 / 13e-6)
    assert number(row["arithmetic_intensity_flop_per_byte"]) == pytest.approx(2093 / 1244)  # ridge at 10
    assert number(row["attainable_flop_per_s"]) == pytest.approx(1e8 * 2093 / 1244)
    assert number(row["roof_share"]) == pytest.approx(1244 / 13e-6 / 1e8)
    assert (row["bound"], number(row["latency_share"])) == ("memory", pytest.approx(13 / 23))


@pytest.mark.slow
def test_an_inserted_node_moves_its_operands_and_serves_its_reader(out):
    row = merged(out, *BOTH).loc["reorder"]
    assert (row["row_kind"], row["layout_of"], row["source_nodes"]) == ("inserted", "fused", "[]")
    assert [number(row[key]) for key in ("macs", "flops", "bytes")] == [0, 0, 2 * X]
    assert number(row["roof_share"]) == pytest.approx(2 * X / 5e-6 / 1e8)


@pytest.mark.slow
@pytest.mark.parametrize(("p50_us", "gap_us"), [(P50_US, 5.0), (17.0, -1.0)])
def test_the_gap_is_what_is_left_of_the_median(out, p50_us, gap_us):
    write_profile(out, p50_us=p50_us)
    table = merged(out, *BOTH)
    row = table.loc["(gap)"]
    assert (row["row_kind"], row["node_latency_us"], row["flops"], row["bytes"]) == ("gap", gap_us, "", "")
    assert row["latency_share"] == pytest.approx(gap_us / p50_us)
    assert table["node_latency_us"].sum() == p50_us
    assert table.index[-1] == "(gap)"


@pytest.mark.slow
def test_node_map_and_executed_edges(out):
    merged(out, *BOTH)
    node_map = pd.read_csv(out / "node_map.csv")
    assert node_map.to_numpy().tolist() == [["fused", "multiply", "fill_upstream"], ["fused", "relu", "output_tensor"]]
    edges = pd.read_csv(out / "executed_edges.csv", keep_default_na=False)
    assert sorted(edges.to_numpy().tolist()) == [
        ["blocked", "reorder", "fused", X],  # the file does not declare it: the trace saw its shape
        ["out", "fused", "", OUT],
        ["w", "", "fused", W],
        ["x", "", "reorder", X],
    ]


@pytest.mark.slow
def test_a_share_above_one_is_kept_and_marked(out):
    table = merged(out, "--peak-flops", "1e6", "--mem-bw", "1e12")
    assert number(table.loc["fused", "roof_share"]) == pytest.approx(2093 / 13)  # 2093 / 13 µs over 1e6
    assert table["is_above_roof"].to_dict() == {"reorder": False, "fused": True, "(gap)": False}
    assert table["roof_share_reason"].to_dict() == {"reorder": "", "fused": "ceiling", "(gap)": ""}


@pytest.mark.slow
def test_the_printed_table(out, capsys):
    merged(out, *BOTH)
    printed, said = capsys.readouterr()
    lines = printed.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "ceilings 1.00 GFLOP/s, 100 MB/s, ridge 10.0 FLOP/byte"
    assert [line.split()[0] for line in lines[2:6]] == ["FusedMatMul", "ReorderInput", "(gap)", "total"]
    assert "100.0 %" in lines[5]
    assert lines[6].startswith("coverage 100.00 %")
    assert f"wrote {out / 'op_roofline.csv'} (" in said and ") and 2 more files\n" in said


# --- coverage -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_coverage_below_the_limit_fails_and_writes_nothing(out):
    write_profile(out, lonely_total_us=1.0)  # 184 of 185
    with pytest.raises(PipelineError, match=r"op_latency.csv: only 99\.46% of its time has an owner; ") as caught:
        stage.main(["--out", str(out), *BOTH])
    assert caught.value.exit_code == 1
    assert not (out / "op_roofline.csv").exists()


@pytest.mark.slow
def test_work_that_the_executed_shapes_deny_fails_and_writes_nothing(out):
    write_counts(out, macs=3 * MACS)
    with pytest.raises(
        PipelineError, match=r"op_latency\.csv: the shapes that ran confirm only 0% of the matched MACs"
    ):
        stage.main(["--out", str(out), *BOTH])
    assert not (out / "op_roofline.csv").exists()


@pytest.mark.slow
def test_coverage_above_the_limit_passes_and_is_printed(out, capsys):
    write_profile(out, lonely_total_us=0.125)  # 184 of 184.125
    assert merged(out, *BOTH).loc["lonely", "layout_of"] == ""
    assert "coverage 99.93 %" in capsys.readouterr().out


# --- ceilings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", ["peak_flop_per_s", "memory_bytes_per_s", "fp16_flop_per_s"])
def test_a_host_computes_at_some_rate(tmp_path, rate):
    with pytest.raises(PipelineError, match=rf"host_ceilings\.json: column {rate}: 0(\.0)? is not at least 1"):
        write_ceilings(tmp_path, **{rate: 0.0})


@pytest.mark.slow
def test_both_given_need_no_file(out):
    merged(out, *BOTH)
    assert "host_ceilings.json" not in json.loads((out / "op_roofline.meta.json").read_text())["reads"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "peak", "bandwidth"),
    [
        ((), 1e3, 7e2),
        (("--peak-flops", "1.1e3"), 1.1e3, 7e2),
        (("--mem-bw", "1.3e2"), 1e3, 1.3e2),
    ],
)
def test_what_is_not_given_comes_from_the_file(out, flags, peak, bandwidth):
    path = write_ceilings(out, peak_flop_per_s=1e3, memory_bytes_per_s=7e2)
    row = merged(out, *flags).loc["fused"]
    assert number(row["attainable_flop_per_s"]) == pytest.approx(min(peak, bandwidth * 2093 / 1244))
    assert path.name in json.loads((out / "op_roofline.meta.json").read_text())["reads"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "int8", "roof", "attainable", "is_noted"),
    [
        ((), 4e3, "int8", 4e3, False),
        ((), None, "fp32", 1e3, True),
        (("--peak-flops", "1.1e3"), 4e3, "given", 1.1e3, False),
    ],
)
def test_a_quantized_product_is_judged_by_the_int8_roof(out, capsys, flags, int8, roof, attainable, is_noted):
    write_profile(out, fused="MatMulIntegerToFloat")
    write_ceilings(out, peak_flop_per_s=1e3, memory_bytes_per_s=1e6, int8_op_per_s=int8)
    table = merged(out, *flags)
    assert table["roof"].to_dict() == {"reorder": roof.replace("int8", "fp32"), "fused": roof, "(gap)": ""}
    row = table.loc["fused"]
    assert number(row["attainable_flop_per_s"]) == attainable
    assert number(row["roof_share"]) == pytest.approx(2093 / 13e-6 / attainable)
    printed, said = capsys.readouterr()
    assert ("no int8 ceiling was measured: 1 nodes" in said) == is_noted
    assert ("ceilings int8 4.00 kOP/s, 1.00 MB/s, ridge 0.0 FLOP/byte" in printed) == (roof == "int8")


@pytest.mark.slow
def test_the_file_may_stand_elsewhere(out, tmp_path):
    path = write_ceilings(tmp_path / "other", peak_flop_per_s=1e3, memory_bytes_per_s=1e6)
    assert number(merged(out, "--ceilings", str(path)).loc["fused", "attainable_flop_per_s"]) == 1e3


@pytest.mark.slow
def test_shares_of_unstable_ceilings_are_empty_with_a_reason(out, capsys):
    """Rates, bound and what is attainable stay; with ceilings that the user gives, the shares are there."""
    write_ceilings(out, stable=False)
    table = merged(out).loc["fused"]
    note = "host_ceilings.json: unstable ceilings, so shares of the roof are empty; rerun 00_host_ceilings.py"
    assert note in capsys.readouterr().err
    assert (table["roof_share"], table["is_above_roof"], table["roof_share_reason"]) == ("", False, "unstable")
    assert number(table["attained_flop_per_s"]) > 0
    assert table["bound"] in ("compute", "memory")
    given = merged(out, *BOTH).loc["fused"]
    assert number(given["roof_share"]) > 0
    assert given["roof_share_reason"] != "unstable"


@pytest.mark.slow
def test_an_executed_node_that_its_operator_forbids_is_named_with_its_file(out):
    """A Gemm has no operand of three dimensions."""
    write_profile(out, fused="FusedGemm")
    record = json.loads((out / "op_latency.meta.json").read_text())
    path = out / "executed_graph.onnx"
    executed = onnx.load(path)
    executed.graph.input[0].type.tensor_type.shape.dim.add(dim_value=3)
    executed.graph.node[1].input[0] = "x"
    with Transaction(out, Provenance(**record)) as transaction:
        transaction.add_bytes("executed_graph", executed.SerializeToString())
    with pytest.raises(PipelineError, match=r"executed_graph\.onnx: node 'fused': not a valid FusedGemm \("):
        merged(out, *BOTH)


@pytest.mark.slow
def test_rows_that_are_not_the_median_are_refused(out, monkeypatch):
    """The gap closes the sum; a figure that is lost on the way is no figure of this run."""
    rows = stage.roofline_rows
    monkeypatch.setattr(stage, "roofline_rows", lambda *given: rows(*given)[1:])
    with pytest.raises(PipelineError, match=r"its nodes and the gap are 18 µs, the unprofiled median is 23 µs"):
        merged(out, *BOTH)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["--peak-flops", "--mem-bw"])
@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1e9", "fast"])
def test_a_ceiling_that_is_none(out, flag, value):
    with pytest.raises(CommandLineError, match=flag) as caught:
        stage.main(["--out", str(out), *BOTH, f"{flag}={value}"])
    assert caught.value.exit_code == 2


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), BOTH[:2], BOTH[2:]])
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"threads": 3}, "measured with threads 3, the profile with 2"),
        ({"cpu_model": "other"}, "measured with cpu_model other, the profile with synthetic"),
    ],
)
def test_ceilings_of_another_host_or_thread_count(out, flags, changes, problem):
    with Transaction(out, provenance("00_host_ceilings.py", model_id="")) as transaction:
        transaction.add_document("host_ceilings", host_ceilings(**{"cpu_model": CPU, **changes}))
    with pytest.raises(UpstreamError, match=f"{problem}; rerun 00_host_ceilings.py with 2 threads") as caught:
        stage.main(["--out", str(out), *flags])
    assert caught.value.exit_code == 3
    merged(out, *BOTH)  # what is given is not checked against a file


# --- upstream tables ------------------------------------------------------------------------------------------------

WRITTEN_BY = {
    "host_ceilings": "00_host_ceilings.py",
    "executed_graph": "01_profile_onnx.py",
    "op_latency": "01_profile_onnx.py",
    "latency_summary": "01_profile_onnx.py",
    "op_metrics": "02_shapes_flops_bytes.py",
    "op_edges": "02_shapes_flops_bytes.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN_BY)
@pytest.mark.parametrize("fate", ["missing", "changed"])
def test_a_table_that_is_missing_or_was_changed(out, name, fate):
    write_ceilings(out)
    path = out / ARTIFACTS[name].file
    if fate == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    problem = {"missing": "not found", "changed": "changed since it was written"}[fate]
    with pytest.raises(UpstreamError, match=f"{path.name}: {problem}; run {WRITTEN_BY[name]}"):
        stage.main(["--out", str(out)])


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"\x08\x07", b"no model" * 5])
def test_a_corrupt_executed_graph_with_a_right_sidecar(out, content):
    with Transaction(out, provenance(WRITTEN_BY["executed_graph"])) as writing:
        writing.add_bytes("executed_graph", content)
    ran = run_stage("03_merge_profile_metrics.py", "--out", out, *BOTH)
    assert ran.returncode == 3
    assert "executed_graph.onnx: corrupt (" in ran.stderr
    assert ran.stderr.endswith("; run 01_profile_onnx.py\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["op_latency", "op_metrics", "op_edges"])
def test_a_table_without_rows_with_a_right_sidecar(out, name):
    header = f"{','.join(column.name for column in ARTIFACTS[name].columns)}\n"
    with Transaction(out, provenance(WRITTEN_BY[name])) as writing:
        writing.add_text(name, header)
    ran = run_stage("03_merge_profile_metrics.py", "--out", out, *BOTH)
    assert ran.returncode == 3
    assert f"{name}.csv: corrupt (it has no rows); run {WRITTEN_BY[name]}\n" in ran.stderr


@pytest.mark.slow
def test_a_stale_table(out):
    """It was made from a table that has been written again since."""
    table = Folder(out, provenance("a reader")).table("op_edges")
    record = provenance("02_shapes_flops_bytes.py")
    Folder(out, record).table("op_latency")
    with Transaction(out, record) as transaction:
        transaction.add_table("op_edges", table)
    write_profile(out, p50_us=29.0, lonely_total_us=1.0)
    with pytest.raises(UpstreamError, match=r"op_edges.csv: stale: op_latency.csv was written again after it"):
        stage.main(["--out", str(out), *BOTH])


def test_tables_of_another_model(out):
    write_counts(out, model_id="cd" * 32)
    with pytest.raises(UpstreamError, match=r"op_metrics.csv: of model cdcdcdcdcdcd .*; run 02_shapes"):
        stage.main(["--out", str(out), *BOTH])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        (BOTH, 0, ""),
        ((*BOTH, "--peak-flops", "nan"), 2, "'nan' is not a finite number above 0"),
        ((), 3, "host_ceilings.json: not found; run 00_host_ceilings.py first"),
    ],
)
def test_exit_codes(out, flags, code, problem):
    done = run_stage("03_merge_profile_metrics.py", "--out", out, *flags, cwd=out.parent)
    assert done.returncode == code
    assert problem in done.stderr and "Traceback" not in done.stderr
    if code:
        assert done.stderr.startswith("03_merge_profile_metrics.py: error: ") and done.stderr.count("\n") == 1
