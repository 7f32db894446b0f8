"""Stage 04 through its command line, on small tables as 03 would write them."""

import importlib
import itertools
import json
import random
import subprocess
import sys

import onnx
import pandas as pd
import pytest

from common.messages.errors import CommandLineError, PipelineError, UnusableValueError, UpstreamError
from common.onnx_graph.reading.scan import scan
from tests.support.paths import ROOT
from tests.support.processes.command_lines import run_stage
from tests.support.tables.dag import EDGES, NODES, write_executed

SCRIPT = "04_critical_path.py"
stage = importlib.import_module("04_critical_path")


pytestmark = pytest.mark.usefixtures("elsewhere")


def run(out, *flags):
    assert stage.main(["--out", str(out), *flags]) == 0
    return pd.read_csv(out / "critical_path.csv"), pd.read_csv(out / "op_schedule.csv").set_index("executed_node")


def tiny_model(path, values=2):
    """A model of one Relu; models of other shapes have other ids."""
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [values]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "tiny", info[:1], info[1:])
    onnx.save(onnx.helper.make_model(graph), path)
    return path


# --- tables ---------------------------------------------------------------------------------------------------------


def test_the_critical_path_of_the_block(out):
    write_executed(out)
    path, _ = run(out)
    assert path["executed_node"].tolist() == ["stem", "left_a", "left_b", "add", "tail"]
    assert path["op_type"].tolist() == ["Conv", "Conv", "Conv", "Add", "Gemm"]
    assert path["position_index"].tolist() == [0, 1, 2, 3, 4]
    assert path["cumulative_us"].tolist() == [101, 124, 153, 160, 171]
    assert path["span_share"].tolist() == pytest.approx([101 / 171, 23 / 171, 29 / 171, 7 / 171, 11 / 171])


def test_the_schedule_of_the_block(out):
    write_executed(out)
    _, schedule = run(out)
    assert schedule.index.tolist() == [name for name, _, _ in NODES]  # the gap is no node
    assert schedule["slack_us"].to_dict() == {name: 15.0 if name == "right" else 0.0 for name, _, _ in NODES}
    assert schedule.index[~schedule["is_critical"]].tolist() == ["right"]
    assert schedule["sequential_start_us"].tolist() == [0, 101, 124, 161, 190, 197]
    assert schedule["sequential_finish_us"].iloc[-1] == sum(latency_us for _, _, latency_us in NODES)


def test_the_order_of_rows_does_not_matter_the_order_of_execution_does(out):
    """Of two equal branches the one executed first is critical, wherever its row stands."""
    nodes = [("a", "Conv", 5.0), ("b", "Conv", 5.0), ("end", "Add", 2.0)]
    write_executed(out, nodes, [("a", "end"), ("b", "end")], rows={"a": {"execution_index": 7}})
    path, schedule = run(out)
    assert path["executed_node"].tolist() == ["b", "end"]
    assert schedule.index.tolist() == ["b", "end", "a"]
    assert schedule["slack_us"].tolist() == [0.0, 0.0, 0.0]
    assert schedule.loc["a", "is_critical"] == False  # noqa: E712 - a value out of a table


def test_without_execution_indices_the_order_of_rows_stands(out):
    write_executed(out, rows={name: {"execution_index": None} for name, _, _ in NODES})
    _, schedule = run(out)
    assert schedule["sequential_start_us"].tolist() == [0, 101, 124, 161, 190, 197]
    assert schedule["execution_index"].isna().all()


def test_a_model_that_runs_in_no_time_has_no_shares(out, capsys):
    write_executed(out, [("view", "Reshape", 0.0)], [("", "view"), ("view", "")], gap_us=3.0)
    path, schedule = run(out, "--what-if", "view=2")
    assert path["executed_node"].tolist() == ["view"]
    assert path["span_share"].isna().all()
    assert schedule.loc["view", "slack_us"] == 0.0
    printed = capsys.readouterr().out
    assert "parallelism         –" in printed
    assert printed.splitlines()[-1].split() == ["view", "2x", "faster", "1", "0", "s", "–", "3.00", "µs", "1.00x"]


