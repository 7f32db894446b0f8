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
    with contextlib.closing(_SideFiles(path)) as side_files:
        for tensor in tensors:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                _fetch(side_files, tensor, most_bytes)


class _SideFiles:
    """The files beside a model. One is open at a time: consecutive tensors are mostly stored in the same file."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.folder = model.parent.resolve()
        self._stack = contextlib.ExitStack()
        self._opened: tuple[str, int] | None = None  # location and file descriptor

    def close(self) -> None:
        self._opened = None
        self._stack.close()

    def open(self, location: str) -> int:
        """Open a file in the model's folder, if it is not the one that is open."""
        if self._opened is None or self._opened[0] != location:
            self.close()
            side_file = Path(os.path.realpath(self.folder / location))  # unlike resolve, it ends on a loop of links
            if not side_file.is_relative_to(self.folder):  # a model may name any path
                raise ValueError(location)
            if side_file.exists() and not side_file.is_file():
                remedy = "put the data there that the model was saved with"
                raise PipelineError(self.model, f"its data file {location!r} is not a regular file", remedy)
            self._opened = (location, self._stack.enter_context(open_regular(side_file)).fileno())
        return self._opened[1]


def _fetch(side_files: _SideFiles, tensor: onnx.TensorProto, most_bytes: int) -> None:
    """Fetch the data of a small tensor from its side file; an unusable reference leaves its value unknown."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        opened = side_files.open(entries["location"])
        length = int(entries["length"])
        if not 0 < length <= most_bytes:
            return
        data = os.pread(opened, length, int(entries.get("offset", 0)))
    except (KeyError, ValueError, OverflowError, OSError):
        return
    if len(data) == length:
        tensor.raw_data = data
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
