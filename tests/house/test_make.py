from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.generated.make_rules import stage_variables
from common.artifacts.generated.row_types import row_types
from common.artifacts.stages import STAGES, WRITER
from tests.support.paths import ROOT

PRIMARY = {
    "00_host_ceilings.py": "host_ceilings.json",
    "01_profile_onnx.py": "op_latency.csv",
    "02_shapes_flops_bytes.py": "op_metrics.csv",
    "03_merge_profile_metrics.py": "op_roofline.csv",
    "04_critical_path.py": "op_schedule.csv",
    "05_energy_estimate.py": "ops_profile.csv",
    "06_plots.py": "report.html",
    "07_fpga_candidates.py": "offload_plan.csv",
    "08_design_space.py": "design_points.csv",
    "09_trace_report.py": "trace.json",
    "10_load_test.py": "load_summary.json",
    "11_compare_runs.py": "comparison.csv",
    "15_paired_runs.py": "paired_comparison.csv",
    "30_try_mend.py": "mend_trials.csv",
    "16_run_history.py": "run_history.csv",
    "17_record_run.py": "metrics.prom",
    "12_dashboard.py": "dashboard_summary.json",
    "13_npu_profile.py": "npu_summary.json",
    "23_overlay_estimate.py": "overlay_layers.csv",
    "24_what_if.py": "what_if_plans.csv",
    "14_load_search.py": "load_best.json",
    "18_load_fleet.py": "load_fleet.csv",
    "19_endurance_test.py": "endurance_summary.json",
    "20_load_interference.py": "load_interference.csv",
    "21_loadgen_scenario.py": "loadgen_summary.txt",
    "25_load_endpoint.py": "load_endpoint.json",
    "22_provider_comparison.py": "provider_comparison.csv",
    "26_generation.py": "generation_summary.json",
    "27_token_streams.py": "stream_summary.json",
    "28_precision.py": "precision.csv",
    "29_board_arrays.py": "design_engines.csv",
    "31_decode_plan.py": "decode_summary.json",
    "32_build_engine.py": "engine_summary.json",
}
KERNEL_CONFIGS = ("systolic_rtl", "streaming", "dataflow", "card_energy", "replicas")
VARIABLES = {
    "MODEL",
    "OUT",
    "RUNS",
    "RUN_TIMEOUT",
    "WARMUP",
    "THREADS",
    "PROVIDER",
    "DIM",
    "INPUT",
    "PEAK_FLOPS",
    "MEM_BW",
    "HOST_TABLES",
    "HOST_SCALE",
    "HOST_SCALE_SOURCE",
}
VARIABLES |= {"AVG_POWER_W", "STATIC_POWER_W", "HOST_CPU", "BOARD", "PRECISION", "HOST", "SEED", "MINUTES", "CAMPAIGNS"}
VARIABLES |= {"HARDWARE", "SWEEP", "RATE", "ARRIVALS", "BATCH_MAX", "BATCH_WAIT", "BOUND_MS"}
ALL = ["00", "01", "02", "03", "04", "05", "07", "09", "06"]
STUB = """
import pathlib, sys
flags = sys.argv[1:]
if "--check" in flags:
    print({stage!r}, *flags, file=open("checked.log", "a"))
    sys.exit(2 * ("check" + {stage!r} in pathlib.Path("failing").read_text().split()))
with open("ran.log", "a") as log:
    print({stage!r}, *flags, file=log)
if {stage!r} in pathlib.Path("failing").read_text().split():
    sys.exit(3)
out = pathlib.Path(flags[flags.index("--out") + 1])
out.mkdir(parents=True, exist_ok=True)
(out / {table!r}).write_text(" ".join(flags))
"""
SETTINGS = """\
# a comment
[01_profile_onnx]
runs = 5

[03_merge_profile_metrics]
# a comment
peak-flops = 1e12

[model model.onnx]
dim = N=1
[model other.onnx]
dim = N=2
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="GNU make is not installed")


class Pipeline:
    """A copy of the Makefile over scripts that only say that they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "stages.mk"):
            shutil.copy(ROOT / name, folder)
        for script, table in PRIMARY.items():
            self.write(script, STUB.format(stage=script[:2], table=table))
        for room in (
            "cli",
            "graphs/graph",
            "roofline",
            "dag",
            "view/text",
            "view/profile/work_text",
            "fpga/planning/plan",
            "power/estimate",
        ):
            self.write(f"common/{room}.py", "")
        stems = ("energy", "processors", "bottlenecks", "fpga", "boards/u280", "boards/u50", "hardware/gemmini")
        for name in (*stems, *KERNEL_CONFIGS):
            self.write(f"configs/{name}.yaml", "")
        self.write("configs/processors.csv", "")
        self.write("configs/settings.ini", SETTINGS)
        self.write("failing", "")
        for model in ("model.onnx", "other.onnx"):
            self.write(f"models/{model}", "")

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def edit(self, path: str) -> None:
        """As after an edit: newer than every table, whatever the clock's step is."""
        os.utime(self.folder / path, (time.time() + 5, time.time() + 5))

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        command = ["make", f"PYTHON={sys.executable} -I -S", *words]  # the stubs need no packages: start fast
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def make(self, *words: str, model: str = "model.onnx") -> list[str]:
        """The stages that ran, in order."""
        self.write("ran.log", "")
        done = self.call(f"MODEL={model}", *words)
        assert done.returncode == 0, done.stderr
        self.flags = {line[:2]: line[3:] for line in (self.folder / "ran.log").read_text().splitlines()}
        self.age()
        return list(self.flags)

    def age(self) -> None:
        """Set every file back by ten seconds, in its order: an edit is then newer than what was made before it."""
        for file in self.folder.rglob("*"):
            then = file.stat().st_mtime_ns - 10 * 10**9
            os.utime(file, ns=(then, then))


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


