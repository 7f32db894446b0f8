"""The plan as a trace: lanes in their order, and sums that are those of the schedule."""

from collections import Counter

from common.timeline.chrome_trace import events
from common.timeline.viewer_files import plan_trace


def interval(scenario, lane, activity, item, start_us, finish_us):
    times = {"interval_start_us": start_us, "interval_finish_us": finish_us}
    return {"scenario": scenario, "lane": lane, "activity": activity, "item": item, **times}


SCHEDULE = [
    interval("before", "host", "host", "G1", 0.0, 101.0),
    interval("before", "host", "host", "G2", 101.0, 114.0),
    interval("after", "d2h", "transfer", "y", 41.0, 48.0),
    interval("after", "engine-b", "launch", "G1", 10.0, 13.0),
    interval("after", "engine-b", "kernel", "G1", 13.0, 41.0),
    interval("after", "h2d", "transfer", "x", 0.0, 7.0),
    interval("after", "convert-in", "conversion", "x", 7.0, 10.0),
    interval("after", "convert-out", "conversion", "y", 48.0, 53.0),
    interval("after", "host", "host", "G2", 53.0, 66.0),
]
CANDIDATES = [{"candidate": "G1", "pattern": "Conv+Relu", "macs": 17, "bytes": None, "source_nodes": ["c", "r"]}]


def traced(verdict="", **tables):
    return plan_trace({"offload_schedule": SCHEDULE, "fpga_candidates": CANDIDATES, **tables}, verdict)


def test_each_scenario_is_a_process_with_the_lanes_in_the_order_of_the_data():
    before, after = traced().processes
    assert [part.track for part in before.slices] == ["host", "host"]
    assert [*dict.fromkeys(part.track for part in after.slices)] == [
        *("host", "link to the card", "number format in", "engine-b", "number format out", "link to the host")
    ]


def test_times_are_those_of_the_schedule():
    _, after = traced().processes
    sums = Counter()
    for part in after.slices:
        sums[part.facts["activity"]] += part.duration_us
    assert sums == {"host": 13, "transfer": 7 + 7, "conversion": 3 + 5, "launch": 3, "kernel": 28}
    assert max(part.start_us + part.duration_us for part in after.slices) == 66


def test_a_slice_opens_with_what_is_known_of_its_candidate():
    _, after = traced().processes
    kernel = next(part for part in after.slices if part.facts["activity"] == "kernel")
    assert kernel.name == "G1 Conv+Relu"
    assert dict(kernel.facts) == {"activity": "kernel", "pattern": "Conv+Relu", "source_nodes": ["c", "r"], "macs": 17}
    assert {part.name for part in after.slices if part.facts["activity"] == "launch"} == {"launch G1 Conv+Relu"}


def test_a_track_has_one_name_in_the_events():
    made = [*events(traced())]
    tracks = {(event["pid"], event["tid"]) for event in made if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in made if event["ph"] == "X"} == tracks
    assert len(tracks) == 1 + 6


def test_the_title_of_the_plan_ends_with_its_verdict_and_that_of_the_host_alone_has_none():
    before, after = traced(verdict="Not judged: the host was busy").processes
    assert after.title.endswith("; Not judged: the host was busy")
    assert "judged" not in before.title


def test_the_title_of_the_plan_has_its_interval():
    """Without the comparison of 07 the title names the plan alone."""
    cases = {"plan_latency_pessimistic_us": 6_900.1, "plan_latency_likely_us": 3_551.9}
    row = {"alternative": "plan", **cases, "plan_latency_optimistic_us": 2_502.7}
    title = "after: host, link and engines of the plan"
    assert [process.title for process in traced().processes][1] == title
    named = traced(offload_comparison=[row]).processes[1].title
    assert named == f"{title}, 3.55 ms is likely (2.5 ms with most gain, 6.9 ms with least)"


def test_frames_in_flight_are_a_process_of_their_own_with_a_track_for_each_replica():
    frames = [
        {
            "lane": "h2d",
            "activity": "transfer",
            "call_frames": "1 to 4",
            "interval_start_us": 0.0,
            "interval_finish_us": 7,
        },
        {
            "lane": "SLR0.1 arrays",
            "activity": "kernel",
            "call_frames": "1 to 4",
            "interval_start_us": 7,
            "interval_finish_us": 50,
        },
        {
            "lane": "SLR1.1 arrays",
            "activity": "kernel",
            "call_frames": "5",
            "interval_start_us": 14,
            "interval_finish_us": 57,
        },
    ]
    plan = {
        "is_quickest": True,
        "division": "frames",
        "engine": "systolic-12x16x16-int8",
        "accelerator_count": 2,
        "pessimistic_inferences_per_s": 101.2,
        "likely_inferences_per_s": 203.4,
        "optimistic_inferences_per_s": 306.7,
    }
    *_, stream = traced(replica_plans=[plan], replica_schedule=frames).processes
    assert stream.title == "stream: 203 frames/s are likely (101 to 307) on 2 x systolic-12x16x16-int8, frames divided"
    shown = [(slice_.track, slice_.name, slice_.start_us, slice_.duration_us) for slice_ in stream.slices]
    assert shown == [
        ("link to the card", "frames 1 to 4", 0.0, 7),
        ("SLR0.1 arrays", "frames 1 to 4", 7, 43),
        ("SLR1.1 arrays", "frame 5", 14, 43),
    ]
    assert len(traced().processes) == 2
