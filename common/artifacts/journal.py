"""Files put in place together: the next stage on the folder completes what a kill or a power loss cut short.

A stage prepares its files in a staging folder. To commit, it writes a journal of the renames there, does them, and
removes the staging folder. Whoever meets one with a journal, a commit that was cut short, does the renames that are
left. One without a journal is what a killed stage has left, and is dropped. All of this is under the folder's lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.checks import json_text
from common.artifacts.provenance import sidecar
from common.messages.errors import PipelineError
from common.messages.names import quoted

_NO_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK  # no link is followed, and no pipe is waited for
STAGING = ".onnx-profile-staging"  # nobody else's name: anything there is deleted
LOCK, JOURNAL = ".lock", "journal.json"
HOLDER = re.compile(r"(\S.* \(process \d+\))?")  # what a lock of ours says
WAIT_S = 0.01
ASIDE = "incomplete"  # subfolder for the tables of a measurement that failed on its way
PICTURE_SUFFIXES = (".svg", ".png")


@contextlib.contextmanager
def reporting(folder: Path) -> Iterator[None]:
    """Raise PipelineError about a folder where the disk is full, or the folder cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PipelineError(folder, "the disk is full", "free some space or use <out>") from error
        raise PipelineError(folder, f"cannot be written ({error.strerror})", "use <out>") from error


@contextlib.contextmanager
def holding(folder: Path, holder: str) -> Iterator[Path]:
    """Hold a folder, complete what was cut short in it, and yield a staging folder, which goes with the block.

    The error of another process that wants to hold it names the ``holder``.

    Raises:
        PipelineError: somebody else holds it.
        OSError: it cannot be written.
    """
    with _locked(folder) as lock:
        if HOLDER.fullmatch(lock.read().decode(errors="replace")):  # else another program's
            lock.truncate(0)
            lock.write(holder.encode())
        _clear(folder)
        staging = folder / STAGING
        staging.mkdir()
        try:
            yield staging
        finally:
            if not _exists(staging / JOURNAL):
                shutil.rmtree(staging, ignore_errors=True)


def path_in(folder: Path) -> Path:
    """Return where a journal is from before the first rename of a commit until after the last one."""
    return folder / STAGING / JOURNAL


def settle(folder: Path) -> None:
    """Complete a commit that was cut short in a folder, before it is read; wait for one that goes on.

    Raises:
        PipelineError: the folder cannot be read or written.
    """
    with reporting(folder):
        while _exists(path_in(folder)):
            try:
                with _locked(folder):
                    _clear(folder)
            except _HeldError:
                time.sleep(WAIT_S)


def tidy(folder: Path) -> None:
    """Complete a commit that was cut short, and drop what a killed stage left; a stage that runs is left alone.

    Raises:
        PipelineError: the folder cannot be read or written.
    """
    with reporting(folder), contextlib.suppress(_HeldError), _locked(folder):
        _clear(folder)


def put_in_place(
    folder: Path, files: Sequence[tuple[Path, Path]], obsolete: Iterable[Path], commit_elsewhere: Callable[[], None]
) -> None:
    """Rename staged files to their targets and remove obsolete ones: all, or after a kill none until the next start.

    Args:
        files: (staged, target), in the order of the renames.
        obsolete: files of the folder to remove.
        commit_elsewhere: called when all files are on the disk and none is replaced yet; if it raises, none will be.

    Raises:
        PipelineError: a target cannot be replaced; then nothing is.
        OSError: the disk is full, or the folder cannot be written.
    """
    for _, target in files:
        target.parent.mkdir(exist_ok=True)
        require_replaceable(target)
    for staged, _ in files:
        _sync(staged)
    journal = {
        "files": [(staged.name, str(target.relative_to(folder))) for staged, target in files],
        "obsolete": [str(target.relative_to(folder)) for target in obsolete],
    }
    draft = folder / STAGING / f"{JOURNAL}.draft"
    draft.write_text(json.dumps(journal, indent=2), encoding="utf-8")
    _sync(draft)
    commit_elsewhere()
    draft.replace(draft.with_name(JOURNAL))
    _sync(draft.parent)
    _complete(folder)