@pytest.mark.slow
def test_first_run_is_everything_in_order_and_the_second_is_nothing(pipeline: Pipeline) -> None:
    assert pipeline.make() == ALL
    dry = pipeline.call("-n", "MODEL=model.onnx")
    assert (dry.returncode, dry.stdout, dry.stderr) == (0, "make: Nothing to be done for 'run'.\n", "")
    assert pipeline.make() == []


@pytest.mark.slow
def test_the_design_space_is_searched_only_where_it_is_asked_for(pipeline: Pipeline) -> None:
    assert pipeline.make("design") == ["02", "08"]
    assert pipeline.make("design") == []
    assert pipeline.make("design", "HARDWARE=fa-dosa", "SWEEP=buffer_kib=8,16 array=10x100") == ["08"]
    assert pipeline.flags["08"] == "--hardware fa-dosa --sweep buffer_kib=8,16 array=10x100 --out out"
    pipeline.edit("configs/hardware/gemmini.yaml")
    assert pipeline.make("design", "HARDWARE=fa-dosa", "SWEEP=buffer_kib=8,16 array=10x100") == ["08"]
    assert pipeline.make() == [number for number in ALL if number != "02"]


@pytest.mark.slow
def test_load_is_tested_only_where_it_is_asked_for(pipeline: Pipeline) -> None:
    load = ("load", "RATE=40", "BATCH_MAX=8", "BATCH_WAIT=5ms", "ARRIVALS=constant", "DURATION=20s")
    assert pipeline.make(*load) == ["10"]
    given = "--rate 40 --arrivals constant --duration 20s --batch-max 8 --batch-wait 5ms"
    assert pipeline.flags["10"] == f"--model models/model.onnx {given} --out out"
    assert "10" not in pipeline.make()
    searched = ("load", "BOUND_MS=50", "BATCH_MAX=4", "DURATION=20s", "PROVIDER=cuda")
    assert pipeline.make(*searched) == ["14", "10"]
    assert pipeline.flags["14"] == (
        "--model models/model.onnx --batch-max 4 --provider cuda --p99-bound 50ms --out out"
    )
    assert pipeline.flags["10"] == "--model models/model.onnx --duration 20s --provider cuda --best --out out"
    assert pipeline.make(*searched) == []
    assert pipeline.make(*load) == ["10"]  # the search stays


