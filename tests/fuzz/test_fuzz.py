"""The harness itself: it repeats a case, and it fails where something is planted."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.oracle import faults_of
from tests.fuzz.programs import Ended
from tests.fuzz.trial import cpu_limit
from tests.fuzz.workers import Pool

SCRIPT = "02_shapes_flops_bytes.py"
NAMES = ("case",)


def kinds(code, out="", err="", **more):
    return [fault.kind for fault in faults_of(Ended((SCRIPT,), code, out, err, **more), NAMES)]


def test_one_line_with_a_path_is_no_fault():
    assert kinds(1, err=f"{SCRIPT}: error: case.onnx: is broken\n") == []
    assert kinds(0, out="a table\n", err="note: something\n") == []


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        ({"code": None, "site": "TypeError in x"}, "traceback"),
        ({"code": 1, "err": "Traceback (most recent call last):\n"}, "traceback"),
        ({"code": 139}, "exit code"),
        ({"code": 1, "err": ""}, "error lines"),
        ({"code": 1, "err": "x: error: case\nx: error: case\n"}, "error lines"),
        ({"code": 0, "err": "x: error: case\n"}, "error lines"),
        ({"code": 2, "err": "x: error: the model: is broken\n"}, "no path"),
        ({"code": 2, "err": f"x: error: case: {'y' * 2000}\n"}, "long line"),
        ({"code": 0, "out": "\x1b[2J"}, "control characters"),
        ({"code": 0, "out": "\u202e"}, "control characters"),
        ({"code": 0, "err": "common/x.py:3: RuntimeWarning: overflow\n"}, "warning"),
    ],
)
def test_every_bad_end_is_a_fault(ended, kind):
    assert kind in kinds(**ended)


class Planted:
    """Cases 1, 3 and 5 fail, each in its own way."""

    name = "planted"

    def prepare(self, folder, unit):
        """Nothing is shared."""

    def run(self, rng, trial):
        trial.tell(f"drew {rng.random()}")
        if trial.folder.name.endswith("-1"):
            with cpu_limit(0.05):
                while True:
                    random.random()
        if trial.folder.name.endswith("-3"):
            raise SystemError
        if trial.folder.name.endswith("-5"):
            trial.run(SCRIPT, "--model", "absent.onnx", names=("something else",))


def results(tmp_path, count, cases=7):
    tmp_path.mkdir(exist_ok=True)
    pool = Pool(Planted(), 11, tmp_path, 0.1, count)
    return {result.case: result for result in pool.results(lambda case: case >= cases)}


def test_a_hang_and_a_crash_cost_their_own_case_only(tmp_path):
    found = results(tmp_path, 2)
    assert sorted(found) == list(range(16))  # whole batches
    assert {case: result.faults[0].kind for case, result in found.items() if result.faults} == {
        1: "hang",
        3: "crash",
        5: "no path",
    }


def test_a_case_follows_from_its_seed_and_number_alone(tmp_path):
    one, two = results(tmp_path / "1", 1), results(tmp_path / "2", 3)
    assert {case: result.story for case, result in one.items()} == {case: two[case].story for case in one}
