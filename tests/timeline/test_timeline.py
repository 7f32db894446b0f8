"""The timeline: which runs it shows, how it is cut into tracks, and that its JSON is what viewers take."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.latency.run import NodeSpan
from common.messages.errors import PipelineError
from common.timeline import from_tables
from common.timeline.chrome_trace import ChromeTrace, CounterValue, Process, Slice, trace_json
from common.timeline.from_tables import ShownRun, choose_runs, counts_of, shown_rows, timeline, uncovered


def run(index, start_us, latency_us, *, is_profiled=True, is_warmup=False):
    facts = {"is_profiled": is_profiled, "run_index": index, "is_warmup": is_warmup}
    return {**facts, "start_us": start_us, "latency_us": latency_us}


def disturbance(time_us, duration_us):
    row = {"event_kind": "preempted", "event_source": "tracefs", "time_us": time_us, "duration_us": duration_us}
    where = {"is_main_thread": True, "thread_id": 7, "processor_index": None, "event_count": 1}
    return {**row, **where, "other_process": "cc1"}


def spans(*times):
    return [NodeSpan(*time) for time in times]


def parsed(made):
    return json.loads(trace_json(made, {"model": "m"}), parse_constant=pytest.fail)


def test_the_first_the_median_and_the_slowest_run_are_chosen():
    assert choose_runs([900, 800, 13, 17, 11, 19, 23], 2) == {0: "first", 3: "median", 6: "slowest"}


def test_one_run_may_have_several_roles():
    assert choose_runs([5], 0) == {0: "first, median, slowest"}
    assert choose_runs([5, 7], 2) == {0: "first, median", 1: "slowest"}  # all are warm-up: then all count


def test_every_run_is_shown_on_demand():
    assert choose_runs([5, 3, 4, 6], 1, every=True) == {0: "first", 1: "", 2: "median", 3: "slowest"}


def test_no_run_is_refused():
    with pytest.raises(PipelineError, match="holds no profiled run"):
        choose_runs([], 0)


def test_time_outside_the_nodes_counts_no_time_twice():
    """Node b lies in its owner a; c overlaps the end of a; the last node ends after the run."""
    nodes = spans(("a", 10, 30), ("b", 12, 20), ("c", 27, 40), ("d", 50, 51), ("e", 60, 67))
    assert [*uncovered(nodes, 3, 65)] == [(3, 10), (40, 50), (51, 60)]
    assert [*uncovered(nodes[:1], 11, 37)] == [(30, 37)]
    assert [*uncovered([], 3, 5)] == [(3, 5)]


def test_the_gap_has_a_track_of_its_own():
    made = timeline({"run_latency": [run(0, 0, 101)]}, [ShownRun(0, "first", spans(("a", 3, 50), ("b", 60, 97)))])
    assert [(part.start_us, part.duration_us) for part in made.gaps] == [(0, 3), (50, 10), (97, 4)]


def test_a_run_says_what_its_nodes_leave():
    made = timeline({"run_latency": [run(0, 0, 101)]}, [ShownRun(0, "first", spans(("a", 3, 50), ("b", 60, 97)))])
    assert made.runs[0].facts["outside_nodes_us"] == 101 - 47 - 37
    assert shown_rows(made)[0]["event_count"] == 2


def test_nodes_have_a_track_for_each_provider_and_what_is_known_of_them():
    tables = {
        "run_latency": [run(0, 0, 10)],
        "op_latency": [{"executed_node": "a", "provider": "CPU"}, {"executed_node": "b", "provider": "CUDA"}],
        "op_roofline": [{"executed_node": "a", "macs": 7, "source_nodes": ["x", "y"], "bound": None, "unrelated": 1}],
    }
    made = timeline(tables, [ShownRun(0, "first", spans(("a", 1, 2), ("b", 2, 3), ("c", 3, 4)))])
    assert [part.track for part in made.nodes] == ["CPU", "CUDA", "nodes"]
    assert dict(made.nodes[0].facts) == {"run_index": 0, "executed_node": "a", "macs": 7, "source_nodes": ["x", "y"]}


def test_a_slow_run_is_marked():
    slow = {"is_profiled": False, "run_index": 0, "disturbance_cause": "preempted"}
    tables = {"run_latency": [run(0, 0, 10), run(0, 20, 30, is_profiled=False)], "run_disturbances": [slow]}
    made = timeline(tables, [])
    assert [part.name for part in made.runs] == ["run 0", "run 0 (slow)"]
    assert made.runs[1].facts["slow_because"] == "preempted"
    assert [part.track for part in made.runs] == ["profiled", "unprofiled"]


@pytest.mark.parametrize(
    ("time_us", "duration_us", "is_kept"),
    [(0, 5, False), (0, 11, True), (15, None, True), (20, 1, False), (19, 10, True), (25, 4, False), (39, 1, True)],
)
def test_disturbances_within_the_runs_are_kept(time_us, duration_us, is_kept):
    runs = [run(1, 30, 10), run(0, 10, 10)]
    made = timeline({"run_latency": runs, "os_events": [disturbance(time_us, duration_us)]}, [])
    assert bool(made.disturbances) == is_kept


def test_too_many_runs_leave_those_whose_nodes_are_shown(monkeypatch):
    monkeypatch.setattr("common.timeline.from_tables.MOST_RUNS", 19)
    runs = [run(index, 10 * index, 5) for index in range(20)]
    made = timeline({"run_latency": runs}, [ShownRun(17, "median", [])])
    assert [part.facts["run_index"] for part in made.runs] == [17]
    assert made.notes == ["the timeline leaves out 19 of 20 runs: its file would be too large for a viewer"]
    assert len(timeline({"run_latency": runs}, [ShownRun(17, "median", [])], is_bounded=False).runs) == 20


@pytest.mark.parametrize(
    ("most", "kept", "names"),
    [
        (7, [0, 3], ["a", "i", "b"] * 2),
        (6, [0, 3], ["a", "i", "b"] * 2),
        (3, [3], ["a", "i", "b"]),
        (2, [3], ["a", "b"]),
    ],
)
def test_too_many_nodes_leave_the_median_run_and_at_last_no_bodies(monkeypatch, most, kept, names):
    monkeypatch.setattr(from_tables, "MOST_NODE_EVENTS", most)
    times = [("a", 1, 7), ("i", 2, 5), ("b", 7, 9)]
    few = from_tables.limited_node_events([ShownRun(0, "first", spans(*times)), ShownRun(3, "median", spans(*times))])
    assert [run.run_index for run in few] == kept
    assert [span.executed_node for run in few for span in run.spans] == names


def test_too_many_disturbances_and_samples_leave_those_of_the_shown_runs(monkeypatch):
    for name in ("MOST_DISTURBANCES", "MOST_SAMPLES"):
        monkeypatch.setattr(f"common.timeline.from_tables.{name}", 2)
    samples = [
        {"sensor_domain": "host", "time_us": time_us, "measured_power_w": 5.0} for time_us in (5, 13, 17, 19, 25)
    ]
    tables = {
        "run_latency": [run(0, 0, 10), run(1, 10, 10)],
        "os_events": [disturbance(time_us, 1) for time_us in (3, 5, 7, 11)],
        "power_samples": samples,
    }
    made = timeline(tables, [ShownRun(1, "median", [])])
    assert [part.start_us for part in made.disturbances] == [11]
    assert [sample.time_us for sample in made.samples] == [13, 17]
    (note,) = made.notes
    assert "3 of 4 disturbances, 3 of 5 samples" in note


def test_very_many_events_tell_of_a_node_once(monkeypatch):
    monkeypatch.setattr("common.timeline.from_tables.MOST_FACTS", 2)
    tables = {"op_roofline": [{"executed_node": "a", "macs": 7}]}
    made = timeline(tables, [ShownRun(0, "median", spans(("a", 1, 2), ("a", 2, 3), ("a", 3, 4)))])
    assert [part.facts.get("macs") for part in made.nodes] == [7, None, None]


def test_threads_have_tracks_where_there_are_several():
    nodes = [NodeSpan("a", 1, 2, 17), NodeSpan("b", 1, 2, 19)]
    assert [part.track for part in timeline({}, [ShownRun(0, "", nodes)]).nodes] == [
        "nodes, thread 17",
        "nodes, thread 19",
    ]


def test_nothing_comes_before_the_start_of_the_file():
    """Perfetto drops events with a time below 0: the samples before the first run."""
    tables = {"run_latency": [run(0, 0, 10)], "power_samples": []}
    tables["power_samples"] = [{"sensor_domain": "host", "time_us": -3.25, "measured_power_w": 5.0}]
    content = parsed(timeline(tables, []).trace())
    assert content["otherData"]["time_zero_us"] == 4
    assert sorted(event["ts"] for event in content["traceEvents"] if "ts" in event) == [0.75, 4]


def test_arrows_join_the_critical_path_in_the_median_run():
    times = [("a", 1, 5), ("b", 5, 6), ("c", 7, 9)]
    later = [(name, 100 + start, 100 + end) for name, start, end in times]
    shown = [ShownRun(0, "first", spans(*times)), ShownRun(3, "median", spans(*later))]
    made = timeline({"critical_path": [{"executed_node": name} for name in ("a", "c", "gone")]}, shown)
    assert [(part.name, part.facts["run_index"]) for part in made.chain] == [("a", 3), ("c", 3)]
    start, end = (event for event in parsed(made.trace())["traceEvents"] if event["ph"] in "sf")
    assert ((start["ts"], end["ts"], start["id"]), end["bp"]) == ((103, 108, end["id"]), "e")
    assert counts_of(made)["arrows along the critical path"] == 1


def test_no_arrow_leads_back_from_a_body_to_its_owner():
    shown = [ShownRun(0, "median", spans(("a", 0, 2), ("loop", 2, 9), ("inner", 3, 7), ("b", 9, 11)))]
    path = [{"executed_node": name} for name in ("a", "inner", "loop", "b")]
    assert [part.name for part in timeline({"critical_path": path}, shown).chain] == ["a", "inner", "b"]
    named = timeline({"critical_path": path, "op_latency": path}, shown, {"a": "layer/conv", "b": "a"})
    assert [(part.name, part.facts["executed_node"]) for part in named.chain] == [
        *(("layer/conv", "a"), ("inner", "inner"), ("a", "b"))
    ]


def test_the_events_are_those_of_the_format():
    runs = Process("runs", [Slice("run 0", "profiled", 0.5, 10.25, {"role": "first"})])
    made = ChromeTrace([runs, Process("nodes", [Slice('a "b"\n', "CPU", 1, 2)], [CounterValue("host W", 3, 65.5)])])
    content = parsed(made)
    assert (content["displayTimeUnit"], content["otherData"]) == ("ms", {"model": "m", "time_zero_us": 0})
    by_phase = {}
    for event in content["traceEvents"]:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        by_phase.setdefault(event["ph"], []).append(event)
    assert [(event["ts"], event["dur"], event["name"]) for event in by_phase["X"]] == [
        (0.5, 10.25, "run 0"),
        (1, 2, 'a "b"\n'),
    ]
    assert by_phase["C"][0]["args"] == {"value": 65.5}
    tracks = {(event["pid"], event["tid"]) for event in by_phase["M"] if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in by_phase["X"]} == tracks


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=20), st.floats(-1e6, 1e6))
def test_what_follows_without_a_gap_does_not_overlap_in_whole_ns(durations, start_us):
    """As Perfetto reads it: start and duration are rounded to ns each, and an event that overlaps is dropped."""
    parts, time_us = [], start_us
    for duration_us in durations:
        parts.append(Slice("a", "t", time_us, duration_us))
        time_us += duration_us
    content = json.loads(trace_json(ChromeTrace([Process("p", parts)]), {}))
    times = [(round(1000 * e["ts"]), round(1000 * e["dur"])) for e in content["traceEvents"] if e["ph"] == "X"]
    assert all(start + length <= after for (start, length), (after, _) in pairwise(times))
    assert [length for _, length in times] == pytest.approx([1000 * us for us in durations], abs=2)


def test_what_json_has_no_number_for_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        trace_json(ChromeTrace([Process("p", [Slice("a", "t", 0, float("nan"))])]), {})


@pytest.mark.slow
def test_the_largest_timeline_is_below_20_mb():
    """Everything at its limit, with names as long as exporters write them."""
    name = "/model/encoder/layers.{}/self_attention/q_proj/MatMul_output_0_nchwc".format
    node_count = from_tables.MOST_NODE_EVENTS // 3
    facts = {"provider": "CPUExecutionProvider", "op_type": "FusedMatMul", "macs": 118_013_952, "bytes": 3_852_032}
    facts |= {"node_latency_us": 17.123456789, "latency_share": 0.0123456789, "energy_uj": 1234.56789, "flops": 10**9}
    nodes = [{"executed_node": name(i), "source_nodes": [name(i)] * 3, **facts} for i in range(node_count)]
    tables = {
        "run_latency": [run(i, 1e4 * i + 0.123, 9_000.5) for i in range(from_tables.MOST_RUNS)],
        "op_roofline": nodes,
        "os_events": [disturbance(2e4 * i + 0.123, 3.25) for i in range(from_tables.MOST_DISTURBANCES)],
        "power_samples": [
            {"sensor_domain": "package-0", "time_us": 1e4 * i + 0.123, "measured_power_w": 65.123456789}
            for i in range(from_tables.MOST_SAMPLES)
        ],
    }
    shown = [
        ShownRun(i, "median", [NodeSpan(name(k), 1e4 * i + k + 0.25, 1e4 * i + k + 0.75) for k in range(node_count)])
        for i in range(3)
    ]
    made = timeline(tables, shown)
    assert not made.notes
    assert len(made.gaps) > len(made.nodes)
    assert len(trace_json(made.trace(), {}).encode()) < 20e6
