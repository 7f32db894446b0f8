"""Load stages on a model whose run never ends: the time limit and the first signal end it, with one line."""

import signal

import onnx
import pytest

from tests.support.models.endless_models import endless_loop
from tests.support.processes.command_lines import run_stage
from tests.support.processes.interrupted_stage import interrupted

QUICK = ("--threads", 1)
STAGES = {
    "10_load_test.py": ("--model", "m.onnx"),
    "14_load_search.py": ("--model", "m.onnx", "--batch-max", 1),
    "15_paired_runs.py": ("--ab", "m.onnx", "m.onnx", "--dim", "N=3"),
    "18_load_fleet.py": ("--models", "m.onnx"),
    "19_endurance_test.py": ("--model", "m.onnx"),
    "20_load_interference.py": ("--model", "m.onnx", "--with", "m.onnx"),
    "21_loadgen_scenario.py": ("--model", "m.onnx"),
    "22_provider_comparison.py": ("--model", "m.onnx"),
}


def command(folder, script, *flags):
    onnx.save(endless_loop(10**15), path := folder / "m.onnx")
    words = [path if word == "m.onnx" else word for word in STAGES[script]]
    return [*words, "--out", folder / "out", *QUICK, *flags]


@pytest.fixture(autouse=True)
def _loadgen(request):
    if "21_loadgen_scenario.py" in request.node.name:
        pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("script", STAGES)
def test_the_time_limit_ends_a_run_that_never_ends(tmp_path, script):
    done = run_stage(script, *command(tmp_path, script, "--run-timeout", "20ms"))
    said = done.stderr + done.stdout + "".join(path.read_text() for path in (tmp_path / "out").glob("*.csv"))
    assert "a run took more than 0.02 s and was ended" in said
    assert done.returncode == (0 if script.startswith("18") else 1), done.stderr  # its row says why
    assert len([line for line in done.stderr.splitlines() if ": error: " in line]) == done.returncode


@pytest.mark.slow
def test_the_time_limit_ends_a_run_in_a_worker_process(tmp_path):
    words = command(tmp_path, "10_load_test.py", "--run-timeout", "20ms", "--workers", "processes")
    done = run_stage("10_load_test.py", *words)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, "m.onnx: a run took more than 0.02 s and was ended" in line) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("script", STAGES)
def test_the_first_signal_ends_a_run_that_never_ends(tmp_path, script):
    done = interrupted([script, *command(tmp_path, script, "--run-timeout", "1h")], signal.SIGINT)
    assert (done.returncode, done.stderr) == (130, f"{script}: interrupted; nothing was replaced\n")
    assert not [*(tmp_path / "out").glob("[!.]*")]
