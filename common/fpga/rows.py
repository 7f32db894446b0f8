"""Candidates and kernels as rows: plain values under the names of the project's column dictionary."""

from __future__ import annotations

from typing import Any

from common.fpga.boards import Board
from common.fpga.candidates import Candidate, KernelClass
from common.fpga.figures import Outlook
from common.fpga.plan import Plan, PlannedKernel, Workload
from common.fpga.selection import share

# How engineers say it; the table has 80 columns.
SHORT = {
    "BatchNormalization": "BN",
    "Softmax": "softmax",
    "Transpose": "transpose",
    "QuantizeLinear": "Q",
    "DequantizeLinear": "DQ",
}


def candidate_row(workload: Workload, plan: Plan, candidate: Candidate) -> dict[str, Any]:
    """One fused group, taken or not and why."""
    verdict = plan.verdicts[candidate.shape_class]
    kernel = next((k.name for k in plan.kernels if k.kernel_class.label == candidate.shape_class), "")
    return {
        "candidate": candidate.name,
        "kernel": kernel,
        "pattern": candidate.group.pattern,
        "source_nodes": list(candidate.group.nodes),
        "executed_nodes": candidate.cost.executed_nodes,
        "group_count": 1,
        "kernel_kind": candidate.group.kind,
        "kernel_class": candidate.shape_class,
        "host_latency_us": candidate.cost.latency_us,
        "host_latency_share": candidate.cost.latency_us / workload.host.latency_us,
        "host_energy_uj": candidate.cost.energy_uj,
        "host_energy_share": share(candidate.cost.energy_uj, workload.host.energy_uj),
        "is_large": verdict.is_large,
        "is_regular": verdict.is_regular,
        "is_intense": verdict.is_intense,
        "is_fusable": verdict.is_fusable,
        "is_chosen": verdict.is_chosen,
        "reason": verdict.reason,
        **_work(candidate),
    }


def kernel_row(workload: Workload, board: Board, precision: str, kernel: PlannedKernel) -> dict[str, Any]:
    """One kernel of the plan, over all of its groups."""
    found = kernel.kernel_class
    return {
        "kernel": kernel.name,
        "kernel_kind": found.kind,
        "kernel_class": found.label,
        "pattern": found.patterns,
        "board": board.name,
        "precision": precision,
        "group_count": len(found.candidates),
        "host_latency_us": found.host_latency_us,
        "host_latency_share": found.host_latency_us / workload.host.latency_us,
        "host_energy_share": share(found.host_energy_uj, workload.host.energy_uj),
        "board_bound": kernel.bound,
        **_interval("kernel_latency", "_us", kernel.time_us),
        "transfer_bytes": kernel.transfer_bytes,
        "transfer_us": kernel.transfer_us.likely,
        "launch_count": kernel.launch_count,
        "launch_us": kernel.launch_us.likely,
        "onboard_weight_bytes": kernel.onboard_weight_bytes,
        **_interval("kernel_energy", "_uj", kernel.energy_uj),
        "comment": comment(kernel),
        **_work(found),
    }


def _work(work: Candidate | KernelClass) -> dict[str, Any]:
    return {
        "macs": work.macs,
        "flops": work.flops,
        "bytes": work.bytes,
        "arithmetic_intensity_flop_per_byte": share(work.flops, work.bytes),
    }


def _interval(stem: str, unit: str, outlook: Outlook) -> dict[str, float]:
    """Of a cost: its likely value, and its ends as numbers, the optimistic one being the lower."""
    return {
        f"{stem}{unit}": outlook.likely,
        f"{stem}_low{unit}": outlook.optimistic,
        f"{stem}_high{unit}": outlook.pessimistic,
    }


def comment(kernel: PlannedKernel) -> str:
    """What is fused into the kernel, how much faster it alone is, and what the host's critical path has of it."""
    found = kernel.kernel_class
    speed = found.host_latency_us / kernel.time_us.likely if kernel.time_us.likely else 0.0
    source = "given" if kernel.is_given else "likely"
    critical = sum(member.cost.critical_latency_us for member in found.candidates)
    on_path = share(critical, found.host_latency_us)
    path = "" if on_path is None else f"; {100 * on_path:.0f} % of its host time is on the critical path"
    return f"{fused_with(found)}; kernel {speed:.3g}x ({source}){path}"


def fused_with(found: KernelClass) -> str:
    """``fuse BN/Relu/Add``: the operators beside the contractions, in the order in which they first appear."""
    heads = {name for member in found.candidates for name in member.group.heads}
    others: dict[str, None] = {}
    for member in found.candidates:
        for name, op_type in zip(member.group.nodes, member.group.op_types, strict=True):
            if name not in heads:
                others[SHORT.get(op_type, op_type)] = None
    return f"fuse {'/'.join(others)}" if others else "nothing to fuse"
