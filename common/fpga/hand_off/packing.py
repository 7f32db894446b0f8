"""What the kernels of a hand-off read: weights, constants and programs of a quantized network, and its stimuli.

The network is a model with QuantizeLinear and DequantizeLinear. Each contraction that an array computes is packed: its
weights in the order in which the C++ uses them, its constants, its program. The manifest says where each lies in the
memory of its kernel. A stimulus is what a call reads; the expected result is what numpy computes for it, with the
arithmetic of the C++.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.fpga.hand_off.array_call import ArrayCall, ChannelOrder
from common.fpga.hand_off.units import KernelPort, converter_design, converter_unit
from common.fpga.kernels.systolic.loading import alike
from common.fpga.rtl.engine.arithmetic import tensors_of, windows_of
from common.fpga.rtl.engine.network import LEAST, MOST, Bytes, EngineLayer, EngineNetwork, EngineTensor
from common.graphs.number_formats import INT8
from common.messages.errors import PipelineError
from common.workload.layers import Convolution

Integers = NDArray[np.int64]
Document = Mapping[str, Any]
WIDE = -(2**31), 2**31 - 1
MULTIPLIER_BITS = 18  # signed
SETTINGS, OPERANDS, STEPS = 32, 5, 12  # of a program
ADD, FIRST_OPERAND, ONE = 0, 0, -2  # an operation, and operands of a step


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor as a program states it: its base, its strides along (0, group, pixel, channel), its zero point."""

    base: int = 0
    strides: tuple[int, int, int] = (0, 0, 0)
    zero: int = 0

    @property
    def numbers(self) -> list[int]:
        return [self.base, 0, 0, *self.strides, self.zero, 0]


@dataclass(frozen=True, slots=True)
class AddStep:
    """clip(round((value * m + operand * n) / 2^shift)), ties towards the larger."""

    m: int
    operand: int
    n: int
    shift: int
    limits: tuple[int, int]

    @property
    def numbers(self) -> list[int]:
        return [ADD, self.operand, self.m, self.n, self.shift, *self.limits, 0]

    def applied(self, value: Integers, operand: Integers | int) -> Integers:
        total = value * self.m + operand * self.n
        rounded = (total + (1 << self.shift >> 1)) >> self.shift
        limited: Integers = np.clip(rounded, *self.limits)
        return limited


@dataclass(frozen=True, slots=True)
class PackedCall:
    """A call of an array with its tensors."""

    kernel: str  # of the plan
    candidate: str  # of the plan
    layer: EngineLayer  # as the quantized network has it
    call: ArrayCall  # as the C++ sees it
    steps: tuple[AddStep, ...]  # behind the sums

    @property
    def result_zero(self) -> int:
        """Zero point of what enters the steps: theirs are of differences from it."""
        return 0 if self.steps else self.layer.y.zero

    @property
    def lines(self) -> Integers:
        """Weights as (groups, channels of a group, products of a sum): the window's rows, columns and channels."""
        assert self.layer.weights is not None
        weights = self.layer.weights.astype(np.int64).transpose(0, 2, 3, 1)
        return weights.reshape(self.call.layer.groups, self.call.channels, -1)

    @property
    def biases(self) -> Integers:
        """Biases, less what the zero point of the input adds to each sum."""
        sums = self.lines.sum(axis=2).reshape(-1)
        biases: Integers = self.layer.bias.astype(np.int64) - self.layer.x.zero * sums
        return biases

    @property
    def constants(self) -> bytes:
        both = np.zeros(len(self.biases), dtype=[("bias", "<i4"), ("scale", "<f4")])
        both["bias"], both["scale"] = self.biases, self.layer.factors
        return both.tobytes()

    @property
    def reads(self) -> tuple[EngineTensor, ...]:
        """Maps that it reads: the input, and what is added."""
        return (self.layer.x, self.layer.residual.other) if self.layer.residual else (self.layer.x,)

    def result(self, x: Bytes, other: Bytes | None) -> Bytes:
        """Return what the C++ makes of a map and of the tensor that it adds."""
        layer, call = self.layer, self.call.layer
        windows = windows_of(layer, x[None].astype(np.float64), layer.x.zero)[0].astype(np.int64)
        low, high = self.call.limits
        by_group = windows.reshape(call.groups, -1, *windows.shape[1:]).transpose(0, 2, 3, 4, 5, 1)
        rows = by_group.reshape(call.groups, call.out_height * call.out_width, -1)
        sums = (self.lines @ rows.transpose(0, 2, 1)).reshape(call.out_channels, -1)
        scaled = np.rint((sums + self.biases[:, None]).astype(np.float32) * layer.factors.reshape(-1, 1))
        value: Integers = np.clip(scaled.astype(np.int64) + self.result_zero, int(low), int(high))
        operands: dict[int, Integers | int] = {ONE: 1}
        if layer.residual and other is not None:
            operands[FIRST_OPERAND] = other.reshape(value.shape).astype(np.int64) - layer.residual.other.zero
        for step in self.steps:
            value = step.applied(value, operands[step.operand])
        return value.astype(np.int8).reshape(layer.y.channels, layer.y.height, layer.y.width)


