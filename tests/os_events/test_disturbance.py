"""Slow runs and their causes, on runs and events whose times are written out."""

import random

import pytest

from common.latency.run import NodeSpan, Run
from common.os_events.disturbance import disturbance_line, disturbance_lines, disturbances
from common.os_events.events import EventLog, OsEvent
from common.os_events.run_events import events_by_run, node_hit
from tests.support.profiles.run_series import series_of


def series(*latencies_us, profiled=False, start_s=0.0):
    """Runs that begin a second after each other."""
    return [Run(profiled, index, start_s + index, latency) for index, latency in enumerate(latencies_us)]


def judged(runs, events):
    return disturbances(series_of(runs), events)


def off(start_us, length_us, who="spin", number=50, **given):
    """An interval, in µs since 0."""
    known = {"thread_id": 7, "is_main_thread": True, "processor_index": 1, "is_own_thread": False, **given}
    return OsEvent(
        "preempted", 1e-6 * start_us, length_us, 1, length_us, other_process=who, other_process_id=number, **known
    )


QUIET = (1000.0, 1010.0, 990.0, 1000.0, 1005.0)  # median with one slow run: 1002.5


def test_who_ran_instead_and_which_node_was_hit():
    spans = [NodeSpan("conv", 5e6, 5e6 + 900), NodeSpan("add", 5e6 + 900, 5e6 + 4000)]
    runs = [*series(*QUIET, profiled=True), Run(True, 5, 5.0, 4000, spans)]
    (row,) = judged(runs, [off(5e6 + 700, 2900), off(2.5e6, 100)])  # the second lies between two runs
    assert (row["is_profiled"], row["run_index"], row["latency_us"]) == (True, 5, 4000)
    assert row["excess_us"] == 4000 - 1002.5
    assert row["lost_us"] == pytest.approx(2900)
    assert row["explained_share"] == pytest.approx(2900 / 2997.5)
    assert (row["disturbance_cause"], row["other_process"], row["other_process_id"]) == ("other_process", "spin", 50)
    assert (row["processor_index"], row["thread_id"], row["is_main_thread"]) == (1, 7, True)
    assert row["hit_node"] == "add"  # 2700 µs of it, 200 µs of conv
    assert row["hit_us"] == pytest.approx(2700)
    assert disturbance_line(row) == "profiled run 5 (+3 ms): add lost processor 1 for 2.9 ms to spin (50)"


def test_an_unprofiled_run_has_no_node_and_an_interval_may_lie_between_nodes():
    (row,) = judged(series(*QUIET, 4000), [off(5e6, 2900)])
    assert (row["hit_node"], row["hit_us"]) == ("", None)
    assert disturbance_line(row) == "run 5 (+3 ms): it lost processor 1 for 2.9 ms to spin (50)"
    runs = [*series(*QUIET, profiled=True), Run(True, 5, 5.0, 4000, [NodeSpan("conv", 5e6 + 3000, 5e6 + 4000)])]
    (row,) = judged(runs, [off(5e6, 2900)])
    assert row["hit_node"] == ""
    assert "between nodes, it lost processor 1" in disturbance_line(row)


def test_two_threads_that_lose_the_same_time_cost_it_once():
    events = [off(5e6, 2000), off(5e6 + 500, 1000, thread_id=8), off(5e6 + 1500, 1000, thread_id=8)]
    (row,) = judged(series(*QUIET, 4000), events)
    assert row["lost_us"] == pytest.approx(2500)
    assert row["other_us"] == pytest.approx(2500)
    assert row["thread_id"] == 7  # the longest


def test_an_interval_is_cut_to_its_run():
    (row,) = judged(series(*QUIET, 4000), [off(4.5e6, 500_700), off(5e6 + 3600, 9000)])
    assert row["lost_us"] == pytest.approx(700 + 400)


def test_what_all_runs_lose_explains_nothing_and_its_cause_is_not_named_first():
    always = [off(1e6 * second, 800, "daemon", 9) for second in range(6)]
    (row,) = judged(series(*QUIET, 1600), [*always, off(5e6 + 900, 300)])
    assert row["usual_lost_us"] == pytest.approx(800)
    assert row["explained_share"] == pytest.approx(300 / 597.5)
    assert (row["other_process"], row["disturbance_cause"]) == (
        "spin",
        "other_process",
    )  # 300 beyond 0, not 800 beyond 800
    (row,) = judged(series(*QUIET, 1600), always)
    assert (row["explained_share"], row["disturbance_cause"]) == (0, "none_recorded")


def test_a_share_is_at_most_one():
    (row,) = judged(series(*QUIET, 1600), [off(5e6, 1600)])
    assert row["explained_share"] == 1.0


def test_who_crowds_our_threads_is_named_before_them():
    own = {"who": "python", "number": 7, "is_own_thread": True}
    (row,) = judged(series(*QUIET, 4000), [off(5e6, 2900, **own)])
    assert (row["disturbance_cause"], row["other_process_id"]) == ("own_thread", 7)
    assert "to another thread of this process (7)" in disturbance_line(row)
    crowded = off(5e6, 2900, **own, crowding_process="spin", crowding_process_id=50)
    (row,) = judged(series(*QUIET, 4000), [crowded])
    assert (row["disturbance_cause"], row["other_process"], row["other_process_id"]) == ("other_process", "spin", 50)