@pytest.mark.slow
def test_a_long_load_is_a_target_of_its_own(pipeline: Pipeline) -> None:
    assert pipeline.make("endurance", "RATE=20", "DURATION=1h") == ["19"]
    assert pipeline.flags["19"] == "--model models/model.onnx --rate 20 --duration 1h --out out"


@pytest.mark.slow
def test_the_view_takes_the_design_space_where_it_is_and_never_runs_it(pipeline: Pipeline) -> None:
    assert pipeline.make() == ALL
    pipeline.make("design", "SWEEP=buffer_kib=8,16")
    pipeline.write("out/design_points.meta.json", "")
    pipeline.edit("out/design_points.meta.json")
    assert pipeline.make() == ["06"]  # the sweep stays, though this command has none
    pipeline.edit("out/op_metrics.csv")
    assert "08" not in pipeline.make()


@pytest.mark.slow
def test_every_stage_gets_its_flags(pipeline: Pipeline) -> None:
    pipeline.write("x.npy", "")
    pipeline.write("y.png", "")
    given = (
        "OUT=out/b/ RUNS=23 WARMUP=3 THREADS=2 PROVIDER=CPU INPUT=x=x.npy\\ y=y.png DIM=batch=1\\ seq=7 MEM_BW=5e10 "
    )
    given += "PEAK_FLOPS=1e12 AVG_POWER_W=65 STATIC_POWER_W=40 HOST_CPU=Xeon\\ 7 BOARD=u50 PRECISION=int8"
    words = [word.replace("\\ ", " ") for word in re.split(r"(?<!\\) ", given)]
    assert pipeline.make(*words) == ALL[1:]
    assert pipeline.flags == {
        "01": "--model models/model.onnx --dim batch=1 --dim seq=7 --input x=x.npy --input y=y.png "
        "--runs 23 --warmup 3 --threads 2 --provider CPU --out out/b",
        "02": "--model models/model.onnx --dim batch=1 --dim seq=7 --input x=x.npy --input y=y.png --out out/b",
        "03": "--peak-flops 1e12 --mem-bw 5e10 --out out/b",
        "04": "--out out/b",
        "05": "--avg-power-w 65 --static-power-w 40 --cpu Xeon 7 --out out/b",
        "06": "--out out/b",
        "07": "--board u50 --precision int8 --out out/b",
        "09": "--out out/b",
    }


@pytest.mark.slow
def test_the_measured_ceilings_are_passed_on_from_the_shared_folder(pipeline: Pipeline) -> None:
    pipeline.make("OUT=out/b", "THREADS=2")
    assert pipeline.flags["00"] == "--threads 2 --out out"
    with_ceilings = [stage for stage, flags in pipeline.flags.items() if "--ceilings out/host_ceilings.json" in flags]
    assert with_ceilings == ["03", "05", "06"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "stages"),
    [
        ("PEAK_FLOPS=2e12", ["03", "04", "05", "07", "09", "06"]),
        ("MEM_BW=5e10", ["03", "04", "05", "07", "09", "06"]),
        ("AVG_POWER_W=65", ["05", "07", "09", "06"]),
        ("BOARD=u50", ["07", "09", "06"]),
        ("PRECISION=int8", ["07", "09", "06"]),
        ("RUNS=23", ["01", "03", "04", "05", "07", "09", "06"]),
        ("DIM=batch=1", ["01", "02", "03", "04", "05", "07", "09", "06"]),
        ("THREADS=1", ["00", "01", "03", "04", "05", "07", "09", "06"]),
        ("HOST=elsewhere", ["00", "01", "03", "04", "05", "07", "09", "06"]),
        ("OUT=out/b", ["01", "02", "03", "04", "05", "07", "09", "06"]),
    ],
)
def test_a_setting_reruns_what_reads_it_and_nothing_else(pipeline: Pipeline, setting: str, stages: list[str]) -> None:
    pipeline.make()
    assert pipeline.make(setting) == stages
    assert pipeline.make(setting) == []


