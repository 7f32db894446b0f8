"""The ceilings: arithmetic with a clock of its own, the real command line for a moment."""

import importlib
import json

import pytest

from common.errors import CommandLineError, PipelineError
from common.profiling import ceilings
from common.profiling.ceilings import (
    Slices,
    Workload,
    halves_difference_share,
    last_level_cache_bytes,
    measure_slices,
    stream_array_bytes,
)

stage = importlib.import_module("00_host_ceilings")
MIB = 2**20


class Clock:
    """Stands still but for what a run takes."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def takes(clock, name, amount, seconds, log):
    def run():
        log.append(name)
        clock.now += seconds

    return Workload(name, name, amount, run)


def test_slices_take_turns_and_give_work_over_time():
    clock, log = Clock(), []
    works = [takes(clock, "a", 100.0, 0.025, log), takes(clock, "b", 30.0, 0.2, log)]
    found = measure_slices(works, 1.0, clock)
    assert found[0].rates == pytest.approx([100 / 0.025] * len(found[0].rates))
    assert found[1].best == pytest.approx(30 / 0.2)
    assert log[:6] == ["a"] * 3 + ["b"] * 3  # warm-up
    assert log[6:] == ["a", "a", "b"] * len(found[0].rates)  # 0.05 s of a are two runs; b is longer than a slice
    assert len(found[0].rates) == len(found[1].rates) == 4  # 0.675 s of warm-up, then 0.25 s a round, at least four


def test_the_time_bounds_the_slices():
    clock = Clock()
    found = measure_slices([takes(clock, "a", 1.0, 0.05, [])], 1.0, clock)
    assert 16 <= len(found[0].rates) <= 18  # 1.0 less 0.15 of warm-up, in slices of 0.05


def test_halves():
    late = [Slices("MatMul", "m", (5.0, 8.0, 7.0, 10.0)), Slices("Conv", "c", (3.0, 9.0, 2.0, 1.0))]
    assert halves_difference_share(late) == pytest.approx((10 - 9) / 10)
    assert halves_difference_share(late[1:]) == pytest.approx((9 - 2) / 9)


SLICES = [
    Slices("MatMul", "MatMul s", (97.0, 100.0, 99.0, 101.0)),
    Slices("Gemm", "Gemm s", (80.0, 83.0, 79.0, 81.0)),
    Slices("Conv", "Conv a", (103.0, 100.0, 99.0, 107.0)),
    Slices("Conv", "Conv b", (71.0, 73.0, 70.0, 67.0)),
    Slices("Add", "Add s", (11.0, 13.0, 12.0, 13.0)),
]


def test_the_figures():
    found = stage.host_ceilings(SLICES)
    assert (found["peak_flop_per_s"], found["peak_operator"]) == (107.0, "Conv a")
    assert [found[f"{name}_flop_per_s"] for name in ("matmul", "gemm", "conv")] == [101.0, 83.0, 107.0]
    assert (found["memory_bytes_per_s"], found["memory_halves_difference_share"]) == (13.0, 0.0)
    assert found["peak_halves_difference_share"] == pytest.approx((107 - 103) / 107)
    assert (found["stable"], found["slice_count"]) == (True, 4)


def test_either_half_that_differs_by_more_than_five_percent_is_unstable():
    slower = [*SLICES[:4], Slices("Add", "Add s", (12.0, 12.0, 13.0, 13.0))]  # 7.7 %
    found = stage.host_ceilings(slower)
    assert not found["stable"]
    (note,) = stage.caveats({**found, "last_level_cache_bytes": MIB, "stream_array_bytes": 4 * MIB})
    assert "memory 7.7 %" in note and "rerun 00_host_ceilings.py" in note


def cache(root, cpu, index, **content):
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / name).write_text(f"{text}\n")


def test_the_last_level_is_the_highest_that_holds_data(tmp_path):
    cache(tmp_path, 0, 0, level=1, type="Data", size="48K", shared_cpu_list="0")
    cache(tmp_path, 0, 1, level=4, type="Instruction", size="64M", shared_cpu_list="0")
    cache(tmp_path, 0, 2, level=3, type="Unified", size="24M", shared_cpu_list="0-1")
    cache(tmp_path, 0, 3, level=9)  # cannot be read
    cache(tmp_path, 0, 4, level=8, type="Unified", size="big")
    cache(tmp_path, 1, 2, level=3, type="Unified", size="24M", shared_cpu_list="0-1")
    assert last_level_cache_bytes([0, 1, 7], 2, tmp_path) == 24 * MIB  # shared: once


def test_each_cache_that_a_thread_can_fill_counts(tmp_path):
    for cpu in range(3):
        cache(tmp_path, cpu, 0, level=2, type="Unified", size="1G" if cpu == 2 else "5M")
    assert last_level_cache_bytes([0, 1], 2, tmp_path) == 10 * MIB
    assert last_level_cache_bytes([0, 1], 1, tmp_path) == 5 * MIB
    assert last_level_cache_bytes([2], 1, tmp_path) == 1024 * MIB
    assert last_level_cache_bytes([5], 1, tmp_path) is None


def test_arrays_of_four_caches():
    assert stream_array_bytes(7 * MIB) == 28 * MIB
    assert stream_array_bytes(None) == 128 * MIB


def test_the_work_of_each_operator():
    assert ceilings.matmul(13)[2] == ceilings.gemm(13)[2] == 2 * 13 * 13 * 13
    assert ceilings.conv(7, 3)[2] == 2 * 4 * 9 * 7 * 7 * 28 * 28
    assert ceilings.add(11)[2] == 3 * 4 * 11


def test_too_little_memory(monkeypatch):
    def no_room(*_):
        raise MemoryError

    monkeypatch.setattr(ceilings, "_workload", lambda op_type, *rest: no_room() if op_type == "Add" else None)
    with pytest.raises(PipelineError, match=r"memory: too little for 3 arrays of 48 bytes; .*03 --mem-bw"):
        ceilings.workloads(1, 48)


def test_through_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(stage, "last_level_cache_bytes", lambda processors, threads: MIB)
    assert stage.main(["--out", str(tmp_path), "--seconds", "0.01", "--threads", "1"]) == 0
    found = json.loads((tmp_path / "host_ceilings.json").read_text())
    assert (found["threads"], found["last_level_cache_bytes"], found["stream_array_bytes"]) == (1, MIB, 4 * MIB)
    assert found["slice_count"] >= 4
    best = [found[f"{name}_flop_per_s"] for name in ("matmul", "gemm", "conv")]
    assert found["peak_flop_per_s"] == max(best) > 1e8  # any processor
    assert json.loads((tmp_path / "host_ceilings.meta.json").read_text())["model_id"] == ""
    printed = capsys.readouterr()
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "ridge point" in printed.out
    assert printed.err.endswith(f"wrote {tmp_path}/host_ceilings.json\n")


def test_an_unknown_cache_is_null_and_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stage, "last_level_cache_bytes", lambda processors, threads: None)
    monkeypatch.setattr(stage, "workloads", lambda threads, size: [])
    monkeypatch.setattr(stage, "measure_slices", lambda works, seconds: SLICES)
    monkeypatch.setattr(stage.os, "getloadavg", lambda: (_ for _ in ()).throw(OSError()))
    stage.main(["--out", str(tmp_path)])
    found = json.loads((tmp_path / "host_ceilings.json").read_text())
    assert (found["last_level_cache_bytes"], found["load_average"]) == (None, None)
    assert "note: last-level cache unknown: arrays of 128 MiB" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--seconds", "21"], ["--seconds", "nan"], ["--seconds", "0"], ["--threads", "0"]])
def test_bad_flags(flags, tmp_path):
    with pytest.raises(CommandLineError):
        stage.main([*flags, "--out", str(tmp_path)])
