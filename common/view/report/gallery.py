"""All pictures, each drawn where the tables that it needs are present."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from common.table_rows import Documents, Tables
from common.view.comparison.plots import draw_comparison, draw_history
from common.view.design.energy_plot import draw_design_energy
from common.view.design.front_plot import draw_design_front
from common.view.design.nest_plot import draw_design_nest
from common.view.design.product_plot import draw_design_buffer, draw_design_convergence
from common.view.executed_nodes import TimedRow, leading_gap
from common.view.findings import Findings
from common.view.frames import frame_of
from common.view.load.compared_loads_plot import draw_fleet, draw_interference
from common.view.load.load_plot import draw_endurance, draw_load, draw_load_curve
from common.view.plan.answer.cases import is_not_judged
from common.view.plan.answer.headline import headline
from common.view.plan.pictures.engine_plot import draw_engine
from common.view.plan.pictures.front_plot import draw_front
from common.view.plan.pictures.offload_plot import draw_offload
from common.view.plan.pictures.resource_plot import draw_resources
from common.view.plan.pictures.timeline_plot import draw_timeline
from common.view.plan.pictures.what_if_plot import draw_formats, draw_what_if
from common.view.profile.energy_plot import draw_energy
from common.view.profile.generation_plot import draw_generation
from common.view.profile.latency_plot import draw_latency
from common.view.profile.schedule_plot import draw_schedule
from common.view.roofline.roofline_plot import draw_roofline
from common.view.roofline.roofs import Roof, roof_from


def draw_all(findings: Findings, plain: Callable[[str], str] = str) -> dict[str, Figure]:
    """Draw every picture that the tables allow; return them by name."""
    tables, documents, keys = findings.tables, findings.documents, findings.key_nodes()
    nodes: Sequence[TimedRow] | None = tables.get("op_roofline", tables.get("ops_profile"))
    gap = None if nodes is None else leading_gap(nodes)
    figures: dict[str, Figure | None] = {}
    if "op_roofline" in tables:
        figures["roofline"] = draw_roofline(tables["op_roofline"], keys, roof_of(findings))
    if any(row["energy_uj"] is not None for row in tables.get("ops_profile", ())):
        profile, summary = frame_of(tables["ops_profile"]), documents.get("energy_summary")
        figures["energy"] = draw_energy(profile, summary, keys, findings.labels())
    if sum(row["node_latency_us"] for row in tables.get("op_schedule", ())) > 0:
        figures["schedule"] = draw_schedule(frame_of(tables["op_schedule"]), keys, gap)
    if runs := tables.get("run_latency"):
        figures["latency"] = draw_latency(frame_of(runs), documents.get("latency_summary"))
    if tokens := tables.get("generation"):
        plan, lengths = documents.get("decode_summary"), tables.get("decode_lengths", ())
        figures["token_times"] = draw_generation(tokens, documents.get("generation_summary"), lengths, plan)
    figures |= draw_plans(tables, plain)
    if (calls := tables.get("engine_calls")) and (engine := documents.get("engine_summary")):
        figures["engine"] = draw_engine(calls, tables.get("engine_cells", ()), engine)
    if tables.get("design_points"):
        figures |= draw_designs(tables)
    figures |= draw_loads(tables, documents)
    if compared := tables.get("comparison"):
        figures["differences"] = draw_comparison(compared)
    if pairs := tables.get("paired_comparison"):
        figures["paired_differences"] = draw_comparison(pairs)
    if "run_history" in tables and "history_trends" in tables:
        figures["history"] = draw_history(tables["run_history"], tables["history_trends"])
    return {name: figure for name, figure in figures.items() if figure is not None}


def draw_plans(tables: Tables, plain: Callable[[str], str]) -> dict[str, Figure | None]:
    """Draw the offload plan; where it is not judged, the titles say so."""
    verdicts, answer = tables.get("offload_verdict", []), plain(headline(tables))
    warning = answer if is_not_judged(verdicts) else ""
    figures: dict[str, Figure | None] = {}
    if "speedup" in tables:
        figures["offload"] = draw_offload(tables["speedup"], tables.get("offload_plan", ()), verdicts, answer)
    if front := tables.get("offload_front"):
        figures["front"] = draw_front(front, verdicts, warning)
    if asked := tables.get("what_if_plans"):
        figures["what_if"] = draw_what_if(asked, warning)
        figures["formats"] = draw_formats(
            asked, tables.get("format_precision", ()), tables.get("precision_mixtures", ()), warning
        )
    if intervals := tables.get("offload_schedule"):
        figures["timeline"] = draw_timeline(frame_of(intervals), verdicts, warning)
    if resources := tables.get("board_resources"):
        figures["resources"] = draw_resources(frame_of(resources))
    return figures


def draw_designs(tables: Tables) -> dict[str, Figure | None]:
    """Draw the evaluated accelerators, each with the best schedule of all searches."""
    every = frame_of(tables["design_points"])
    points = every.sort_values("edp_pj_cycles", kind="stable").drop_duplicates("design")
    groups, mappings = tables.get("design_groups"), tables.get("design_mappings")
    steps = tables.get("design_convergence")
    return {
        "design_front": draw_design_front(points),
        "design_buffer": draw_design_buffer(points),
        "design_energy": draw_design_energy(points, frame_of(groups)) if groups else None,
        "design_nest": draw_design_nest(points, frame_of(mappings)) if mappings else None,
        "design_progress": draw_design_convergence(every, frame_of(steps)) if steps else None,
    }


def draw_loads(tables: Tables, documents: Documents) -> dict[str, Figure | None]:
    figures: dict[str, Figure | None] = {}
    requests, batches = tables.get("load_requests"), tables.get("load_batches")
    if requests and batches and "load_summary" in documents:
        figures["load"] = draw_load(frame_of(requests), frame_of(batches), documents["load_summary"])
    if (trials := tables.get("load_search")) and "load_best" in documents:
        figures["load_curve"] = draw_load_curve(frame_of(trials), documents["load_best"])
    if (parts := tables.get("endurance")) and "endurance_summary" in documents:
        figures["long_load"] = draw_endurance(frame_of(parts), documents["endurance_summary"])
    if services := tables.get("load_interference"):
        figures["load_pair"] = draw_interference(frame_of(services))
    if models := tables.get("load_fleet"):
        figures["fleet"] = draw_fleet(frame_of(models))
    return figures


def roof_of(findings: Findings) -> Roof | None:
    """Return the roofs to draw: ceilings given for ``op_roofline``, and measured ones in place of those not given."""
    peak, bandwidth = (findings.setting("op_roofline", name) for name in ("peak_flops", "mem_bw"))
    judging = {row["roof"] for row in findings.tables.get("op_roofline", ())}
    measured = findings.documents.get("host_ceilings")
    return roof_from(measured, float(peak) if peak else None, float(bandwidth) if bandwidth else None, judging)
