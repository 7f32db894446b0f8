"""01 on models that never end, or that do not fit: it ends by itself or by a signal, with one line."""

import signal

import onnx
import pytest

from tests.support.models.endless_models import doubled, endless_loop
from tests.support.processes.command_lines import run_stage
from tests.support.processes.interrupted_stage import interrupted

SCRIPT = "01_profile_onnx.py"
QUICK = ("--threads", 1, "--idle", "1ms", "--dim", "N=3")


def saved(folder, model):
    onnx.save(model, path := folder / "m.onnx")
    return path


@pytest.mark.slow
def test_a_loop_that_never_ends_is_ended_by_the_time_limit(tmp_path):
    path, out = saved(tmp_path, endless_loop(10**15)), tmp_path / "out"
    done = run_stage(SCRIPT, "--model", path, "--out", out, "--run-timeout", "20ms", *QUICK)
    assert done.returncode == 1
    ended = "a run took more than 0.02 s and was ended; give inputs that let it end, or raise --run-timeout"
    assert done.stderr.splitlines()[-1] == f"{SCRIPT}: error: {path}: {ended}"
    assert not [*out.glob("[!.]*")]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_loop_that_never_ends_is_ended_by_the_first_signal(tmp_path, number):
    path, out = saved(tmp_path, endless_loop(10**15)), tmp_path / "out"
    argv = [SCRIPT, "--model", path, "--out", out, "--run-timeout", "1h", *QUICK]
    done = interrupted(argv, number)
    assert (done.returncode, done.stderr) == (130, f"{SCRIPT}: interrupted; nothing was replaced\n")
    assert not [*out.glob("[!.]*")]


def test_activations_that_no_host_can_hold_are_refused(tmp_path):
    path = saved(tmp_path, doubled(41))
    done = run_stage(SCRIPT, "--model", path, "--out", tmp_path / "out", *QUICK[:4])
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"{SCRIPT}: error: {path}: its activations take 1.35e+07 GB at n40, and ")
    assert line.endswith(" GB are free; give smaller sizes (--dim), or use a host with more memory")
