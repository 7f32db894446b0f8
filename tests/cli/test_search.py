"""The watch of a search: its share of the time, Ctrl-C, and the line that it draws."""

import io
import os
import signal
import sys

import pytest

from common import cli
from common.cli import search, streams
from common.process import interrupts


class Settings:
    quiet = False


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The processor time that the watch reads; a test sets it."""
    now = [100.0]
    monkeypatch.setattr(search.time, "process_time", lambda: now[0])
    return now


def test_each_search_takes_at_most_half_of_what_is_left(clock):
    watch = cli.SearchWatch(Settings(), 64.0)
    watch.begin()
    assert watch.left_s() == 32
    clock[0] += 20
    assert watch.left_s() == 12
    watch.end(2_000.0, 1_000.0)
    watch.begin()
    assert watch.left_s() == 22
    clock[0] += 23
    assert watch.left_s() == -1


def test_the_first_ctrl_c_ends_every_search_and_the_next_one_raises():
    before = signal.getsignal(signal.SIGINT)
    try:
        interrupts.raise_interrupt()
        watch = cli.SearchWatch(Settings(), 64.0)
        with watch:
            watch.begin()
            assert watch.left_s() > 0
            os.kill(os.getpid(), signal.SIGINT)
            assert watch.left_s() < 0
            watch.begin()
            assert watch.left_s() < 0
            assert watch.is_interrupted
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        for number in interrupts.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = sys.__unraisablehook__


def test_a_terminal_shows_plan_bound_and_gap_while_the_search_lasts(monkeypatch, clock):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    watch = cli.SearchWatch(Settings(), 64.0)
    watch.begin()
    watch.hear(8_000.0, 6_000.0)
    clock[0] += 8
    watch.left_s()
    assert terminal.getvalue().startswith("\rtime " + "█" * 6 + " " * 18)
    assert "plan 8 ms  bound 6 ms  gap 25.00%" in terminal.getvalue()
    watch.end(7_500.0, 7_440.0)
    assert terminal.getvalue().endswith("\nplan 7.5 ms, bound 7.44 ms, gap 0.80% (8.0 s of a processor)\n")
    assert not streams.bar_end


def test_without_a_terminal_one_line_at_the_end_says_it(capsys, clock):
    watch = cli.SearchWatch(Settings(), 64.0)
    watch.begin()
    watch.hear(8_000.0, 6_000.0)
    watch.left_s()
    watch.end(8_000.0, 6_000.0)
    assert capsys.readouterr().err == "plan 8 ms, bound 6 ms, gap 25.00% (0.0 s of a processor)\n"


def test_a_terminal_shows_the_best_product_bound_and_gap_of_a_design(monkeypatch, clock):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    watch = cli.DesignWatch(Settings())
    watch.begin(4e16)
    watch.hear(300, 1200, 5e16)
    assert terminal.getvalue().startswith("\revaluations " + "█" * 6 + " " * 18)
    assert "EDP 5.0000e+16 pJ·cycles  bound 4.0000e+16  gap 25.00%" in terminal.getvalue()
    watch.hear(1200, 1200, 4.4e16)
    assert terminal.getvalue().endswith("\n")
    assert not streams.bar_end


def test_without_a_terminal_the_search_for_a_design_says_nothing(capsys):
    watch = cli.DesignWatch(Settings())
    watch.begin(4e16)
    watch.hear(1200, 1200, 5e16)
    assert capsys.readouterr().err == ""
    assert not watch.is_interrupted
