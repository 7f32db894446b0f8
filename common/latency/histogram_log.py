"""Histograms of latencies as a log of HdrHistogram, which its HistogramLogAnalyzer and HistogramLogProcessor read.

A line has the begin of an interval and its length in s, its largest latency in ms, and a histogram of ns: format V2,
compressed, in base64. Sources: HistogramLogWriter.java (log format 1.3) and AbstractHistogram.java,
``encodeIntoByteBuffer`` and ``encodeIntoCompressedByteBuffer``, of HdrHistogram 2.2.

With three significant digits and a smallest value of 1, its cells are those of :mod:`common.latency.histogram`. So they
are counted here for whole arrays, and the package ``hdrhistogram`` (0.10.8), which records value by value, only reads
the log in a test.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from common.latency.histogram import cells_of

Durations = npt.NDArray[np.int64]
V2_COOKIE, V2_COMPRESSED_COOKIE = 0x1C849303 | 0x10, 0x1C849304 | 0x10  # with a word size of one byte
DIGITS, SMALLEST_NS = 3, 1
HOUR_NS = 3_600_000_000_000  # a reader makes room for values up to this one, or up to the largest
NS_PER_MS, NS_PER_S = 1e6, 1e9
HEAD = """\
#[latencies in ns, Interval_Max in ms, times in s]
#[Histogram log format version 1.3]
#[BaseTime: {start:.3f} (seconds since epoch)]
#[StartTime: {start:.3f} (seconds since epoch), {date}]
"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
"""


def histogram_log(
    ended_ns: Durations, durations_ns: Durations, length_ns: int, start_s: float, interval_s: float = 1.0
) -> str:
    """Return the log of a series.

    Args:
        ended_ns: when each duration ended, from the start of the series; in any order.
        length_ns: how long the series is.
        start_s: when it began, in s since the epoch.
        interval_s: length of an interval; the last one may be shorter.
    """
    order = np.argsort(ended_ns, kind="stable")
    most_ns = max(HOUR_NS, int(durations_ns.max(initial=0)))
    lines = _lines(ended_ns[order], durations_ns[order], length_ns, round(interval_s * NS_PER_S), most_ns)
    date = datetime.fromtimestamp(start_s, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    return HEAD.format(start=start_s, date=date) + "".join(lines)


def _lines(
    ended_ns: Durations, durations_ns: Durations, length_ns: int, interval_ns: int, most_ns: int
) -> Iterator[str]:
    begins_ns = np.arange(0, max(length_ns, 1), interval_ns)
    places = np.searchsorted(ended_ns, begins_ns[1:])
    for begin_ns, own_ns in zip(begins_ns, np.split(durations_ns, places), strict=True):
        spent_s = min(interval_ns, length_ns - int(begin_ns)) / NS_PER_S
        largest_ms = int(own_ns.max(initial=0)) / NS_PER_MS
        yield f"{begin_ns / NS_PER_S:.3f},{spent_s:.3f},{largest_ms:.3f},{encoded(own_ns, most_ns)}\n"


def encoded(durations_ns: Durations, most_ns: int = HOUR_NS) -> str:
    """Return a histogram in format V2: a head, and the counts of its cells; compressed, in base64.

    A reader makes room for values up to ``most_ns``.
    """
    counts = _counts(durations_ns)
    head = struct.pack(">iiiiqqd", V2_COOKIE, len(counts), 0, DIGITS, SMALLEST_NS, most_ns, 1.0)
    packed = zlib.compress(head + counts)
    return base64.b64encode(struct.pack(">ii", V2_COMPRESSED_COOKIE, len(packed)) + packed).decode()


def _counts(durations_ns: Durations) -> bytes:
    """Return the counts up to the last cell that has one; a row of empty cells is their negative number."""
    cells, counts = np.unique(cells_of(durations_ns), return_counts=True)
    encoded_counts, following = bytearray(), 0
    for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
        if cell > following:
            encoded_counts += _zigzag(following - cell)
        encoded_counts += _zigzag(count)
        following = cell + 1
    return bytes(encoded_counts) or _zigzag(0)


def _zigzag(value: int) -> bytes:
    """Return a number as ZigZag LEB128: small ones of either sign take few bytes, seven bits in each."""
    left, packed = abs(value) * 2 - (value < 0), bytearray()
    while left >= 0x80:
        packed.append(left & 0x7F | 0x80)
        left >>= 7
    packed.append(left)
    return bytes(packed)