def arranged(values: Bytes, order: ChannelOrder) -> bytes:
    """Return a map (channels, height, width) in an order of an array."""
    pixels = values.reshape(len(values), -1)
    return (pixels if order is ChannelOrder.CHANNELS_OUTSIDE else pixels.T).astype(np.int8).tobytes()


def steps_of(layer: EngineLayer) -> tuple[AddStep, ...]:
    """Return the steps that add another tensor and its result's zero point; none without a residual."""
    if (residual := layer.residual) is None:
        return ()
    factors = residual.own_scale / layer.y.scale, residual.other.scale / layer.y.scale
    shift = min(30, MULTIPLIER_BITS - 2 - floor(log2(max(factors))))
    m, n = (round(float(factor) * 2**shift) for factor in factors)
    added = AddStep(m, FIRST_OPERAND, n, shift, WIDE)
    return added, AddStep(1, ONE, layer.y.zero, 0, (residual.low, residual.high))


def packed_steps(
    specifications: Sequence[Document], schedule: Document, layers: Mapping[str, EngineLayer]
) -> Iterator[list[PackedCall]]:
    """Yield the calls of the C++ for each call of the schedule; none for one that is not of an int8 array.

    Args:
        specifications: content of every ``K*.json``.
        schedule: content of ``schedule.json``.
        layers: those of the contractions, by node.

    Raises:
        PipelineError: a kernel has no call of the schedule.
    """
    arrays = (each for each in specifications if each["engine_kind"] == "systolic")
    kernels = {each["kernel"]: each for each in arrays if each["precision"] == INT8}
    for step in schedule["steps"]:
        if step["activity"] != "call":
            continue
        if (kernel := kernels.get(step["kernel"])) is None:
            yield []
            continue
        found = [layers[node] for node in step["source_nodes"] if node in layers]
        call = next((each for each in kernel["calls"] if each["candidate"] == step["candidate"]), None)
        if call is None:
            raise PipelineError("<hand_off>", f"{step['kernel']}.json has no call {step['candidate']} of schedule.json")
        is_whole = len(found) == len(call["products"]) == 1  # else the network has no layer for the product
        yield [packed_call(kernel["kernel"], step["candidate"], found[0], call["products"][0])] if is_whole else []


def packed_call(kernel: str, candidate: str, layer: EngineLayer, product: Document) -> PackedCall:
    """Return the call of a layer on a kernel, in the orientation that the plan has for its product."""
    shape = Convolution(
        *(1, layer.x.channels, layer.x.height, layer.x.width, layer.y.channels, layer.y.height, layer.y.width),
        *(*layer.kernel, *layer.strides, layer.groups),
        dilation_height=layer.dilations[0],
        dilation_width=layer.dilations[1],
    )
    steps = steps_of(layer)
    moved = layer.own_zero if steps else 0
    low, high = max(layer.low, LEAST) - moved, min(layer.high, MOST) - moved
    order = ChannelOrder.CHANNELS_OUTSIDE if shape.is_depthwise else ChannelOrder.CHANNELS_INSIDE
    orientation = product["is_transposed"], product["outer_loop"] == "columns"
    call = ArrayCall(
        shape, order, *orientation, layer.pads, is_packed=True, zero_point=layer.x.zero, limits=(low, high)
    )
    return PackedCall(kernel, candidate, layer, call, steps)


