"""What a script needs to start: Python, packages, memory; where one is missing, one line names the way out."""

import ast
import os
import subprocess
import sys

import pytest

from common.process import startup
from tests.support.paths import ROOT

SCRIPTS = sorted(path.name for path in ROOT.glob("[0-9][0-9]_*.py"))
PROGRAMS = [
    *([script] for script in SCRIPTS),
    *(["-m", f"common.{room}"] for room in ("fpga", "runtime", "design_space")),
]
EARLIEST_SYNTAX = (3, 8)  # the oldest Python whose syntax these files keep to


def started(*words, **env):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return subprocess.run(words, cwd=ROOT, env=kept | env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", PROGRAMS, ids=lambda words: words[-1])
def test_a_python_without_the_packages_gets_one_line(words):
    ran = started(sys.executable, "-S", *words, "--help")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert "is not installed for" in ran.stderr
    assert startup.ENVIRONMENT in ran.stderr


def test_a_python_that_is_too_old_gets_one_line():
    program = (
        "import sys; sys.version_info = (3, 8, 10, 'final', 0); sys.argv = ['01_profile_onnx.py']\n"
        "from common.process import startup; startup.begin(); print('began')"
    )
    ran = started(sys.executable, "-c", program)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("01_profile_onnx.py: error: Python 3.8 is too old: 3.11 or newer is needed; `")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "name",
    [
        *SCRIPTS,
        "common/__init__.py",
        "common/process/__init__.py",
        "common/process/startup.py",
        "common/process/interrupts.py",
    ],
)
def test_an_old_python_can_read_what_it_meets_first(name):
    """Python reads a whole file before it runs a line of it."""
    ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=EARLIEST_SYNTAX)


@pytest.mark.parametrize(
    ("made", "way_out"),
    [((), "make .venv/.ready"), (("bin/python",), ".venv/bin/python 01_profile_onnx.py"), (None, "rm .venv/.ready")],
)
def test_the_way_out_is_that_of_the_environment_that_is_there(tmp_path, monkeypatch, made, way_out):
    monkeypatch.setattr(startup, "__file__", str(tmp_path / "common" / "process" / "startup.py"))
    monkeypatch.setattr(sys, "argv", ["01_profile_onnx.py"])
    for file in made or ():
        (tmp_path / ".venv" / file).parent.mkdir(parents=True)
        (tmp_path / ".venv" / file).touch()
    if made is None:
        monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert way_out in startup.way_out()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_warnings_of_libraries_are_no_errors(script):
    ran = started(sys.executable, script, "--describe", PYTHONWARNINGS="error")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS)
def test_too_little_memory_for_the_packages_is_one_line(script):
    ran = started("sh", "-c", f"ulimit -v 400000; exec {sys.executable} {script} --help")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"{script}: error: memory: this process may have 0.41 GB of addresses")
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("text", startup.NO_MEMORY)
def test_a_package_that_finds_no_memory_is_one_line(text):
    """An error like that of pandas, which raises another one for the one that it met."""
    program = (
        "from common.process import startup; startup.begin()\n"
        f"try:\n    raise ImportError({text!r})\nexcept ImportError:\n    raise ImportError('numpy is missing')"
    )
    ran = started(sys.executable, "-c", program)
    assert ran.returncode == 1
    assert ran.stderr.startswith("-c: error: memory: too little is free")
    assert len(ran.stderr.splitlines()) == 1
