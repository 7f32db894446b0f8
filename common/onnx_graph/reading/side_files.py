"""Files that hold a model or its tensors. They are opened without waiting: a pipe that nobody writes would block."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import TypeAlias

import onnx

from common.messages.errors import PipelineError

FileState: TypeAlias = tuple[int, ...] | None


def open_regular(path: Path) -> FileIO:
    """Open a file to read; a folder, a device, a pipe or a socket is an OSError."""
    file = FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def file_state(of: Path | int) -> FileState:
    """Return what changes when a file, given by path or descriptor, is replaced or written; None for no file."""
    try:
        status = os.stat(of)  # noqa: PTH116 - a path cannot be a descriptor
    except (OSError, ValueError):  # a path that a model names may hold a null character
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def require_unchanged(files: Mapping[Path, FileState]) -> None:
    """Refuse to go on with a file that was replaced, written or removed since its state was read."""
    for path, state in files.items():
        if file_state(path) != state:
            raise PipelineError(path, "was replaced or written while it was used", "run the stage again")


def fetch_small(path: Path, tensors: Iterable[onnx.TensorProto], most_bytes: int) -> None:
    """Fetch small tensors from files beside a model; a reference that leads nowhere leaves the value unknown."""
    stored: dict[str, list[onnx.TensorProto]] = {}
    for tensor in tensors:
        location = _entries(tensor).get("location")
        if location is not None and tensor.data_location == onnx.TensorProto.EXTERNAL:
            stored.setdefault(location, []).append(tensor)
    for location, those in stored.items():
        with contextlib.suppress(ValueError, OSError), _side_file(path, location) as file:
            for tensor in those:
                _fetch(file, tensor, most_bytes)


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _side_file(model: Path, location: str) -> FileIO:
    """Open a file in a model's folder."""
    folder = model.parent.resolve()
    side_file = Path(os.path.realpath(folder / location))  # unlike resolve, it ends on a loop of links
    if not side_file.is_relative_to(folder):  # a model may name any path
        raise ValueError(location)
    if side_file.exists() and not side_file.is_file():
        remedy = "put the data there that the model was saved with"
        raise PipelineError(model, f"its data file {location!r} is not a regular file", remedy)
    return open_regular(side_file)


def _fetch(file: FileIO, tensor: onnx.TensorProto, most_bytes: int) -> None:
    entries = _entries(tensor)
    with contextlib.suppress(KeyError, ValueError, OverflowError, OSError):
        length, offset = int(entries["length"]), int(entries.get("offset", 0))
        data = os.pread(file.fileno(), length, offset) if 0 < length <= most_bytes else b""
        if data and len(data) == length:
            tensor.raw_data = data
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
