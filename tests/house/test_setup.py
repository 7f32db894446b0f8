"""The set-up of the environment: what `make` installs from the locked requirements."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytest.importorskip("pip")
INSTALL = ["make", "--silent", "--eval=install-words:;@echo $(PIP_INSTALL)", "install-words"]


def wheel(folder: Path, name: str, version: str, requires: str = "") -> str:
    """A wheel of nothing in ``folder``; returns the line that locks it."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: extra\n{requires}"
    files = {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(member, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{member},,\n" for member in [*files, f"{info}/RECORD"]))
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def test_a_newer_release_of_a_locked_package_does_not_break_the_set_up(tmp_path: Path) -> None:
    lock = wheel(tmp_path, "reader", "1.0", requires="Requires-Dist: parser[extra]>=1\n") + wheel(
        tmp_path, "parser", "1.0"
    )
    (tmp_path / "requirements.txt").write_text(lock)
    wheel(tmp_path, "parser", "2.0")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    words = subprocess.run(
        INSTALL, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert (
        words[1:4] == ["-m", "pip", "install"] and "--no-deps" in words
    )  # which a pip without the fault does not need
    installed = tmp_path / "installed"
    subprocess.run(
        [
            sys.executable,
            *words[1:],
            "--no-index",
            "--find-links",
            tmp_path,
            "--target",
            installed,
            "-r",
            "requirements.txt",
        ],
        cwd=tmp_path,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
        check=True,
    )
    assert {path.name for path in installed.glob("*.dist-info")} == {"reader-1.0.dist-info", "parser-1.0.dist-info"}


def test_a_set_up_does_not_clear_the_environment_of_another_checkout(tmp_path: Path) -> None:
    """A new checkout has newer requirements, so its set-up would clear what its link leads to."""
    elsewhere, checkout = tmp_path / "elsewhere", tmp_path / "checkout"
    for folder in (elsewhere, checkout):
        folder.mkdir()
    (elsewhere / "kept").touch()
    (checkout / ".venv").symlink_to(elsewhere)
    for name in ("Makefile", "stages.mk", "requirements.txt"):
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    command = ["make", "--silent", ".venv/.ready"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert ".venv is a link, and its folder is not cleared" in done.stderr
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]


def test_the_environment_lacks_nothing_that_a_package_of_it_requires() -> None:
    """Only the server of the slow tests is one without its Python package (requirements-endpoint-test.in)."""
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    said = check.stdout.splitlines() if check.returncode else []
    assert [line for line in said if not line.startswith("nvidia-pytriton ")] == []
