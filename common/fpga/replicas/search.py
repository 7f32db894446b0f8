"""Find the stream with the most frames per second: all replicas of the board, all divisions, and the frames of a call.

The space is small, so it is enumerated. The bound holds for every mix of the enumerated replicas, even for parts of
them: a region gives no more frames than the least, over its resources, of the most that any replica makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from common.fpga.coefficients import Models
from common.fpga.device.board import Board
from common.fpga.device.resources import Resources, amounts
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.overlay.engine import OverlayEngine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.planning.plan import Plan
from common.fpga.planning.problem_builder import LaunchPer
from common.fpga.replicas.frame import Frame, FrameCall, frame_of
from common.fpga.replicas.replica import Replica, one_array, replicas_for
from common.fpga.replicas.residence import keeps_weights, with_kept
from common.fpga.replicas.stream import CallTimes, Division, FrameStage, ReplicaStream, keeping, per_s, stream
from common.workload.layers import Matmul

DIVISIONS: tuple[Division, ...] = ("frames", "layers", "heads", "one array")
MOST_STAGES = 8
NEARLY = 0.99  # of the highest rate: fewer frames in a call that reach it keep the latency low
BISECTIONS = 40
# Candidates of a division are compared by calls over so many frames and over the most; the best of either, by all
# numbers of frames.
COMPARED_FRAMES, MOST_CANDIDATES = 8, 6


Candidate = tuple[Division, dict[str, int], list[FrameStage]]


@dataclass(frozen=True, slots=True)
class BestStreams:
    """The best stream of each division, the best of all, and what no mix of the replicas exceeds."""

    streams: tuple[ReplicaStream, ...]
    bound_per_s: float

    @property
    def best(self) -> ReplicaStream:
        return max(self.streams, key=_merit)


def streams_of(plan: Plan, models: Models) -> BestStreams | None:
    """Return the best streams for the model, board and number format of a plan."""
    request, engines = plan.request, plan.formulation.engines
    frame = frame_of(plan)
    return find_streams(frame, request.board, request.precision, models, request.launch_per, engines, request.overlay)


def find_streams(
    frame: Frame,
    board: Board,
    precision: str,
    models: Models,
    launch_per: LaunchPer,
    arrays: Sequence[Engine],
    overlay: OverlayEngine | None = None,
) -> BestStreams | None:
    """Return the best stream of each division; None where no replica computes the frame's calls.

    Args:
        arrays: of the catalogue, of which one alone is what the replicas are compared with.
        overlay: a vendor's engine that may be replicated.
    """
    if not frame.calls:
        return None
    timing = CallTimes(board, models, precision, launch_per)
    replicas = list(replicas_for(board, precision, models, frame, overlay))
    counted = [(replica, counts) for replica in replicas if sum((counts := replica.counts(board)).values())]
    candidates = [candidate for replica, counts in counted for candidate in _divided(timing, frame, replica, counts)]
    for replica in one_array(board, precision, models, frame, arrays):
        candidates.append(("one array", {}, [FrameStage(replica, 0, frame.calls)]))
    found: dict[Division, ReplicaStream] = {}
    for candidate in _promising(timing, frame, candidates):
        best, division = _best_batch(timing, frame, candidate), candidate[0]
        if best is not None and (division not in found or _merit(best) > _merit(found[division])):
            found[division] = best
    if not found:
        return None
    streams = tuple(found[division] for division in DIVISIONS if division in found)
    bound = _bound_per_s(timing, frame, [replica for replica, _ in counted], streams)
    return BestStreams(streams, bound)


def _merit(candidate: ReplicaStream) -> tuple[float, float, float, int]:
    """Return what streams are compared by: the likely rate, the rate of the card alone, the latency, few replicas."""
    rates = candidate.rate_per_s.likely, candidate.card_rate_per_s.likely
    return (*rates, -candidate.latency_us.likely, -candidate.replica_count)


def batches(most: int) -> list[int]:
    """Return the numbers of frames that a call may compute: doubled up to the largest."""
    return [2**power for power in range(most.bit_length()) if 2**power <= most]


def _best_batch(timing: CallTimes, frame: Frame, candidate: Candidate) -> ReplicaStream | None:
    """Return the stream with the fewest frames in a call that is nearly the quickest, of those that fit the memory."""
    numbers = batches(timing.models.replicas.most_frames)
    streams = [_stream(timing, frame, candidate, frames) for frames in numbers]
    fitting = [each for each in streams if each.memory_bytes <= timing.board.memory.capacity_bytes]
    most = max((each.card_rate_per_s.likely for each in fitting), default=0.0)
    return next((each for each in fitting if each.card_rate_per_s.likely >= NEARLY * most), None)


def _promising(timing: CallTimes, frame: Frame, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates of each division with the highest rates, by calls over few frames and over the most.

    Few frames of a call leave room for activations on the chip, many share launches and weights.
    """
    ranked: dict[tuple[Division, int], list[tuple[float, int]]] = {}
    listed, most = list(candidates), timing.models.replicas.most_frames
    for index, candidate in enumerate(listed):
        for frames in {min(COMPARED_FRAMES, most), most}:
            rate = _stream(timing, frame, candidate, frames).card_rate_per_s.likely
            ranked.setdefault((candidate[0], frames), []).append((-rate, index))
    chosen = {index for rated in ranked.values() for _, index in sorted(rated)[:MOST_CANDIDATES]}
    yield from (listed[index] for index in sorted(chosen))