@pytest.mark.slow
def test_a_dry_run_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.make()
    before = {file: file.stat().st_mtime_ns for file in pipeline.folder.rglob("*")}
    dry = pipeline.call("-n", "MODEL=model.onnx", "PEAK_FLOPS=2e12")
    assert re.findall(r" (\d\d)_\w+\.py (?!--check)", dry.stdout) == ["03", "04", "05", "07", "09", "06"]
    assert {file: file.stat().st_mtime_ns for file in pipeline.folder.rglob("*")} == before
    assert pipeline.make() == []
    assert pipeline.make("PEAK_FLOPS=2e12") == ["03", "04", "05", "07", "09", "06"]


@pytest.mark.slow
def test_another_model_does_not_measure_the_host_again(pipeline: Pipeline) -> None:
    pipeline.make()
    assert pipeline.make("OUT=out/other", model="models/other.onnx") == ALL[1:]
    assert pipeline.make() == []


@pytest.mark.slow
def test_a_switch_to_an_older_model_is_seen(pipeline: Pipeline) -> None:
    pipeline.make()
    os.utime(pipeline.folder / "models/other.onnx", (1, 1))
    assert pipeline.make(model="other.onnx") == ALL[1:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "stages"),
    [
        ("00_host_ceilings.py", []),
        ("01_profile_onnx.py", []),
        ("02_shapes_flops_bytes.py", ["02", "03", "04", "05", "07", "09", "06"]),
        ("04_critical_path.py", ["04", "07", "09", "06"]),
        ("06_plots.py", ["06"]),
        ("common/fpga/planning/plan.py", ["07", "09", "06"]),
        ("common/power/estimate.py", ["05", "07", "09", "06"]),
        ("common/view/profile/work_text.py", ["02", "03", "04", "05", "07", "09", "06"]),
        ("common/graphs/graph.py", ["02", "03", "04", "05", "07", "09", "06"]),
        ("configs/energy.yaml", ["05", "07", "09", "06"]),
        ("configs/processors.yaml", ["05", "07", "09", "06"]),
        ("configs/processors.csv", ["05", "07", "09", "06"]),
        ("configs/bottlenecks.yaml", ["09", "06"]),
        ("configs/fpga.yaml", ["07", "09", "06"]),
        ("configs/card_energy.yaml", ["07", "09", "06"]),
        ("configs/boards/u280.yaml", ["07", "09", "06"]),
        ("configs/boards/u50.yaml", []),
        ("configs/settings.ini", []),
        ("models/model.onnx", ALL[1:]),
        (
            "out/host_ceilings.json",
            ["03", "04", "05", "07", "09", "06"],
        ),  # 04 reads 03's table, which is then another one
        ("models/other.onnx", []),
    ],
)
def test_an_edited_file_reruns_its_readers(pipeline: Pipeline, path: str, stages: list[str]) -> None:
    pipeline.make()
    pipeline.edit(path)
    assert pipeline.make() == stages


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "stages"),
    [
        ("runs = 5", "runs = 7", ["01", "03", "04", "05", "07", "09", "06"]),
        ("peak-flops = 1e12", "peak-flops = 2e12", ["03", "04", "05", "07", "09", "06"]),
        ("N=1", "N=4", ALL[1:]),
        ("N=2", "N=4", []),
        ("# a comment", "# it's another $comment", []),
        ("runs = 5", "runs = 5  # it's $HOME", []),
    ],
)
def test_a_configured_setting_counts_like_a_flag(pipeline: Pipeline, old: str, new: str, stages: list[str]) -> None:
    pipeline.make()
    pipeline.write("configs/settings.ini", SETTINGS.replace(old, new))
    assert pipeline.make() == stages
    assert pipeline.make() == []


