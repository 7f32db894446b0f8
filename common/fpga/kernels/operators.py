"""Resources of the parts of a dataflow kernel (configs/dataflow.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from common.configuration import Section
from common.fpga.device.resources import RESOURCE_NAMES, Resources
from common.intervals import ThreePoint
from common.number_formats import PRECISION_BITS

OPERATORS = ("add", "multiply", "divide", "exponential", "reciprocal_root", "compare", "convert")
BLOCK_BITS = 72  # width of a block RAM of 36 Kb and of an UltraRAM at its full width (UG573)
BRAM36_BYTES = 512 * BLOCK_BITS // 8
URAM_BYTES = 4096 * BLOCK_BITS // 8
BURST_WORDS = 512  # of a port's burst buffer, as deep as a block at its full width


@dataclass(frozen=True, slots=True)
class OnDsp58:
    """Floating-point operators and lanes on a DSP58, which multiplies and adds binary32 by itself."""

    operators: Mapping[str, Resources]
    mac_lanes: Mapping[str, Resources]


@dataclass(frozen=True, slots=True)
class RowwiseEfficiency:
    """Share of the lanes' peak that kernels attain which reduce rows, and those that take each element once."""

    reduction: ThreePoint
    single_pass: ThreePoint


@dataclass(frozen=True, slots=True)
class DataflowCosts:
    """Resources by part, and the efficiency that published dataflow kernels attain.

    Attributes:
        operators: one fp32 operator that accepts an operand in every cycle, by name.
        integer_operators: the same on 32-bit integers; ``exponential`` is a table, for any function of one value.
        mac_lanes: one multiply-accumulate per cycle, by number format.
        dsp58: operators and lanes that differ on a device with DSP58s.
        port: an AXI master without its burst buffer.
        control: control logic, once per kernel.
        rowwise_efficiency: share of the lanes' peak that row-wise kernels attain.
        attention_efficiency: the same of attention kernels.
        ii_cycles: initiation interval that loops attain whose target is one cycle.
    """

    operators: Mapping[str, Resources]
    integer_operators: Mapping[str, Resources]
    mac_lanes: Mapping[str, Resources]
    dsp58: OnDsp58
    port: Resources
    control: Resources
    rowwise_efficiency: RowwiseEfficiency
    attention_efficiency: ThreePoint
    ii_cycles: ThreePoint

    def on(self, dsp_type: str) -> DataflowCosts:
        if dsp_type != "DSP58":
            return self
        lanes = {**self.mac_lanes, **self.dsp58.mac_lanes}
        return replace(self, operators={**self.operators, **self.dsp58.operators}, mac_lanes=lanes)

    def mac(self, precision: str, macs_per_dsp: float | None = None) -> Resources:
        """Return one lane; ``macs_per_dsp`` is for boards whose DSPs differ from the DSP48E2, such as the DSP58."""
        lane = self.mac_lanes[precision]
        return lane if macs_per_dsp is None else replace(lane, dsp=1 / macs_per_dsp)

    def of(self, *, is_integer: bool = False, **counts: float) -> Resources:
        """Return the resources of several operators, in fp32 or in 32-bit integers: ``of(add=3, divide=1)``."""
        operators = self.integer_operators if is_integer else self.operators
        return sum((operators[name].times(count) for name, count in counts.items()), Resources())

    def ports(self, count: int, port_bits: int) -> Resources:
        """Return the resources of AXI masters, each with a burst buffer of 512 words."""
        return (self.port + Resources(bram36=ceil(port_bits / BLOCK_BITS))).times(count)


def buffer(byte_count: float, width_bits: int, *, uses_uram: bool = False) -> Resources:
    """Return whole memory blocks that hold ``byte_count`` bytes and read ``width_bits`` bits in every cycle."""
    block = URAM_BYTES if uses_uram else BRAM36_BYTES
    blocks = max(ceil(byte_count / block), ceil(width_bits / BLOCK_BITS))
    return Resources(uram=blocks) if uses_uram else Resources(bram36=blocks)


def read_dataflow(file: Section) -> DataflowCosts:
    """Read configs/dataflow.yaml.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    operators, integers, lanes = (file.section(key) for key in ("operators", "integer_operators", "mac_lanes"))
    costs = DataflowCosts(
        operators={name: _resources(operators.section(name)) for name in OPERATORS},
        integer_operators={name: _resources(integers.section(name)) for name in OPERATORS},
        mac_lanes={name: _resources(lanes.section(name)) for name in PRECISION_BITS},
        dsp58=_on_dsp58(file.section("dsp58")),
        port=_resources(file.section("memory_port")),
        control=_resources(file.section("control")),
        rowwise_efficiency=_rowwise_efficiency(file.section("rowwise_efficiency")),
        attention_efficiency=file.constant("attention_efficiency").as_rate(),
        ii_cycles=file.constant("ii_cycles").as_cost(),
    )
    file.close()
    return costs


def _rowwise_efficiency(section: Section) -> RowwiseEfficiency:
    return RowwiseEfficiency(section.constant("reduction").as_rate(), section.constant("single_pass").as_rate())


def _on_dsp58(section: Section) -> OnDsp58:
    operators, lanes = section.section("operators"), section.section("mac_lanes")
    return OnDsp58(
        {name: _resources(operators.section(name)) for name in operators},
        {name: _resources(lanes.section(name)) for name in lanes},
    )


def _resources(section: Section) -> Resources:
    amounts = {name: section.number(name) for name in RESOURCE_NAMES if name in section}
    section.origin()
    if negative := [name for name, amount in amounts.items() if amount < 0]:
        raise section.error(negative[0], "is negative")
    return Resources(**amounts)