@pytest.mark.slow
def test_the_same_tables_give_the_same_bytes(out):
    write_executed(out)
    run(out)
    before = [(out / f"{name}.csv").read_bytes() for name in ("critical_path", "op_schedule")]
    run(out)
    assert [(out / f"{name}.csv").read_bytes() for name in ("critical_path", "op_schedule")] == before


@pytest.mark.slow
def test_a_large_graph(out):
    """The stage agrees with the sum along its own path on 2,003 nodes, three edges into each."""
    source = random.Random(7)
    nodes = [(f"n{index}", "Conv", source.randrange(1, 997) / 7) for index in range(2003)]
    edges = {
        (f"n{source.randrange(max(0, index - 20), index)}", f"n{index}") for index in range(1, 2003) for _ in "abc"
    }
    write_executed(out, nodes, sorted(edges))
    path, schedule = run(out)
    chain = path["executed_node"].tolist()
    assert set(itertools.pairwise(chain)) <= edges
    assert path["node_latency_us"].sum() == pytest.approx(schedule["earliest_finish_us"].max())
    assert schedule.loc[chain, "slack_us"].eq(0).all()
    assert schedule["is_critical"].sum() == len(chain)


# --- what is printed ------------------------------------------------------------------------------------------------


def test_stdout_says_which_figure_is_which(out, capsys):
    write_executed(out)
    run(out)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["span", "171", "µs"]
    assert lines[1].split()[:3] == ["work", "208", "µs"]
    assert lines[2].split()[:2] == ["parallelism", "1.22x"]  # 208 / 171
    assert lines[3].split()[:3] == ["makespan", "221", "µs"]  # 208 + 13
    assert lines[3].endswith("work + gap of 13.0 µs: ONNX Runtime's sequential executor")


def test_the_top_nodes_are_ten_and_in_the_order_of_the_path(out, capsys):
    names = [f"/model/a_stage_with_a_long_name/block/Conv_{index}" for index in range(13)]
    nodes = [(name, "Conv", 100.0 + (index * 7) % 13) for index, name in enumerate(names)]
    write_executed(out, nodes, list(itertools.pairwise(names)))
    run(out, "--what-if", f"{names[0]}=3")
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 80
    shown = [line.split()[0].rpartition("_")[2] for line in lines if "  Conv " in line]
    assert shown == [str(index) for index in range(13) if (index * 7) % 13 >= 3]  # 0, 1 and 2 are the smallest
    assert any(line.startswith("(3 more)") and "303 µs" in line for line in lines)  # 100 + 101 + 102


def test_what_profiling_dominates_is_not_ranked(out, capsys):
    write_executed(out, rows={"stem": {"is_correction_dominated": True}, "add": {"is_correction_dominated": True}})
    run(out)
    lines = capsys.readouterr().out.splitlines()
    assert not any(line.startswith(("stem", "add")) for line in lines)
    assert lines[-1].startswith("(2 unranked: within the cost of profiling)")
    assert "108 µs" in lines[-1]  # 101 + 7


def test_what_if_table(out, capsys):
    write_executed(out)
    run(out, "--what-if", "Conv=2", "--what-if", "right=4", "--what-if", "Conv=4")
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0].split() == ["what", "if", "nodes", "span", "gain", "makespan", "gain"]
    # 50.5 + 37 + 7 + 11 = 105.5; 208 - 153 / 2 + 13 = 144.5
    assert lines[1].split()[3:] == ["3", "106", "µs", "1.62x", "144", "µs", "1.53x"]
    assert lines[2].split()[3:] == ["1", "171", "µs", "1.00x", "193", "µs", "1.14x"]  # 221 - 37 * 3 / 4
    # 25.25 + 37 + 7 + 11 = 80.25; 208 - 153 * 3 / 4 + 13 = 106.25
    assert lines[3].split()[3:] == ["3", "80.2", "µs", "2.13x", "106", "µs", "2.08x"]


