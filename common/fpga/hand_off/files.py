"""All files of a hand-off by their path in its folder, and the page for the engineer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any

from common.fpga.device.board import Board
from common.fpga.hand_off.build_files import build_files
from common.fpga.hand_off.designs import array_design, design_files, template
from common.fpga.hand_off.replicas import FOLDER, json_text, replica_files
from common.fpga.hand_off.schedule import Call, calls_in_order, exchanged, schedule, together_us
from common.fpga.hand_off.specification import specification
from common.fpga.hand_off.units import (
    ComputeUnit,
    beside_arrays,
    by_kernel,
    by_memory,
    compute_units,
    connectivity,
    copiers,
    port_names,
)
from common.fpga.kernels.dataflow.attention import AttentionEngine
from common.fpga.kernels.dataflow.rowwise import RowwiseEngine
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.planning.plan import Plan
from common.fpga.replicas.search import BestStreams
from common.fpga.rtl.generate import FORMATS
from common.graphs.grouping import grouped
from common.messages.errors import UnusableValueError
from common.workload.layers import Convolution

VITIS_FAMILIES = ("ultrascale+", "versal")


def require_vitis(board: Board) -> None:
    """Refuse by an UnusableValueError a board for whose family Vitis, which a hand-off is for, has no tools."""
    if board.family not in VITIS_FAMILIES:
        problem = f"is for Vitis, which has no tools for the {board.family} of the {board.name}"
        raise UnusableValueError("hand_off", problem, "leave it out; <engine_summary> builds an engine for open tools")


def hand_off_files(
    plan: Plan, model: str, verdict: Sequence[str], streams: BestStreams | None = None
) -> dict[str, str]:
    """Return the text of every file.

    ``verdict`` is what is known of the gain, and ``streams`` say how replicas fill the board.
    """
    board, calls = plan.request.board, calls_in_order(plan)
    units = compute_units(plan.kernels, board, beside_arrays(plan.kernels, exchanged(calls)))
    copied = copiers(units, exchanged(calls))
    of_kernel = by_kernel(units)
    called = {kernel.name: [call for call in calls if call.kernel == kernel.name] for kernel in plan.kernels}
    specifications = [
        specification(kernel, board.name, of_kernel[kernel.name], called[kernel.name]) for kernel in plan.kernels
    ]
    files = {f"{each['kernel']}.json": json_text(each) for each in specifications}
    files["connectivity.cfg"] = connectivity(units)
    files["schedule.json"] = json_text(schedule(plan, calls))
    files |= design_files(units) | build_files(units, copied)
    if streams is not None:
        files |= replica_files(plan, streams)
    files["README.md"] = readme(plan, model, verdict, units, calls, sorted(files), specifications, streams)
    return files


Specification = Mapping[str, Any]
MOST_AXES = 2  # of a convolution in C++


def readme(
    plan: Plan,
    model: str,
    verdict: Sequence[str],
    units: Sequence[ComputeUnit],
    calls: Sequence[Call],
    generated: Sequence[str],
    specifications: Sequence[Specification],
    streams: BestStreams | None = None,
) -> str:
    """Return the text of ``README.md``; ``generated`` are the paths of the other files."""
    return Template(template("readme.md")).substitute(
        model=model,
        board=plan.request.board.name,
        precision=" and ".join(plan.request.formats),
        finish_us=f"{plan.likely.finish_us:,.1f}",
        host_us=f"{plan.workload.host.latency_us:,.1f}",
        verdict="\n".join(f"* {line}" for line in verdict),
        stream="" if streams is None else f"\n{_stream(streams)}\n",
        kernels="\n".join(_kernels(plan, units, calls)),
        generated="\n".join(f"| `{path}` | {text} |" for path, text in _designs(generated)),
        assumed="\n".join(_item(line) for line in (*_loops(specifications), *_assumed(plan, units, calls))),
    )


def _item(line: str) -> str:
    """Return a line of a list; one that is indented belongs to the item above."""
    text = line.lstrip()
    return f"{line[: len(line) - len(text)]}* {text}"


def _stream(streams: BestStreams) -> str:
    """Return what the folder of the replicas is: another design for the same board, for many frames."""
    best, rate = streams.best, streams.best.rate_per_s
    places = ", ".join(f"{count} in {region}" for region, count in best.counts.items()) or "one over the board"
    return (
        f"`replicas/` is another design, for the most frames per second: {rate.likely:,.0f} ({rate.pessimistic:,.0f} to"
        f" {rate.optimistic:,.0f}) on {best.replica_count} x `{best.stages[0].replica.name}` ({places}),"
        f" {best.in_flight} frames in flight, bound by {best.bottleneck}. `replicas/replicas.json` says what each"
        " computes and what to check. The rest of this page is about the design for one inference."
    )


def _kernels(plan: Plan, units: Sequence[ComputeUnit], calls: Sequence[Call]) -> Iterator[str]:
    if not plan.kernels:
        yield "The plan leaves everything on the host: there is nothing to build."
        return
    yield "| unit | design | region | calls | clock, MHz |\n|---|---|---|--:|--:|"
    for unit in units:
        count = sum(call.kernel == unit.kernel for call in calls)
        region = unit.region or "spans the board"
        yield f"| {unit.name} | `{unit.design}` | {region} | {count} | {unit.engine.clock_mhz:g} |"


WHAT_IT_IS = (  # by the beginning of a path, the first that fits
    ("hls/systolic", "C++ of an array: right numbers with any compiler, and its loops are counted (`loop_cycles`)"),
    ("hls/copy", "C++ of a copier: between a streaming kernel and one that spreads tensors over its ports"),
    (
        "hls/convert",
        "C++ of a converter: float32 maps of the host and maps of an array, and both orders of its channels",
    ),
    ("hls/", "C++ for Vitis HLS: right numbers with any compiler, the plan's sizes as pragmas; not yet quick"),
    ("rtl/package_kernel", "`vivado -source`: packages the engine below as an RTL kernel"),
    ("rtl/engine", "Verilog of the whole engine (int8) around the array, under AXI4 and `ap_ctrl_hs`"),
    ("rtl/", "Verilog of the array alone, in the planned size; operands and sums are its ports"),
    ("host/", "host program for XRT: runs every call of the packed data and compares its result"),
    ("csim/xrt/", "what that program uses of XRT, on the C++ in this process"),
    ("csim/", "a design as a library of that simulation"),
    ("Makefile", "`make simulate` by g++ alone; `make kernels.xclbin host run` with Vitis and XRT"),
    ("clock.cfg", "for the linker: the clock of each unit"),
    ("converters.cfg", "for the linker: a converter beside each array, in its region, on its channels; and copiers"),
)


def _designs(generated: Sequence[str]) -> Iterator[tuple[str, str]]:
    for path in generated:
        of_path = path.removeprefix(f"{FOLDER}/")
        if text := next((text for begin, text in WHAT_IT_IS if of_path.startswith(begin)), ""):
            yield path, text


def _assumed(plan: Plan, units: Sequence[ComputeUnit], calls: Sequence[Call]) -> Iterator[str]:
    yield "Every kernel closes timing at its clock."
    yield "A tensor is spread evenly over the memory channels of the kernel that reads it, word by word."
    yield from _resources_within([unit.engine for unit in units if isinstance(unit.engine, SystolicArray)])
    for unit in units:
        if not unit.ports:
            yield f"{unit.name} is a vendor's engine: its files and its connections come from the vendor."
        elif array_design(unit.engine) is None and isinstance(unit.engine, SystolicArray):
            yield f"{unit.name} has no Verilog: there is some for {', '.join(FORMATS)} only."
    for kernel, members in by_kernel(units).items():
        if len(members) > 1:
            yield (
                f"{kernel} is a team: each call is divided into {len(members)} shares of its heads or its batch. The"
                " plan has not checked that each member finds room in its region beside other kernels."
            )
    yield "Each group is a call of its own: the C++ keeps nothing on the chip between groups, nor does the plan."
    convolutions = [layer for call in calls for layer in call.task.layers if isinstance(layer, Convolution)]
    if any(layer.is_transposed for layer in convolutions):
        yield "The C++ of a transposed convolution also multiplies the zeros between its pixels; the plan does not."
    if any(layer.axes > MOST_AXES for layer in convolutions):
        yield "The C++ has no convolution over three axes."
    if any(bar.kind == "convert" for bar in plan.likely.bars) or plan.request.wider is not None:
        yield (
            "Something on the card converts number formats (steps `convert`). The converters here do that for float32"
            " and the arrays' integers; none converts bfloat16."
        )
    yield from _between(plan, units, calls)
    if plan.request.board.memory.channel_count == 1:
        yield (
            "The board has one memory channel. The tables count it once for each kernel; here each port takes the next"
            " way to it, because the times assume as many ways as a kernel has ports."
        )
    yield from _sharing(units, beside_arrays(plan.kernels, exchanged(calls)))


def _sharing(units: Sequence[ComputeUnit], beside: Mapping[str, str]) -> Iterator[str]:
    """Name the units that share channels, but for an array and those that have its ports: ``_between`` names them."""
    for sharing, of_them in grouped((tuple(names), memory) for memory, names in by_memory(units).items()).items():
        if len({beside.get(name, name) for name in sharing}) > 1:
            yield f"{', '.join(sharing)} share {', '.join(of_them)}: in the plan, neither slows the other down."


def _resources_within(arrays: Sequence[SystolicArray]) -> Iterator[str]:
    """Say within which factors of the likely amounts four of five designs of another family are expected."""
    for array in arrays[:1]:
        amounts = [
            f"{band.optimistic / band.likely:.2g} to {band.pessimistic / band.likely:.2g} times the {name.upper()}"
            for name, band in array.design_bands.items()
        ]
        expected = f"Four of five designs of a further family are expected to take {', '.join(amounts)}"
        yield f"The resources of an array are its likely ones. {expected}; synthesis says more."
        yield "The converters beside the arrays (`converters.cfg`) find room: the plan's resources do not have them."


def _loops(specifications: Sequence[Specification]) -> Iterator[str]:
    """Say how many cycles the loops of the arrays' C++ take, and why they differ from those of the plan."""
    products = [
        (call["candidate"], product)
        for each in specifications
        for call in each["calls"]
        for product in call.get("products", [])
        if "planned_cycles" in product
    ]
    counted = [product for _, product in products if "loop_cycles" in product]
    if counted:
        total = sum(each["loop_cycles"] for each in counted) / sum(each["planned_cycles"] for each in counted)
        yield (
            f"The loops of the arrays' C++ take {total:.2f} times the cycles that the plan counts for the same tiles"
            " (`loop_cycles` and `planned_cycles`), at one cycle per trip and with the plan's cycles for a word of a"
            " port (`loop_trips` are the trips alone). No tool of the vendor has confirmed that: `read_all` and"
            " `write_all` share the ports, and a word that results fill in part is read before it is written."
        )
    causes = grouped((_apart(product), candidate) for candidate, product in products if "loop_cause" in product)
    if causes:
        apart = sum(map(len, causes.values()))
        yield f"{apart} of {len(products)} products take over a tenth more or less, or are not counted (`loop_cause`):"
    yield from (f"  {', '.join(names)}: {text}." for text, names in causes.items())