AFTER_03 = ["03", "04", "05", "07", "09", "06"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "words", "stages"),
    [
        ("[03_merge_profile_metrics]\nmem-bw = 3\n", "= 3 -> = 5", "", AFTER_03),
        ("[03_merge_profile_metrics] # it's\r\nmem-bw=3\r\n", "=3 -> =5", "", AFTER_03),
        ("  [03_merge_profile_metrics]\n  mem-bw = 3\n", "= 3 -> = 5", "", AFTER_03),
        ("[03_merge_profile_metrics]\nmem-bw =\n\t3\n", "\t3 -> \t5", "", AFTER_03),
        ("[03_merge_profile_metrics]\nmem-bw = 3\n", "= 3 -> = 5", "MEM_BW=7", []),
        ("[03_merge_profile_metrics]\nmem-bw =\n  3\n", "  3 ->   5", "MEM_BW=7", []),
        ("[07_fpga_candidates]\nboard = u50\neffort = 3\n", "u50 -> u280", "", ["07", "09", "06"]),
        ("[07_fpga_candidates]\nboard = u50\neffort = 3\n", "u50 -> u280", "BOARD=u50", []),
        ("[07_fpga_candidates]\nboard = u50\neffort = 3\n", "= 3 -> = 5", "BOARD=u50", ["07", "09", "06"]),
        ("[01_profile_onnx]\nmodel = other.onnx\nruns = 3\n", "other -> model", "", []),
    ],
)
def test_settings_count_however_they_are_written(
    pipeline: Pipeline, before: str, after: str, words: str, stages: list[str]
) -> None:
    pipeline.write("configs/settings.ini", before)
    pipeline.make(*words.split())
    pipeline.write("configs/settings.ini", before.replace(*after.split(" -> ")))
    assert pipeline.make(*words.split()) == stages
    assert pipeline.make(*words.split()) == []


@pytest.mark.slow
def test_the_configured_board_is_planned_for_and_watched(pipeline: Pipeline) -> None:
    pipeline.write("configs/settings.ini", "# board = u280\n[07_fpga_candidates]\nboard = u50  # in the lab\n")
    pipeline.make()
    assert pipeline.flags["07"] == "--out out"
    pipeline.edit("configs/boards/u280.yaml")
    assert pipeline.make() == []
    pipeline.edit("configs/boards/u50.yaml")
    assert pipeline.make() == ["07", "09", "06"]


@pytest.mark.slow
def test_with_both_ceilings_given_the_host_is_not_measured(pipeline: Pipeline) -> None:
    given = ("PEAK_FLOPS=2e12", "MEM_BW=5e10")
    assert pipeline.make(*given) == ALL[1:]
    assert not (pipeline.folder / "out/host_ceilings.json").exists()
    assert pipeline.make(*given) == []
    assert pipeline.make("PEAK_FLOPS=2e12") == ["00", "03", "04", "05", "07", "09", "06"]


@pytest.mark.slow
def test_a_failed_stage_leaves_its_table_and_is_tried_again(pipeline: Pipeline) -> None:
    pipeline.make()
    pipeline.write("failing", "04")
    table = pipeline.folder / "out/op_schedule.csv"
    before = table.read_text()
    failed = pipeline.call("MODEL=model.onnx", "PEAK_FLOPS=2e12")
    assert failed.returncode == 2
    assert table.read_text() == before
    pipeline.write("failing", "")
    assert pipeline.make("PEAK_FLOPS=2e12") == ["04", "05", "07", "09", "06"]


@pytest.mark.slow
def test_clean_and_run_in_one_command_leaves_nothing_to_do(pipeline: Pipeline) -> None:
    pipeline.make()
    assert pipeline.make("clean", "run") == ALL
    assert pipeline.make() == []


