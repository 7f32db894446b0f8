"""A frame: what one inference of a stream asks of the card, and of the host, the link and the memory that all share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from common.fpga.offload.problem import CASES, Case, OffloadFlow
from common.fpga.planning.plan import Plan, in_case
from common.fpga.replicas.residence import FrameTensor, frame_tensors
from common.intervals import NOTHING, ThreePoint, summed
from common.workload.flows import TensorFlow, tensor_flows
from common.workload.formats import group_formats
from common.workload.tasks import Task

# Engines of a replica: those of the catalogue but the streaming one, which reads every weight for one frame alone.
KINDS = ("systolic", "overlay", "attention", "rowwise")


@dataclass(frozen=True, slots=True)
class FrameCall:
    """One group on the card; ``reads_host`` says whether it reads a tensor of the host."""

    candidate: int
    task: Task
    reads_host: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """One inference of a stream."""

    calls: tuple[FrameCall, ...]  # on the card, in the host's order
    host_us: ThreePoint = NOTHING  # of the steps that stay on the host
    to_card_us: ThreePoint = NOTHING
    to_host_us: ThreePoint = NOTHING
    convert_in_us: ThreePoint = NOTHING  # of all conversions to number formats of the card, one after the other
    convert_out_us: ThreePoint = NOTHING  # of those to the host's
    link_bytes: int = 0  # over the link, both ways
    live_bytes: int = 0  # most bytes of activations in the card's memory at one moment
    tensors: tuple[FrameTensor, ...] = ()  # activations that may stay on the chip

    @property
    def tasks(self) -> tuple[Task, ...]:
        return tuple(call.task for call in self.calls)

    @property
    def weight_bytes(self) -> int:
        return sum(task.weight_bytes for task in self.tasks)


def frame_of(plan: Plan) -> Frame:
    """Return a frame of the plan's model, with all groups on the card that some engine of a replica computes."""
    formulation, problem = plan.formulation, plan.problem
    offered = {offer.candidate for offer in formulation.offers if formulation.engines[offer.engine].kind in KINDS}
    # Chains are left out: a stream hides their launches, and batches read their weights once.
    items = {
        formulation.item_of[candidate.covers[0]]: (index, candidate.task)
        for index, candidate in enumerate(formulation.candidates)
        if index in offered and len(candidate.covers) == 1 and candidate.task is not None
    }
    on_card = frozenset(items)
    to_card, to_host = _crossing(problem.flows, on_card)
    entering = {item for flow in to_card for item in flow.consumers}
    calls = tuple(FrameCall(index, task, item in entering) for item, (index, task) in sorted(items.items()))
    sizes, workload, precision = formulation.host_bytes, plan.workload, plan.request.precision
    by_group = {formulation.candidates[call.candidate].covers[0]: call.task for call in calls}
    return Frame(
        calls,
        _rest_us(plan, on_card),
        summed(flow.h2d_us for flow in to_card),
        summed(flow.d2h_us for flow in to_host),
        summed(flow.h2d_convert_us for flow in to_card),
        summed(flow.d2h_convert_us for flow in to_host),
        sum(sizes[flow.tensor] for flow in (*to_card, *to_host)),
        _live_bytes(tensor_flows(workload.graph, workload.groups, group_formats(workload.groups, precision))),
        frame_tensors(workload.graph, workload.groups, by_group, precision),
    )


def _rest_us(plan: Plan, on_card: frozenset[int]) -> ThreePoint:
    """Return the time of the steps that stay on the host; a long one is pessimistic for a rate.

    In the pessimistic case the whole gap between nodes stays. In the others each node that moves has its share with
    it: launches now do the work of the runtime between nodes, and they are a resource of their own.
    """

    def rest_us(case: Case) -> float:
        items = in_case(plan.problem, plan.workload, case).items
        return sum(item.host_us for number, item in enumerate(items) if number not in on_card)

    run, least_us = plan.workload.host.latency, rest_us("optimistic")  # in this case the gap goes with the nodes
    likely_us = least_us * run.likely / run.optimistic
    return ThreePoint(max(likely_us, *map(rest_us, CASES)), likely_us, min(likely_us, least_us))


def _crossing(flows: Sequence[OffloadFlow], card: frozenset[int]) -> tuple[list[OffloadFlow], list[OffloadFlow]]:
    """Return the tensors that cross the link to the card, and those that cross it to the host."""
    to_card = [flow for flow in flows if flow.producer not in card and not card.isdisjoint(flow.consumers)]
    written = [flow for flow in flows if flow.producer in card]
    return to_card, [flow for flow in written if flow.is_output or not card.issuperset(flow.consumers)]


def _live_bytes(flows: Iterable[TensorFlow]) -> int:
    """Return the most bytes that are alive at once where groups run in their order; a model's input counts too."""
    steps = Counter[int]()
    for flow in flows:
        first = -1 if flow.producer is None else flow.producer
        steps[first] += flow.card_bytes or 0
        steps[max((first, *flow.consumers)) + 1] -= flow.card_bytes or 0
    return max(accumulate(steps[step] for step in sorted(steps)), default=0)
