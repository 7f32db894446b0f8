"""Formulate the offload problem of a workload on a board: items, tensors, engines and options."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from common.fpga.device.board import Board
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import Engine, KernelEstimate
from common.fpga.offload.problem import EngineType, Item, LaunchRule, OffloadFlow, Option, Problem, RegionBudget
from common.graphs.source_graph import SourceGraph
from common.intervals import ThreePoint, combine, summed
from common.workload.flows import TensorFlow, card_bytes, tensor_flows
from common.workload.task_candidates import TaskCandidate
from common.workload.tasks import Task
from common.workload.workload import Workload

LaunchPer = Literal["group", "phase"]
CONVERTER_PORTS = 4
COPIER_PORTS = 2  # one reads and one writes
END = "(end)"  # not a tensor: the steps that the runtime adds wait for every group
LAUNCH_PER: tuple[LaunchPer, ...] = ("group", "phase")


@dataclass(frozen=True, slots=True)
class Offer:
    """Estimate of one engine for one candidate, both by index."""

    candidate: int
    engine: int
    estimate: KernelEstimate
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Formulation:
    """An offload problem in plain values, and the meaning of its indices."""

    problem: Problem
    candidates: tuple[TaskCandidate, ...]
    engines: tuple[Engine, ...]  # by engine index of the problem
    offers: tuple[Offer, ...]  # by option index of the problem
    # Of the candidates: G1, G2, … for groups by falling host latency, C1, C2, … for chains in graph order
    names: tuple[str, ...]
    item_of: Mapping[int, int]  # item of the problem for each group
    host_bytes: Mapping[str, int]  # size of each tensor that may cross the link, in the model's number format


def formulate(
    workload: Workload,
    candidates: Sequence[TaskCandidate],
    engines: Sequence[Engine],
    board: Board,
    formats: Sequence[str],
    launch_per: LaunchPer,
) -> Formulation:
    """Return the offload problem of a workload on a board.

    Args:
        formats: number format of each group on the card.
        launch_per: whether the host launches each call, or only calls that read a tensor of the host.
    """
    steps, names = workload.steps, _names(workload, candidates)
    item_of = {step.group: index for index, step in enumerate(steps) if step.group is not None}
    offers = tuple(_offers(candidates, engines))
    flows = tensor_flows(workload.graph, workload.groups, formats)
    waits, options = CallWaits(workload.graph, flows, formats, board), list[Option]()
    for offer in offers:
        groups = candidates[offer.candidate].covers
        covers = tuple(sorted(item_of[group] for group in groups))
        time_us = summed([offer.estimate.time_us, *waits.us(groups, engines[offer.engine])])
        name = names[offer.candidate]
        options.append(Option(name, covers, offer.engine, time_us, board.launch_us, offer.weight_bytes))
    problem = Problem(
        items=tuple(Item(step.name, step.host_us) for step in steps),
        flows=(*(_flow(flow, item_of, board) for flow in flows), *_ends(flows, item_of)),
        engines=tuple(_engine_type(engine, board, launch_per) for engine in engines),
        options=tuple(options),
        regions=tuple(RegionBudget(region.name, board.budget(region)) for region in board.regions),
        memory_channels=board.memory_port_count,
        memory_capacity_bytes=board.memory.capacity_bytes,
    )
    sizes = {END: 0} | {flow.tensor: flow.host_bytes or 0 for flow in flows}
    return Formulation(problem, tuple(candidates), tuple(engines), offers, names, item_of, sizes)


def _offers(candidates: Sequence[TaskCandidate], engines: Sequence[Engine]) -> Iterator[Offer]:
    known: dict[tuple[int, Task], KernelEstimate | None] = {}
    for index, candidate in enumerate(candidates):
        if candidate.task is None:
            continue
        task = candidate.task.nameless
        for number, engine in enumerate(engines):
            if (number, task) not in known:
                known[number, task] = engine.estimate(task)
            if (estimate := known[number, task]) is not None:
                yield Offer(index, number, estimate, task.weight_bytes)


def _names(workload: Workload, candidates: Sequence[TaskCandidate]) -> tuple[str, ...]:
    chains = count(1)
    return tuple(
        workload.names[candidate.covers[0]] if len(candidate.covers) == 1 else f"C{next(chains)}"
        for candidate in candidates
    )


def _engine_type(engine: Engine, board: Board, launch_per: LaunchPer) -> EngineType:
    """Return an engine with what it takes of the budget: an overlay at most all, because its vendor closed it there."""
    needed = engine.resources
    if engine.kind == "overlay":
        room = board.total_budget if engine.spans_regions else max(board.budgets, key=lambda budget: budget.dsp)
        needed = replace(needed.least(room), memory_channels=needed.memory_channels)
    return EngineType(engine.name, needed, engine.spans_regions, 1, launch_rule(engine, launch_per))


def launch_rule(engine: Engine, launch_per: LaunchPer) -> LaunchRule:
    """Return which calls of an engine the host launches; an overlay fetches its own instructions once it is started."""
    if engine.kind == "overlay":
        return "engine"
    return "entry" if launch_per == "phase" else "call"


def _flow(flow: TensorFlow, item_of: Mapping[int, int], board: Board) -> OffloadFlow:
    """Return a tensor with its transfer time, in the model's number format, and its conversion time on the card.

    A tensor of unknown size never crosses the link: groups that read or write it have no task.
    """
    on_host, on_card = flow.host_bytes or 0, flow.card_bytes or 0
    link_us = combine(lambda rate: 1e6 * on_host / rate, board.link.bytes_per_s)
    convert_us = _converted_us(on_host + on_card, board) if on_card != on_host else ThreePoint.exactly(0.0)
    producer = None if flow.producer is None else item_of[flow.producer]
    consumers = tuple(sorted(item_of[group] for group in flow.consumers))
    return OffloadFlow(flow.tensor, producer, consumers, flow.is_output, link_us, link_us, convert_us, convert_us)


def _ends(flows: Sequence[TensorFlow], item_of: Mapping[int, int]) -> Iterator[OffloadFlow]:
    """Make the steps that the runtime adds wait for all groups, on host and card, so that no plan hides them."""
    read = {flow.producer for flow in flows if flow.consumers and not flow.is_output}
    nothing, first_added = ThreePoint.exactly(0.0), len(item_of)
    for group, item in item_of.items():
        if group not in read:
            yield OffloadFlow(END, item, (first_added,), False, nothing, nothing)


class CallWaits:
    """What a call on the card waits for beside its kernel, by group and tensor; each tensor counts once for a call.

    A converter of the card changes a tensor that one group there writes in a number format and another one reads in
    another format. The call that reads it waits, also if it comes from the host, which has converted it already: then
    it counts twice. A copier moves each activation that a streaming kernel shares with another group, a word of a port
    in every cycle: its activations lie on one channel each, and those of other kernels over all of theirs.
    """

    def __init__(self, graph: SourceGraph, flows: Iterable[TensorFlow], formats: Sequence[str], board: Board) -> None:
        self._conversions = defaultdict[int, dict[str, ThreePoint]](dict)
        self._copies = defaultdict[int, dict[str, ThreePoint]](dict)
        for flow in flows:
            if flow.producer is None or not flow.consumers:
                continue
            written, tensor = flow.card_bytes or 0, flow.tensor
            for group in flow.consumers:
                if formats[flow.producer] != formats[group]:
                    read = card_bytes(flow.host_bytes, graph.dtypes[tensor], formats[group])
                    self._conversions[group][tensor] = _converted_us(written + (read or 0), board)
            for group in (flow.producer, *flow.consumers):
                self._copies[group][tensor] = _converted_us(2 * written, board, COPIER_PORTS)

    def us(self, groups: Iterable[int], engine: Engine) -> list[ThreePoint]:
        """Return the time of all conversions and, where the engine has another layout, that of all copies."""
        kinds = [self._conversions, self._copies] if isinstance(engine, StreamingGemv) else [self._conversions]
        return [summed({name: us for group in groups for name, us in each[group].items()}.values()) for each in kinds]


def _converted_us(moved_bytes: int, board: Board, port_count: int = CONVERTER_PORTS) -> ThreePoint:
    return combine(lambda rate: 1e6 * moved_bytes / rate, converter_bytes_per_s(board, port_count))


def converter_bytes_per_s(board: Board, port_count: int = CONVERTER_PORTS) -> ThreePoint:
    """Return the rate of a converter: a few ports that read a tensor in one number format and write it in the other.

    Each tensor in flight has a converter of its own: a conversion delays its tensor and waits for no other.
    """
    count = min(port_count, board.memory.channel_count)
    rate = board.memory.bandwidth_bytes_per_s(count, board.memory.port_bits, board.clock_mhz)
    return combine(lambda share: rate * share, board.memory.efficiency)
