"""The peers of the ceilings: what other programs print is read from programs that print it."""

import pytest

from benchmarks.measuring import ceilings_peers as peers

LIKWID = """#!/bin/sh
[ "$1 $2 $3 $4 $5" = "-t triad -i 7 -w" ] || exit 1
[ "$6" = "N:11MB:3" ] || exit 1
echo "Time:			1.300000e-02 sec"
echo "MFlops/s:		1300.50"
echo "MByte/s:		7800.25"
"""


def program(folder, name, text):
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return tmp_path


@pytest.mark.parametrize(("quantity", "expected"), [("MFlops", 1300.5e6), ("MByte", 7800.25e6)])
def test_likwid_prints_both_and_the_one_wanted_is_read(folder, quantity, expected):
    program(folder, "likwid-bench", LIKWID)
    assert peers.likwid(quantity, "triad", "11MB", 7, 3)() == expected


def test_a_kernel_that_this_processor_lacks_gives_nothing(folder):
    program(folder, "likwid-bench", "#!/bin/sh\necho 'Illegal instruction' >&2\nexit 132\n")
    assert peers.likwid("MByte", "triad", "11MB", 7, 3)() == 0.0


def test_programs_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peers.likwid("MByte", "triad", "11MB", 7, 3) is None
    assert peers.stream_triad(3) is None


def test_stream_runs_at_the_threads_and_its_triad_is_read(folder):
    text = '#!/bin/sh\necho "Copy:  19.0 0.1"\necho "Triad:           $((1000 * OMP_NUM_THREADS)).5     0.031"\n'
    program(folder, "stream", text)
    assert peers.stream_triad(3)() == 3000.5e6


@pytest.mark.parametrize(
    ("flags", "suffix"), [("fpu avx avx2 avx512f", "avx512"), ("fpu avx avx2", "avx"), ("fpu sse2", "sse"), ("", "sse")]
)
def test_the_widest_vectors(tmp_path, flags, suffix):
    path = tmp_path / "cpuinfo"
    path.write_text(f"flags : {flags}\n")
    assert peers.vector_suffix(path) == suffix


def test_the_quickest_run_counts(monkeypatch):
    times = iter([0.0, 0.0, 0.1, 0.2, 0.21, 0.3, 0.35, 0.5])  # start; while, before, after, …: 0.1 s, then 0.05 s
    monkeypatch.setattr(peers.time, "perf_counter", lambda: next(times))
    assert peers.timed(7.0, lambda: None)() == pytest.approx(7.0 / 0.05)
