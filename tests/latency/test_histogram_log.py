"""Logs of HdrHistogram: bytes written by hand, and what the package hdrhistogram reads of them."""

import base64
import struct
import zlib

import numpy as np
import pytest

from common.latency.histogram import CELLS, Histogram, cells_of
from common.latency.histogram_log import encoded, histogram_log

START_S = 1_700_000_000.25
NEEDS = "needs hdrhistogram, which asks for newer setuptools than others here can use"


def unpacked(text):
    """Return the cookies, the head and the counts of an encoded histogram."""
    raw = base64.b64decode(text)
    cookie, length = struct.unpack(">ii", raw[:8])
    inner = zlib.decompress(raw[8:])
    assert length == len(raw) - 8
    return cookie, struct.unpack(">iiiiqqd", inner[:40]), inner[40:]


def test_the_bytes_of_a_histogram_are_those_of_the_format():
    """ZigZag: n cells without a count are −n, which is 2n − 1; a count c is 2c; LEB128 has seven bits in a byte."""
    cookie, head, counts = unpacked(encoded(np.array([1, 1, 1, 300, 2048])))
    assert cookie == 0x1C849314
    assert head == (0x1C849313, len(counts), 0, 3, 1, 3_600_000_000_000, 1.0)
    # cell 0 is empty, 1 has 3; 2 to 299 (298 cells) are empty: 595 = 0b100_1010011; 300 has 1; 301 to 2,047 (1,747
    # cells): 3,493 = 0b11011_0100101; 2,048 is the first of a cell two wide
    assert counts == bytes([1, 6, 0b11010011, 0b100, 2, 0b10100101, 0b11011, 2])


def test_an_empty_histogram_has_one_empty_cell():
    assert unpacked(encoded(np.zeros(0, np.int64)))[2] == b"\0"


def test_cells_are_those_of_the_histogram():
    random = np.random.default_rng(5)
    values = np.concatenate(
        [np.arange(5000), 2 ** np.arange(53), 2 ** np.arange(1, 53) - 1, random.integers(0, 2**53, 99)]
    )
    counted = Histogram()
    counted.add(values)
    found = np.bincount(cells_of(values), minlength=CELLS)
    assert found.tolist() == [*counted._cells]


def series(count=20_000):
    random = np.random.default_rng(11)
    durations_ns = (random.lognormal(13, 1, count)).astype(np.int64)
    ended_ns = np.sort(random.integers(0, 4_500_000_000, count))
    return ended_ns, durations_ns


def test_the_log_has_a_line_per_interval():
    ended_ns, durations_ns = series()
    lines = histogram_log(ended_ns, durations_ns, 4_500_000_000, START_S).splitlines()
    assert lines[1:5] == [
        "#[Histogram log format version 1.3]",
        "#[BaseTime: 1700000000.250 (seconds since epoch)]",
        "#[StartTime: 1700000000.250 (seconds since epoch), Tue Nov 14 22:13:20 UTC 2023]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    rows = [line.split(",") for line in lines[5:]]
    assert [row[:2] for row in rows] == [[f"{second}.000", "1.000"] for second in range(4)] + [["4.000", "0.500"]]
    last = durations_ns[ended_ns >= 4_000_000_000]
    assert rows[-1][2] == f"{last.max() / 1e6:.3f}"
    assert all(row[3].startswith("HISTFAAA") for row in rows)


def test_hdrhistogram_reads_the_log(tmp_path):
    log = pytest.importorskip("hdrh.log", reason=NEEDS)
    histogram = pytest.importorskip("hdrh.histogram")
    ended_ns, durations_ns = series()
    ended_ns = np.where(ended_ns // 10**9 == 2, ended_ns + 10**9, ended_ns)  # nothing ends in the third second
    durations_ns[0] = 7_200_000_000_000  # longer than the usual limit of an hour
    order = np.random.default_rng(1).permutation(len(ended_ns))
    text = histogram_log(ended_ns[order], durations_ns[order], 5_500_000_000, START_S)
    (tmp_path / "load.hlog").write_text(text)
    reader = log.HistogramLogReader(str(tmp_path / "load.hlog"), histogram.HdrHistogram(1, 8_000_000_000_000, 3))
    for second in range(6):
        read = reader.get_next_interval_histogram()
        own = np.sort(durations_ns[ended_ns // 10**9 == second])
        assert read.get_total_count() == len(own), second
        assert read.get_start_time_stamp() == 1000 * (START_S + second)
        for percentile in (1, 50, 99, 99.9, 100) if len(own) else ():
            exact = own[max(1, int(percentile / 100 * len(own) + 0.5)) - 1]  # the rank that it reads
            assert read.get_value_at_percentile(percentile) == pytest.approx(exact, rel=1e-3)
    assert reader.get_next_interval_histogram() is None


def test_hdrhistogram_writes_the_same_bytes():
    """Its own encoder for the same counts, uncompressed: only zlib's level may differ."""
    histogram = pytest.importorskip("hdrh.histogram", reason=NEEDS)
    _, durations_ns = series(500)
    theirs = histogram.HdrHistogram(1, 3_600_000_000_000, 3)
    for value in durations_ns.tolist():
        theirs.record_value(value)
    assert unpacked(theirs.encode().decode())[1:] == unpacked(encoded(durations_ns))[1:]