def require_replaceable(target: Path) -> None:
    """Raise PipelineError where a folder is at the path, or its own folder is none or may not be changed."""
    if target.is_dir() and not target.is_symlink():
        raise PipelineError(target, "cannot be written (it is a folder)", "move it away or use <out>")
    parent = target.parent
    if parent.exists() and not parent.is_dir():
        raise PipelineError(parent, "cannot be written (it is no folder)", "move it away or use <out>")
    if parent.exists() and not os.access(parent, os.W_OK | os.X_OK):
        raise PipelineError(parent, "cannot be written (Permission denied)", "use <out>")


def _exists(path: Path) -> bool:
    """Return whether anything is at a path, a link included; OSError where that is unknown."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


class _HeldError(PipelineError):
    """Somebody else holds the folder."""


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[IO[bytes]]:
    """Lock a folder; a link in the place of the lock is not followed."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_WAIT, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PipelineError(folder / LOCK, "is a link, which is not followed", "remove it") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PipelineError(folder / LOCK, "is not a regular file", "remove it")
    # Unbuffered, because closing a file with a buffer would repeat a write that a full disk refused.
    with open(descriptor, "r+b", buffering=0) as lock:  # noqa: PTH123
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.read().decode(errors="replace").strip() or "another stage"
            raise _HeldError(folder, f"{holder} is writing here", "wait for it or use <out>") from None
        yield lock


def _clear(folder: Path) -> None:
    """Complete a commit that was cut short, or drop the remains of a killed stage."""
    staging = folder / STAGING
    if staging.is_symlink() or not staging.is_dir():
        staging.unlink(missing_ok=True)
    elif _exists(staging / JOURNAL):
        _complete(folder)
    else:
        shutil.rmtree(staging)


def _complete(folder: Path) -> None:
    staging = folder / STAGING
    files, obsolete = _entries(staging / JOURNAL)
    for name in obsolete:
        (folder / name).unlink(missing_ok=True)
    for staged, target in files:
        if _exists(staging / staged):
            require_replaceable(folder / target)
            (staging / staged).replace(folder / target)
    for parent in {(folder / target).parent for _, target in files}:
        _sync(parent)
    (staging / JOURNAL).unlink()  # all is in place: the next stage drops what is left of the folder
    shutil.rmtree(staging, ignore_errors=True)


def _entries(journal: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """Read a journal: (staged, target) of each file, and the obsolete ones.

    PipelineError where it is none, or names files that no stage writes: nobody who was killed leaves such a one.
    """
    try:
        if not stat.S_ISREG(journal.lstat().st_mode):
            raise ValueError("it is not a regular file")
        content = json_text.parse(journal.read_text(encoding="utf-8"))
        files = [(_staged(staged), _ours(target)) for staged, target in content["files"]]
        return files, [*map(_ours, content["obsolete"])]
    except (ValueError, TypeError, KeyError) as error:
        raise PipelineError(journal, f"corrupt ({error})", f"remove {journal.parent}") from error


def _ours(name: str) -> str:
    """Return a target of a journal; ValueError for a file that no stage writes: it is not ours to replace or remove."""
    if name not in _targets():
        raise ValueError(f"{quoted(name)} is no file of ours")
    return name


def _staged(name: str) -> str:
    """Return the name of a staged file; ValueError for the path of a file elsewhere."""
    if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", "..", JOURNAL):
        raise ValueError(f"{quoted(name)} is no file of ours")
    return name


def _targets() -> frozenset[str]:
    """Return every file that a stage writes, relative to the folder."""
    files = {artifact.file for artifact in ARTIFACTS.values()}
    pictures = [Path(artifact.file) for artifact in ARTIFACTS.values() if artifact.form == "picture"]
    files |= {str(picture.with_suffix(suffix)) for picture in pictures for suffix in PICTURE_SUFFIXES}
    files |= {str(sidecar(Path(file))) for file in files}
    return frozenset(files | {f"{ASIDE}/{file}" for file in files})


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