def _divided(timing: CallTimes, frame: Frame, replica: Replica, counts: dict[str, int]) -> Iterator[Candidate]:
    """Yield each way to divide a frame, or the frames, over so many replicas."""
    count = sum(counts.values())
    whole = FrameStage(replica, 0, frame.calls)
    yield "frames", counts, [whole]
    if count > 1 and any(has_heads(call) for call in frame.calls):
        yield "heads", counts, [whole]
    for stage_count in range(2, min(count, MOST_STAGES, len(frame.calls)) + 1):
        if count % stage_count == 0:
            stages = balanced(timing, replica, frame.calls, stage_count)
            if len(stages) == stage_count:
                yield "layers", counts, stages


def _stream(timing: CallTimes, frame: Frame, candidate: Candidate, frames: int) -> ReplicaStream:
    """Return a stream with what stays on the chip; replicas that share each call exchange theirs over the memory."""
    division, counts, stages = candidate
    if division != "heads":
        left = stages[0].replica.left(timing.board, counts)
        stages = [keeping(timing, frame, stage, frames, left) for stage in stages]
    return stream(timing, frame, division, counts, stages, frames)


def has_heads(call: FrameCall) -> bool:
    """Return whether a call has products of two activations, such as the heads of an attention, side by side."""
    return any(isinstance(layer, Matmul) and layer.batch > 1 and not layer.has_weight for layer in call.task.layers)


def balanced(timing: CallTimes, replica: Replica, calls: Sequence[FrameCall], stage_count: int) -> list[FrameStage]:
    """Divide calls into contiguous stages so that the slowest engine of any stage takes the least time.

    Bisection over that time: first come, first packed is right for contiguous parts.
    """
    works = [timing.work(replica, [call], 1) for call in calls]
    loads = [{unit: us.likely for unit, us in work.busy_us.items()} for work in works]
    low, high = max(max(load.values()) for load in loads), sum(sum(load.values()) for load in loads)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_packed(loads, middle)) <= stage_count else (middle, high)
    starts = [*_packed(loads, high), len(calls)]
    return [FrameStage(replica, first, tuple(calls[first:end])) for first, end in pairwise(starts)]


def _packed(loads: Sequence[dict[str, float]], most_us: float) -> list[int]:
    """Return the first call of each stage, where a stage takes calls until one of its engines would be too slow."""
    starts, busy = [0], dict[str, float]()
    for index, load in enumerate(loads):
        together = {unit: busy.get(unit, 0.0) + us for unit, us in load.items()}
        if index > starts[-1] and any(us > most_us for us in together.values()):
            starts.append(index)
            busy, together = {}, load
        busy |= together
    return starts


def _bound_per_s(
    timing: CallTimes, frame: Frame, replicas: Iterable[Replica], streams: Sequence[ReplicaStream]
) -> float:
    """Return the frames per second that no mix of the replicas exceeds, in the likely case."""
    most, quickest = timing.models.replicas.most_frames, []
    tasks = dict(enumerate(frame.tasks))
    weights = [call for call, task in tasks.items() if task.weight_bytes and keeps_weights(task)]
    kept = zip(frame.calls, with_kept(tasks, [*frame.tensors, *weights]), strict=True)
    ideal = [replace(call, task=task) for call, task in kept]
    for replica in replicas:
        work = timing.work(replica, ideal if isinstance(replica.main, SystolicArray) else frame.calls, most)
        quickest.append((replica.fabric, per_s(work.slowest_us.likely / most)))
    of_regions = sum(min(_limits(budget, quickest), default=0.0) for budget in timing.board.budgets)
    shared = [us.likely for us in (frame.host_us, frame.to_card_us, frame.to_host_us) if us.likely > 0]
    found = max(each.rate_per_s.likely for each in streams)
    return max(found, min([of_regions, *map(per_s, shared)]))


def _limits(budget: Resources, quickest: Sequence[tuple[Resources, float]]) -> Iterator[float]:
    """Yield by resource that a replica needs the most frames per second that any replica makes of a region's budget."""
    for index, limit in enumerate(amounts(replace(budget, memory_channels=0.0))):
        needs = [(min(limit, amounts(fabric)[index]), rate) for fabric, rate in quickest]  # a vendor's may need more
        if any(needed for needed, _ in needs):
            yield max(limit / needed * rate if needed else math.inf for needed, rate in needs)
