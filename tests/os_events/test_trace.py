"""The scheduler's text, as a kernel 6.18 wrote it, and the intervals that are read from it by hand."""

import pytest

from common.os_events.sched_trace import KEPT_SLICES, Processors, SchedulerTrace, Thread, find_mark

# Recorded during runs of ResNet-50; ours are 26075 (main) and 26078, which the kernel both calls "python".
RECORDED = """\
# tracer: nop
    likwid-bench-26064   [000] d..2. 22393.043996: sched_switch: prev_comm=likwid-bench prev_pid=26064 prev_prio=120 \
prev_state=R ==> next_comm=python next_pid=26078 next_prio=120
          python-26078   [000] d..2. 22393.048005: sched_switch: prev_comm=python prev_pid=26078 prev_prio=120 \
prev_state=R ==> next_comm=likwid-bench next_pid=26064 next_prio=120
          python-26075   [001] d.h2. 22393.048475: sched_waking: comm=memfd:sealed-91 pid=16861 prio=120 target_cpu=001
          python-26075   [001] d..2. 22393.048479: sched_switch: prev_comm=python prev_pid=26075 prev_prio=120 \
prev_state=R ==> next_comm=memfd:sealed-91 next_pid=16861 next_prio=120
 memfd:sealed-91-16861   [001] d..2. 22393.048494: sched_switch: prev_comm=memfd:sealed-91 prev_pid=16861 \
prev_prio=120 prev_state=S ==> next_comm=python next_pid=26075 next_prio=120
    likwid-bench-26064   [000] d..2. 22393.056003: sched_switch: prev_comm=likwid-bench prev_pid=26064 prev_prio=120 \
prev_state=R ==> next_comm=python next_pid=26078 next_prio=120
"""
OWN = (7, 8)


def switch(time_s, processor, leaving, state, coming):
    """A line as the kernel writes it; threads are (name, number)."""
    return (
        f" {leaving[0]}-{leaving[1]} [{processor:03}] d..2. {time_s:.6f}: sched_switch: prev_comm={leaving[0]} "
        f"prev_pid={leaving[1]} prev_prio=120 prev_state={state} ==> next_comm={coming[0]} next_pid={coming[1]} "
        "next_prio=120\n"
    )


def waking(time_s, thread, target):
    woken = f"comm={thread[0]} pid={thread[1]} prio=120 target_cpu={target:03}"
    return f" x-99 [000] d.h2. {time_s:.6f}: sched_waking: {woken}\n"


MAIN, POOL, IDLE, SPIN, MOVER = ("python", 7), ("python", 8), ("swapper/1", 0), ("spin", 50), ("migration/1", 20)


def read(*lines, own=OWN):
    return SchedulerTrace(set(own), 7).feed("".join(lines))


def test_recorded_lines():
    trace = SchedulerTrace({26075, 26078}, 26075)
    first, second = trace.feed(RECORDED)
    assert (first.event_kind, first.thread_id, first.is_main_thread) == ("preempted", 26075, True)
    assert (first.processor_index, first.other_process, first.other_process_id) == (1, "memfd:sealed-91", 16861)
    assert first.time_s == 22393.048479
    assert first.duration_us == first.lost_us == pytest.approx(15, abs=0.01)  # .048494 - .048479
    assert (second.thread_id, second.is_main_thread, second.other_process) == (26078, False, "likwid-bench")
    assert second.duration_us == pytest.approx(7998, abs=0.01)  # .056003 - .048005
    assert (second.is_own_thread, second.crowding_process) == (False, None)
    assert trace.switch_count == 5


@pytest.mark.parametrize("cut", range(0, len(RECORDED), 13))
def test_a_piece_may_end_anywhere(cut):
    whole, pieces = SchedulerTrace({26075, 26078}, 26075), SchedulerTrace({26075, 26078}, 26075)
    assert pieces.feed(RECORDED[:cut]) + pieces.feed(RECORDED[cut:]) == whole.feed(RECORDED)


@pytest.mark.parametrize(("state", "count"), [("R", 1), ("R+", 1), ("S", 0), ("D", 0), ("X", 0), ("S|K", 0)])
def test_only_who_could_have_run_on_was_preempted(state, count):
    assert len(read(switch(1, 1, MAIN, state, SPIN), switch(2, 1, SPIN, "R", MAIN))) == count


def test_a_name_may_look_like_fields():
    odd = ("a prev_pid=3 ==> b", 51)
    (event,) = read(switch(1, 1, MAIN, "R", odd), switch(1.25, 1, odd, "S", MAIN))
    assert (event.other_process, event.other_process_id) == odd


def test_a_sleeper_waits_from_its_waking_behind_who_runs_there():
    (event,) = read(switch(1, 1, POOL, "S", SPIN), waking(3, POOL, 1), switch(3.5, 1, SPIN, "R", POOL))
    assert (event.event_kind, event.time_s, event.duration_us) == ("waited", 3.0, 500_000)
    assert (event.other_process, event.processor_index, event.is_main_thread) == ("spin", 1, False)


@pytest.mark.parametrize(("length_us", "count"), [(99, 0), (101, 1)])
def test_leaving_idleness_takes_a_while_which_nobody_caused(length_us, count):
    end_s = 3 + 1e-6 * length_us
    found = read(switch(1, 1, POOL, "S", IDLE), waking(3, POOL, 1), switch(end_s, 1, IDLE, "R", POOL))
    assert len(found) == count
    assert all(event.other_process is None and event.is_own_thread is None for event in found)