def test_an_interval_behind_nobody_known_is_lost_time_without_a_competitor():
    (row,) = judged(series(*QUIET, 4000), [off(5e6, 2900, None, None)])
    assert (row["disturbance_cause"], row["other_process"], row["processor_index"]) == ("none_recorded", "", None)
    assert row["explained_share"] == pytest.approx(2900 / 2997.5)


def count(kind, **given):
    return OsEvent(kind, 4.9, 200_000, **given)


@pytest.mark.parametrize(
    ("events", "cause", "words"),
    [
        ([], "none_recorded", "no other process ran"),
        ([count("stolen", lost_us=20_000.0)], "hypervisor", "the hypervisor took 20 ms"),
        ([count("major_fault", event_count=3)], "page_fault", "3 major faults"),
        ([count("involuntary_switch", event_count=2)], "unnamed_process", "with tracefs it would be named"),
        ([count("involuntary_switch", event_count=2), off(2e6, 50)], "none_recorded", "no other process ran"),
        ([count("minor_fault", event_count=3), count("resident_memory", resident_bytes=7)], "none_recorded", "memory"),
        ([off(5e6, 20), count("stolen", lost_us=10_000.0)], "hypervisor", "10 ms"),  # 20 µs explain 0.7 %
    ],
)
def test_what_only_counts_tell(events, cause, words):
    (row,) = judged(series(*QUIET, 4000), events)
    assert row["disturbance_cause"] == cause
    assert words in disturbance_line(row)


def test_series_are_judged_apart_and_rows_stand_by_time():
    slower = series(*(3000.0,) * 5, 9000, profiled=True, start_s=0.5)
    rows = judged([*slower, *series(*QUIET, 4000)], [])
    assert [(row["is_profiled"], row["run_index"]) for row in rows] == [(False, 5), (True, 5)]
    assert rows[1]["excess_us"] == 6000


def test_nothing_is_slow_in_an_even_or_short_series():
    assert judged(series(*QUIET), [off(0, 900)]) == []
    assert judged(series(1000, 9000), []) == []
    assert judged([], [off(0, 900)]) == []


def test_the_worst_runs_get_a_line_and_the_others_a_number():
    runs = series(*(1000.0,) * 20, 2000, 4000, 3000)
    rows = judged(runs, [off(20e6, 900), off(22e6, 1900)])
    lines = disturbance_lines(rows, limit=1)
    assert [line.partition(":")[0] for line in lines] == [
        "run 21 (+3 ms)",
        "and 2 more slow runs, 2 of them caused by a known thread",
    ]
    assert disturbance_lines([]) == []


def test_of_nested_spans_the_innermost_is_hit():
    (near,) = events_by_run([Run(True, 0, 0.0, 1000)], [off(200, 100)])
    loop, inner = NodeSpan("loop", 0, 1000), NodeSpan("inner", 150, 350)
    assert node_hit([loop, inner], near.intervals) == ("inner", pytest.approx(100))
    assert node_hit([], near.intervals) == (None, 0.0)


def test_events_go_to_every_run_that_they_overlap_whatever_their_order():
    rng = random.Random(11)
    starts, runs = 0.0, []
    for index in range(31):
        starts += rng.uniform(0.001, 0.01)
        runs.append(Run(False, index, starts, rng.uniform(10, 9000)))
        starts = runs[-1].end_s
    events = [off(rng.uniform(0, 3e5), rng.uniform(1, 30_000)) for _ in range(97)]
    for run, near in zip(runs, events_by_run(runs, events), strict=True):
        expected = [e for e in events if e.time_s < run.end_s and e.time_s + 1e-6 * e.duration_us > run.start_s]
        assert [one.event for one in near.intervals] == sorted(expected, key=lambda event: event.time_s)
        ticks = {
            tick
            for one in expected
            for tick in range(
                int(1e6 * max(one.time_s, run.start_s)), int(1e6 * min(one.time_s + 1e-6 * one.duration_us, run.end_s))
            )
        }
        assert near.lost_us == pytest.approx(len(ticks), abs=2 * len(expected) + 1)  # counted µs by µs


def test_a_full_log_keeps_what_lost_most():
    log = EventLog(limit=3)
    for start in (5, 3, 4, 1, 2, 6, 7):
        log.extend([off(start, 10 * start)])
    assert [event.duration_us for event in log.sorted()] == [50, 60, 70]
    assert log.dropped_count == 4


def test_a_thread_that_never_has_a_processor_is_not_why_a_run_is_longer():
    latencies = [*QUIET, 1200]
    starved = [off(1e6 * second, latency, "background", 9, thread_id=8) for second, latency in enumerate(latencies)]
    (row,) = judged(series(*latencies), starved)
    assert (row["explained_share"], row["lost_us"], row["disturbance_cause"]) == (0, 0, "none_recorded")


def test_the_node_of_the_union_is_hit_not_that_of_two_threads_at_once():
    spans = [NodeSpan("a", 5e6, 5e6 + 2000), NodeSpan("b", 5e6 + 2000, 5e6 + 4000)]
    runs = [*series(*QUIET, profiled=True), Run(True, 5, 5.0, 4000, spans)]
    twice = [off(5e6 + 2000, 900, thread_id=thread) for thread in (7, 8)]
    (row,) = judged(runs, [off(5e6, 1500), *twice])
    assert (row["hit_node"], row["hit_us"]) == ("a", pytest.approx(1500))


def test_a_few_microseconds_are_no_disturbance():
    assert judged(series(10.0, 10.1, 10.2, 10.1, 10.0, 19.0), []) == []
