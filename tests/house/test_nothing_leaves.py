"""No script looks up a host, connects to anything, or writes outside its folder, the temporary one and the cache.

Each script runs on a tiny model under strace. All but 25 run in a network namespace of their own that has not even a
loopback device.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import onnx
import pytest

from common.artifacts.stages import STAGES
from models.__main__ import BUILDERS
from tests.support.paths import ROOT
from tests.support.processes.endpoints import scripted

CALLS = "%network,open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,truncate"
LOCAL = '"/run/uuidd/request"'  # libuuid asks this daemon for a number: ONNX names temporary files so
LOOKED_UP = ("/etc/resolv.conf", "/etc/hosts", "/run/nscd", "/var/run/nscd")
# What a process may write beside its folders: devices, its own /proc, shared memory, and the events that 01 records.
FREE = ("/dev/null", "/dev/tty", "/dev/shm/", "/proc/self/", "/sys/kernel/tracing/instances/")
CACHES = ("home/.cache/matplotlib", "home/.cache/onnx-profile")  # of fonts, and of the designs of 08
LOAD = ("--rate", "200", "--duration", "300ms")
DECODER = ("--model", "decoder.onnx", "--out", "out/decoder")
COMMANDS = [
    ("00", "--seconds", "0.2"),
    ("01", "--model", "m.onnx", "--runs", "9", "--idle", "10ms"),
    ("02", "--model", "m.onnx"),
    ("03",),
    ("04",),
    ("05",),
    ("07", "--time-limit", "1"),
    ("08", "--hardware", "fa-dosa", "--jobs", "2"),
    ("09",),
    ("10", "--model", "m.onnx", *LOAD, "--workers", "processes"),
    ("11", "--baseline", "out", "--candidate", "out"),
    ("13", "--qnn-csv", str(ROOT / "tests/npu/data/fp16/profile.csv")),
    ("14", "--model", "m.onnx", "--p99-bound", "1s", "--budget", "2s"),
    ("15", "--ab", "m.onnx", "m.onnx", "--runs", "20"),
    ("17", "--append-to", "out/runs.sqlite"),
    ("16", "--history", "out/runs.sqlite"),
    ("18", "--models", "m.onnx", *LOAD),
    ("19", "--model", "m.onnx", *LOAD),
    ("20", "--model", "m.onnx", "--with", "m.onnx", *LOAD),
    ("21", "--model", "m.onnx", "--scenario", "single-stream", "--duration", "300ms"),
    ("22", "--model", "m.onnx"),
    ("23", "--board", "zcu104", "--engine", "dpu-b4096"),
    ("24",),
    ("26", *DECODER, "--prompt", "3", "--tokens", "2", "--answers", "1"),
    ("27", *DECODER, "--rate", "20", "--duration", "300ms", "--input-tokens", "3", "--output-tokens", "2"),
    ("28", "--model", "m.onnx", "--random", "2"),
    ("29", "--board", "ultra96", "--board-budget", "dsp=60"),
    ("30", "--model", "m.onnx", "--runs", "5"),
    ("31", *DECODER, "--board", "u280"),
    ("32", "--model", "quantized.onnx", "--out", "out/engine"),
    ("06",),
]
TABLES = ("00", "01", "02", "03", "04", "05", "07", "09", "17", "26")  # what other scripts read, in their order


def script(number):
    (path,) = ROOT.glob(f"{number}_*.py")
    return str(path)


@cache
def obstacle(*command):
    """Why a command cannot run here, as in a container that makes no namespaces, or lets nobody trace; "" if it can."""
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return tried.stderr.strip() or f"status {tried.returncode}" if tried.returncode else ""


def traced(folder, *command, within=("unshare", "--net"), stdout=subprocess.DEVNULL):
    """Return the process of a command, whose system calls go to ``trace`` in the folder."""
    if problem := obstacle(*within, "strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=%network", "-o", os.devnull):
        pytest.skip(f"needs strace{' and unshare' if within else ''}: {problem}")
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    env = kept | {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTHONUNBUFFERED"] = "1"
    for name in ("home/.cache", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    strace = [
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-s",
        "300",
        "-e",
        f"trace={CALLS}",
        "-e",
        "signal=none",
        "-o",
        "trace",
    ]
    words = [*within, *strace, sys.executable, *command]
    return subprocess.Popen(
        words, cwd=folder, env=env, stdout=stdout, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def leaks(folder):
    """Return the system calls of a trace that reach out, or write elsewhere."""
    allowed = (*FREE, *(f"{folder}/{name}" for name in ("out", "tmp", *CACHES)))
    found = []
    for line in (folder / "trace").read_text(errors="replace").splitlines():
        call = re.sub(r"^\d+\s+", "", line)
        reaches_out = (
            re.match(r"(connect|sendto|sendmsg|sendmmsg)\(", call) and "AF_NETLINK" not in call and LOCAL not in call
        )
        if reaches_out or any(f'"{path}' in call for path in LOOKED_UP):
            found.append(call)
        elif not re.search(r"= -1 E\w+", call):
            found += [call for path in _written(call, folder) if not path.startswith(allowed)]
    return found


def _written(call, folder):
    name = call.partition("(")[0]
    if name in ("open", "openat") and not re.search(r"O_WRONLY|O_RDWR|O_CREAT", call):
        return []
    if name not in ("open", "openat", "creat") and not name.startswith(("mkdir", "rename", "link", "symlink", "trunc")):
        return []
    return [os.path.normpath(folder / path) for path in re.findall(r'"([^"]*)"', call)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, and the tables that other scripts read."""
    place = tmp_path_factory.mktemp("alone")
    onnx.save(BUILDERS["tiny-cnn"](batch=1), place / "m.onnx")
    onnx.save(BUILDERS["tiny-decoder"](), place / "decoder.onnx")
    onnx.save(BUILDERS["tiny-resnet8"](batch=1), place / "quantized.onnx")
    flags = {number: words for number, *words in COMMANDS}
    for number in TABLES:
        words = [sys.executable, script(number), *flags[number]]
        subprocess.run(words, cwd=place, check=True, capture_output=True)
    return place


