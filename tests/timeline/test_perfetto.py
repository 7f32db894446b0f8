"""Timelines as Perfetto's own messages: another program's idea of what may stand in a trace."""

import json

import pytest

from common.artifacts.catalogue import ARTIFACTS
from common.latency.run import NodeSpan
from common.timeline.chrome_trace import ChromeTrace, trace_json
from common.timeline.from_tables import ShownRun, timeline
from common.timeline.load_tracks import load_timeline
from common.timeline.viewer_files import plan_trace

messages = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="needs the package perfetto (requirements-dev.txt)"
)
SEQUENCE = 17  # of packets: a trace has a number for each writer


def to_messages(content):
    """Return a trace in Chrome's format as the bytes of Perfetto's: slices as their begins and ends, in whole ns."""
    trace = messages.Trace()
    timed = []
    for event in content["traceEvents"]:
        uuid = 1_000 * event["pid"] + event["tid"] + 1
        if event["name"] == "thread_name":
            trace.packet.add().track_descriptor.MergeFrom(
                messages.TrackDescriptor(uuid=uuid, name=event["args"]["name"])
            )
        elif event["ph"] == "X":
            start, end = round(1_000 * event["ts"]), round(1_000 * event["ts"]) + round(1_000 * event["dur"])
            begin = messages.TrackEvent(type="TYPE_SLICE_BEGIN", track_uuid=uuid, name=event["name"])
            for name, value in event["args"].items():
                begin.debug_annotations.add(name=name, string_value=json.dumps(value))
            timed.append(((start, 1, start - end), begin))
            timed.append(((end, 0, 0), messages.TrackEvent(type="TYPE_SLICE_END", track_uuid=uuid)))
    for (time_ns, *_), event in sorted(timed, key=lambda entry: entry[0]):
        trace.packet.add(timestamp=time_ns, trusted_packet_sequence_id=SEQUENCE, track_event=event)
    return trace.SerializeToString()


def slices_of(content):
    """Read the messages again: return (track, name, duration in ns) of each slice, which must be nested."""
    tracks, opened, found = {}, {}, []
    for packet in messages.Trace.FromString(content).packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
            continue
        event = packet.track_event
        stack = opened.setdefault(event.track_uuid, [])
        if event.type == messages.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((event.name, packet.timestamp))
        else:
            name, start_ns = stack.pop()
            found.append((tracks[event.track_uuid], name, packet.timestamp - start_ns))
    assert not any(opened.values())
    return found


def written(trace):
    return json.loads(trace_json(trace, {"model": "m"}))


def test_runs_nodes_and_gaps_of_a_timeline():
    run = {"is_profiled": True, "run_index": 0, "is_warmup": False, "start_us": -7.5, "latency_us": 101.25}
    spans = [NodeSpan("loop", 3.25, 50.25), NodeSpan("inner", 5.25, 11.25), NodeSpan("add", 50.25, 60.25)]
    found = slices_of(to_messages(written(timeline({"run_latency": [run]}, [ShownRun(0, "median", spans)]).trace())))
    assert sorted(found) == [
        ("gap", "between nodes", 10_750),
        ("gap", "between nodes", 33_500),
        ("nodes", "add", 10_000),
        ("nodes", "inner", 6_000),
        ("nodes", "loop", 47_000),
        ("profiled", "run 0", 101_250),
    ]


def test_intervals_of_a_plan_end_where_the_next_begins():
    ends_us = [10.0006, 20.0012, 30.0018, 40.0024]  # start and duration, rounded each, reach beyond the next
    schedule = [
        {"scenario": "after", "lane": "engine", "activity": "kernel", "item": f"G{index}"}
        | {"interval_start_us": start_us, "interval_finish_us": end_us}
        for index, (start_us, end_us) in enumerate(zip([0.0, *ends_us], ends_us, strict=False))
    ]
    found = slices_of(to_messages(written(plan_trace({"offload_schedule": schedule}))))
    assert [name for _, name, _ in found] == ["G0", "G1", "G2", "G3"]
    assert sum(duration_ns for *_, duration_ns in found) == round(1_000 * ends_us[-1])


def test_requests_of_a_load_test_lie_beside_each_other_and_stages_within_their_batch():
    """Times that no whole ns holds: a slice that a viewer rounds must not end after the one around it."""
    step_us = 1000 / 7
    times = {"intended_us": 0.0, "batched_us": 2 * step_us, "started_us": 2 * step_us + 1 / 3, "ended_us": 5 * step_us}
    facts = {"outcome": "completed", "load_batch_index": 0}
    requests = [{**facts, "request_index": k, **times, "intended_us": k / 3, "request_latency_us": 1.0} for k in (0, 1)]
    stages = {"assemble_us": step_us - 1 / 3, "session_run_us": 2 * step_us}
    batch = {
        **dict.fromkeys(column.name for column in ARTIFACTS["load_batches"].columns),
        "load_batch_index": 0,
        "worker_index": 0,
        "request_count": 2,
        "formation_us": 2 * step_us,
        **times,
        **stages,
    }
    found = slices_of(to_messages(written(ChromeTrace(load_timeline(requests, [batch], 1).processes))))
    known_us = {
        ("for worker 0", "batch 0: 2 requests"): 2 * step_us,
        ("requests 1", "request 0"): 5 * step_us,
        ("requests 1", "waits"): 2 * step_us + 1 / 3,
        ("requests 2", "request 1"): 5 * step_us - 1 / 3,
        ("requests 2", "waits"): 2 * step_us,
        ("session 0", "assemble"): step_us - 1 / 3,
        ("session 0", "batch 0: 2 requests"): 3 * step_us - 1 / 3,
        ("session 0", "session_run"): 2 * step_us,
    }
    assert {(track, name): pytest.approx(duration_ns, abs=1.01) for track, name, duration_ns in found} == {
        key: 1e3 * value for key, value in known_us.items()
    }
