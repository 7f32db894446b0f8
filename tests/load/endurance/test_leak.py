"""Memory that grows is told from memory that jumps, fluctuates or settles."""

import json
import subprocess
import sys

import numpy as np
import pytest

from common.load.endurance.leak import STEP_BYTES, memory_slope
from tests.support.paths import ROOT

INFERENCES = np.arange(0, 20_001, 50)
BASE = 300_000_000
MIB = 1 << 20


def in_steps(held):
    """What the system counts: whole steps of the allocator."""
    return BASE + np.ceil(held / STEP_BYTES).astype(np.int64) * STEP_BYTES


@pytest.mark.parametrize("leak", [64, 1024, 4099])
def test_a_leak_is_found_with_its_size(leak):
    found = memory_slope(INFERENCES, in_steps(leak * INFERENCES))
    assert found.is_leak
    assert found.low <= leak <= found.high
    assert found.value == pytest.approx(leak, rel=0.1)


def test_memory_that_is_given_back_is_no_leak():
    assert memory_slope(INFERENCES, in_steps(-1024 * INFERENCES + 30 * MIB)).high < 0


def course(kind, random):
    count = len(INFERENCES)
    if kind == "jump":
        return np.where(np.arange(count) < random.integers(100, 350), 0, 40 * MIB)
    if kind == "two jumps":
        return sum(np.where(np.arange(count) < at, 0, 8 * MIB) for at in random.integers(100, 350, 2))
    if kind == "settles":
        return 50 * MIB * (1 - np.exp(-INFERENCES / 400))
    if kind == "saw":
        return 12 * MIB * ((np.arange(count) + random.integers(0, 50)) % random.integers(15, 60)) / 60
    return random.normal(0, 3 * MIB, count)


@pytest.mark.parametrize("kind", ["jump", "two jumps", "settles", "saw", "noise"])
def test_memory_without_a_leak_is_not_accused_in_twenty_tries(kind):
    tries = [memory_slope(INFERENCES, in_steps(course(kind, np.random.default_rng(seed)))) for seed in range(20)]
    assert not any(slope.is_leak for slope in tries)


@pytest.mark.parametrize("kind", ["jump", "settles", "noise"])
def test_a_leak_is_found_beside_what_memory_does_anyway(kind):
    random = np.random.default_rng(5)
    assert memory_slope(INFERENCES, in_steps(4096 * INFERENCES + course(kind, random))).is_leak


def test_growth_below_one_step_of_the_allocator_is_no_growth():
    assert not memory_slope(INFERENCES, BASE + 4 * INFERENCES).is_leak


def test_memory_that_settles_late_is_no_leak():
    """Half of it is there after a quarter of the inferences: a straight line through all of it would rise."""
    assert not memory_slope(INFERENCES, in_steps(4 * MIB * (1 - 0.5 ** (INFERENCES / 2_500)))).is_leak


def test_too_few_samples_have_no_slope():
    assert memory_slope(INFERENCES[:6], in_steps(1024 * INFERENCES[:6])) is None
    assert memory_slope(np.array([], dtype=np.int64), np.array([], dtype=np.int64)) is None


REAL = """
import json, sys
from pathlib import Path
import numpy as np
from common.load.endurance.leak import memory_slope
from common.runtime.sessions.session import SessionSettings, create_session
from models.small.tiny import build_tiny_mlp

session = create_session(build_tiny_mlp().SerializeToString(), SessionSettings(1))
feeds = {one.name: np.zeros([n if isinstance(n, int) else 1 for n in one.shape], np.float32)
         for one in session.get_inputs()}
kept = []

def series(leak):
    done, held = [], []
    for number in range(20_001):
        session.run(None, feeds)
        if leak:
            kept.append(bytes(leak))
        if number % 100 == 0:
            done.append(number)
            held.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
    return memory_slope(np.array(done), np.array(held))

slopes = [series(0) for _ in range(20)] + [series(1024)]
print(json.dumps([[one.value, one.low, one.high] for one in slopes]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_real_session_is_accused_of_a_planted_leak_alone():
    ended = subprocess.run([sys.executable, "-c", REAL], cwd=ROOT, capture_output=True, text=True, check=True)
    *clean, leaking = json.loads(ended.stdout)
    assert [low for _, low, _ in clean if low > 0] == []
    value, low, _ = leaking
    assert low > 0
    assert value == pytest.approx(1024 + 33 + 8, rel=0.1)  # the object's header, and its place in the list
