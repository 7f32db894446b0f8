"""Compare plans that fill a board with published frames per second of boards that are full of engines.

    python -m benchmarks.plans.throughput [--launch-per group] [--lean] [--board u250] [--network resnet50-v1]

Each network is planned for the board as ``07_fpga_candidates.py --objective throughput`` does, on a host that takes no
time, as the vendor's many threads nearly are. *Plan* is the best stream over replicas of the project's own arrays;
*one array* is what the board gives without replicas. A published rate is inside if the plan's interval holds it: the
plan's arrays are not the vendor's, so this says that the search finds the neighbourhood of what was built. *Same
engines* are the vendor's, in the published number at the published clock, by the overlay's model with the memory's rate
divided among them; only engines with a file in configs/engines have it.

The vendor's engines fetch their instructions from memory: the host starts them once for a network. So the plan is one
with a command processor, too (``07_fpga_candidates.py --launch-per phase``). With ``--launch-per group``, which is 07's
default, the host starts every call of every replica.

The plan's interval is one of speed: its designs take the likely LUTs and flip-flops. With --lean they take the least
ones of published designs, so that more of them fit the board.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.kernels.overlay_fit import CONFIGS, configured, network, predicted
from benchmarks.kernels.published import Card, cards
from benchmarks.kernels.zoo_networks import NETWORKS
from common.fpga.coefficients import Models, load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import arrays
from common.fpga.planning.problem_builder import LAUNCH_PER, LaunchPer
from common.fpga.replicas.frame import Frame, FrameCall
from common.fpga.replicas.residence import frame_tensors
from common.fpga.replicas.search import BestStreams, find_streams
from common.fusion.groups import fuse
from common.intervals import ThreePoint, combine
from common.workload.task_candidates import task_candidates

MODELS = load_models(CONFIGS)
LEAN = ("lut", "ff")  # of which a lean design takes the least of its interval
PRECISION = "int8"
INPUT_BYTES = 3 * 224 * 224  # of an image in int8, over the link


@dataclass(frozen=True, slots=True)
class Compared:
    """A published rate in frames per second, beside the plan's and that of the vendor's engines by their model."""

    card: Card
    network: str
    published: float
    plan: ThreePoint
    arrays: str
    one_array: float
    same_engines: ThreePoint | None

    @property
    def is_inside(self) -> bool:
        """Whether the plan's interval holds the published rate."""
        return self.plan.pessimistic <= self.published <= self.plan.optimistic


@cache
def frame_of(name: str, board: str) -> Frame:
    """Return a frame of a network on a host that takes no time: all groups are on the card, and the image crosses."""
    net = network(NETWORKS[name]())
    groups = fuse(net.graph)
    candidates = task_candidates(net.graph, groups, net.layers, PRECISION, longest_chain=1)
    tasks = {candidate.covers[0]: candidate.task for candidate in candidates if candidate.task is not None}
    link = load_board(board, CONFIGS / "boards").link.bytes_per_s
    calls = tuple(FrameCall(index, task, index == 0) for index, task in enumerate(tasks.values()))
    tensors = frame_tensors(net.graph, groups, tasks, PRECISION)
    return Frame(calls, to_card_us=combine(lambda rate: 1e6 * INPUT_BYTES / rate, link), tensors=tensors)


def lean_models() -> Models:
    """Return the models with the least LUTs and flip-flops of published designs as the likely ones."""
    bands = MODELS.systolic.design_bands
    least = {name: replace(bands[name], likely=min(bands[name].cases)) for name in LEAN}
    return replace(MODELS, systolic=replace(MODELS.systolic, design_bands={**bands, **least}))


@cache
def planned(name: str, board_name: str, launch_per: LaunchPer = "phase", *, is_lean: bool = False) -> BestStreams:
    """Return the streams that the search finds for a network on a board.

    Raises:
        ValueError: no array of the board computes the network.
    """
    board, frame = load_board(board_name, CONFIGS / "boards"), frame_of(name, board_name)
    models = lean_models() if is_lean else MODELS
    room = max(board.budgets, key=lambda budget: budget.dsp)
    alone = arrays(board, PRECISION, models, frame.tasks, room)
    found = find_streams(frame, board, PRECISION, models, launch_per, alone)
    if found is None:
        raise ValueError(f"{board_name} has no array for {name}")
    return found


