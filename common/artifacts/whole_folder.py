"""A folder that the user named: its files are put in place all together, and nothing of the user's is replaced.

``files.json`` in it holds the SHA-256 of each file. A folder may be written again only while it holds exactly those:
once somebody has edited a file or added one, the folder is theirs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from common.artifacts.checks import json_text
from common.artifacts.provenance import sha256_of
from common.messages.errors import PipelineError
from common.process import interrupts

LISTING = "files.json"


@contextlib.contextmanager
def whole_folder(folder: Path, quantity: str) -> Iterator[dict[str, str]]:
    """Yield an empty mapping of paths to texts; when the block ends well, those texts are the files of the folder.

    The folder is new, empty, or as an earlier run left it; ``quantity`` is the setting that names it.

    Raises:
        PipelineError: the folder holds something else, or cannot be written.
    """
    if folder.name in ("", ".."):  # the current folder, one above it, or the root
        problem = "has no name of its own, so it cannot be replaced"
        raise PipelineError(folder, problem, f"give <{quantity}> a new folder")
    staging = folder.with_name(f".{folder.name}.{os.getpid()}")
    with _reporting(folder, quantity):
        _require_ours(folder, quantity)
        staging.mkdir(parents=True)
    try:
        texts: dict[str, str] = {}
        yield texts
        with _reporting(folder, quantity):
            _fill(staging, texts)
            with interrupts.Deferred():
                _put_in_place(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def _reporting(folder: Path, quantity: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PipelineError(folder, f"cannot be written ({error.strerror})", f"use <{quantity}>") from error


def _require_ours(folder: Path, quantity: str) -> None:
    """Raise PipelineError for a folder with files that no earlier run left as they are, and for what is no folder."""
    remedy = f"give <{quantity}> a new folder"
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise PipelineError(folder, "is not a folder", remedy)
    present = {str(path.relative_to(folder)): path for path in folder.rglob("*") if not path.is_dir()}
    listed = _listed(present.pop(LISTING)) if LISTING in present else {}
    for name in sorted(present.keys() | listed.keys()):
        if name not in present or name not in listed or sha256_of(present[name]) != listed[name]:
            raise PipelineError(folder, f"{name} is not as an earlier run left it", remedy)


def _listed(listing: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of an earlier run; none where the listing is not one."""
    with contextlib.suppress(ValueError):
        content = json_text.parse(listing.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return {str(name): str(digest) for name, digest in content.items()}
    return {}


def _fill(staging: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    digests = {name: sha256_of(staging / name) for name in sorted(texts)}
    (staging / LISTING).write_text(json.dumps(digests, indent=2) + "\n", encoding="utf-8")


def _put_in_place(staging: Path, folder: Path) -> None:
    """Rename the new folder to its place; an earlier one steps aside, and comes back if that fails."""
    aside = staging.with_name(f"{staging.name}.old")
    was_there = folder.is_dir()
    if was_there:
        folder.rename(aside)
    try:
        staging.rename(folder)
    except OSError:
        if was_there:
            aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)
