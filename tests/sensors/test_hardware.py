"""Hardware counters: what perf prints, a perf that obeys and one that refuses, and the real one on a known loop."""

import ctypes
import mmap
import platform
import sys
import threading
from pathlib import Path

import pytest

from common.sensors import hardware_counters
from common.sensors.hardware_counters import HardwareCounters, HardwareCounts
from common.sensors.hardware_events import GENERIC, Count, known_events, parse_counts, problem_notes, vendor_events
from common.sensors.sample_rows import counter_figures

EVENTS = {
    "instructions": "instructions",
    "cycles": "cycles",
    "cache_references": "cache-references",
    "cache_misses": "cache-misses",
    "vector_instructions": "r3808",
}
PRINTED = """Events disabled
Events enabled
7000003,,instructions:u,1000000,100.00,1.40,insn per cycle
5000011,,cycles:u,1000000,100.00,,
130003,,cache-references:u,1000000,75.00,,
10007,,cache-misses:u,1000000,100.00,7.70,of all cache refs
3000017,,r3808:u,1000000,100.00,,
"""


def parsed(text=PRINTED, window_s=1.0, processors=2):
    return parse_counts(text, EVENTS, window_s, processors)


def cpuinfo(vendor, family, model):
    return f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: X\n"


# --- what perf prints -----------------------------------------------------------------------------------------------


def test_counts_and_their_ratios():
    counts = parsed()
    assert counts["instructions"] == Count("instructions", 7_000_003, 1.0)
    assert counts["cache_references"].counted_share == 0.75
    result = HardwareCounts(1.0, counts)
    assert counter_figures(result, 1)["instructions_per_cycle"] == pytest.approx(7_000_003 / 5_000_011)
    assert counter_figures(result, 1)["cache_miss_share"] == pytest.approx(10_007 / 130_003)
    assert counter_figures(result, 1)["vector_instruction_share"] == pytest.approx(3_000_017 / 7_000_003)
    assert problem_notes(counts) == ["perf: extrapolated, since the processor has too few counters: cache_references"]


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("<not supported>", "not supported"),
        ("<not counted>", "not counted"),
        ("0", "did not count, so it is not virtualised here"),
        ("281475373714729", "281475373714729 is impossible in this time"),  # 2^48 too many, as a virtual machine gave
    ],
)
def test_what_cannot_be_counted_is_unavailable_and_never_zero(printed, reason):
    counts = parsed(PRINTED.replace("130003,", f"{printed},"))
    assert counts["cache_references"].value is None
    result = HardwareCounts(1.0, counts)
    assert counter_figures(result, 1)["cache_miss_share"] is None
    assert counter_figures(result, 1)["instructions_per_cycle"] is not None
    assert problem_notes(counts) == [f"perf: unavailable: cache_references (cache-references): {reason}"]


def test_a_part_larger_than_its_whole_cannot_be_true():
    counts = parsed(PRINTED.replace("10007,", "130009,"))
    assert counts["cache_misses"].value is None
    assert counts["cache_misses"].problem == "130009 of 130003 cache_references is impossible"


def test_an_event_that_was_not_printed():
    counts = parsed("7000003,,instructions:u,1000000,100.00,,\n")
    assert counts["cycles"] == Count("cycles", None, None, "not printed")
    assert counter_figures(HardwareCounts(1.0, counts), 1)["instructions_per_cycle"] is None


@pytest.mark.parametrize(
    ("vendor", "family", "model", "event"),
    [
        ("GenuineIntel", 6, 0x8F, "rfcc7"),
        ("AuthenticAMD", 0x17, 0x31, "r04cb"),  # Zen 2
        ("AuthenticAMD", 0x19, 0x01, "r04cb"),  # Zen 3
        ("AuthenticAMD", 0x19, 0x11, "r3808"),  # Zen 4
        ("AuthenticAMD", 0x1A, 0x02, "r3808"),  # Zen 5
        ("AuthenticAMD", 0x15, 0x02, None),
        ("CentaurHauls", 6, 15, None),
    ],
)
def test_vector_events_by_vendor(vendor, family, model, event):
    assert vendor_events(cpuinfo(vendor, family, model)).get("vector_instructions") == event


def test_a_processor_of_another_architecture_has_no_known_vector_event():
    assert vendor_events("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n") == {}


# --- a perf that is not there, refuses, or obeys --------------------------------------------------------------------


def script(tmp_path: Path, body: str) -> str:
    file = tmp_path / "perf"
    file.write_text(f"#!{sys.executable} -IS\nimport os, signal, sys\n{body}")
    file.chmod(0o755)
    return str(file)


OBEYS = """
control, answer = map(int, sys.argv[sys.argv.index("--control") + 1].removeprefix("fd:").split(","))
told = []
def end():
    names = [event.split(":")[0] for event in sys.argv[sys.argv.index("-e") + 1].split(",")]
    for number, name in enumerate(names if told == ["enable", "disable"] else []):
        sys.stderr.write(f"{1009 - number},,{name}:u,1000,100.00,,\\n")
    sys.stderr.write(f"attached to {sys.argv[sys.argv.index('-p') + 1]}\\n")
    sys.stderr.flush()
    os._exit(0)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
for line in os.fdopen(control):
    told.append(line.strip())
    os.write(answer, b"ack\\n\\0")
signal.sigwait({signal.SIGINT})
end()
"""


@pytest.fixture
def zen4(monkeypatch):
    monkeypatch.setattr(hardware_counters, "known_events", lambda: EVENTS)


