"""What a reader of the plan must know, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.fpga.offload.floorplan import misfit
from common.fpga.planning.plan import Plan
from common.fpga.speedup.terms import SpeedupRow

NOTICED_EXCESS = 0.001
NOTICED_BYTES = 10**5


def caveats(plan: Plan, rows: Sequence[SpeedupRow]) -> list[str]:
    """Notes on a plan and on what it gains."""
    notes = [
        "an estimate: nothing was measured on a board, and the clock is assumed; low and high take all bad or all good "
        "assumptions together",
        *plan.request.board.notes,
    ]
    if plan.request.precision != "fp32":
        notes.append(
            f"{plan.request.precision}: the accuracy at this precision is not evaluated; check it before building"
        )
    notes += [*_of_search(plan), *_of_power(plan), *_of_host(plan)]
    energy = next(row for row in rows if (row.objective, row.term) == ("energy", "total_speedup"))
    if energy.likely is None:
        notes.append(
            "energy speedup unknown: no energy or no static power; run 05_energy_estimate.py with --static-power-w W"
        )
    return notes


def _of_search(plan: Plan) -> Iterator[str]:
    if not plan.kernels:
        yield _nothing_chosen(plan)
    if plan.request.given_speedups:
        yield "the plan was searched with the models' times; the speedups that were given are applied to what it chose"
    elif plan.solution.status != "optimal":
        yield (
            "the search ended before it had proven its plan: a better one could finish "
            f"{100 * plan.solution.gap:.2g} % earlier at most; give it more with --effort"
        )
    if (weights := plan.weight_bytes) >= NOTICED_BYTES:
        load_ms = 1e3 * weights / plan.request.board.link.bytes_per_s.likely
        yield f"{weights / 1e6:.1f} MB of weights stay on the card; loading them once takes about {load_ms:.1f} ms"


def _of_power(plan: Plan) -> Iterator[str]:
    limit_w = plan.request.board.limit_w
    hot = [kernel.name for kernel in plan.kernels if kernel.power_w.likely >= limit_w]
    if hot:
        names = ", ".join(hot)
        yield f"{names} would draw more than the card's {limit_w:g} W and be slowed down; no time here shows that"


def _of_host(plan: Plan) -> Iterator[str]:
    workload = plan.workload
    if inserted_us := sum(node.latency_us for node in workload.executed if node.name in workload.inserted):
        share = inserted_us / workload.host.latency_us
        yield f"{100 * share:.1f} % of the latency are nodes that the runtime inserted; they stay on the host"
    if workload.excess_share > NOTICED_EXCESS:
        yield (
            f"the nodes sum to {100 * workload.excess_share:.1f} % above the unprofiled median; the plan takes each "
            "shorter by that share"
        )


def _nothing_chosen(plan: Plan) -> str:
    tasks = [candidate for candidate in plan.placement.candidates if candidate.task is not None]
    if not any(candidate.task.macs for candidate in tasks if candidate.task is not None):
        return "no kernel chosen: the model has no convolution, GEMM or attention of known extents"
    if all(misfit(plan.problem, engine) for engine in {option.engine for option in plan.problem.options}):
        return "no kernel chosen: none of the kernel models fits the board at this precision"
    return "no kernel chosen: with transfers and launches every plan ends later than the host alone"
