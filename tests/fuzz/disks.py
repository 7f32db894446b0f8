"""Disks that fill at any kilobyte: one line, the earlier tables intact, and with space again the stage ends well."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import shutil
from pathlib import Path

from tests.fuzz.configurations import GOOD, LOADS, WORKLOAD
from tests.fuzz.pipeline import build_tables, in_child
from tests.fuzz.programs import SCRIPTS as KNOWN
from tests.fuzz.trial import Trial

NEW_NAMESPACES = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
PRIVATE = 0x4000 | 0x40000  # MS_REC, MS_PRIVATE
SIZE = 24 * 2**20
CHANGED = {"03_merge_profile_metrics.py": ("--peak-flops", "3e11"), "05_energy_estimate.py": ("--avg-power-w", "65")}
OTHERS = ("00", "01", "15", "16", "26", "27", "28", "30", "31", "32", *LOADS)
SCRIPTS = (*(script for script in GOOD if script in KNOWN and script[:2] not in OTHERS),) * 6 + (
    "01_profile_onnx.py",
    "10_load_test.py",
)


class Disks:
    """The campaign."""

    name = "disks"

    def prepare(self, folder: Path, unit: float) -> None:
        """Run all stages once."""
        self.source = folder / WORKLOAD
        in_child(build_tables, folder, (WORKLOAD,))

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Run a stage on a disk with little space, then again with enough of it."""
        script = rng.choice(SCRIPTS)
        free = rng.choice((0, rng.randrange(24), rng.randrange(256), rng.randrange(2048))) * 1024
        if script.startswith("01"):
            free += rng.choice((0, rng.randrange(12 * 2**20)))
        command = (script, *GOOD[script], *CHANGED.get(script, ()))
        disk = trial.folder / "disk"
        disk.mkdir()
        mounted = mount(disk)
        trial.tell(f"{free} bytes are free, {'a mounted tmpfs' if mounted else 'as a limit on the size of a file'}")
        hidden = shutil.ignore_patterns(".*", "ort_trace*" if not script.startswith("01") else ".*")
        shutil.copytree(self.source, disk, dirs_exist_ok=True, ignore=hidden)
        os.chdir(disk)
        trial.out = disk / "out"
        stdout = str(disk / "stdout.txt") if mounted and rng.random() < 0.2 else None
        with Scarce(disk, free, mounted=mounted):
            trial.run(*command, stdout=stdout)
        if trial.run(*command).code != 0:
            trial.fail("disk", f"{script}: fails with space again", "")
        os.chdir(trial.folder)
        if mounted:
            ctypes.CDLL(None).umount2(os.fsencode(disk), 2)


class Scarce:
    """A context in which little space is left.

    Args:
        disk: where.
        free: bytes that are left.
        mounted: whether the disk is a file system of its own; else no file may become larger than what is left.
    """

    def __init__(self, disk: Path, free: int, *, mounted: bool) -> None:
        """Take no space yet."""
        self.balloon, self.free, self.mounted = disk / "balloon", free, mounted

    def __enter__(self) -> None:
        """Fill the disk."""
        if self.mounted:
            with self.balloon.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(self.balloon.parent).free - self.free))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.free, resource.RLIM_INFINITY))

    def __exit__(self, *_: object) -> None:
        """Give the space back."""
        if self.mounted:
            self.balloon.unlink()
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def mount(folder: Path) -> bool:
    """Mount a small file system that this process alone sees; whether the system lets us."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not _own_mounts(libc):
        return False
    options = f"size={SIZE}".encode()
    return libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options) == 0


def _own_mounts(libc: ctypes.CDLL) -> bool:
    """Leave the mounts of the other processes, as root or as the root of a new user namespace."""
    if getattr(_own_mounts, "done", False):
        return True
    user, group = os.getuid(), os.getgid()
    if libc.unshare(NEW_NAMESPACES[0]) != 0:
        if libc.unshare(NEW_NAMESPACES[0] | NEW_NAMESPACES[1]) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _own_mounts.done = True
    return libc.mount(b"none", b"/", None, PRIVATE, None) == 0