def in_order_of_use(lines: Integers, fold: int, tile: tuple[int, int], simd: int) -> bytes:
    """Return weights in the order in which an array uses them: group, tile, part along k, fold, step, line.

    Args:
        lines: (groups, lines, products of a sum).
        fold: lines of a fold.
        tile: most lines and products of a tile.
        simd: products of a step.
    """
    groups, count, depth = lines.shape
    of_tile, most = alike(count, tile[0], fold), alike(depth, tile[1], simd)
    padded = np.zeros((groups, count, ceil(depth / simd) * simd), np.int8)
    padded[:, :, :depth] = lines
    parts = []
    for group in padded:
        for first in range(0, count, of_tile):
            part = group[first : first + of_tile]
            for k in range(0, depth, most):
                steps = part[:, k : k + most].reshape(len(part), -1, simd)
                parts += [steps[at : at + fold].swapaxes(0, 1).tobytes() for at in range(0, len(steps), fold)]
    return b"".join(parts)


# --- the memory of a kernel -------------------------------------------------------------------------------------------


@dataclass
class Image:
    """The memory of a kernel: tensors one behind the other, each from port 0 on."""

    beat: int  # bytes of a word on every port
    content: bytearray = field(default_factory=bytearray)
    written: set[tuple[str, ChannelOrder]] = field(default_factory=set)  # those that a call wrote
    places: dict[tuple[str, ChannelOrder], int] = field(default_factory=dict)  # bases of maps by name and order

    def add(self, content: bytes) -> int:
        """Place a tensor, and return its base in words of a port."""
        base = len(self.content) // self.beat
        self.content += content.ljust(ceil(len(content) / self.beat) * self.beat, b"\0")
        return base

    def allocate(self, name: str, order: ChannelOrder, size: int) -> int:
        """Return the base of a map that calls write and read; the first call of each map places it."""
        if (name, order) not in self.places:
            self.places[name, order] = self.add(bytes(size))
        return self.places[name, order]


def program_of(packed: PackedCall, image: Image, kernel: Document) -> bytes:
    """Place the tensors of a call, and return its program."""
    layer, call = packed.layer, packed.call
    sizes, tile = kernel["sizes"], kernel["tile"]
    fold, most = (sizes["rows"], tile["rows"]) if call.is_transposed else (sizes["columns"], tile["columns"])
    simd = sizes["products_per_element"]
    weights = image.add(in_order_of_use(packed.lines, fold, (most, tile["depth"]), simd))
    constants = image.add(packed.constants)
    source = image.allocate(layer.x.name, call.order, layer.x.channels * layer.x.height * layer.x.width)
    size = layer.y.channels * layer.y.height * layer.y.width
    result = TensorPlace(image.allocate(layer.y.name, call.order, size), call.result_pitches, packed.result_zero)
    operands = []
    if layer.residual:
        other = layer.residual.other
        operands.append(TensorPlace(image.allocate(other.name, call.order, size), call.result_pitches, other.zero))
    return program(call.settings((source, weights, constants)), result, operands, packed.steps)


def program(
    settings: Sequence[float], result: TensorPlace, operands: Sequence[TensorPlace], steps: Sequence[AddStep]
) -> bytes:
    """Return a program in the order that the C++ states."""
    numbers = [0, 1, 1, 1, 1, 0, len(steps), -1, *settings, *[0] * (SETTINGS - len(settings)), *result.numbers]
    for view in (*operands, *[TensorPlace()] * (OPERANDS - len(operands))):
        numbers += view.numbers
    for step in steps:
        numbers += step.numbers
    return np.array(numbers + [0] * 8 * (STEPS - len(steps)), "<i8").tobytes()


