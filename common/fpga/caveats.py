"""What a reader of the plan must know, each with its remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from common.fpga.alternatives import Request
from common.fpga.host_time import ExecutedCost
from common.fpga.plan import Plan, Workload


def caveats(
    workload: Workload, asked: Request, plan: Plan, executed: Iterable[ExecutedCost], mapped: Collection[str]
) -> list[str]:
    """Notes on a plan.

    Args:
        workload: what was placed.
        asked: how it was to be placed.
        plan: the outcome.
        executed: every executed node.
        mapped: names of those with source nodes; the others are the runtime's own.
    """
    notes = [
        "an estimate: nothing was measured on a board; one array serves all kernels in turn, and low and high take all "
        "bad or all good assumptions together"
    ]
    if asked.precision != "fp32":
        notes.append(f"{asked.precision}: the accuracy at this precision is not evaluated; check it before building")
    if not plan.kernels:
        notes.append(_nothing_chosen(workload, plan))
    if plan.term("energy", "total_speedup").likely is None:
        notes.append(
            "energy speedup unknown: no energy or no static power; run 05_energy_estimate.py with --static-power-w W"
        )
    if inserted_us := sum(node.latency_us for node in executed if node.name not in mapped):
        share = inserted_us / workload.host.latency_us
        notes.append(f"{100 * share:.1f} % of the latency are nodes that the runtime inserted; they stay on the host")
    if weights := sum(kernel.onboard_weight_bytes for kernel in plan.kernels):
        load_ms = 1e3 * weights / asked.board.link_bytes_per_s.likely
        notes.append(
            f"{weights / 1e6:.1f} MB of weights stay on the card; loading them once takes about {load_ms:.1f} ms"
        )
    return notes


def _nothing_chosen(workload: Workload, plan: Plan) -> str:
    contractions = [member.shape_class for member in workload.candidates if member.group.kind != "none"]
    if not contractions:
        return "no kernel chosen: the model has no convolution, GEMM or attention"
    reason = plan.verdicts[contractions[0]].reason
    return f"no kernel chosen; the slowest group: {reason}; lower --min-share or --min-intensity-flop-per-byte"
