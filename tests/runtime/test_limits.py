"""Signals, a time and memory end what the runtime does: each test has a model that would not end, or not fit."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from common.messages.errors import PipelineError
from common.process import interrupts
from common.runtime import memory
from common.runtime.library import silenced
from common.runtime.sessions.limits import RuntimeCall, limited_runs
from common.runtime.sessions.session import SessionSettings, create_session, run
from common.runtime.sessions.stoppable import StoppableRuns
from tests.support.models.endless_models import doubled, endless_loop
from tests.support.models.onnx_models import Typed, load, model
from tests.support.paths import ROOT

ENDLESS = {"x": np.zeros(3, np.float32), "count": np.array(10**15)}
SHORT = {**ENDLESS, "count": np.array(2)}


def python(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def looping():
    return create_session(endless_loop().SerializeToString(), SessionSettings(1))


@pytest.mark.parametrize("is_stoppable", [False, True])
def test_a_run_beyond_the_limit_is_ended_and_the_next_one_runs(looping, is_stoppable):
    runs = StoppableRuns(looping, "loop.onnx")
    call = runs.run if is_stoppable else lambda feeds: run(looping, feeds, "loop.onnx")
    ended = r"^loop.onnx: a run took more than 0.02 s and was ended; .* <run_timeout>"
    with limited_runs(0.02):
        for _ in range(2):
            with pytest.raises(PipelineError, match=ended):
                call(ENDLESS)
    call(SHORT)


def test_a_late_look_ends_a_run_before_it_ends_the_process(monkeypatch):
    """As after Ctrl-Z and fg, or on a host so busy that the thread of the limit gets no processor for seconds."""
    monkeypatch.setattr(interrupts, "end_now", lambda *said: pytest.fail(str(said)))
    call = RuntimeCall("m.onnx")
    call.begin_s = 0.0
    assert call.end_beyond(1.0, 100.0) == interrupts.GRACE_S
    assert call.options.terminate
    assert call.end_beyond(1.0, 100.0 + interrupts.GRACE_S) == interrupts.GRACE_S
    with pytest.raises(pytest.fail.Exception, match="a node that does not end"):
        call.end_beyond(1.0, 100.1 + interrupts.GRACE_S)


def test_without_a_limit_nothing_watches(looping):
    with limited_runs(None):
        run(looping, SHORT)


DEAF = """
import ctypes, os, sys
from common.process import interrupts
sys.argv = ["01_profile_onnx.py"]
interrupts.GRACE_S = 0.01
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
"""
STUCK = "libc.pthread_mutex_lock(mutex); libc.pthread_mutex_lock(mutex)"


@pytest.mark.slow
def test_a_node_that_does_not_end_ends_the_process():
    """The lock of a thread that already has it stands for such a node: no signal interrupts that wait."""
    done = python(
        f"{DEAF}import time\nfrom common.runtime.sessions.limits import call_of_thread, limited_runs\n"
        "with limited_runs(0.01):\n"
        "    call = call_of_thread()\n    call.model, call.begin_s = 'm.onnx', time.monotonic()\n"
        f"    {STUCK}"
    )
    line = "01_profile_onnx.py: error: m.onnx: a run took more than 0.01 s, amid a node that does not end"
    assert (done.returncode, done.stderr) == (1, f"{line}; give inputs that let it end\n")


WHEN_STUCK = """
import _thread, signal
def send():
    while hex(ctypes.addressof(mutex)) not in open(f"/proc/self/task/{os.getpid()}/syscall").read():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
