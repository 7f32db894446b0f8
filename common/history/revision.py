"""The commit of a working tree, as git reports it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

UNKNOWN = "unknown"
WAIT_S = 30.0  # a status of a large tree on a slow disk


@dataclass(frozen=True, slots=True)
class Revision:
    """The measured revision."""

    commit: str = UNKNOWN  # its full name, or ``unknown``
    is_dirty: bool | None = None  # whether tracked files differ from it; None where unknown


def revision_of(folder: Path) -> Revision:
    """Return the commit of the working tree that a folder is in; unknown without git, or outside of a tree."""
    commit = _answer(folder, "rev-parse", "--verify", "HEAD")
    if not commit:
        return Revision()
    changes = _answer(folder, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit, None if changes is None else bool(changes))


def _answer(folder: Path, *words: str) -> str | None:
    command = ("git", "--no-optional-locks", *words)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
    except (OSError, UnicodeDecodeError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()