def test_a_negative_gap_is_part_of_the_makespan(out, capsys):
    write_executed(out, gap_us=-8.0)
    run(out, "--what-if", "Conv=1e9", "--what-if", "Conv=1e9")
    assert "makespan       200 µs  work + gap of -8.00 µs" in capsys.readouterr().out


def test_without_a_gap_row_there_is_a_note(out, capsys):
    write_executed(out, gap_us=None)
    run(out)
    printed = capsys.readouterr()
    assert "makespan       208 µs  work; the gap is unknown" in printed.out
    assert "note: no gap row: the makespan is the work alone; run 03_merge" in printed.err
    assert "no gap row" in json.loads((out / "op_schedule.meta.json").read_text())["notes"][0]


def test_quiet_says_nothing(out, capsys):
    write_executed(out, gap_us=None)
    run(out, "--quiet", "--what-if", "Conv=2")
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_the_sidecar_keeps_lineage_and_settings(out):
    write_executed(out)
    run(out, "--what-if", "Conv=2")
    sidecar = json.loads((out / "critical_path.meta.json").read_text())
    assert set(sidecar["reads"]) == {"op_roofline.csv", "executed_edges.csv"}
    assert sidecar["settings"]["what_if"] == {"value": [["Conv", 2.0]], "from": "flag"}
    assert sidecar["settings"]["model"] == {"value": None, "from": "default"}
    assert sidecar["model_path"] == "synthetic.onnx"


def test_a_factor_that_makes_endless_times_is_refused(out):
    write_executed(out)
    with pytest.raises(PipelineError, match=r"--what-if: a factor of 1e-300 is below 1e-09"):
        run(out, "--what-if", "Conv=1e-300")


def test_what_if_out_of_a_configuration(out, tmp_path, capsys):
    write_executed(out)
    config = tmp_path / "own.ini"
    config.write_text("[04_critical_path]\nwhat-if =\n    Conv=2\n    right=4\n", encoding="utf-8")
    run(out, "--config", str(config))
    assert len(capsys.readouterr().out.split("what if")[1].splitlines()) == 3


# --- --model --------------------------------------------------------------------------------------------------------


def test_the_model_that_was_profiled_is_accepted(out, tmp_path):
    model = tiny_model(tmp_path / "tiny.onnx")
    write_executed(out, model_id=scan(model).model_id)
    run(out, "--model", "tiny.onnx")


def test_another_model_is_refused_and_both_are_named(out, tmp_path):
    tiny_model(tmp_path / "other.onnx", values=3)
    write_executed(out, model_id=scan(tiny_model(tmp_path / "tiny.onnx")).model_id)
    with pytest.raises(
        UpstreamError, match=r"op_roofline\.csv: of the model synthetic\.onnx, not of other\.onnx; run 01"
    ):
        stage.main(["--out", str(out), "--model", "other.onnx"])
    assert not (out / "critical_path.csv").exists()


def test_a_model_that_is_nowhere(out):
    write_executed(out)
    with pytest.raises(PipelineError, match=r"^gone\.onnx: "):
        stage.main(["--out", str(out), "--model", "gone.onnx"])


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["op_roofline.csv", "executed_edges.csv"])
def test_a_missing_table_names_the_stage_to_run(out, name):
    write_executed(out)
    (out / name).unlink()
    with pytest.raises(UpstreamError, match=rf"{name}: not found; run 03_merge_profile_metrics\.py first"):
        stage.main(["--out", str(out)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (NODES, [*EDGES, ("tail", "stem")], r"executed_edges\.csv: corrupt \(a cycle: .*\); rerun 03_merge"),
        (NODES, [*EDGES, ("tail", "ghost")], r"executed_edges\.csv: corrupt \('ghost' is not in .*op_roofline\.csv\)"),
        (NODES, [*EDGES, ("tail", "(gap)")], r"executed_edges\.csv: corrupt \('\(gap\)' is not in"),
        ([*NODES, ("x", "Add", -3.0)], EDGES, r"op_roofline\.csv: corrupt \(node 'x' takes -3\.0 µs\)"),
    ],
)
def test_corrupt_tables_write_nothing(out, nodes, edges, message):
    write_executed(out, nodes, edges)
    with pytest.raises(UpstreamError, match=message):
        stage.main(["--out", str(out)])
    assert not (out / "op_schedule.csv").exists()