def test_the_window_is_switched_on_and_off_once(tmp_path, zen4):
    with HardwareCounters(perf=script(tmp_path, OBEYS)) as counters:
        pass
    result = counters.result
    assert [count.problem for count in result.counts.values()] == [""] * 5
    assert [count.value for count in result.counts.values()] == [1009, 1008, 1007, 1006, 1005]
    assert result.notes == ()
    assert counters._process.returncode == 0
    assert result.counts["cycles"] == Count("cycles", 1008, 1.0)
    assert counter_figures(result, 1)["instructions_per_cycle"] == pytest.approx(1009 / 1008)


def test_a_perf_that_may_not_count_gives_its_first_words_and_the_remedy(tmp_path, zen4):
    refuses = 'sys.stderr.write("Error:\\nAccess to performance monitoring is limited.\\nMore.\\n"); sys.exit(255)'
    with HardwareCounters(perf=script(tmp_path, refuses)) as counters:
        pass
    (note,) = counters.result.notes
    assert note.startswith("perf: counts nothing here (Access to performance monitoring is limited.); perf_event_para")
    assert note.endswith("sudo sysctl kernel.perf_event_paranoid=2, or run as root")
    assert counter_figures(counters.result, 1)["instructions_per_cycle"] is None
    assert counters.result.counts == {}


def test_a_perf_that_ends_in_mid_window_counted_nothing(tmp_path, zen4):
    dies = OBEYS.replace("signal.sigwait({signal.SIGINT})\nend()", "").replace(
        'os.write(answer, b"ack\\n\\0")', "os.write(answer, b'ack'); break"
    )
    with HardwareCounters(perf=script(tmp_path, dies)) as counters:
        counters._process.wait()
    assert counters.result.counts == {}
    assert "perf: counts nothing here (no answer)" in counters.result.notes[0]


def test_a_perf_that_never_answers_is_given_up(tmp_path, zen4, monkeypatch):
    monkeypatch.setattr(hardware_counters, "_ANSWER_S", 0.05)
    deaf = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.pause()"
    with HardwareCounters(perf=script(tmp_path, deaf)) as counters:
        pass
    assert counters._process.returncode is not None
    assert counters.result.counts == {}


def test_without_perf(monkeypatch, zen4):
    monkeypatch.setattr(hardware_counters.shutil, "which", lambda name: None)
    with HardwareCounters() as counters:
        pass
    assert counters.result.notes == (
        "perf: not found; install the package linux-perf (Debian) or linux-tools (Ubuntu)",
    )


def test_a_perf_that_cannot_be_started(tmp_path, zen4):
    file = tmp_path / "perf"
    file.write_text("no program")
    with HardwareCounters(perf=str(file)) as counters:
        pass
    assert "does not start (Permission denied)" in counters.result.notes[0]


def test_a_processor_without_known_events_says_so(tmp_path, monkeypatch):
    known = {name: event for name, event in EVENTS.items() if name != "vector_instructions"}
    monkeypatch.setattr(hardware_counters, "known_events", lambda: known)
    with HardwareCounters(perf=script(tmp_path, OBEYS)) as counters:
        pass
    assert counters.result.notes == ("perf: no vector event is known for this processor",)
    assert counter_figures(counters.result, 1)["vector_instruction_share"] is None
    assert counter_figures(counters.result, 1)["instructions_per_cycle"] is not None


def test_an_error_in_the_block_still_ends_perf(tmp_path, zen4):
    counters = HardwareCounters(perf=script(tmp_path, OBEYS))
    with pytest.raises(RuntimeError, match="in the block"), counters:
        raise RuntimeError("in the block")
    assert counters._process.returncode == 0


# --- the real perf --------------------------------------------------------------------------------------------------

LOOP_COUNT = 40_000_000


def known_loop():
    """``mov ecx, LOOP_COUNT; again: dec ecx; jnz again; ret``: two instructions for each turn."""
    code = b"\xb9" + LOOP_COUNT.to_bytes(4, "little") + b"\xff\xc9\x75\xfc\xc3"
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    function = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    function.memory = memory
    return function


def counted(block, **options):
    with HardwareCounters(**options) as counters:
        block()
    return counters.result


@pytest.fixture
def real_perf():
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the loop is x86 code")
    trial = counted(lambda: None)
    if counter_figures(trial, 1)["instructions_per_cycle"] is None:
        pytest.skip(f"perf counts nothing here: {'; '.join(trial.notes)}")


def instructions(result):
    count = result.counts["instructions"]
    if count.value is None or count.counted_share < 1:
        pytest.skip("another user of perf holds the counters, or this virtual machine miscounts")
    return count.value


def test_the_instructions_of_a_loop_of_known_length(real_perf):
    loop = known_loop()
    result = counted(loop)
    assert 1.0 <= instructions(result) / (2 * LOOP_COUNT) < 1.05
    ipc = counter_figures(result, 1)["instructions_per_cycle"]
    assert ipc is None or 0.5 < ipc < 4.0  # one turn of such a loop takes a cycle on today's processors


def test_a_thread_that_is_made_in_the_window_counts(real_perf):
    loop = known_loop()

    def twice():
        threads = [threading.Thread(target=loop) for _ in range(2)]
        for thread in threads:
            thread.start()
            thread.join()

    assert 1.0 <= instructions(counted(twice)) / (4 * LOOP_COUNT) < 1.05


def test_a_host_without_cpuinfo_has_the_generic_events_only(tmp_path):
    assert known_events(tmp_path / "absent") == GENERIC
