"""How many threads this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from common.messages.errors import UnusableValueError

MOST_THREADS_PER_PROCESSOR = 4


def available_processors() -> list[int]:
    """Return the numbers of the processors in this process's affinity."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def available_threads() -> int:
    """Count the processors that this process may use: its affinity, and its control group's quota rounded up."""
    usable = len(available_processors())
    quota = _cgroup_quota(Path("/sys/fs/cgroup"))
    return max(1, min(usable, quota) if quota else usable)


def usable_threads(wanted: int | None) -> int:
    """Return the wanted threads, or all that this process may use; a pool of more than four per processor is refused.

    To create one takes minutes.
    """
    most = MOST_THREADS_PER_PROCESSOR * (os.cpu_count() or 1)
    if wanted and wanted > most:
        raise UnusableValueError("threads", f"{wanted} is above {most}, four times the processors here")
    return wanted or available_threads()


def _cgroup_quota(root: Path) -> int | None:
    """Return the control group's quota in processors, rounded up (version 2 or 1); None if there is no limit."""
    try:
        quota, period = (root / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except OSError:
            return None
    return -(-int(quota) // int(period)) if quota.isdigit() and int(period) else None
