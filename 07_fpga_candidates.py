"""Which fused operators to put on an FPGA card, and what that gains end to end.

Reads   ops_profile.csv, op_schedule.csv, op_metrics.csv, op_edges.csv, node_map.csv, energy_summary.json; a board.
Writes  fpga_candidates.csv (every fused group), offload_plan.csv (the kernels), speedup.csv (Amdahl, term by term).

The model's nodes are grouped into candidates (Conv+BN+activation+residual, Gemm, MatMul chains, attention), each with
its share of the host's time and energy. Groups of one kind and window share a kernel; kernels are chosen by the
thresholds in configs/fpga.yaml and timed by the board's ceilings times a published efficiency: an estimate, with an
interval, of what nobody has measured. Amdahl's law adds transfer, launch and, for energy, the idle host and card.

EXAMPLE of what comes in (ops_profile.csv) and what goes out (offload_plan.csv), some columns:

    executed_node,row_kind,node_latency_us,energy_uj
    /conv1/Conv_nchwc,node,1830.2,98130.1

    kernel,kernel_class,precision,host_latency_share,kernel_latency_us,transfer_us,launch_us,comment
    K1,conv 1x1,fp32,0.49,18341.2,79.5,2916,fuse BN/Relu/Add; kernel 1.7x (likely)

    python 07_fpga_candidates.py --board u280 --precision int8 --kernel-speedup K1=3.2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from common import cli
from common.artifacts.catalogue import ARTIFACTS
from common.artifacts.provenance import Provenance, host_identity, tool_versions
from common.artifacts.rows import records
from common.artifacts.store import Store
from common.fpga.alternatives import Request, alternative_plans
from common.fpga.assumptions import Assumptions, read_assumptions
from common.fpga.boards import PRECISION_BITS, find_board, read_board
from common.fpga.candidates import Window, make_candidates
from common.fpga.caveats import caveats
from common.fpga.host_time import ExecutedCost, SourceWork, divide_over_groups
from common.fpga.plan import LAUNCH_PER, Workload, make_plan
from common.fpga.rows import candidate_row, kernel_row
from common.fpga.selection import HostTotals, Thresholds
from common.fusion.groups import find_groups
from common.fusion.source_graph import from_rows
from common.view.fpga_text import offload_report

SCRIPT = "07_fpga_candidates.py"
CONFIGS = cli.ROOT / "configs"
TABLES = ("ops_profile", "op_schedule", "op_metrics", "op_edges", "node_map")


def arguments() -> cli.Parser:
    """The flags of this stage."""
    parser = cli.Parser(SCRIPT, __doc__ or "")
    parser.setting("--board", default="u280", metavar="NAME", help="a file of configs/boards, or the path of one")
    parser.setting("--precision", default="fp32", choices=tuple(PRECISION_BITS), help="number format of the kernels")
    parser.setting("--efficiency", default="overlay", metavar="NAME", help="how kernels are made: a band of the config")
    parser.setting("--launch-per", choices=LAUNCH_PER, help="call the card for each fused group or for each phase")
    parser.setting("--kernel-speedup", type=kernel_speedup, action="append", metavar="K1=3.2", help="a vendor tool's")
    for limit in ("share", "intensity-flop-per-byte", "fused-share"):
        parser.setting(f"--min-{limit}", type=cli.positive_float, metavar="X", help="a kernel's threshold")
    parser.setting("--fpga-config", type=Path, default=CONFIGS / "fpga.yaml", metavar="FILE", help="thresholds, bands")
    return parser


def kernel_speedup(text: str) -> tuple[str, float]:
    """``K1=3.2``."""
    name, value = cli.assignment(text)
    return name, cli.positive_float(value)


def executed_costs(profile: pd.DataFrame, schedule: pd.DataFrame) -> list[ExecutedCost]:
    """Every executed node in the order of execution, without the gap."""
    nodes = profile[profile["row_kind"] != "gap"].merge(schedule, "left", "executed_node", suffixes=("", "_scheduled"))
    keys = ("executed_node", "node_latency_us", "energy_uj", "is_critical")
    return [ExecutedCost(*(row[key] for key in keys)) for row in records(nodes.sort_values("execution_index"))]


def workload(tables: Mapping[str, pd.DataFrame], costs: Sequence[ExecutedCost], energy: Mapping[str, Any]) -> Workload:
    """The candidates of the source graph, and what each costs the host."""
    metrics, edges = records(tables["op_metrics"]), records(tables["op_edges"])
    graph = from_rows(metrics, edges)
    groups = find_groups(graph)
    sources = {str(name): list(found) for name, found in tables["node_map"].groupby("executed_node")["source_node"]}
    group_of = {name: index for index, group in enumerate(groups) for name in group.nodes}
    work = {row["source_node"]: SourceWork(row["macs"], row["flops"]) for row in metrics}
    windows = {row["source_node"]: Window(tuple(row["kernel_shape"]), row["groups"]) for row in metrics}
    host_costs = divide_over_groups(costs, sources, group_of, work, len(groups))
    total_us = float(tables["ops_profile"]["node_latency_us"].sum())  # the gap's row closes on the unprofiled median
    host = HostTotals(total_us, energy["energy_uj"], energy["static_power_w"])
    return Workload(graph, tuple(make_candidates(graph, groups, host_costs, work, windows)), host)


def request(settings: cli.Settings, assumptions: Assumptions) -> Request:
    """What is asked for; what no flag gives comes from the FPGA configuration."""
    for name in assumptions.defaults.keys() - {name for name, value in settings.values.items() if value is not None}:
        settings.values[name], settings.origins[name] = assumptions.defaults[name], assumptions.path.name
    path, given = find_board(settings.board, CONFIGS / "boards"), settings.kernel_speedup or []
    board = read_board(path.stem, path, cli.load_yaml(path))
    limits = Thresholds(**{name: settings.values[name] for name in assumptions.thresholds})
    given = dict(given if isinstance(given, list) else [given])  # a configuration gives one
    band = assumptions.require_band(settings.efficiency)
    return Request(board, settings.precision, band, settings.launch_per, limits, given)


def table(name: str, found: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows under the columns of the table; there may be none."""
    return pd.DataFrame(list(found), columns=[column.name for column in ARTIFACTS[name].columns])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage."""
    settings = cli.parse(arguments(), argv)
    assumptions = read_assumptions(settings.fpga_config, cli.load_yaml(settings.fpga_config))
    asked, bands = request(settings, assumptions), assumptions.efficiency_bands
    record = Provenance(SCRIPT, settings.command, settings.record(), host=host_identity(), tools=tool_versions())
    store = Store(settings.out, record)
    tables = {name: store.table(name) for name in TABLES}
    costs = executed_costs(tables["ops_profile"], tables["op_schedule"])
    work = workload(tables, costs, store.document("energy_summary"))
    plan = make_plan(work, asked.terms(bands))
    record.notes.extend(caveats(work, asked, plan, costs, set(tables["node_map"]["executed_node"])))
    results = {
        "fpga_candidates": [candidate_row(work, plan, candidate) for candidate in work.candidates],
        "offload_plan": [kernel_row(work, asked.board, asked.precision, kernel) for kernel in plan.kernels],
        "speedup": [asdict(row) for row in plan.speedup],
    }
    others = alternative_plans(work, asked, bands)
    with store.writing():
        written = {name: store.add_table(name, table(name, found)) for name, found in results.items()}
    instead = {name: table("speedup", map(asdict, other.speedup)) for name, other in others.items()}
    cli.show(settings, offload_report(written["offload_plan"], written["speedup"], instead))
    cli.say(settings, *(f"note: {note}" for note in record.notes))
    cli.say(settings, *(f"wrote {store.path(name)} ({len(frame)} rows)" for name, frame in written.items()))
    return 0


if __name__ == "__main__":
    cli.run(main)