def test_a_model_that_is_not_there_is_named(pipeline: Pipeline) -> None:
    done = pipeline.call("MODEL=nowhere/m.onnx")
    assert done.returncode == 2
    assert done.stderr.startswith("nowhere/m.onnx: no such model file, here or in models/; MODEL takes the path")


def test_help_names_every_target_and_variable_and_makes_nothing(pipeline: Pipeline) -> None:
    text = pipeline.call("help").stdout
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split()) - {"changed"}
    assert targets | VARIABLES <= set(text.split())
    assert not (pipeline.folder / "out").exists()


# --- the Makefile against the declarations and the code ---------------------------------------------------------------


def test_a_bitstream_is_of_a_model_that_is_given(pipeline):
    """The example is not quantized, and building it takes a while."""
    refused = pipeline.call("MODEL=", "bitstream")
    problem = "MODEL: not given; give a quantized model, as MODEL=out/quantized.onnx.  Stop.\n"
    assert (refused.returncode, refused.stdout, refused.stderr.partition("*** ")[2]) == (2, "", problem)


def prerequisites(folder: Path) -> dict[str, set[str]]:
    """Normal prerequisites of every primary table, from make's own data base."""
    command = ["make", "-npq", "MODEL=models/m.onnx", f"PYTHON={sys.executable}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("M")}
    text = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False).stdout
    found = {}
    for script, table in PRIMARY.items():
        line = re.search(rf"^out/{re.escape(table)}:(.*)$", text, re.MULTILINE)
        found[script] = set(line.group(1).split("|")[0].split())
    return found


def imported(script: Path) -> set[Path]:
    """Every module of common/ that a script imports, directly or not."""
    seen, queue = set(), [script]
    while queue:
        for node in ast.walk(ast.parse(queue.pop().read_text())):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in (name for name in names if name.startswith("common.")):
                path = ROOT / name.replace(".", "/")
                packages = [folder / "__init__.py" for folder in path.parents if folder.is_relative_to(ROOT / "common")]
                for file in (path.with_suffix(".py"), path / "__init__.py", *packages):
                    if file.is_file() and file not in seen:
                        seen.add(file)
                        queue.append(file)
    return seen


def test_the_generated_variables_are_up_to_date() -> None:
    """After a change of the declarations or of imports: `make docs`."""
    assert (ROOT / "stages.mk").read_text(encoding="utf-8") == stage_variables()


def test_the_generated_row_types_are_up_to_date() -> None:
    """After a change of a column or a table: `make docs`."""
    assert (ROOT / "common/table_rows.pyi").read_text(encoding="utf-8") == row_types()
    assert "self, name: str" not in row_types()  # a signature for any name would take a row whose column was renamed


def test_tables_are_prerequisites_as_the_catalogue_says() -> None:
    assert set(PRIMARY) == {name for name in STAGES if name.endswith(".py")}
    primary = {script: f"out/{table}" for script, table in PRIMARY.items()}
    for script, found in prerequisites(ROOT).items():
        writers = {WRITER[name] for name in STAGES[script].reads}
        reads = {primary[writer] for writer in writers if not STAGES[writer].is_aside}
        assert {file for file in found if file in primary.values()} == reads, script


def test_a_primary_table_is_written_by_its_stage() -> None:
    for script, table in PRIMARY.items():
        assert table in {ARTIFACTS[name].file for name in STAGES[script].writes}


@pytest.mark.slow
def test_computed_stages_depend_on_every_module_they_import() -> None:
    for script, found in prerequisites(ROOT).items():
        if not STAGES[script].is_measurement:
            needed = {str(file.relative_to(ROOT)) for file in imported(ROOT / script)} | {script}
            needed.discard("common/artifacts/generated/describe.py")  # --describe writes no table
            code = {file for file in found if file.endswith(".py")}
            assert {file for file in needed if not file.endswith("__init__.py")} <= code <= needed, script