def data_files(
    specifications: Sequence[Document],  # content of every K*.json
    calls: Sequence[PackedCall],  # in the order of the schedule
    network: EngineNetwork,
    inputs: Mapping[str, Bytes],  # of the network by name, (channels, height, width) in integers
) -> dict[str, bytes]:
    """Return the content of every file of the data by its name: images of the kernels, stimuli, expected results.

    Raises:
        PipelineError: there is no call, or one reads or writes a part of a tensor, or multiplies two tensors.
    """
    _require_packable(calls)
    values = _values(calls, network, inputs)
    kernels = {each["kernel"]: each for each in specifications}
    images = {name: Image(sum(port.bits // 8 for port in ports_of(kernels[name]))) for name in kernels}
    data = _Data()
    for packed in calls:
        image, order, other = images[packed.kernel], packed.call.order, other_order(packed.call.order)
        for tensor in packed.reads:
            if (tensor.name, order) in image.written or (tensor.name, other) not in image.written:
                continue
            content = arranged(values[tensor.name], order)
            base = image.add(turning(image, tensor, other, len(content)))
            data.lines.append(f"call order-of-{tensor.name} {packed.kernel} converter {base} 0")
            data.state("write", image.places[tensor.name, order], content)
            image.written.add((tensor.name, order))
        base = image.add(program_of(packed, image, kernels[packed.kernel]))
        data.lines.append(f"call {packed.candidate} {packed.kernel} array {base} {len(packed.reads)}")
        for tensor in packed.reads:
            data.state("read", image.places[tensor.name, order], arranged(values[tensor.name], order))
        result = packed.layer.y.name
        data.state("write", image.places[result, order], arranged(values[result], order))
        image.written.add((result, order))
    used = dict.fromkeys(packed.kernel for packed in calls)
    lines = (*(_kernel_line(kernels[name]) for name in used), *data.lines)
    manifest = "".join(f"{line}\n" for line in lines).encode()
    return data.files | {f"{name}.bin": bytes(images[name].content) for name in used} | {"manifest.txt": manifest}


def _require_packable(calls: Sequence[PackedCall]) -> None:
    if not calls:
        raise PipelineError("<hand_off>", "no call of an int8 array computes a contraction of the model")
    for layer in (packed.layer for packed in calls):
        residual = layer.residual
        if layer.x.of or layer.y.of or (residual and (residual.other.of or residual.is_factor)):
            raise PipelineError(layer.node, "reads or writes a part of a tensor, or multiplies two: it is not packed")


@dataclass
class _Data:
    """Stimuli and expected results by the names of their files, and the lines of the manifest that name them."""

    files: dict[str, bytes] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def state(self, kind: str, base: int, content: bytes) -> None:
        """Add what a call reads or writes at a base, in words of a port."""
        file = f"{len(self.files):04d}.{kind}.bin"
        self.files[file] = content
        self.lines.append(f"{kind} {base} {len(content)} {file}")


def ports_of(kernel: Document) -> list[KernelPort]:
    """Return the ports of a kernel's first unit."""
    unit = kernel["units"][0]["unit"]
    mine = [port for port in kernel["ports"] if port["unit"] == unit]
    return [KernelPort(port["port"], port["width_bits"], port["memory"]) for port in mine]


def _kernel_line(kernel: Document) -> str:
    """Return what the host must know of a kernel: its array, its converter, how many ports they share, and how wide."""
    ports, unit = ports_of(kernel), kernel["units"][0]["unit"]
    turns = f"{converter_design(kernel['precision'], ports)} {converter_unit(unit)}"
    return f"kernel {kernel['kernel']} {kernel['design']} {unit} {turns} {len(ports)} {ports[0].bits // 8}"


def other_order(order: ChannelOrder) -> ChannelOrder:
    return ChannelOrder.CHANNELS_INSIDE if order is ChannelOrder.CHANNELS_OUTSIDE else ChannelOrder.CHANNELS_OUTSIDE


def turning(image: Image, tensor: EngineTensor, order: ChannelOrder, size: int) -> bytes:
    """Return the program that turns a map of an order into the other one."""
    shape = (tensor.height * tensor.width, tensor.channels)
    rows, columns = shape if order is ChannelOrder.CHANNELS_INSIDE else shape[::-1]
    bases = image.places[tensor.name, order], image.allocate(tensor.name, other_order(order), size)
    return program((*bases, rows, columns, 0, 0, 0, 0), TensorPlace(), (), ())


def _values(calls: Sequence[PackedCall], network: EngineNetwork, inputs: Mapping[str, Bytes]) -> dict[str, Bytes]:
    """Return every tensor of the network; those that calls write, and what follows in calls, are of the C++."""
    found = tensors_of(network, {name: values[None] for name, values in inputs.items()})
    values = {name: each[0] for name, each in found.items()}
    for packed in calls:
        layer = packed.layer
        other = values[layer.residual.other.name] if layer.residual else None
        values[layer.y.name] = packed.result(values[layer.x.name], other)
    return values
