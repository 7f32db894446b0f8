"""The hand-off of a stream: the replicas that fill the board, their regions and memory, and what each computes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from common.fpga.device.board import Board
from common.fpga.hand_off.designs import design_files
from common.fpga.hand_off.units import ComputeUnit, connectivity, engine_ports
from common.fpga.kernels.estimate import Engine
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.planning.plan import Plan
from common.fpga.replicas.rows import units
from common.fpga.replicas.search import BestStreams
from common.fpga.replicas.stream import FrameStage, ReplicaStream

FOLDER = "replicas"


def replica_files(plan: Plan, found: BestStreams) -> dict[str, str]:
    """Return the text of every file of the best stream, by its path in the hand-off's folder."""
    stream, board = found.best, plan.request.board
    linked = tuple(replica_units(stream, board))
    files = {"replicas.json": json_text(_stream(plan, found, linked)), "connectivity.cfg": connectivity(linked)}
    return {f"{FOLDER}/{path}": text for path, text in (files | design_files(linked)).items()}


def json_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def replica_units(stream: ReplicaStream, board: Board) -> Iterator[ComputeUnit]:
    """Yield the engines of every replica: R1, and R1_1 beside it; those of one replica share its channels."""
    regions: list[str | None] = [region for region, count in stream.counts.items() for _ in range(count)]
    first = 0
    for number, region in enumerate(regions or [None], start=1):
        replica = stream.stages[(number - 1) % len(stream.stages)].replica
        own = 0
        for index, engine in enumerate(replica.engines):
            name = f"R{number}_{index}" if index else f"R{number}"
            ports, used = engine_ports(engine, board, first % board.memory_port_count)
            own = max(own, used)
            yield ComputeUnit(name, f"R{number}", engine, region, ports)
        first += own


def _stream(plan: Plan, found: BestStreams, linked: tuple[ComputeUnit, ...]) -> dict[str, Any]:
    stream = found.best
    cases = ("pessimistic", "likely", "optimistic")
    return {
        "board": plan.request.board.name,
        "precision": plan.request.precision,
        "launch_per": plan.request.launch_per,
        "division": stream.division,
        "replica_count": stream.replica_count,
        "region_replicas": dict(stream.counts),
        "call_frame_count": stream.frames,
        "in_flight_count": stream.in_flight,
        "stream_memory_bytes": stream.memory_bytes,
        "inferences_per_s": dict(zip(cases, stream.rate_per_s.cases, strict=True)),
        "batch_latency_us": dict(zip(cases, stream.latency_us.cases, strict=True)),
        "bound_inferences_per_s": found.bound_per_s,
        "bottleneck": stream.bottleneck,
        "replicas": [
            {"replica": name, "units": [_unit(unit) for unit in linked if unit.kernel == f"R{number}"]}
            for number, name in enumerate(units(stream), start=1)
        ],
        "stages": [_stage(plan, stage) for stage in stream.stages],
        "to_check": list(_to_check(stream)),
    }


def _unit(unit: ComputeUnit) -> dict[str, Any]:
    return {
        "unit": unit.name,
        "engine": unit.engine.name,
        "design": unit.design,
        "region": unit.region,
        "clock_mhz": unit.engine.clock_mhz,
        "dsp_cycles": _dsp_cycles(unit.engine),
        "memory": list(dict.fromkeys(port.memory for port in unit.ports)),
        "resources": {name: amount for name, amount in asdict(unit.engine.resources).items() if amount},
    }


def _dsp_cycles(engine: Engine) -> int:
    return engine.dsp_cycles if isinstance(engine, SystolicArray) else 1


def _stage(plan: Plan, stage: FrameStage) -> dict[str, Any]:
    names, graph = plan.formulation.names, plan.workload.groups
    return {
        "weight_memory": {name: amount for name, amount in asdict(stage.replica.weights).items() if amount},
        "activation_memory": {name: amount for name, amount in asdict(stage.replica.maps).items() if amount},
        "resident_tensors": [tensor.name for tensor in stage.kept],
        "calls": [
            {
                "candidate": names[call.candidate],
                "source_nodes": list(graph[plan.formulation.candidates[call.candidate].covers[0]].nodes),
                "macs": call.task.macs,
                "weight_bytes": call.task.weight_bytes,
                "resident_weight_bytes": call.task.kept.weights,
            }
            for call in stage.calls
        ],
    }


def _to_check(stream: ReplicaStream) -> Iterator[str]:
    """Yield what the plan assumes and no file of the folder shows."""
    main = stream.stages[0].replica.main
    if _dsp_cycles(main) > 1:
        yield (
            "The DSPs run at twice the array's clock. The Verilog is that of the array at one clock: it takes the same "
            "cycles and twice the DSPs until its multipliers are pumped."
        )
    if any(stage.weight_bytes for stage in stream.stages):
        yield "Weights (resident_weight_bytes) stay in memories on the chip, which the C++ does not have yet."
    if any(stage.kept for stage in stream.stages):
        yield (
            "Activations (resident_tensors) stay in memories on the chip between calls, which the C++ does not have "
            "yet: activation_memory is what they take beside the units."
        )
    yield "The host starts each call of each replica, and has the next frames on the card before a replica is free."
