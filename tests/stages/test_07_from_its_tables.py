"""Every figure of the speedup again, by a program of its own that reads nothing but the tables and documents."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest

from tests.support.processes.command_lines import run_stage
from tests.support.tables.fpga import small, write_tables

CASES = ("pessimistic", "likely", "optimistic")
ENDS = dict(zip(CASES, ("p50_low_us", "p50_us", "p50_high_us"), strict=True))
ENERGIES = dict(zip(CASES, ("energy_low_uj", "energy_uj", "energy_high_uj"), strict=True))
PARTS = ("card_compute", "card_memory", "card_on_chip")
ADDED = ("transfer", "conversion", "launch", "host_idle", "card_static")


class Tables:
    """The files of a folder as text, and the terms of the speedup by objective, term and case."""

    def __init__(self, folder):
        self.folder = folder
        self.terms = {
            (row["objective"], row["term"], case): float(row[case]) if row[case] else None
            for row in self.rows("speedup")
            for case in CASES
        }

    def rows(self, name):
        with (self.folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def document(self, name):
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def lanes(self):
        """Busy time of each lane and of each activity after offloading."""
        busy, activity, end = {}, {}, 0.0
        for row in self.rows("offload_schedule"):
            if row["scenario"] == "after":
                start, finish = float(row["interval_start_us"]), float(row["interval_finish_us"])
                busy[row["lane"]] = busy.get(row["lane"], 0.0) + finish - start
                activity[row["activity"]] = activity.get(row["activity"], 0.0) + finish - start
                end = max(end, finish)
        return busy, activity, end

    def host_us(self, case):
        """Time of each executed node, of the gap, and of the run in one case, from the tables of the profile."""
        summary = self.document("latency_summary")
        corrections = {row["executed_node"]: row for row in self.rows("op_latency")}
        profile = self.rows("ops_profile")
        run = sum(float(row["node_latency_us"]) for row in profile)
        scale = summary[ENDS[case]] / summary["p50_us"]
        nodes = {row["executed_node"]: float(row["node_latency_us"]) for row in profile if row["row_kind"] != "gap"}
        total = sum(nodes.values())
        fit = run / total if total > run or case == "optimistic" else 1.0
        lacks = dict.fromkeys(nodes, 0.0)
        if case == "pessimistic":
            for name, us in nodes.items():
                middle, high = (float(corrections[name][f"correction{end}_us"]) for end in ("", "_high"))
                lacks[name] = min(us, high - middle)
        times = {name: (us - lacks[name]) * scale * fit for name, us in nodes.items()}
        return times, run * scale


@pytest.fixture(
    scope="module",
    params=[
        "as measured",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("nodes above the median", "nothing pays")),
    ],
)
def tables(request, tmp_path_factory):
    model, executed = small()
    executed = replace(executed, median_ends=(0.97, 1.06), correction_us=(31.0, 11.0, 47.0), slow_tenth=1.05)
    if request.param == "nodes above the median":
        executed = replace(executed, gap_us=-101.0)
    if request.param == "nothing pays":
        nodes = [(*node[:3], 0.003 * node[3], 0.003 * node[4]) for node in executed.nodes]
        executed = replace(executed, nodes=nodes, gap_us=0.1, correction_us=(0.31, 0.11, 0.47))
    folder = write_tables(tmp_path_factory.mktemp("out"), model, executed)
    energy = json.loads((folder / "energy_summary.json").read_text(encoding="utf-8"))
    assert energy["energy_low_uj"] is None
    finished = run_stage("07_fpga_candidates.py", "--out", folder, "--precision", "int8", "--batch", "2")
    assert finished.returncode == 0, finished.stderr
    return Tables(folder)


def chosen_nodes(tables):
    return {
        name
        for row in tables.rows("fpga_candidates")
        if row["is_chosen"] == "True"
        for name in json.loads(row["executed_nodes"])
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_host_and_what_moves_follow_from_the_profile(tables, case):
    times, run = tables.host_us(case)
    moved = sum(us for name, us in times.items() if name in chosen_nodes(tables))
    assert tables.terms["latency", "host_total", case] == pytest.approx(run)
    assert tables.terms["latency", "accelerated_fraction", case] == pytest.approx(moved / run, abs=1e-12)
    assert tables.terms["throughput", "host_total", case] == pytest.approx(run)
    energy = tables.document("energy_summary")
    uj = energy[ENERGIES[case]] or energy["energy_uj"]
    likely_run = tables.host_us("likely")[1]
    assert tables.terms["energy", "host_total", case] == pytest.approx(uj * run / likely_run)


def test_the_likely_terms_follow_from_the_schedule(tables):
    busy, activity, end = tables.lanes()
    likely = {term: value for (of, term, case), value in tables.terms.items() if (of, case) == ("latency", "likely")}
    assert likely["new_total"] == pytest.approx(end)
    for name in ("transfer", "conversion", "launch"):
        assert likely[name] == pytest.approx(activity.get(name, 0.0), abs=1e-9)
    assert likely["overlap"] == pytest.approx(sum(activity.values()) - end, abs=1e-6)
    engines = [us for lane, us in busy.items() if lane not in ("host", "h2d", "d2h", "convert-in", "convert-out")]
    of_kind = {"busy_host": busy["host"], "busy_h2d": busy.get("h2d", 0.0), "busy_d2h": busy.get("d2h", 0.0)}
    of_kind["busy_engine"] = max(engines, default=0.0)
    for name, us in of_kind.items():
        assert tables.terms["throughput", name, "likely"] == pytest.approx(us, abs=1e-9)
    assert tables.terms["throughput", "new_total", "likely"] == pytest.approx(max(of_kind.values()))


@pytest.mark.parametrize("case", CASES)
def test_latency_adds_up_in_each_case(tables, case):
    cell = {term: value for (of, term, at), value in tables.terms.items() if (of, at) == ("latency", case)}
    kernels = sum(float(row[f"kernel_latency_{case}_us"]) for row in tables.rows("offload_plan"))
    moved = cell["host_total"] * cell["accelerated_fraction"]
    parts = cell["host_total"] - moved + kernels + cell["transfer"] + cell["conversion"] + cell["launch"]
    assert cell["new_total"] == pytest.approx(parts - cell["overlap"])
    plan = tables.rows("offload_comparison")[0]
    assert cell["new_total"] == pytest.approx(float(plan[f"plan_latency_{case}_us"]))
    assert cell["total_speedup"] == pytest.approx(cell["host_total"] / cell["new_total"])
    if not kernels:
        assert cell["kernel_speedup"] is None
        assert cell["total_speedup"] == pytest.approx(1.0, rel=1e-12)
        return
    assert cell["kernel_speedup"] == pytest.approx(moved / kernels)
    # at break-even, kernels and what they add take as long as what moves
    slowest = moved / cell["break_even_kernel_speedup"]
    assert cell["new_total"] - kernels + slowest == pytest.approx(cell["host_total"])
    saved = cell["host_total"] - cell["new_total"]
    assert cell["payback_runs"] == ceil(cell["weight_load"] / saved - 1e-9)
    launches = sum(int(row["launch_count"]) for row in tables.rows("offload_plan"))
    assert cell["break_even_launch"] == pytest.approx(cell["launch"] / launches + saved / launches)


@pytest.mark.parametrize("case", CASES)
def test_energy_adds_up_in_each_case(tables, case):
    cell = {term: value for (of, term, at), value in tables.terms.items() if (of, at) == ("energy", case)}
    latency = {term: value for (of, term, at), value in tables.terms.items() if (of, at) == ("latency", case)}
    stays = cell["host_total"] * (1 - cell["accelerated_fraction"])
    kernels = sum(cell[name] for name in PARTS)
    added = sum(cell[name] for name in ADDED)
    assert cell["new_total"] == pytest.approx(stays + kernels + added)
    assert cell["total_speedup"] == pytest.approx(cell["host_total"] / cell["new_total"])
    if not kernels:
        assert cell["total_speedup"] == pytest.approx(1.0, rel=1e-12)
        return
    energy = tables.document("energy_summary")
    more = (energy[ENERGIES[case]] or energy["energy_uj"]) / energy["energy_uj"]
    rest = latency["host_total"] * (1 - latency["accelerated_fraction"])
    idle = more * energy["static_power_w"] * max(latency["new_total"] - rest, 0.0)
    assert cell["host_idle"] == pytest.approx(idle)
    assert cell["kernel_speedup"] == pytest.approx(cell["host_total"] * cell["accelerated_fraction"] / kernels)


@pytest.mark.parametrize("case", CASES)
def test_throughput_adds_up_in_each_case(tables, case):
    cell = {term: value for (of, term, at), value in tables.terms.items() if (of, at) == ("throughput", case)}
    assert cell["new_total"] == max(cell[name] for name in ("busy_host", "busy_engine", "busy_h2d", "busy_d2h"))
    assert cell["host_rate"] * cell["host_total"] == pytest.approx(1e6)
    assert cell["new_rate"] * cell["new_total"] == pytest.approx(1e6)
    assert cell["total_speedup"] == pytest.approx(cell["new_rate"] / cell["host_rate"])
    times, run = tables.host_us(case)
    stays = run - sum(us for name, us in times.items() if name in chosen_nodes(tables))
    assert cell["busy_host"] == pytest.approx(stays)


def test_the_verdict_and_the_front_follow_from_the_speedup(tables):
    for row in tables.rows("offload_verdict"):
        cases = [tables.terms[row["objective"], "total_speedup", case] for case in CASES]
        assert [float(row[case]) for case in CASES] == pytest.approx(cases)
        if not tables.rows("offload_plan"):
            assert (row["verdict"], row["pays_probability"]) == ("host alone", "")
            continue
        chance = float(row["pays_probability"])
        assert row["verdict"] == ("pays" if chance >= 0.95 else "does not pay" if chance <= 0.05 else "undecided")
        quantiles = [float(row[f"speedup_p{percent}_factor"]) for percent in (5, 25, 50, 75, 95)]
        assert quantiles == sorted(quantiles)
        below = [share for share, value in zip((0.05, 0.25, 0.5, 0.75, 0.95), quantiles, strict=True) if value <= 1]
        assert max(below, default=0.0) - 0.01 <= 1 - chance
    for row in tables.rows("offload_front"):
        count = int(row["inference_count"])
        every_us = count * 1e6 / float(row["likely_inferences_per_s"])
        in_flight = count * ceil(float(row["batch_latency_likely_us"]) / every_us - 1e-6)
        assert int(row["in_flight_count"]) == in_flight
        if row["objective"] == "latency" and count == 1:
            objective = "latency" if row["operation"] == "one by one" else "throughput"
            assert every_us == pytest.approx(tables.terms[objective, "new_total", "likely"])


# --- the schedule and the board -------------------------------------------------------------------------------------

LINK = ("h2d", "d2h", "convert-in", "convert-out")
WAYS = {(False, True): ("h2d", "convert-in"), (True, False): ("convert-out", "d2h")}  # by side of writer and reader
NOISE_US = 1e-6


def spans_after(tables):
    """Start and finish of every host step and call, by name, and of every transfer, by tensor and way."""
    units, links = {}, {}
    for row in tables.rows("offload_schedule"):
        if row["scenario"] == "after":
            start, finish = float(row["interval_start_us"]), float(row["interval_finish_us"])
            known, key = (links, (row["item"], row["lane"])) if row["lane"] in LINK else (units, row["item"])
            known[key] = min(start, known.get(key, (start, finish))[0]), max(finish, known.get(key, (0, finish))[1])
    return units, links


def unit_of_nodes(tables):
    """The chosen candidate that computes each source node, or its group on the host."""
    rows = tables.rows("fpga_candidates")
    units = {
        n: row["candidate"] for row in rows if row["kernel_kind"] != "chain" for n in json.loads(row["source_nodes"])
    }
    chosen = [row for row in rows if row["is_chosen"] == "True"]
    calls = [(node, row["candidate"]) for row in chosen for node in json.loads(row["source_nodes"])]
    assert len(calls) == len(dict(calls)), "a node is computed twice"
    return units | dict(calls), {row["candidate"]: row for row in chosen}


def overlaps(tables):
    """Pairs of intervals that share a lane which does one thing at a time."""
    lanes = {}
    for row in tables.rows("offload_schedule"):
        if row["scenario"] == "after" and not row["lane"].startswith("convert"):
            span = float(row["interval_start_us"]), float(row["interval_finish_us"]), row["item"]
            lanes.setdefault(row["lane"], []).append(span)
    return [
        (lane, one, two)
        for lane, spans in lanes.items()
        for one, two in pairwise(sorted(spans))
        if two[0] < one[1] - NOISE_US
    ]


def stored_tensors(edges):
    """The tensor whose bytes each tensor has, often itself: a view is written with 0 bytes from 0 bytes read."""
    viewed = {edge["consumer"]: edge["tensor"] for edge in reversed(edges) if float(edge["read_bytes"] or 1) == 0}
    view_of = {
        edge["tensor"]: viewed[edge["producer"]]
        for edge in edges
        if float(edge["written_bytes"] or 1) == 0 and edge["producer"] in viewed
    }

    def stored(tensor):
        while tensor in view_of:
            tensor = view_of[tensor]
        return tensor

    return {edge["tensor"]: stored(edge["tensor"]) for edge in edges}


def constant_tensors(tables, edges):
    """Weights, shapes, and what follows from nothing else."""
    read_by, written_by = {}, {}
    for edge in edges:
        read_by.setdefault(edge["consumer"], set()).add(edge["tensor"])
        written_by.setdefault(edge["producer"], set()).add(edge["tensor"])
    constant = {edge["tensor"] for edge in edges if edge["tensor_kind"] == "weight"}
    nodes = {row["source_node"]: row["op_type"] for row in tables.rows("op_metrics")}
    while True:
        known = {
            tensor
            for node, op_type in nodes.items()
            if op_type in ("Shape", "Size") or read_by.get(node, set()) <= constant
            for tensor in written_by.get(node, ())
        }
        if known <= constant:
            return constant
        constant |= known


def broken_dependencies(tables):
    """Tensors of which a reader begins before the tensor is there.

    A step that takes no time is not in the schedule: what reads it waits for what it reads.
    """
    units, links = spans_after(tables)
    unit_of, chosen = unit_of_nodes(tables)
    edges = tables.rows("op_edges")
    stored = stored_tensors(edges)
    constant = constant_tensors(tables, edges)
    producer = {edge["tensor"]: edge["producer"] for edge in edges}
    reads = [
        (stored[edge["tensor"]], edge["consumer"])
        for edge in edges
        if (float(edge["read_bytes"] or 1) or not edge["consumer"])
        and constant.isdisjoint((edge["tensor"], stored[edge["tensor"]]))
    ]
    read_by = {}
    for tensor, consumer in reads:
        read_by.setdefault(consumer, []).append(producer[tensor])

    def made_us(node, seen=frozenset()):
        if not node:
            return 0.0
        if unit_of.get(node) in units:
            return units[unit_of[node]][1]
        return max((made_us(one, seen | {node}) for one in read_by.get(node, ()) if one not in seen), default=0.0)

    broken = []
    for tensor, consumer in reads:
        one, two = unit_of.get(producer[tensor]), unit_of.get(consumer)
        if (consumer and two not in units) or one == two:
            continue
        there = made_us(producer[tensor])
        for lane in WAYS.get((one in chosen, two in chosen), ()):
            if (tensor, lane) in links or not lane.startswith("convert"):
                start, finish = links.get((tensor, lane), (-1.0, -1.0))
                broken += [(tensor, lane, start, there)] if start < there - NOISE_US else []
                there = finish
        if two in units and units[two][0] < there - NOISE_US:
            broken.append((tensor, two, units[two][0], there))
    return broken


def wrong_sums(tables):
    """Where finish, times of calls and of the host, launches or resources are not those of the other tables."""
    units, links = spans_after(tables)
    _, chosen = unit_of_nodes(tables)
    plan = tables.rows("offload_plan")
    wrong = []

    def same(what, one, other):
        if one != pytest.approx(other, rel=1e-9, abs=1e-5):
            wrong.append((what, one, other))

    end = max(finish for _, finish in [*units.values(), *links.values()])
    same("finish", end, float(tables.rows("offload_comparison")[0]["plan_latency_likely_us"]))
    rows = [row for row in tables.rows("offload_schedule") if row["scenario"] == "after"]
    length = {"kernel": {}, "launch": {}}
    for row in (row for row in rows if row["activity"] in length):
        length[row["activity"]][row["item"]] = float(row["interval_finish_us"]) - float(row["interval_start_us"])
    for name, row in chosen.items():
        same(f"kernel time of {name}", length["kernel"].get(name, 0.0), float(row["kernel_latency_likely_us"]))
    same("launches", len(length["launch"]), sum(int(row["launch_count"]) for row in plan))
    same("calls", len(chosen), sum(int(row["call_count"]) for row in plan))
    profile = tables.rows("ops_profile")
    run = sum(float(row["node_latency_us"]) for row in profile)
    nodes = sum(float(row["node_latency_us"]) for row in profile if row["row_kind"] != "gap")
    moved = sum(float(row["host_latency_us"]) for row in chosen.values()) * min(1.0, run / nodes)
    host = sum(
        float(row["interval_finish_us"]) - float(row["interval_start_us"]) for row in rows if row["lane"] == "host"
    )
    same("host", host + moved, run)
    for row in tables.rows("board_resources"):
        column = "memory_channel_count" if row["resource"] == "memory_channels" else f"{row['resource']}_count"
        used = sum(float(kernel[column]) for kernel in plan if row["region"] in ("board", kernel["region"]))
        same(f"{row['resource']} of {row['region']}", used, float(row["used_count"]))
        if used > float(row["budget_count"]) * (1 + 1e-9):
            wrong.append(("too much", row["region"], row["resource"], used, row["budget_count"]))
    return wrong


def test_the_schedule_and_the_board_follow_from_the_tables(tables):
    assert overlaps(tables) == []
    assert broken_dependencies(tables) == []
    assert wrong_sums(tables) == []


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda row: row["activity"] == "kernel" and ("interval_start_us", -30.0), overlaps),
        (lambda row: row["activity"] == "transfer" and ("interval_start_us", -1.0), broken_dependencies),
        (lambda row: row["activity"] == "launch" and ("interval_start_us", -1.0), broken_dependencies),
        (lambda row: row["lane"] == "host" and ("interval_finish_us", 7.0), wrong_sums),
    ],
    ids=["overlap", "transfer too early", "call too early", "sum"],
)
def test_a_wrong_schedule_is_seen(tables, change, check):
    """Each check fails on the same tables with one cell changed."""
    if not tables.rows("offload_plan"):
        pytest.skip("nothing is on the card")

    class Changed:
        def rows(self, name):
            rows = tables.rows(name)
            last = next((row for row in reversed(rows) if name == "offload_schedule" and change(row)), None)
            if last is not None:
                column, more = change(last)
                last[column] = str(float(last[column]) + more)
            return rows

    assert check(Changed()) != []