def test_measurements_depend_on_no_code() -> None:
    for script, found in prerequisites(ROOT).items():
        if script < "02":
            assert not {file for file in found if file.endswith(".py")}


@pytest.mark.parametrize(("word", "hint"), [("MODLE=x.onnx", "did you mean MODEL? "), ("XYZQ=1", "")])
def test_a_variable_that_make_does_not_know_is_refused(pipeline: Pipeline, word: str, hint: str) -> None:
    pipeline.write("common/messages/names.py", (ROOT / "common/messages/names.py").read_text(encoding="utf-8"))
    done = pipeline.call("run", word)
    assert done.returncode == 2
    name = word.partition("=")[0]
    assert f"{name}: no such variable; {hint}`make help` lists all" in done.stderr
    assert not (pipeline.folder / "ran.log").exists()


@pytest.mark.parametrize(
    ("words", "name", "hint"),
    [
        (("rnu",), "rnu", "did you mean run"),
        (("nothing",), "nothing", "`make help` lists all"),
    ],
)
def test_what_no_rule_makes_is_named(pipeline: Pipeline, words: tuple[str, ...], name: str, hint: str) -> None:
    pipeline.write("common/messages/names.py", (ROOT / "common/messages/names.py").read_text(encoding="utf-8"))
    (pipeline.folder / "m.onnx").touch()
    done = pipeline.call(*words, "MODEL=m.onnx")
    assert done.returncode == 2
    assert f"{name}: no such target or file; {hint}" in done.stderr
    assert "No rule to make target" not in done.stderr
    assert not (pipeline.folder / "ran.log").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("report", "TRACE=absent.json"), "TRACE: absent.json: no such file"),
        (("report", "TRACE=here.npy", "EXECUTED_GRAPH=absent.onnx"), "EXECUTED_GRAPH: absent.onnx: no such file"),
        (("run", "INPUT=x=absent.npy"), "INPUT: absent.npy: no such file"),
        (("run", "INPUT=y=here.npy x=absent.npy"), "INPUT: absent.npy: no such file"),
    ],
)
def test_a_file_that_is_absent_is_named_with_its_variable(
    pipeline: Pipeline, words: tuple[str, ...], line: str
) -> None:
    pipeline.write("common/messages/names.py", (ROOT / "common/messages/names.py").read_text(encoding="utf-8"))
    for name in ("m.onnx", "here.npy"):
        (pipeline.folder / name).touch()
    done = pipeline.call(*words, "MODEL=m.onnx")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == line
    assert "no such target" not in done.stderr
    assert not (pipeline.folder / "ran.log").exists()