@pytest.mark.parametrize("value", ["Conv", "=4", "Conv=", "Conv=0", "Conv=-2", "Conv=nan", "Conv=fast"])
def test_a_what_if_that_is_none(out, value):
    write_executed(out)
    with pytest.raises(CommandLineError, match=r"--what-if: .* is not"):
        stage.main(["--out", str(out), "--what-if", value])


def test_an_unknown_what_if_lists_near_names_and_writes_nothing(out):
    write_executed(out)
    with pytest.raises(UnusableValueError, match=r"--what-if: .*'left'; similar names: left_a, left_b"):
        stage.main(["--out", str(out), "--what-if", "left=2"])
    assert not (out / "critical_path.csv").exists()


# --- as a process ---------------------------------------------------------------------------------------------------


def process(*arguments, cwd):
    command = [sys.executable, str(ROOT / SCRIPT), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_process_keeps_its_streams_apart(out, tmp_path):
    write_executed(out)
    ran = process("--out", str(out), cwd=tmp_path)
    assert ran.returncode == 0
    assert ran.stdout.startswith("span")
    assert ran.stderr.splitlines() == [
        f"wrote {out / 'op_schedule.csv'} (6 rows)",
        f"wrote {out / 'critical_path.csv'} (5 rows)",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--out", "nowhere"], 3, "nowhere/op_roofline.csv: not found; run 03_merge_profile_metrics.py first"),
        (["--speed", "3"], 2, "command line: unrecognized arguments: --speed 3; see 04_critical_path.py --help"),
        (
            ["--out", "tables", "--what-if", "Gem=3"],
            2,
            "--what-if: no executed node or operator type has the name 'Gem'",
        ),
        (["--out", "tables", "--model", "gone.onnx"], 1, "gone.onnx: "),
        (["--out", "tables", "--model", "tiny.onnx"], 3, "tables/op_roofline.csv: of the model synthetic.onnx"),
    ],
)
def test_exit_codes_with_one_line(out, tmp_path, arguments, code, line):
    write_executed(out)
    tiny_model(tmp_path / "tiny.onnx")
    ran = run_stage(SCRIPT, *arguments, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith(f"{SCRIPT}: error: {line}")


def test_help_shows_an_example_that_is_true(out, tmp_path):
    """The tables of the docstring, computed."""
    lines = [line.strip() for line in run_stage(SCRIPT, "--help-all", cwd=tmp_path).stdout.splitlines()]
    start = next(index for index, line in enumerate(lines) if line.startswith("executed_node,op_type,node_latency_us"))
    both = [line.split() for line in lines[start + 1 : start + 4]]
    nodes = [(name, op_type, float(value)) for name, op_type, value in (cells[0].split(",") for cells in both)]
    edges = [tuple(cells[1].split(",")[1:]) for cells in both if len(cells) == 2]
    write_executed(out, nodes, edges)
    _, schedule = run(out)
    header = lines[start + 5].split(",")
    wanted = [line.split(",") for line in lines[start + 6 : start + 9]]
    found = schedule.reset_index()[header].astype("str").to_numpy().tolist()
    assert found == wanted


@pytest.mark.slow
def test_start_up_imports_neither_onnx_nor_matplotlib_nor_scipy(out, tmp_path):
    write_executed(out)
    program = (
        "import importlib, sys; importlib.import_module('04_critical_path').main(sys.argv[1:]); "
        "print(sorted({'onnx', 'onnxruntime', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, "--out", str(out), "--quiet"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
