"""What the tables of a folder tell of one measurement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.comparison.difference_rows import ComparisonSettings, comparison_rows, failures, why_no_nodes
from common.comparison.measured import changed_conditions, pooled
from common.comparison.recorded import differences, doubts, recorded_side
from common.messages.errors import PipelineError

ORIGIN = {
    **{"model_id": "m", "dimensions": {"N": 3}, "host": {"hostname": "h"}, "notes": [], "imported": {}},
    **{"settings": {"runs": {"value": 101, "from": "flag"}}, "tools": {"onnx": "1.2.3"}},
}


def run(latency_us, *, is_warmup=False, is_profiled=False):
    return {"latency_us": latency_us, "is_warmup": is_warmup, "is_profiled": is_profiled}


def side(name="out", *, origin=None, documents=None, nodes_us=None, **tables):
    tables.setdefault("run_latency", [run(7.0)])
    return recorded_side(name, ORIGIN | (origin or {}), documents or {}, tables, nodes_us or {})


def test_the_runs_that_count_are_those_of_the_measurements_own_figures():
    """What came before the steady part is warm-up already: a second cut would leave two of these five."""
    latencies_us = [99.0, 50.0, 11.0, 13.0, 17.0, 19.0, 23.0]
    runs = [run(one, is_warmup=index < 2) for index, one in enumerate(latencies_us)] + [run(7.0, is_profiled=True)]
    found = side(run_latency=runs, documents={"latency_summary": {"steady_start_index": 3, "p50_us": None}})
    assert found.latencies_us.tolist() == latencies_us[2:]


def op_latency(node, corrected_median=None, corrected_mean=None, raw_median=None, raw_mean=None):
    times_us = {"corrected_median": corrected_median, "corrected_mean": corrected_mean}
    times_us |= {"raw_median": raw_median, "raw_mean": raw_mean}
    return {"executed_node": node, "op_type": "Conv", **{f"{name}_us": value for name, value in times_us.items()}}


def test_a_node_without_runs_of_its_own_has_its_median_or_mean_alone():
    """Profiles of other programs tell one time per node: an effect, and nothing that decides it."""
    nodes = [
        op_latency("a", 5.0, 6.0, 7.0, 8.0),
        op_latency("b", 0.0, 1.0, 11.0, 12.0),
        op_latency("c", raw_median=13.0, raw_mean=14.0),
        op_latency("d", corrected_mean=17.0, raw_mean=18.0),
        op_latency("e"),
    ]
    found = side(op_latency=nodes)
    assert {name: times.tolist() for name, times in found.nodes_us.items()} == {
        "a": [5.0], "b": [0.0], "c": [13.0], "d": [17.0],
    }  # fmt: skip
    assert found.has_times(["a", "e"]) and found.has_times([]) and not found.has_times(["e"])
    assert side(op_latency=nodes, nodes_us={"a": [1.0, 2.0]}).nodes_us == {"a": [1.0, 2.0]}


def test_the_resources_are_those_of_the_whole_board_and_the_powers_of_all_engines_add_up():
    """The row of the board has all that its regions have, and engines that span them."""
    engine = {"board": "u280", "precision": "int8", "clock_mhz": 300.0, "group_count": 3}
    powers_w = {"x": 2, "y": 9}
    found = side(
        board_resources=[
            {"region": region, "resource": resource, "used_count": count}
            for region, resource, count in (("SLR0", "dsp", 3.0), ("SLR1", "dsp", 5.0), ("board", "dsp", 19.0))
        ],
        offload_plan=[{**engine, "engine": name, "kernel_power_likely_w": power} for name, power in powers_w.items()],
        offload_verdict=[{"objective": "energy", "verdict": "pays", "likely": 0.7}],
        offload_comparison=[{"alternative": "plan", "a": 1}, {"alternative": "greedy", "a": 2}],
    )
    assert found.stated["board_resources"] == {"dsp": {"used_count": 19.0}}
    assert found.stated["offload_plan"] == {"": {"kernel_power_likely_w": 11}}
    assert found.stated["offload_verdict"]["speedup in energy"]["likely"] == 0.7
    assert found.stated["offload_comparison"] == {"": {"alternative": "plan", "a": 1}}
    assert found.conditions["plan_engines"] == "x for 3 groups, y for 3 groups"


def test_the_rate_of_the_best_configuration_is_that_of_a_search():
    best = {"best_by": {"rate": {"sustained_requests_per_s": 29.0}, "cost": {}}, "bound_us": 31.0}
    assert side(documents={"load_best": best}).stated["load_best"] == {"": {"sustained_requests_per_s": 29.0}}
    assert side(documents={"load_best": {"best_by": {}, "bound_us": 31.0}}).stated["load_best"] == {}


@pytest.mark.parametrize(
    ("changes", "documents", "text"),
    [
        ({"host": {"hostname": "g"}}, {}, "differs: hostname: h against g"),
        ({"tools": {"onnx": "1.2.4"}}, {}, "differs: onnx version: 1.2.3 against 1.2.4"),
        ({"settings": {"runs": {"value": 7, "from": "flag"}}}, {}, "differs: runs: 101 against 7"),
        ({"imported": {"trace": "t.json"}}, {}, "differs: recorded elsewhere: no against trace t.json"),
        ({}, {"load_best": {"bound_us": 5.0, "best_by": {}}}, "differs: load bound us: 3 against 5"),
    ],
)
def test_what_differs_besides_is_said(changes, documents, text):
    before = side(documents={"load_best": {"bound_us": 3.0, "best_by": {}}})
    assert text in differences(before, side(origin=changes, documents=documents))


def clock(mhz, phase="run", quantity="cpu_frequency_mhz"):
    return {"quantity": quantity, "phase": phase, "value": mhz}


def test_the_clock_is_the_mean_of_its_samples_during_the_runs():
    samples = [clock(1000.0), clock(3000.0), clock(7.0, phase="idle"), clock(5.0, quantity="cpu_temperature_c")]
    assert side(host_samples=samples).conditions["clock_mhz"] == 2000.0
    assert side().conditions["clock_mhz"] is None
    assert "differs: clock mhz: 2000 against 3100" in differences(
        side(host_samples=samples), side(host_samples=[clock(3100.0)])
    )


def test_what_only_one_side_measured_is_no_difference_of_conditions():
    assert differences(side(documents={"load_best": {"bound_us": 3.0, "best_by": {}}}), side()) == []


def test_a_busy_host_is_named_with_its_folder():
    busy = side("one", origin={"notes": ["the host was busy: 2 of 3; stop it", "another note"]})
    assert doubts([side(), busy]) == ["not judged: one: the host was busy: 2 of 3"]


def test_a_doubt_of_several_sides_is_said_once():
    notes = {"notes": ["the host was busy: 2 of 3"]}
    assert doubts([side("one", origin=notes), side("two", origin=notes)]) == [
        "not judged: one, two: the host was busy: 2 of 3"
    ]


def planned(likely, dsp):
    summary = {"steady_start_index": 0, "p50_us": None}
    verdict = {"objective": "latency", "verdict": "pays", "speedup_p5_factor": likely, "likely": likely}
    verdict["speedup_p95_factor"] = likely
    return side(
        run_latency=[run(1009.0)] * 11,
        documents={"latency_summary": summary},
        offload_verdict=[verdict],
        board_resources=[{"region": "board", "resource": "dsp", "used_count": dsp}],
    )


@pytest.mark.parametrize(("before", "after", "failed"), [(2.0, 3.0, []), (3.0, 2.0, ["likely"])])
def test_a_plan_that_is_slower_fails_and_one_that_pays_more_does_not(before, after, failed):
    rows = comparison_rows([planned(before, 7.0)], planned(after, 11.0), ComparisonSettings(0.05))
    assert {row["compared_subject"]: row["comparison_verdict"] for row in rows if row["compared_kind"] == "plan"} == {
        "speedup in latency": "improved" if after > before else "regressed",
        "dsp": "regressed",
    }
    assert [row["compared_figure"] for row in failures(rows, 0.05)] == failed


def test_five_pairs_that_all_differ_alike_cannot_rule_out_chance():
    """Of all signs of five pairs 2 in 32 are as extreme as these. Interval and noise floor alone would decide."""
    before_us = [1009.0, 1013.0, 1019.0, 1021.0, 1031.0]
    before, after = (
        side(name, run_latency=[run(factor * one) for one in before_us])
        for name, factor in (("one", 1.0), ("two", 1.2))
    )
    (row,) = comparison_rows([before], after, ComparisonSettings(0.05, is_paired=True))
    assert row["difference_low_share"] > row["noise_floor_share"] > 0
    assert row["adjusted_p_value"] == 2 / 32
    assert (row["comparison_verdict"], row["verdict_reason"]) == ("undecided", "the test cannot rule out chance")


def speedup(likely, verdict="pays", doubts=()):
    return {"objective": "energy", "verdict": verdict, "likely": likely, "doubts": list(doubts)}


def plan_rows(before, after):
    return [row for row in comparison_rows([before], after, ComparisonSettings(0.05)) if row["compared_kind"] == "plan"]


def test_a_plan_on_times_that_nobody_trusts_is_not_judged():
    busy = {"notes": ["the host was busy: 2 of 3; stop it"]}
    doubted = side(origin=busy, run_latency=[run(1009.0)] * 11, offload_verdict=[speedup(9.0)])
    known = side(run_latency=[run(1009.0)] * 11, offload_verdict=[speedup(3.0)])
    (row,) = plan_rows(known, doubted)
    assert (row["comparison_verdict"], row["verdict_reason"]) == ("undecided", "the host was busy: 2 of 3")


def test_every_doubt_about_a_plan_is_said_once_also_where_its_host_is_another():
    known = side(run_latency=[run(1009.0)] * 11, offload_verdict=[speedup(3.0)])
    foreign = [speedup(36.4, "not judged for this host", ["the host is its own"])] * 3
    other = side("one", run_latency=[run(1009.0)] * 11, offload_verdict=foreign)
    assert doubts([known, other]) == ["not judged: the plan of one: the host is its own"]
    assert plan_rows(known, other) == []


def test_a_speedup_that_is_not_judged_is_no_figure_to_compare():
    latency = {"alternative": "plan", "plan_latency_likely_us": 7.0}
    doubted = side(
        "one",
        run_latency=[run(1009.0)] * 11,
        offload_verdict=[speedup(36.4, "not judged", ["many slow runs"])],
        offload_comparison=[latency],
        board_resources=[{"region": "board", "resource": "dsp", "used_count": 11.0}],
    )
    known = side(
        run_latency=[run(1009.0)] * 11,
        offload_verdict=[speedup(3.0)],
        offload_comparison=[latency],
        board_resources=[{"region": "board", "resource": "dsp", "used_count": 7.0}],
    )
    for before, after in ((known, doubted), (doubted, known)):
        assert [row["compared_figure"] for row in plan_rows(before, after)] == ["used_count"]
        assert doubts([before, after]) == ["not judged: the plan of one: many slow runs"]


def test_an_unknown_is_no_difference_of_conditions():
    """A run that lasted for a time has no number of runs, and an import may state nothing of its host."""
    untold = {"settings": {"runs": {"value": None, "from": "default"}}, "host": {"hostname": ""}}
    for before, after in ((side(), side(origin=untold)), (side(origin=untold), side())):
        assert differences(before, after) == []


MAP = [{"executed_node": "fused", "source_node": source} for source in ("conv", "relu")]


def test_nodes_are_not_matched_by_name_where_one_side_alone_has_its_source_nodes():
    nodes = {"op_latency": [op_latency("fused", 5.0)], "run_latency": [run(1009.0)] * 11}
    mapped, unmapped = side("one", **nodes, node_map=MAP, op_roofline=[]), side("two", **nodes)
    for before, after in ((mapped, unmapped), (unmapped, mapped)):
        rows = comparison_rows([before], after, ComparisonSettings(0.05))
        assert [row for row in rows if row["compared_kind"] == "node"] == []
        reason = "no nodes are compared: two has no node_map.csv; run <node_map>"
        assert why_no_nodes(before, after, rows) == [reason]
    rows = comparison_rows([unmapped], unmapped, ComparisonSettings(0.05))
    assert why_no_nodes(unmapped, unmapped, rows) == []
    assert "has no times of nodes" in why_no_nodes(mapped, side(), [])[0]


def test_an_operator_type_that_one_side_executes_is_a_gain_or_a_loss():
    runs = {"run_latency": [run(1009.0)] * 11}
    old = side("one", **runs, op_latency=[op_latency("a", 50.0)])
    other = {"origin": {"model_id": "n"}, "op_latency": [op_latency("b", 70.0) | {"op_type": "Gemm"}]}
    rows = comparison_rows([old], side("two", **runs, **other), ComparisonSettings(0.05, is_across_models=True))
    rows = [row for row in rows if row["compared_kind"] == "op_type"]
    assert {row["compared_subject"]: (row["comparison_verdict"], row["verdict_reason"]) for row in rows} == {
        "Conv": ("improved", "only the baseline executes it"),
        "Gemm": ("regressed", "only the candidate executes it"),
    }


def test_a_node_says_what_it_changes_in_the_baselines_median():
    runs = {"run_latency": [run(1009.0)] * 11}
    old = side("one", **runs, op_latency=[op_latency("a", 50.0)])
    new = side("two", **runs, op_latency=[op_latency("a", 73.0)])
    (row,) = (row for row in comparison_rows([old], new, ComparisonSettings(0.05)) if row["compared_kind"] == "node")
    assert row["latency_change_share"] == pytest.approx(23 / 1009)


def test_several_measurements_are_one_with_the_sessions_of_all():
    one = side("one", run_latency=[run(5.0), run(7.0)], nodes_us={"a": np.array([3.0]), "only": np.array([1.0])})
    two = side("two", run_latency=[run(11.0)], nodes_us={"a": np.array([2.0])})
    both = pooled([one, two])
    assert (both.name, both.latencies_us.tolist()) == ("one, two", [5.0, 7.0, 11.0])
    assert {name: times.tolist() for name, times in both.nodes_us.items()} == {"a": [3.0, 2.0]}
    assert pooled([one]) is one


def test_a_longer_latency_is_worse_also_where_runs_took_turns():
    slow, fast = ([run(level + index % 3) for index in range(40)] for level in (1100.0, 1000.0))
    for settings in (ComparisonSettings(0.05), ComparisonSettings(0.05, is_paired=True)):
        (row, *_) = comparison_rows([side(run_latency=fast)], side(run_latency=slow), settings)
        assert (row["compared_figure"], row["compared_subject"], row["comparison_verdict"]) == (
            "p50_us",
            "",
            "regressed",
        )
        (row, *_) = comparison_rows([side(run_latency=slow)], side(run_latency=fast), settings)
        assert row["comparison_verdict"] == "improved"


def test_a_doubt_takes_back_a_verdict_but_not_where_runs_took_turns():
    slow, fast = ([run(level + index % 3) for index in range(40)] for level in (1100.0, 1000.0))
    doubted = replace(side(run_latency=slow), doubts=("the host was busy",))
    (row, *_) = comparison_rows([side(run_latency=fast)], doubted, ComparisonSettings(0.05))
    assert (row["comparison_verdict"], row["verdict_reason"]) == ("undecided", "the host was busy")
    (row, *_) = comparison_rows([side(run_latency=fast)], doubted, ComparisonSettings(0.05, is_paired=True))
    assert row["comparison_verdict"] == "regressed"


def test_a_node_that_one_side_executes_has_all_its_time_as_the_difference():
    both = [op_latency("a", 50.0), op_latency("d", 7.0)]
    old = side("one", op_latency=[*both, op_latency("b", 5.0)])
    new = side("two", op_latency=[*both, op_latency("c", 1.0)])
    rows = comparison_rows([old], new, ComparisonSettings(0.05))
    rows = {row["compared_subject"]: row for row in rows if row["compared_kind"] == "node"}
    gone, added = rows["b"], rows["c"]
    assert (gone["comparison_verdict"], gone["baseline_value"], gone["candidate_value"]) == ("improved", 5.0, 0.0)
    assert (gone["difference_share"], gone["baseline_run_count"], gone["candidate_run_count"]) == (-1.0, 1, None)
    # The runtime's clock counts whole microseconds: one of them is no regression.
    assert (added["comparison_verdict"], added["candidate_value"]) == ("unchanged", 1.0)
    assert (added["baseline_run_count"], added["candidate_run_count"]) == (None, 1)
    assert gone["baseline_nodes"] == ["b"]


def test_models_of_other_sizes_are_refused_with_both_named():
    with pytest.raises(PipelineError, match=r"two: is of another .*\(m with N=3 and m with N=5\)"):
        comparison_rows([side("one")], side("two", origin={"dimensions": {"N": 5}}), ComparisonSettings(0.05))


def test_graphs_that_share_less_than_half_of_their_source_nodes_have_no_rows_of_nodes():
    def mapped(name, sources):
        rows = [{"executed_node": source, "source_node": source} for source in sources]
        times = [op_latency(source, 5.0) for source in sources]
        return side(name, op_latency=times, node_map=rows, op_roofline=[], run_latency=[run(1009.0)] * 11)

    for others, count in (("bx", 3), ("xyz", 0)):
        rows = comparison_rows([mapped("one", "ab")], mapped("two", f"a{others}"), ComparisonSettings(0.05))
        assert len([row for row in rows if row["compared_kind"] == "node"]) == count


def test_settings_and_conditions_of_several_measurements_are_those_of_the_first():
    both = pooled([side("one"), side("two")])
    first = side("one")
    for name in ("model_id", "dimensions", "settings", "conditions", "stated", "executed", "op_types"):
        assert getattr(both, name) == getattr(first, name)
    assert both.session_runs == (1, 1)


@pytest.mark.parametrize(("mhz", "is_named"), [(2040.0, False), (2050.0, True)])
def test_a_clock_that_differs_by_more_than_a_fiftieth_is_named(mhz, is_named):
    """2 % of the larger one: 40.8 of 2,040, 41 of 2,050."""
    before, after = (replace(side(), conditions={"cpu_clock_mhz": value}) for value in (2000.0, mhz))
    assert bool(changed_conditions(before.conditions, after.conditions)) == is_named