@pytest.fixture
def folder(made, tmp_path):
    """A copy for one case, so that each runs by itself."""
    return Path(shutil.copytree(made, tmp_path / "alone", ignore=shutil.ignore_patterns(".*")))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_script_reaches_out_to_nobody(folder, command):
    number, *flags = command
    if number == "21":
        pytest.importorskip("mlperf_loadgen", reason="MLPerf LoadGen is not installed")
    process = traced(folder, script(number), *flags)
    _, printed = process.communicate()
    assert "Traceback" not in printed
    assert (process.returncode, leaks(folder)) == (0, []), printed


@pytest.mark.slow
def test_a_load_of_an_endpoint_reaches_out_to_that_endpoint_alone(folder):
    with scripted() as endpoint:
        at = ("--endpoint", endpoint.url, "--served-model", "double", *LOAD)
        process = traced(folder, script("25"), *at, within=())
        _, printed = process.communicate()
    port = f'sin_port=htons({urlsplit(endpoint.url).port}), sin_addr=inet_addr("127.0.0.1")'
    found = leaks(folder)
    # What is sent without an address goes where its socket has been connected to, and that call is traced as well.
    to_others = [call for call in found if port not in call and not re.match(r"sendto\(.*, NULL, 0\b", call)]
    assert (process.returncode, to_others) == (0, []), printed
    assert len(found) > len(to_others)  # it did reach the endpoint


def test_every_script_is_traced():
    """25 and 12 have tests of their own."""
    assert {number for number, *_ in COMMANDS} | {"12", "25"} == {name[:2] for name in STAGES if name.endswith(".py")}


@pytest.mark.slow
def test_the_dashboard_reaches_out_to_nobody(folder):
    """It listens on the loopback device, which a new network namespace has not; it must not connect to it."""
    for package in ("fastapi", "uvicorn", "websockets"):
        pytest.importorskip(package, reason="needs requirements-dashboard.txt: make test-dashboard")
    process = traced(folder, script("12"), "--model", "m.onnx", "--port", "0", within=(), stdout=subprocess.PIPE)
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    while "/trace_" not in (calls := (folder / "trace").read_text(errors="replace")):  # of the runtime's own profiler
        assert process.poll() is None
        time.sleep(0.05)
    os.kill(int(calls.split(maxsplit=1)[0]), signal.SIGINT)
    _, printed = process.communicate()
    assert (process.returncode, leaks(folder)) == (0, []), printed