def same_engines(card: Card, name: str) -> ThreePoint | None:
    """Return the rate of the published engines at their clock, each with an equal share of the memory's rate."""
    if not card.file:
        return None
    engine = configured(card.file, card.board)
    cores = engine.core_count * card.count // engine.engine_count
    host = replace(engine.host, threads=64)
    filled = replace(engine, engine_count=card.count, core_count=cores, clock_mhz=card.clock_mhz, host=host)
    return predicted(network(NETWORKS[name]()), filled).pipelined_frames_per_second


def comparisons(
    names: Sequence[str] | None = None,
    boards: Sequence[str] | None = None,
    launch_per: LaunchPer = "phase",
    *,
    is_lean: bool = False,
) -> Iterator[Compared]:
    """Yield every published rate beside the plan for its board; by default of all networks and boards."""
    for card in (card for card in cards() if boards is None or card.board in boards):
        for name, published in card.frames_per_s.items():
            if names is None or name in names:
                found = planned(name, card.board, launch_per, is_lean=is_lean)
                best = found.best
                alone = next((each for each in found.streams if each.division == "one array"), None)
                design = f"{best.replica_count} x {best.stages[0].replica.name}, {best.division}"
                rate = best.rate_per_s
                one_array = 0.0 if alone is None else alone.rate_per_s.likely
                yield Compared(card, name, published, rate, design, one_array, same_engines(card, name))


def report(rows: Sequence[Compared]) -> str:
    """Return a line for each published rate, and how many of them the plans' intervals hold, by board."""
    head = f"{'board':9}{'published engines':30}{'network':15}{'fps':>7}{'plan':>7}{'interval':>15}"
    lines = [f"{head}{'one array':>11}{'same engines':>22}  plan"]
    for row in rows:
        engines = f"{row.card.count} x {row.card.engines} {row.card.clock_mhz:.0f} MHz"
        interval = f"{row.plan.pessimistic:.0f} - {row.plan.optimistic:.0f}{'' if row.is_inside else '!'}"
        same = row.same_engines
        of_same = "" if same is None else f"{same.likely:.0f} ({same.pessimistic:.0f} - {same.optimistic:.0f})"
        figures = f"{row.published:7.0f}{row.plan.likely:7.0f}{interval:>15}{row.one_array:11.0f}{of_same:>22}"
        lines.append(f"{row.card.board:9}{engines:30}{row.network:15}{figures}  {row.arrays}")
    return "\n".join([*lines, "", *_coverage(rows)])


def _coverage(rows: Sequence[Compared]) -> Iterator[str]:
    for board in dict.fromkeys(row.card.board for row in rows):
        own = [row for row in rows if row.card.board == board]
        inside, better = (
            sum(flags) for flags in zip(*((r.is_inside, r.plan.likely > r.one_array) for r in own), strict=True)
        )
        yield f"{board}: {inside} of {len(own)} inside; the plan beats one array in {better}"
    timed = [row for row in rows if row.same_engines is not None]
    held = sum(same.pessimistic <= row.published <= same.optimistic for row in timed if (same := row.same_engines))
    inside = sum(row.is_inside for row in rows)
    yield f"all: {inside} of {len(rows)} inside; same engines: {held} of {len(timed)} inside"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans.throughput", description=__doc__)
    parser.add_argument("--network", action="append", choices=sorted(NETWORKS), help="only this one; may be repeated")
    boards = sorted({card.board for card in cards()})
    parser.add_argument("--board", action="append", choices=boards, help="only this one; may be repeated")
    parser.add_argument("--lean", action="store_true", help="designs take the least LUTs and flip-flops published")
    parser.add_argument("--launch-per", choices=LAUNCH_PER, default="phase", help="what the host starts")
    given = parser.parse_args(argv)
    if not (rows := list(comparisons(given.network, given.board, given.launch_per, is_lean=given.lean))):
        parser.error("--board, --network: no rate of these networks is published for these boards")
    print(report(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
