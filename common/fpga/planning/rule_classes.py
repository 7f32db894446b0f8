"""Kernel classes that the rule of thumb judges: groups of one kind and window, which could share one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from common.fpga.offload.baselines import GroupClass
from common.fpga.planning.problem_builder import Formulation
from common.graphs.sums import ratio, total
from common.workload.layers import Convolution
from common.workload.workload import Workload

REGULAR_KINDS = frozenset({"conv", "gemm", "attention"})


def kernel_class(workload: Workload, index: int) -> str:
    """Return ``conv 3x3``, ``grouped conv 3x3``, ``gemm``, ``attention`` …, or the pattern of a group of kind none."""
    group = workload.groups[index]
    if group.kind == "none":
        return group.pattern
    if group.kind != "conv":
        return group.kind
    head = next((layer for layer in workload.layers[group.heads[0]] or () if isinstance(layer, Convolution)), None)
    if head is None:
        return "conv"
    return f"{'grouped ' if head.groups > 1 else ''}conv {head.kernel_height}x{head.kernel_width}"


def group_classes(workload: Workload, formulation: Formulation) -> list[GroupClass]:
    """Return every kernel class, the one with the highest host latency first."""
    members: dict[str, list[int]] = {}
    for index in range(len(workload.groups)):
        members.setdefault(kernel_class(workload, index), []).append(index)
    classes = [_class(workload, formulation, label, groups) for label, groups in members.items()]
    return sorted(classes, key=lambda members: -(members.latency_share or 0.0))


def _class(workload: Workload, formulation: Formulation, label: str, groups: Sequence[int]) -> GroupClass:
    host, kind = workload.host, workload.groups[groups[0]].kind
    flops, moved = total(map(workload.flops, groups)), total(workload.bytes([group]) for group in groups)
    unfused, macs = total(map(workload.unfused_bytes, groups)), total(map(workload.macs, groups))
    energy_uj = total(workload.costs[group].energy_uj for group in groups)
    return GroupClass(
        label=label,
        groups=tuple((formulation.item_of[group],) for group in groups),
        latency_share=workload.host_us(groups) / host.latency_us,
        energy_share=ratio(energy_uj, host.energy_uj),
        is_regular=kind in REGULAR_KINDS and macs is not None and moved is not None,
        intensity_flop_per_byte=ratio(flops, moved),
        fused_share=None if unfused is None or moved is None or not unfused else 1 - moved / unfused,
    )
