"""How much memory this process can still take, and a limit that the system holds it to.

Free memory is what the system could give without swapping. A control group or a limit of the process (``ulimit``) may
lower it (Documentation/filesystems/proc.rst and admin-guide/cgroup-v2.rst in the Linux source).
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path

KIB = 1024
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
SPARED_SHARE = 0.05  # share of free memory that is left for other work of the process


def free_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Return how many bytes this process can still take; None where the system does not say."""
    available = _fields(proc / "meminfo").get("MemAvailable")
    if available is None:
        return None
    used = _fields(proc / "self/status")
    return max(0, min((available, *_left_by_groups(proc, cgroups), *_left_by_limits(used))))


def _left_by_limits(used: Mapping[str, int]) -> Iterator[int]:
    for limit, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY and field in used:
            yield most - used[field]


def _left_by_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yield what each control group of this process leaves; its page cache counts as free."""
    for line in _text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = cgroups / controllers
        names = ("memory.max", "memory.current", "inactive_file")
        if controllers:  # version 1
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield from _left(folder, *names)


def _left(folder: Path, limit: str, usage: str, cache: str) -> Iterator[int]:
    most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
    if most.isdigit() and used.isdigit():
        counts = dict(line.split() for line in _text(folder / "memory.stat").splitlines())
        yield int(most) - int(used) + int(counts.get(cache, 0))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _fields(path: Path) -> dict[str, int]:
    """Return the fields of a file of the kernel that are in kB, in bytes."""
    lines = (line.split() for line in _text(path).splitlines())
    return {words[0].rstrip(":"): KIB * int(words[1]) for words in lines if words[-1:] == ["kB"]}


def return_freed() -> None:
    """Give the system what this process has freed; the C library keeps it for later otherwise (malloc_trim(3))."""
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Let the system refuse memory beyond what is free now, while the block lasts."""
    (before, most), free = resource.getrlimit(resource.RLIMIT_DATA), free_bytes()
    used = _fields(PROC / "self/status").get("VmData")
    if free is None or used is None:
        yield
        return
    wanted = int(used + (1 - SPARED_SHARE) * free)  # a kernel may tolerate a use above the limit (ignore_rlimit_data)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))
