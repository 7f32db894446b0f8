"""What a kernel model and a selection get to see: fused groups with their work, and classes that share a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from common.fpga.host_time import HostCost, SourceWork
from common.fusion.border import BorderTensor, border, total_bytes, unfused_bytes
from common.fusion.groups import Group
from common.fusion.patterns import GroupKind
from common.fusion.source_graph import SourceGraph


@dataclass(frozen=True, eq=False)  # told apart by identity
class Candidate:
    """One fused group: its work, its border at the model's own number format, and what it costs the host."""

    name: str
    group: Group
    shape_class: str
    macs: int | None
    flops: int | None
    border: tuple[BorderTensor, ...]
    unfused_bytes: int | None
    cost: HostCost

    @cached_property
    def bytes(self) -> int | None:
        """Compulsory traffic across the border."""
        return total_bytes(self.border)


@dataclass(frozen=True, eq=False)  # told apart by identity
class KernelClass:
    """The groups that one kernel can serve: the same kind of contraction with the same window."""

    label: str
    kind: GroupKind
    candidates: tuple[Candidate, ...]

    @cached_property
    def host_latency_us(self) -> float:
        """Time of all its groups on the host in one run."""
        return sum(candidate.cost.latency_us for candidate in self.candidates)

    @cached_property
    def host_energy_uj(self) -> float | None:
        """Energy of all its groups on the host in one run."""
        return add(candidate.cost.energy_uj for candidate in self.candidates)

    @cached_property
    def macs(self) -> int | None:
        """Multiply-accumulates of all its groups."""
        return add_counts(candidate.macs for candidate in self.candidates)

    @cached_property
    def flops(self) -> int | None:
        """FLOPs of all its groups."""
        return add_counts(candidate.flops for candidate in self.candidates)

    @cached_property
    def bytes(self) -> int | None:
        """Border traffic of all its groups."""
        return add_counts(candidate.bytes for candidate in self.candidates)

    @cached_property
    def fused_share(self) -> float | None:
        """Share of the unfused traffic that fusing keeps on the chip."""
        unfused = add_counts(candidate.unfused_bytes for candidate in self.candidates)
        return None if unfused is None or self.bytes is None or not unfused else 1 - self.bytes / unfused

    @cached_property
    def patterns(self) -> str:
        """What was fused, most frequent first: ``13 Conv+BatchNormalization+Relu, 4 Conv+BatchNormalization``."""
        counts = Counter(candidate.group.pattern for candidate in self.candidates)
        return ", ".join(f"{count} {pattern}" for pattern, count in counts.most_common())


@dataclass(frozen=True, slots=True)
class Window:
    """What tells kernels of one kind apart: the convolution's window and its groups."""

    kernel_shape: tuple[int, ...] = ()
    groups: int | None = None


def make_candidates(
    graph: SourceGraph,
    groups: Sequence[Group],
    costs: Sequence[HostCost],
    work: dict[str, SourceWork],
    windows: dict[str, Window],
) -> list[Candidate]:
    """One candidate per group, named G1, G2, … by falling host latency, groups of one latency in graph order."""
    ranked = sorted(zip(groups, costs, strict=True), key=lambda pair: -pair[1].latency_us)
    return [
        Candidate(
            name=f"G{rank}",
            group=group,
            shape_class=shape_class(group, windows),
            macs=add_counts(work[name].macs for name in group.nodes),
            flops=add_counts(work[name].flops for name in group.nodes),
            border=border(graph, group.nodes),
            unfused_bytes=unfused_bytes(graph, group),
            cost=cost,
        )
        for rank, (group, cost) in enumerate(ranked, start=1)
    ]


def shape_class(group: Group, windows: dict[str, Window]) -> str:
    """``conv 3x3``, ``grouped conv 3x3``, ``gemm``, ``attention``, or the operator that fuses with nothing."""
    if group.kind == "none":
        return group.pattern
    if group.kind != "conv":
        return group.kind
    window = windows.get(group.heads[0], Window())
    extent = "x".join(str(size) for size in window.kernel_shape)
    return f"{'grouped ' if (window.groups or 1) > 1 else ''}conv {extent}".rstrip()


def classify(candidates: Iterable[Candidate]) -> list[KernelClass]:
    """Group candidates by kind and window, by falling host latency."""
    members: dict[tuple[GroupKind, str], list[Candidate]] = {}
    for candidate in candidates:
        members.setdefault((candidate.group.kind, candidate.shape_class), []).append(candidate)
    classes = [KernelClass(label, kind, tuple(found)) for (kind, label), found in members.items()]
    return sorted(classes, key=lambda kernel_class: -kernel_class.host_latency_us)


def add_counts(values: Iterable[int | None]) -> int | None:
    """Sum of counts, unknown as soon as one is."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def add(values: Iterable[float | None]) -> float | None:
    """Sum of amounts, unknown as soon as one is."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
