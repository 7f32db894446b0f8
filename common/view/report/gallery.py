"""All pictures, each drawn where the tables that it needs are present."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from common.view.comparison.comparison_plot import draw_comparison
from common.view.comparison.history_plot import draw_history
from common.view.design.buffer_plot import draw_design_buffer
from common.view.design.convergence_plot import draw_design_convergence
from common.view.design.energy_plot import draw_design_energy
from common.view.design.front_plot import draw_design_front
from common.view.design.nest_plot import draw_design_nest
from common.view.findings import Findings
from common.view.groups import leading_gap
from common.view.load.curve_plot import draw_load_curve
from common.view.load.endurance_plot import draw_endurance
from common.view.load.fleet_plot import draw_fleet
from common.view.load.interference_plot import draw_interference
from common.view.load.load_plot import draw_load
from common.view.plan.fpga_text import NOT_JUDGED, is_not_judged
from common.view.plan.front_plot import draw_front
from common.view.plan.offload_plot import draw_offload
from common.view.plan.resource_plot import draw_resources
from common.view.plan.timeline_plot import draw_timeline
from common.view.profile.energy_plot import draw_energy
from common.view.profile.latency_plot import draw_latency
from common.view.profile.schedule_plot import draw_schedule
from common.view.roofline.roofline_plot import draw_roofline
from common.view.roofline.roofs import Roof, roof_from


def draw_all(findings: Findings, plain: Callable[[str], str] = str) -> dict[str, Figure]:
    """Draw every picture that the tables allow; return them by name.

    Args:
        findings: tables, documents and records of the stages.
        plain: spells out the names in angle brackets.
    """
    tables, documents, keys = findings.tables, findings.documents, findings.keys()
    nodes = tables.get("op_roofline", tables.get("ops_profile"))
    verdicts = tables.get("offload_verdict")
    warning = plain(NOT_JUDGED).capitalize() if is_not_judged(verdicts) else ""
    gap = None if nodes is None else leading_gap(nodes)
    figures: dict[str, Figure | None] = {}
    if "op_roofline" in tables:
        figures["roofline"] = draw_roofline(tables["op_roofline"], keys, roof_of(findings))
    if "ops_profile" in tables and tables["ops_profile"]["energy_uj"].notna().any():
        figures["energy"] = draw_energy(tables["ops_profile"], documents.get("energy_summary"), keys, findings.labels())
    if "op_schedule" in tables and tables["op_schedule"]["node_latency_us"].sum() > 0:
        figures["schedule"] = draw_schedule(tables["op_schedule"], keys, gap)
    if "run_latency" in tables and len(tables["run_latency"]):
        figures["latency"] = draw_latency(tables["run_latency"], documents.get("latency_summary"))
    if "speedup" in tables:
        figures["offload"] = draw_offload(tables["speedup"], tables.get("offload_plan"), verdicts, warning)
    if "offload_front" in tables:
        figures["front"] = draw_front(tables["offload_front"], warning)
    if "offload_schedule" in tables:
        figures["timeline"] = draw_timeline(tables["offload_schedule"], warning)
    if "board_resources" in tables:
        figures["resources"] = draw_resources(tables["board_resources"])
    if "design_points" in tables:
        figures |= draw_designs(tables)
    figures |= draw_loads(tables, documents)
    if "comparison" in tables:
        figures["differences"] = draw_comparison(tables["comparison"])
    if "paired_comparison" in tables:
        figures["paired_differences"] = draw_comparison(tables["paired_comparison"])
    if "run_history" in tables and "history_trends" in tables:
        figures["history"] = draw_history(tables["run_history"], tables["history_trends"])
    return {name: figure for name, figure in figures.items() if figure is not None}


def draw_designs(tables: Mapping[str, pd.DataFrame]) -> dict[str, Figure | None]:
    """Draw the evaluated accelerators, each with the best schedule of all searches."""
    points, groups = tables["design_points"].sort_values("edp_pj_cycles", kind="stable"), tables.get("design_groups")
    points = points.drop_duplicates("design")
    mappings, steps = tables.get("design_mappings"), tables.get("design_convergence")
    return {
        "design_front": draw_design_front(points),
        "design_buffer": draw_design_buffer(points),
        "design_energy": None if groups is None else draw_design_energy(points, groups),
        "design_nest": None if mappings is None else draw_design_nest(points, mappings),
        "design_progress": None if steps is None else draw_design_convergence(tables["design_points"], steps),
    }


def draw_loads(
    tables: Mapping[str, pd.DataFrame], documents: Mapping[str, Mapping[str, Any]]
) -> dict[str, Figure | None]:
    """Draw the load tests that are there."""
    figures: dict[str, Figure | None] = {}
    if {"load_requests", "load_batches"} <= tables.keys() and "load_summary" in documents:
        figures["load"] = draw_load(tables["load_requests"], tables["load_batches"], documents["load_summary"])
    if "load_search" in tables and "load_best" in documents:
        figures["load_curve"] = draw_load_curve(tables["load_search"], documents["load_best"])
    if "endurance" in tables and "endurance_summary" in documents:
        figures["long_load"] = draw_endurance(tables["endurance"], documents["endurance_summary"])
    if "load_interference" in tables:
        figures["load_pair"] = draw_interference(tables["load_interference"])
    if "load_fleet" in tables:
        figures["fleet"] = draw_fleet(tables["load_fleet"])
    return figures


def roof_of(findings: Findings) -> Roof | None:
    """Return the roofs to draw: ceilings given for ``op_roofline``, and measured ones in place of those not given."""
    peak, bandwidth = (findings.setting("op_roofline", name) for name in ("peak_flops", "mem_bw"))
    judging = findings.tables["op_roofline"]["roof"].unique() if "op_roofline" in findings.tables else ()
    measured = findings.documents.get("host_ceilings") or {}
    return roof_from(measured, float(peak) if peak else None, float(bandwidth) if bandwidth else None, set(judging))