def test_a_second_waking_changes_nothing_and_others_are_not_ours():
    lines = waking(3, POOL, 1), waking(4, POOL, 1), waking(4, SPIN, 1), switch(5, 1, SPIN, "R", POOL)
    (event,) = read(switch(1, 1, POOL, "S", SPIN), *lines)
    assert event.time_s == 3.0


def test_who_ran_longest_is_named_not_who_ran_first_or_last():
    lines = [switch(1.0, 1, MAIN, "R+", MOVER), switch(1.1, 1, MOVER, "S", SPIN), switch(1.8, 1, SPIN, "R", MOVER)]
    (event,) = read(*lines, switch(2, 1, MOVER, "S", MAIN))  # 0.1 + 0.2 s and 0.7 s
    assert event.other_process == "spin"


def test_who_came_back_on_another_processor_lost_the_first():
    (event,) = read(switch(1, 1, MAIN, "R", SPIN), switch(2, 0, IDLE, "R", MAIN))
    assert (event.processor_index, event.other_process, event.duration_us) == (1, "spin", 1e6)


def test_two_of_ours_share_a_processor_because_another_is_held():
    shared = [switch(2, 1, MAIN, "R", POOL), switch(3, 1, POOL, "R", MAIN)]
    (alone,) = read(switch(1, 0, IDLE, "R", POOL), *shared)
    assert (alone.other_process_id, alone.is_own_thread, alone.crowding_process) == (8, True, None)
    (crowded,) = read(switch(1, 0, IDLE, "R", SPIN), *shared)
    assert (crowded.is_own_thread, crowded.crowding_process, crowded.crowding_process_id) == (True, "spin", 50)
    (briefly,) = read(switch(2.6, 0, IDLE, "R", SPIN), *shared)  # 0.4 s of 1 s
    assert briefly.crowding_process is None


@pytest.mark.parametrize(("flags", "is_own"), [("7d0f00", True), ("1200000", False)])
def test_threads_that_ours_make_are_ours_and_processes_are_not(flags, is_own):
    line = f" python-7 [001] ..... 0.5: task_newtask: pid=9 comm=python clone_flags={flags} oom_score_adj=0\n"
    trace = SchedulerTrace(set(OWN), 7)
    trace.feed(line)
    assert (9 in trace.own) is is_own
    strangers = line.replace("python-7", "spin-50").replace("pid=9", "pid=11").replace(flags, "7d0f00")
    trace.feed(strangers)
    assert 11 not in trace.own


def test_no_interval_is_made_up_over_lost_events():
    trace = SchedulerTrace(set(OWN), 7)
    found = trace.feed(switch(1, 1, MAIN, "R", SPIN) + "CPU:1 [LOST 3660 EVENTS]\n" + switch(9, 1, SPIN, "R", MAIN))
    assert (found, trace.lost_count) == ([], 3660)
    (event,) = trace.feed(switch(10, 1, MAIN, "R", POOL) + switch(11, 1, POOL, "R", MAIN))
    assert event.duration_us == 1e6
    assert trace.feed("CPU:0 [LOST 2 EVENTS]\n") == []
    assert trace.lost_count == 3662


def test_an_end_that_the_kernel_hides_is_counted_and_not_made_up():
    trace = SchedulerTrace(set(OWN), 7)
    found = trace.feed(switch(1, 1, MAIN, "R", SPIN) + switch(3, 1, MAIN, "R", SPIN) + switch(4, 1, SPIN, "R", MAIN))
    assert [(event.time_s, event.duration_us) for event in found] == [(3.0, 1e6)]
    assert trace.unseen_count == 1
    trace.feed(switch(5, 1, MAIN, "R", SPIN))
    trace.finish()
    assert trace.unseen_count == 2
    trace.finish()
    assert trace.unseen_count == 2


def test_lines_of_other_kinds_are_passed_over():
    assert (
        read("\n", "# comment\n", " x-1 [000] d..2. 1.0: sched_switch: garbled\n", " x-1 [000] ..... 1.0: other: y\n")
        == []
    )


def test_a_mark_tells_the_kernels_number_and_time():
    line = "         python3-26771   [001] ...1. 22536.401544: tracing_mark_write: onnx_profile_1.5\n"
    mark = find_mark("# x\n" + line.replace("_1.5", "_9") + line, "onnx_profile_1.5")
    assert (mark.thread_id, mark.time_s) == (26771, 22536.401544)
    assert find_mark(line, "onnx_profile_1") is None


# --- who ran where --------------------------------------------------------------------------------------------------


def test_shares_are_cut_to_the_interval_and_leave_out_idleness():
    a, b, idle = Thread("a", 1), Thread("b", 2), Thread("swapper", 0)
    processors = Processors()
    processors.switch(3, 10.0, a, b)  # a since ever
    processors.switch(3, 13.0, b, idle)
    processors.switch(3, 14.0, idle, a)
    assert processors.shares_s(3, 5.0, 11.0) == {a: 5.0, b: 1.0}
    assert processors.shares_s(3, 12.0, 20.0) == {a: 6.0, b: 1.0}  # a is running now
    assert processors.shares_s(2, 0.0, 1.0) == {}
    assert processors.others(3) == []
    assert processors.others(2) == [3]


def test_what_lies_further_back_than_is_kept_is_unknown():
    a, b = Thread("a", 1), Thread("b", 2)
    processors = Processors()
    for second in range(KEPT_SLICES + 5):
        processors.switch(0, float(second), *((a, b) if second % 2 else (b, a)))
    assert processors.shares_s(0, 0.0, 3.0) == {}
    assert sum(processors.shares_s(0, 0.0, KEPT_SLICES + 4.0).values()) == KEPT_SLICES
