"""Print the gap that plans of decoders, action experts and SAM's encoder keep at the default effort.

The graphs are those of ``attention_networks.py``, counted by stage 02. The host's times follow from work and bytes at
fixed rates, each disturbed by a seeded factor of about 10 %, as measured layers of one shape differ. Nothing is timed
but the processor time of the search, so the table is the same on every machine if the limit is long enough. Each
network has a process of its own: a solver that the limit left alone goes on, and its time would count for the next one.

    python -m benchmarks.plans.gaps --board u280 --precision int8 decoder-24-step action-expert
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from benchmarks.plans.attention_networks import ATTENTION_NETWORKS, write
from benchmarks.process import ROOT
from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import engines_for
from common.fpga.offload.effort import Effort, Endless
from common.fpga.offload.problem import Problem
from common.fpga.offload.search.plan_search import optimize
from common.fpga.planning.problem_builder import LaunchPer, formulate
from common.fusion.groups import fuse
from common.graphs.source_graph import from_rows
from common.intervals import ThreePoint
from common.workload.host_cost import ExecutedCost, HostTotals, SourceWork
from common.workload.layer_rows import layers_by_node
from common.workload.task_candidates import task_candidates
from common.workload.workload import Workload, make_workload

NODE_US, MACS_PER_US, FLOPS_PER_US, BYTES_PER_US = 2.0, 6e4, 4e3, 1.1e4  # of two cores of a server
SPREAD = 0.1
TITLES = ("steps", "options", "host_ms", "plan_ms", "bound_ms", "gap", "cpu_s")


class ProcessorLimit(Endless):
    """A clock of processor time that ends after so many seconds."""

    def __init__(self, limit_s: float) -> None:
        self.end_s = time.process_time() + limit_s

    def left_s(self) -> float:
        return self.end_s - time.process_time()


def workload(folder: Path, seed: int = 7) -> Workload:
    """Return the workload of a counted model, each node with a time that follows from its work."""
    tables, chance = Folder(folder, Provenance("", "")), random.Random(seed)
    metrics = tables.rows("op_metrics")
    graph = from_rows(metrics, tables.rows("op_edges"))
    executed = []
    for row in metrics:
        if not graph.is_free(row["source_node"]):
            macs, flops = row["macs"] or 0, row["flops"] or 0
            work_us = max(macs / MACS_PER_US + (flops - 2 * macs) / FLOPS_PER_US, (row["bytes"] or 0) / BYTES_PER_US)
            node_us = (NODE_US + work_us) * chance.lognormvariate(0, SPREAD)
            executed.append(ExecutedCost(row["source_node"], node_us, None, is_critical=False))
    host = HostTotals(ThreePoint.exactly(1.01 * sum(node.latency_us for node in executed)), None, None)
    work = {row["source_node"]: SourceWork(row["macs"], row["flops"]) for row in metrics}
    in_bodies = frozenset(row["source_node"] for row in metrics if row["body"])
    sources = {node.name: [node.name] for node in executed}
    return make_workload(graph, fuse(graph), layers_by_node(metrics, graph), work, in_bodies, executed, sources, host)


def problem(counted: Workload, board_name: str, precision: str, launch_per: LaunchPer) -> Problem:
    board, models = load_board(board_name, ROOT / "configs" / "boards"), load_models(ROOT / "configs")
    candidates = task_candidates(counted.graph, counted.groups, counted.layers, precision, counted.in_bodies)
    engines = engines_for(board, precision, models, [each.task for each in candidates if each.task is not None])
    return formulate(counted, candidates, engines, board, [precision] * len(counted.groups), launch_per).problem


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=", ".join(ATTENTION_NETWORKS))
    parser.add_argument("--board", default="u280")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--launch-per", default="group", choices=("group", "phase"))
    parser.add_argument("--effort", type=float, default=Effort().deterministic_limit, help="per 1,000 steps")
    limit = "seconds of processor time for each network; 07 gives its plan half of its limit of 120"
    parser.add_argument("--limit", type=float, default=60.0, help=limit)
    given = parser.parse_args()
    print(f"{'network':>20}", *(f"{title:>9}" for title in TITLES), flush=True)
    for name in given.networks or ATTENTION_NETWORKS:
        process = get_context("spawn").Process(target=_print_row, args=(name, given))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)


def _print_row(name: str, given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, out = write(name, Path(folder)), Path(folder) / "out"
        command = [sys.executable, str(ROOT / "02_shapes_flops_bytes.py"), "--model", str(model), "--out", str(out)]
        subprocess.run(command, check=True, capture_output=True)
        plan = problem(workload(out), given.board, given.precision, given.launch_per)
    begin_s = time.process_time()
    found = optimize(plan, Effort(given.effort), ProcessorLimit(given.limit))
    times = (plan.host_only_us, found.finish_us, found.bound_us)
    cells = [f"{len(plan.items):>9} {len(plan.options):>9}", *(f"{us / 1e3:>9.2f}" for us in times)]
    print(f"{name:>20}", *cells, f"{found.gap:>9.2%} {time.process_time() - begin_s:>9.1f}", flush=True)
    os._exit(0)  # a solver that the limit left alone would abort the process, and with it the rest of the table


if __name__ == "__main__":
    main()