def test_every_variable_of_the_help_is_known(pipeline: Pipeline) -> None:
    documented = re.findall(r"^([A-Z_]+) *:=.*  # ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(documented) > 20
    given = [f"{name}=1" for name in documented if name not in ("MODEL", "OUT", "BOARD", "INPUT")]
    assert pipeline.call("help", *given).returncode == 0


@pytest.mark.parametrize("stage", ["01", "07"])
def test_nothing_is_measured_before_the_checks_of_model_and_board_hold(pipeline: Pipeline, stage: str) -> None:
    pipeline.write("failing", f"check{stage}")
    done = pipeline.call("run", "MODEL=model.onnx", "BOARD=u50", "DIM=N=2")
    assert done.returncode == 2
    assert not (pipeline.folder / "ran.log").exists()
    assert "01 --check --model models/model.onnx --dim N=2 --out out" in (pipeline.folder / "checked.log").read_text()
    pipeline.write("failing", "")
    assert pipeline.make("BOARD=u50", "DIM=N=2") == ALL


def test_checks_are_made_again_for_what_has_changed_only(pipeline: Pipeline) -> None:
    checked = pipeline.folder / "checked.log"
    pipeline.make()
    assert [line[:2] for line in checked.read_text().splitlines()] == ["01", "07", "03"]  # settings.ini has a key of 03
    checked.unlink()
    assert pipeline.make() == []
    assert not checked.exists()
    pipeline.make("PEAK_FLOPS=2e12")
    assert "03 --check --peak-flops 2e12" in checked.read_text()


def test_the_stages_know_the_line_that_make_was_called_with(pipeline: Pipeline) -> None:
    script = "import os, pathlib; pathlib.Path('line').write_text(os.environ['MAKE_LINE'])\n"
    pipeline.write("02_shapes_flops_bytes.py", script + STUB.format(stage="02", table="op_metrics.csv"))
    for name in ("y", "w"):
        pipeline.write(name, "")
    pipeline.call("run", "MODEL=model.onnx", "DIM=a=1 b=2", "INPUT=x=y z=w")
    line = (pipeline.folder / "line").read_text()
    assert line.startswith("make run ")
    assert " MODEL=model.onnx" in line
    assert ' INPUT="x=y z=w"' in line
    assert " DIM=" not in line


def test_the_stages_know_which_variable_gives_a_setting(pipeline: Pipeline) -> None:
    script = "import os, pathlib; pathlib.Path('names').write_text(os.environ['MAKE_VARIABLES'])\n"
    pipeline.write("02_shapes_flops_bytes.py", script + STUB.format(stage="02", table="op_metrics.csv"))
    pipeline.call("run", "MODEL=model.onnx")
    names = dict(word.split("=") for word in (pipeline.folder / "names").read_text().split())
    assert {
        "threads": "THREADS",
        "from_trace": "TRACE",
        "model": "MODEL",
        "p99_bound": "BOUND_MS",
    }.items() <= names.items()
    assert names.keys().isdisjoint({"ceilings", "seed"})


def test_times_of_the_boards_own_processor_are_given_to_the_plan(pipeline: Pipeline) -> None:
    pipeline.write("arm/op_latency.csv", "")
    given = ("BOARD=zcu104", "HOST_SCALE=6..10", "HOST_SCALE_SOURCE=a benchmark of both")
    assert pipeline.make(*given) == ALL
    assert "--host-scale 6..10 --host-scale-source a benchmark of both" in pipeline.flags["07"]
    assert pipeline.make("BOARD=zcu104", "HOST_TABLES=arm") == ["07", "09", "06"]
    assert "--host-tables arm" in pipeline.flags["07"]
    pipeline.edit("arm/op_latency.csv")
    assert pipeline.make("BOARD=zcu104", "HOST_TABLES=arm") == ["07", "09", "06"]


def test_a_profile_from_elsewhere_ends_with_the_report(pipeline: Pipeline) -> None:
    pipeline.write("elsewhere.json", "[]")
    ran = pipeline.make("report", "TRACE=elsewhere.json")
    assert ran == ALL
    assert "--from-trace elsewhere.json" in pipeline.flags["01"]
    (checked := pipeline.folder / "checked.log").unlink()
    assert pipeline.make("report", "TRACE=elsewhere.json") == []
    pipeline.edit("elsewhere.json")
    assert pipeline.make("report", "TRACE=elsewhere.json")[0] == "01"
    assert "01 --check --model models/model.onnx --from-trace elsewhere.json" in checked.read_text()


@pytest.mark.parametrize("given", [("report", "TRACE=absent.json"), ("run", "INPUT=x=absent.npy")])
def test_a_file_that_is_not_there_is_named_before_a_model_is_built(pipeline: Pipeline, given: tuple[str, ...]) -> None:
    done = pipeline.call(*given, "MODEL=resnet50-fp32.onnx")
    assert "absent" in done.stderr
    assert "-m models resnet50" not in done.stdout


def test_a_report_without_a_profile_says_what_is_missing(pipeline: Pipeline) -> None:
    done = pipeline.call("report", "MODEL=model.onnx")
    assert done.returncode == 2
    assert "TRACE: missing; give the profile" in done.stderr
    assert not (pipeline.folder / "ran.log").exists()
