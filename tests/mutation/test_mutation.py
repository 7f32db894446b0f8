"""The harness itself: its mutants are the same for the same file, and a change that decides is caught."""

from __future__ import annotations

import pytest

pytest.importorskip("mutmut", reason="needs requirements-mutants.txt: make mutants")

from tests.mutation import __main__ as mutation
from tests.mutation.__main__ import CAUGHT, ROOMS, SURVIVED, mutants_of, outcome
from tests.support.paths import ROOT

JUDGEMENT = ROOT / "common" / "comparison" / "judgement.py"


def test_mutants_are_the_same_each_time_and_none_is_of_a_text():
    names = [str(mutant) for mutant in mutants_of(JUDGEMENT)]
    assert names == [str(mutant) for mutant in mutants_of(JUDGEMENT)]
    assert len(names) > 50
    assert not any("XX" in name for name in names)


def test_every_room_has_files_and_tests():
    for patterns, tests in ROOMS.values():
        assert all(any(ROOT.glob(pattern)) for pattern in patterns)
        assert all((ROOT / place).exists() for place in tests)


def test_a_signal_ends_the_trials_with_the_shares_so_far(monkeypatch, capsys):
    ends = iter([(SURVIVED, 0.0), (CAUGHT, 0.0), (SURVIVED, 0.0), (CAUGHT, 0.0)])

    def ended(mutant, tests, limit_s):
        if (end := next(ends, None)) is None:
            raise KeyboardInterrupt
        return end

    monkeypatch.setattr(mutation, "outcome", ended)
    monkeypatch.setattr(mutation, "WARM", ())
    assert mutation.main(["--room", "verdict", "--room", "comparison"]) == 0
    *_, row, _ = capsys.readouterr().out.splitlines()
    assert row.split()[0] == "verdict"
    assert row.split()[2:] == ["3", "2", "67%"]  # of the first four ends, one is that of the tests themselves


@pytest.mark.slow
def test_a_verdict_that_is_turned_round_is_caught():
    tests = ("tests/comparison/test_judgement.py",)
    turned = next(mutant for mutant in mutants_of(JUDGEMENT) if "is_less_better" in str(mutant))
    assert outcome(None, tests, 60)[0] == SURVIVED
    assert outcome(turned, tests, 60)[0] == CAUGHT
