"""Notes on a plan: its limits, each with a remedy where there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.offload.problem import misfit
from common.fpga.planning.plan import Plan
from common.fpga.planning.request import Request
from common.fpga.speedup.verdict import boundary
from common.messages.host_doubts import NOT_JUDGED, remedy
from common.table_rows import SpeedupRow
from common.workload.workload import Workload

NOTICED_EXCESS = 0.001
NOTICED_SHARE = 0.01
NOTICED_BYTES = 10**6  # a tenth of a millisecond over PCIe


def plan_notes(plan: Plan, rows: Sequence[SpeedupRow], *, is_accuracy_judged: bool = False) -> list[str]:
    """Return the notes on a plan and its speedup; the first says why the host's times decide nothing, if so."""
    notes = [
        *obstacles(plan.workload, plan.request),
        "all figures are estimates: nothing was measured on a board; the case of least gain takes all unfavourable "
        "assumptions together, that of most gain all favourable ones",
        *plan.request.board.notes,
    ]
    if plan.request.precision != "fp32" and not is_accuracy_judged:
        accuracy = "the model's accuracy in this number format is not judged; run <format_precision>"
        notes.append(f"{plan.request.precision}: {accuracy}")
    if (wider := plan.request.wider) is not None and wider.precision != "fp32":
        notes.append(f"the mixture was judged with its other layers in float; {wider.precision} rounds them, too")
    notes += [*_clock_notes(plan), *_search_notes(plan), *_power_notes(plan), *_host_notes(plan)]
    energy = next(row for row in rows if (row["objective"], row["term"]) == ("energy", "total_speedup"))
    if energy["likely"] is not None:
        notes.append(boundary(plan.workload.host.energy_source, plan.workload.host.energy_boundary))
    elif plan.request.host.kind == "scaled":
        notes.append("the energy speedup is unknown: a factor scales times only; <host_tables> has it")
    else:
        notes.append(
            "the energy speedup is unknown: the host's energy or static power is unknown; give <cpu> or <avg_power_w>"
        )
    return notes


def obstacles(workload: Workload, request: Request) -> list[str]:
    """Return why the host's times decide nothing, or nothing about the host of the board."""
    doubts, mismatch = workload.host.doubts, request.host.mismatch(request.board)
    return [
        *([f"{NOT_JUDGED}: {remedy(doubts)} ({'; '.join(doubts)})"] if doubts else []),
        *([f"{NOT_JUDGED} for this host: {mismatch}; give <host_tables> or <host_scale>"] if mismatch else []),
    ]


def _search_notes(plan: Plan) -> Iterator[str]:
    if not plan.kernels:
        yield _nothing_chosen(plan)
    if plan.request.given_speedups:
        yield "the plan was chosen with the models' times; the given kernel speedups were applied to it afterwards"
    elif plan.solution.status != "optimal":
        limit = "<time_limit>" if plan.solution.is_cut_short else "<effort>"
        yield (
            "the plan is not proved optimal: another plan could finish at most "
            f"{100 * plan.solution.gap:.2g} % earlier; raise {limit}"
        )
    if (weights := plan.weight_bytes) >= NOTICED_BYTES:
        load_ms = 1e3 * weights / plan.request.board.link.bytes_per_s.likely
        yield f"{weights / 1e6:.1f} MB of weights stay on the card; loading them takes about {load_ms:.1f} ms, once"


def _clock_notes(plan: Plan) -> Iterator[str]:
    arrays = [kernel.engine for kernel in plan.kernels if isinstance(kernel.engine, SystolicArray)]
    if spanning := [array for array in arrays if array.spans_regions and array.ports.clock_factors.pessimistic < 1]:
        slow, likely, fast = spanning[0].clock_cases_mhz.cases
        names, regions = ", ".join(array.name for array in spanning), len(plan.request.board.regions)
        yield (
            f"{names}: the likely clock of {likely:.0f} MHz over {regions} regions is the median of published designs, "
            f"which closed at {slow:.0f} to {fast:.0f} MHz; a floorplan decides where in between a design closes"
        )


def _power_notes(plan: Plan) -> Iterator[str]:
    limit_w = plan.request.board.limit_w
    hot = [kernel.name for kernel in plan.kernels if kernel.power_w.likely >= limit_w]
    if hot:
        names = ", ".join(hot)
        yield f"{names} would exceed the card's limit of {limit_w:g} W and be throttled; the times here ignore that"


def _host_notes(plan: Plan) -> Iterator[str]:
    workload = plan.workload
    inserted_us = sum(node.latency_us for node in workload.executed if node.name in workload.inserted)
    if (share := inserted_us / workload.host.latency_us) > NOTICED_EXCESS:
        yield f"{100 * share:.1f} % of the latency is in nodes that the runtime inserted; they stay on the host"
    open_us = workload.host_us(index for index in range(len(workload.groups)) if workload.flops(index) is None)
    if (share := open_us / workload.host.latency_us) > NOTICED_SHARE:
        yield (
            f"{100 * share:.1f} % of the latency is in groups whose extents data decide, or whose work has no formula; "
            "no kernel can be sized for them, so they stay on the host"
        )
    if doubtful := [group for group, cost in enumerate(workload.costs) if cost.unexplained_us > 0]:
        most = max(doubtful, key=lambda group: workload.costs[group].unexplained_us)
        cost, others = workload.costs[most], f" and {len(doubtful) - 1} more" if len(doubtful) > 1 else ""
        yield (
            f"{workload.names[most]}{others}: the host's time ({cost.latency_us:.0f} us) is at least "
            f"{cost.unexplained_us:.0f} us longer than the times of larger groups suggest, for example because threads "
            "wake; the case of least gain does not count this excess"
        )
    if workload.excess_share > NOTICED_EXCESS:
        yield (
            f"the times of the nodes add up to {100 * workload.excess_share:.1f} % more than the unprofiled median; "
            "the plan scales all of them down to it"
        )


def _nothing_chosen(plan: Plan) -> str:
    tasks = [candidate for candidate in plan.formulation.candidates if candidate.task is not None]
    if not any(candidate.task.macs for candidate in tasks if candidate.task is not None):
        return "no kernel chosen: the model has no convolution, GEMM or attention with known shapes"
    if all(misfit(plan.problem, engine) for engine in {option.engine for option in plan.problem.options}):
        return "no kernel chosen: no engine fits the board in this number format"
    return "no kernel chosen: with transfers and launches, every plan finishes later than the host alone"
