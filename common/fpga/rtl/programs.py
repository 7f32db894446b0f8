"""Run external tools such as yosys and Verilator."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from common.messages.errors import PipelineError


def is_there(tool: str) -> bool:
    return shutil.which(tool) is not None


def require(tool: str) -> None:
    """Refuse work that needs a tool, before it begins; PipelineError: the tool is missing."""
    if not is_there(tool):
        raise PipelineError(tool, "not found", "make rtl-tools installs it")


def call(command: Sequence[str], folder: Path) -> None:
    """Run a tool in ``folder``.

    Raises:
        PipelineError: the tool is missing, or it failed; the message has the first line that names an error.
    """
    tool = Path(command[0]).name
    if shutil.which(command[0]) is None:
        raise PipelineError(tool, "not found", "make rtl-tools installs yosys and verilator")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr + done.stdout).strip().splitlines()
        errors = [line for line in output if line.startswith("ERROR")]
        errors += [line for line in output if "rror" in line] or output or ["no message"]
        raise PipelineError(tool, f"exit code {done.returncode}: {errors[0]}")