def _apart(product: Mapping[str, Any]) -> str:
    size = f"{product['rows']:,} x {product['depth']:,} x {product['columns']:,}"
    if "loop_cycles" not in product:
        return f"{size}, {product['loop_cause']}"
    return f"{size}, {product['loop_cycles'] / product['planned_cycles']:.2f} times: {product['loop_cause']}"


def _between(plan: Plan, units: Sequence[ComputeUnit], calls: Sequence[Call]) -> Iterator[str]:
    """Name the kernels that read what others write: those with an array's ports, and those whose ports differ."""
    kernels, members = {kernel.name: kernel for kernel in plan.kernels}, by_kernel(units)
    pairs = exchanged(calls)
    for name, array in beside_arrays(plan.kernels, pairs).items():
        engine, ports = kernels[name].engine, len(members[array][0].ports)
        assert isinstance(engine, RowwiseEngine | AttentionEngine)  # no other is beside an array
        planned = max(len(port_names(engine)), engine.reached_ports)
        more = engine.costs.ports(max(0, ports - planned), members[array][0].ports[0].bits)
        beyond = f"; add {more.lut:,.0f} LUT and {more.bram36:g} block RAM" if more.lut else ""
        both = together_us(plan, kernels[name], kernels[array])
        yield (
            f"{name} has the {ports} ports and channels of {array}, so each reads what the other writes where it lies,"
            f" and nothing is copied. The plan's resources have {planned} ports of {name}{beyond}. In the likely"
            f" schedule both work at the same time for {both:,.1f} µs, and share the channels then; the plan does not"
            " charge that."
        )
    copied = {frozenset((each.stream.kernel, each.other.kernel)): each for each in copiers(units, pairs)}
    for writer, reader in pairs:
        if each := copied.get(frozenset((writer, reader))):
            yield (
                f"{reader} reads tensors that {writer} writes in another layout. {each.name} copies them"
                " (`converters.cfg`), a word a cycle; the plan charges that, and its resources do not have it."
            )
            continue
        own, other = ([port for unit in members[each] for port in unit.ports] for each in (reader, writer))
        charged = "neither."
        if any(isinstance(kernels[name].engine, StreamingGemv) for name in (writer, reader)):
            charged = "copies; no kernel of the hand-off makes these, because their formats or words differ."
        if [port.memory for port in own] != [port.memory for port in other]:
            yield (
                f"{reader} (ports: {len(own)}) reads tensors that {writer} (ports: {len(other)}) writes"
                " (`schedule.json`, `tensors`). Their channels and layouts differ: let the ports of one reach the"
                f" memory of both, at the cost of its switch, or copy the tensors. The plan charges {charged}"
            )
