"""Find the best mapping of each layer, or the best fused groups, on an accelerator.

Reads   op_metrics.csv, op_edges.csv.
Writes  design_points.csv (a row per accelerator and search),
        design_comparison.csv (the searches side by side),
        design_convergence.csv (how each search improved),
        design_budgets.csv (the best accelerator within each area),
        design_mappings.csv (a row per contraction),
        design_groups.csv (a row per fused group),
        design_summary.json (the best accelerator).

The best schedule has the least energy-delay product. 08 prints it with a lower
bound of all schedules. On an accelerator with one buffer (fa-dosa), 08 fuses layers
into groups. On any other (gemmini, u280), it maps each contraction, keeps whole
tensors on the chip between layers, and runs layers depth first in row tiles. All
other operators count as traffic. Ctrl-C ends a search with the best schedule so far.
docs/DESIGN_SPACE.md has the spaces, the costs, and each printed column.

EXAMPLE of input (op_metrics.csv) and output (design_mappings.csv), some columns:

    source_node,op_type,macs,m_count
    /layer4/layer4.1/conv2/Conv,Conv,115605504,49

    design,source_node,macs,dram_weight_bytes,resident_operands,modelled_cycles
    gemmini,/layer4/layer4.1/conv2/Conv,115605504,2359296.0,input output,453280.0

    python 08_design_space.py --hardware fa-dosa --sweep buffer_kib=128,512,2048
    python 08_design_space.py --experiments --evaluations 12000 --seed 3
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from common import cli
from common.artifacts.stages import STAGES
from common.cli.plan_stage import source_graph
from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.accelerator.single_buffer import has_single_buffer
from common.design_space.accelerator.sweep import designs
from common.design_space.evaluation import DesignResults, evaluate, results_of
from common.design_space.results import comparison
from common.design_space.results.cache import ResultCache, default_folder
from common.design_space.search.engines.registry import ENGINES, chosen_searches
from common.design_space.search.settings import ACCOUNTINGS, ANALYTIC, CYCLE_MODELS, EXACT, RTL, TILED, Search
from common.view.design.design_text import design_report
from common.workers import CLUSTERS, Workers

SCRIPT = "08_design_space.py"
FOLDER = cli.ROOT / "configs" / "hardware"
MEGABYTE = 1_000_000


def arguments() -> cli.Parser:
    parser = cli.Parser(SCRIPT, __doc__ or "")
    add = parser.setting
    text = "29_board_arrays.py --board searches the arrays of an FPGA board"
    parser.elsewhere = dict.fromkeys(("--board", "--board-budget", "--precision"), text)
    count: dict[str, Any] = {"type": cli.positive_int, "metavar": "N"}
    add("--hardware", default="gemmini", metavar="NAME", help="a file of configs/hardware, or the path of one")
    text = 'sizes to try, all combinations: "buffer_kib=8,16,…,2048 array=16x16,32x32"'
    add("--sweep", default="", metavar="SIZES", help=text)
    text = "the best design has the least of this figure"
    add("--objective", choices=comparison.OBJECTIVES, default="edp", help=text)
    area: dict[str, Any] = {"type": cli.positive_float, "action": "append", "default": [], "metavar": "AREA"}
    add("--area-budget-mm2", help="area within which to name the best design; repeatable", **area)
    text = "exact (branch and bound) proves the optimum, or prints the gap at its limit; all but exact, two-step and"
    text += " random need requirements-search.txt; fa-dosa is FA-DOSA's algorithm, for one buffer"
    add("--engine", choices=ENGINES, default=EXACT, help=text)
    add("--experiments", action="store_true", help="compare every engine that is installed")
    text = "most schedules that an engine may evaluate, over all contractions"
    add("--evaluations", default=10_000, help=text, **count)
    parser.shared("--seed", help="seed of the random choices of an engine")
    text = "traffic of one buffer: tiled counts repeated reads and halos; once, as FA-DOSA, a tensor once per kernel"
    add("--accounting", choices=ACCOUNTINGS, default=TILED, help=text)
    text = "what a search counts as cycles: analytic, or those of the RTL where the accelerator's file has its costs"
    add("--cycle-model", choices=CYCLE_MODELS, default=ANALYTIC, help=text)
    text = "keep weights that fit on the chip between inferences, as between the calls of a decoder; it needs several"
    text += " memories and --engine exact, and no --experiments"
    add("--weights-stay", action="store_true", help=text)
    text = "most layers that are computed together, tile by tile; with several memories three at most; 1 fuses none"
    add("--most-layers", default=6, help=text, **count)
    add("--jobs", default=1, help="number of designs that are searched at once, each in a process", **count)
    parser.shared("--cluster", choices=CLUSTERS)
    parser.shared("--cluster-address")
    text = "folder of earlier results; it may be deleted at any time"
    add("--cache", type=cli.path, default=default_folder(), metavar="FOLDER", help=text)
    add("--cache-mb", type=cli.non_negative_int, default=256, metavar="N", help="largest size of the cache; 0 for none")
    return parser


def searched(
    stage: cli.StageRun, variants: Mapping[str, Hardware], searches: Sequence[Search], watch: cli.DesignWatch
) -> DesignResults:
    """Return the result of each search on each accelerator, computed or known from earlier runs."""
    settings, tables = stage.settings, stage.tables
    workers = Workers(settings.jobs, settings.cluster or "", settings.cluster_address)
    cache = ResultCache(settings.cache) if settings.cache_mb else None
    metrics, graph = source_graph(tables)
    bar = stage.progress_bar("designs")
    run = partial(results_of, cache=cache, workers=workers, observer=watch, progress=bar)
    with tables.content(), watch:
        results = evaluate(variants, metrics, graph, searches, run)
    if cache:
        cache.trim(settings.cache_mb * MEGABYTE)
        stage.note(*([f"nothing is kept in {cache.folder}: {cache.problem}"] if cache.problem else []))
    return results


def main(argv: Sequence[str] | None = None) -> int:
    with cli.stage(arguments(), argv) as stage:
        settings, watch = stage.settings, cli.DesignWatch(stage.settings)
        hardware = load_hardware(settings.hardware, FOLDER)
        hardware = hardware.with_rtl() if settings.cycle_model == RTL else hardware
        variants = designs(hardware, settings.sweep or "")
        areas = [hardware.area_mm2 for hardware in variants.values()]
        objective = comparison.objective(settings.objective, areas)
        comparison.require_budgets(settings.area_budget_mm2, areas)
        has_one_buffer = has_single_buffer(next(iter(variants.values())))
        searches, notes = chosen_searches(settings.values, has_one_buffer=has_one_buffer)
        stage.end_of_checks()
        results = searched(stage, variants, searches, watch)
        stage.note(*notes, *results.notes, *watch.notes, *hardware.notes)  # what is of this run first
        if settings.objective == "log-sum":
            stage.note(comparison.DEGENERATE)
        tables = comparison.design_tables(results.designs, objective, settings.area_budget_mm2)
        points, compared, budgets = tables.points, tables.compared, tables.budgets
        with stage.writing() as transaction:
            transaction.add_rows("design_points", points)
            transaction.add_rows("design_comparison", compared)
            transaction.add_rows("design_convergence", tables.convergence)
            transaction.add_rows("design_budgets", budgets)
            transaction.add_rows("design_mappings", tables.mappings)
            transaction.add_rows("design_groups", tables.groups)
            transaction.add_document("design_summary", tables.summary(settings.objective))
            if (count := len(variants) * len(searches)) > len(points):
                transaction.mark_incomplete([f"{len(points)} of {count} designs are finished"], *STAGES[SCRIPT].writes)
        stage.show(design_report(tables.best, points, compared, budgets, tables.mappings, tables.groups))
        if results.known_count:
            stage.show(f"\n{results.known_count} of {len(points)} designs were known from earlier runs")
    return 0


if __name__ == "__main__":
    cli.run(main)