interrupts.raise_interrupt()
interrupts.hear_signals()
_thread.start_new_thread(send, ())
"""


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="needs the system calls of a thread in /proc")
def test_a_signal_ends_the_process_where_native_code_does_not_end():
    done = python(f"{DEAF}{WHEN_STUCK}{STUCK}")
    expected = "01_profile_onnx.py: interrupted amid a call that does not end\n"
    assert (done.returncode, done.stderr) == (130, expected)


def test_a_signal_that_the_main_thread_hears_ends_nothing():
    done = python(
        "import os, signal, time\nfrom common.process import interrupts\ninterrupts.GRACE_S = 600\n"
        "interrupts.raise_interrupt()\n"
        "interrupts.hear_signals()\nended = []\ninterrupts.on_signal(lambda: ended.append(1))\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    pass\n"
        "while not ended:\n    time.sleep(0.001)\nprint('alive')"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_graph_that_cannot_fit_is_refused_before_it_runs():
    graph, _ = load(doubled(41))
    problem = r"^m.onnx: its activations take 1.35e\+07 GB at n40, and .* GB are free; give smaller sizes \(<dim>\)"
    with pytest.raises(PipelineError, match=problem):
        memory.require_memory("m.onnx", graph)
    memory.require_memory("m.onnx", load(doubled(3))[0])


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # x [7] stays; a, b and c are alive one after the other, in one place
        ([("Relu", "x", "a"), ("Relu", "a", "b"), ("Relu", "b", "c")], 7 + 7),
        # a is read again, so b needs a place of its own
        ([("Relu", "x", "a"), ("Relu", "a", "b"), ("Add", "b a", "c")], 7 + 7 + 7),
        # a softmax does not write over its operand; a is free before c
        ([("Relu", "x", "a"), ("Softmax", "a", "b"), ("Softmax", "b", "c")], 7 + 7 + 7),
        # what nobody reads is free at once
        ([("Softmax", "x", "a"), ("Softmax", "x", "b"), ("Softmax", "x", "c")], 7 + 7),
    ],
)
def test_the_peak_of_activations_by_hand(nodes, expected):
    made = [helper.make_node(op_type, read.split(), [written], written) for op_type, read, written in nodes]
    graph, _ = load(model(made, {"x": (7,)}, {"c": (7,)}))
    assert memory.peak_activation_bytes(graph)[0] == 4 * expected


LIMITED = """
import resource, numpy as np
from onnx import helper
from common.messages.errors import PipelineError
from common.process import free_memory
from common.runtime.sessions.session import SessionSettings, create_session, run
from tests.support.models.onnx_models import Typed, model
proto = model([helper.make_node("Expand", ["x", "shape"], ["y"])], {"x": (1,), "shape": Typed(7, (1,))}, {"y": None})
session = create_session(proto.SerializeToString(), SessionSettings(1))
x = np.ones(1, np.float32)
used = free_memory._fields(free_memory.PROC / "self/status")["VmData"]
resource.setrlimit(resource.RLIMIT_DATA, (used + (64 << 20), resource.getrlimit(resource.RLIMIT_DATA)[1]))
with free_memory.bounded_memory():
    run(session, {"x": x, "shape": np.array([1000])})
    try:
        run(session, {"x": x, "shape": np.array([2**28])}, "m.onnx")
    except PipelineError as error:
        print(error)
assert resource.getrlimit(resource.RLIMIT_DATA)[0] == used + (64 << 20)
"""


@pytest.mark.slow
def test_data_that_ask_for_more_memory_than_is_free_fail_with_a_line():
    """A gibibyte, of which the limit allows less than 64 MiB."""
    done = python(LIMITED)
    assert done.stdout.startswith("m.onnx: a run needs more memory than is free ("), done.stderr
    assert done.stdout.endswith("); give smaller sizes (<dim>, <input>), or use a host with more memory\n")


# --- the runtime is quiet --------------------------------------------------------------------------------------------


def test_what_native_code_prints_does_not_come_before_our_line(capfd):
    """RE2 prints that a pattern is broken, and the runtime raises it."""
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern="(")
    proto = model([node], {"x": Typed(8, (1,))}, {"y": Typed(9, (1,))}, opset=20)
    proto.ir_version = 10
    with pytest.raises(PipelineError, match="ONNX Runtime refuses it"):
        create_session(proto.SerializeToString(), SessionSettings(1))
    assert capfd.readouterr() == ("", "")


def test_the_last_line_of_a_process_is_printed_while_native_code_is_silent(monkeypatch, capfd):
    """The creation of a session that no signal ends."""

    def leave(code):
        raise SystemExit(code)

    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit, match="7"), silenced():
        interrupts.end_now(7, "the reason")
    assert capfd.readouterr().err.endswith(": the reason\n")
    assert interrupts.stderr_descriptor == 2


def test_two_threads_that_silence_native_code_give_stderr_back(capfd):
    begun, end = threading.Event(), threading.Event()

    def silence():
        with silenced():
            begun.set()
            end.wait(60)

    first, second = threading.Thread(target=silence), threading.Thread(target=silence)
    first.start()
    assert begun.wait(60)
    begun.clear()
    second.start()
    end.set()
    first.join()
    second.join()
    os.write(2, b"heard")
    assert capfd.readouterr().err == "heard"


def test_options_name_a_graph_so_that_no_run_looks_for_a_missing_one():
    """The runtime's Python asks for it in every bound run; an entry that is missing is an exception of 50 to 65 µs."""
    call = RuntimeCall()
    assert call.options.get_run_config_entry("gpu_graph_id") == "0"
    call.begin_anew()
    assert call.options.get_run_config_entry("gpu_graph_id") == "0"
