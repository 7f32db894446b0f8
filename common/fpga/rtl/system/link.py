"""A serial line as a link: words of 32 bits at byte addresses of a system.

The link carries the bursts of LiteX's UARTBone (litex/soc/cores/uart.py, Stream2Wishbone): a command, a number of
words, the address of the first one in words of four bytes, and the words; the most significant byte comes first. A
burst has at most 255 words, at addresses that grow, or all at one address.
"""

from __future__ import annotations

import os
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from common.messages.errors import PipelineError

WRITE, READ, WRITE_TO_ONE = 0x01, 0x02, 0x03
MOST_WORDS = 255
MOST_SILENT_TENTHS_S = 50  # of a second, from a read to its first byte


class Line(Protocol):
    """A serial line, or a simulated one: bytes there and back, in their order."""

    def write(self, data: bytes, /) -> object: ...

    def read(self, count: int, /) -> bytes: ...


class SerialLine:
    """A serial line of the system, such as /dev/ttyUSB0: eight bits, no parity; a context manager.

    Raises:
        PipelineError: there is no such line, it has no such rate, or it fails later on.
    """

    def __init__(self, path: Path, baud: int) -> None:
        if (speed := getattr(termios, f"B{baud}", None)) is None:
            raise PipelineError(
                str(path), f"has no rate of {baud} baud", "give one of termios, such as 115200 or 1000000"
            )
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NOCTTY)
            tty.setraw(self._file)
            attributes = termios.tcgetattr(self._file)
            attributes[4] = attributes[5] = speed
            # A read returns what is there, or nothing where no byte came for so long.
            attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 0, MOST_SILENT_TENTHS_S
            termios.tcsetattr(self._file, termios.TCSANOW, attributes)
        except (OSError, termios.error) as problem:
            raise PipelineError(str(path), "is no serial line that opens", str(problem)) from problem

    def __enter__(self) -> SerialLine:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def write(self, data: bytes, /) -> None:
        left = memoryview(data)
        with self._failing():
            while left:
                left = left[os.write(self._file, left) :]

    def read(self, count: int, /) -> bytes:
        """Return what came, at most so many bytes; none if nothing came for five seconds."""
        with self._failing():
            return os.read(self._file, count)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise PipelineError(self._path, "the serial line failed", str(problem)) from problem


@dataclass(frozen=True, slots=True)
class HostLink:
    """Words of 32 bits over a line."""

    line: Line

    def write(self, address: int, words: NDArray[np.uint32], *, is_one_address: bool = False) -> None:
        """Write words from a byte address on, or all of them to that address."""
        command = WRITE_TO_ONE if is_one_address else WRITE
        for first in range(0, len(words), MOST_WORDS):
            part = words[first : first + MOST_WORDS]
            at = address if is_one_address else address + 4 * first
            self.line.write(_header(command, len(part), at) + part.astype(">u4").tobytes())

    def read(self, address: int, count: int) -> NDArray[np.uint32]:
        """Read words from a byte address on.

        Raises:
            PipelineError: no answer came.
        """
        parts = [np.zeros(0, np.uint32)]
        for first in range(0, count, MOST_WORDS):
            part = min(MOST_WORDS, count - first)
            self.line.write(_header(READ, part, address + 4 * first))
            data = self._exactly(4 * part)
            parts.append(np.frombuffer(data, ">u4").astype(np.uint32))
        return np.concatenate(parts)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (more := self.line.read(count - len(data))):
                raise PipelineError("link", "gives no answer", "see that the board is on, and its design loaded")
            data += more
        return data


def _header(command: int, count: int, address: int) -> bytes:
    return bytes((command, count)) + (address // 4).to_bytes(4, "big")
