"""Streaming GEMV: y = A·x, where the matrix is read once through many memory channels.

The kernel is the 16-channel one of Vitis BLAS (L2, gemvStreamCh16). The rows of A are distributed over the channels,
each channel takes a word of A and a word of x in every cycle, and a row's sum drains before the next row begins.

    cycles = first word + passes · products · ⌈rows / ports⌉ · (⌈columns / elements per word⌉ · word cycles + row drain)
    word cycles = max(1 + stall share, rate of the ports / sustained rate of the channels)

First word, row drain and stall share are fitted or given in configs/streaming.yaml. ``vectors`` rows of activations use
each word of the weights at the same time, each with lanes and a port of its own. More rows need more passes over the
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from common.files.configuration import Section
from common.fpga.device.resources import Resources
from common.fpga.kernels.dataflow.operators import DataflowCosts
from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.kernels.ports import MemoryPorts, OnPorts
from common.graphs.number_formats import PRECISION_BITS
from common.intervals import ThreePoint
from common.messages.errors import UnusableValueError
from common.workload.layers import Matmul, Pointwise
from common.workload.tasks import Task


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """The delays that keep the kernel from taking a word in every cycle."""

    row_drain_cycles: float  # from a row's last word to the next row's first word, while the sum drains
    stall_share: float  # stall cycles per word (DRAM refresh and row activation)
    first_word_ns: float  # from the start to the first word


@dataclass(frozen=True, slots=True)
class PublishedSize:
    """One published measurement: time of the kernel alone, and of the host's call with the matrix on the card."""

    rows: int
    columns: int
    kernel_us: float
    call_us: float


@dataclass(frozen=True, slots=True)
class StreamingModel:
    """Content of configs/streaming.yaml: the fitted delays, and the measurements that they are fitted to."""

    timing: StreamTiming
    efficiency: ThreePoint
    host_call_us: ThreePoint
    link_bytes_per_s: float
    ports: MemoryPorts
    precision: str
    measurements: tuple[PublishedSize, ...]
    worst_left_out_error: float


@dataclass(frozen=True, slots=True)
class StreamingGemv(OnPorts):
    """The kernel in one number format."""

    kind: ClassVar[str] = "streaming"
    spans_regions: ClassVar[bool] = True  # the lanes of a channel are independent, only x and y cross between channels
    precision: str  # number format of the matrix, the vector and the result
    ports: MemoryPorts  # ports of the matrix. Each vector has one more, which carries its x and y.
    timing: StreamTiming
    costs: DataflowCosts
    efficiency: ThreePoint  # share of a full stream that published runs attain
    vectors: int = 1  # rows of activations that share one pass over the weights
    macs_per_dsp: float | None = None  # the board's rate, where it differs from that of the costs
    shares_channel: bool = False  # whether x and y share the board's only channel with the matrix

    @property
    def name(self) -> str:
        """Name such as ``streaming-16ch-int8``; more than one vector is appended."""
        return f"streaming-{self.ports.count}ch-{self.precision}" + (f"-x{self.vectors}" if self.vectors > 1 else "")

    @property
    def lanes_per_port(self) -> int:
        """Multiply-accumulates of one word of the matrix with one vector."""
        return self.ports.elements_per_word(PRECISION_BITS[self.precision])

    @property
    def lanes(self) -> int:
        return self.ports.count * self.lanes_per_port * self.vectors

    @property
    def resources(self) -> Resources:
        """Resources of lanes, ports and control; one memory channel per group of ports and per vector."""
        channels = Resources(memory_channels=self.ports.channel_count + self.vectors)
        lanes = self.costs.mac(self.precision, self.macs_per_dsp).times(self.lanes)
        # y has a port of its own, on the channel of x.
        ports = self.costs.ports(self.ports.count + 2 * self.vectors, self.ports.port_bits)
        return (self.costs.control + lanes + ports + channels).whole()

    def estimate(self, task: Task) -> KernelEstimate | None:
        """Estimate one matrix product, with element-wise operators on its result; None for another task.

        The second operand is streamed; its columns are the rows of the GEMV.
        """
        products = [layer for layer in task.layers if isinstance(layer, Matmul)]
        are_known = all(isinstance(layer, Matmul | Pointwise) for layer in task.layers)
        if task.precision != self.precision or task.on_chip_bytes or len(products) != 1 or not are_known:
            return None
        (product,) = products
        bits = PRECISION_BITS[self.precision]
        own = ceil(product.batch * (product.k * product.n + product.m * (product.k + product.n)) * bits / 8)
        beside = max(0, task.border_bytes - own)
        return self.estimate_gemv(product.n, product.k, product.m, product.batch, bytes_beside=beside)

    def estimate_gemv(
        self, rows: int, columns: int, vectors: int = 1, products: int = 1, *, bytes_beside: int = 0
    ) -> KernelEstimate:
        """Estimate ``products`` matrices of rows by columns in turn, each multiplied by ``vectors`` vectors.

        The matrices are streamed: rows are results of one product, and columns are the length of its sums.

        Args:
            bytes_beside: other traffic of a fused group, through the vectors' ports.

        Raises:
            UnusableValueError: an extent below one.
        """
        if min(rows, columns, vectors, products) < 1:
            raise UnusableValueError("rows, cols, vectors", "an extent is below 1", "give whole numbers of 1 or more")
        passes = products * ceil(vectors / self.vectors)
        words, rows_of_port = ceil(columns / self.lanes_per_port), ceil(rows / self.ports.count)
        streaming = passes * rows_of_port * words * self.ports.word_cycles
        overhead = passes * rows_of_port * self.timing.row_drain_cycles
        start = self.timing.first_word_ns * self.clock_mhz / 1e3
        beside = ceil(bytes_beside / (self.vectors * self.ports.word_bytes)) * self.ports.word_cycles
        macs = products * vectors * rows * columns
        matrix_bytes = passes * rows * words * self.ports.word_bytes
        # The published kernel does not keep x: it reads x again for every row of a port.
        vector_bytes = products * vectors * (rows_of_port * words * self.ports.word_bytes + self._bytes(rows))
        moved_bytes = matrix_bytes + vector_bytes + bytes_beside
        on_channels = moved_bytes if self.shares_channel else matrix_bytes
        sustained = on_channels / self.ports.sustained_bytes_per_s * self.clock_mhz * 1e6
        return self.ports.estimate(
            start + max(streaming + overhead, beside, sustained),
            ideal_compute_cycles=macs / self.lanes,
            port_bytes=on_channels,
            fixed_cycles=start,
            efficiency=self.efficiency,
            bound="memory" if max(streaming, beside, sustained) >= overhead + start else "fixed",
            flops=2 * macs,
            moved_bytes=moved_bytes,
            one_way_bytes=matrix_bytes,
        )

    def _bytes(self, elements: int) -> int:
        return ceil(elements * PRECISION_BITS[self.precision] / 8)


def host_call_us(kernel_us: float, vector_bytes: int, call_us: float, link_bytes_per_s: float) -> float:
    """Return the time of the host's call with the matrix on the card: kernel, x and y over the link, and the call."""
    return kernel_us + call_us + vector_bytes / link_bytes_per_s * 1e6


def read_streaming(file: Section) -> StreamingModel:
    """Read configs/streaming.yaml; errors are those of :class:`Section`."""
    timing, conditions, measured = (file.section(key) for key in ("timing", "conditions", "measurements"))
    fitted = StreamTiming(
        *(timing.constant(key).likely for key in ("row_drain_cycles", "port_stall_share", "first_word_ns"))
    )
    channels = round(conditions.number("port_count"))
    ports = MemoryPorts(
        count=channels,
        port_bits=round(conditions.number("port_bits")),
        clock_mhz=conditions.number("clock_mhz"),
        channel_count=channels,
        channel_bytes_per_s=conditions.number("channel_bytes_per_s"),
        efficiency=conditions.constant("channel_efficiency").as_rate(),
        stall_share=fitted.stall_share,
    )
    model = StreamingModel(
        timing=fitted,
        efficiency=file.constant("efficiency").as_rate(),
        host_call_us=file.constant("host_call_us").as_cost(),
        link_bytes_per_s=conditions.number("link_bytes_per_s"),
        ports=ports,
        precision=conditions.choice("precision", tuple(PRECISION_BITS)),
        measurements=tuple(_measurement(measured.section(name)) for name in measured if name != "source"),
        worst_left_out_error=file.constant("worst_left_out_error").likely,
    )
    for section in (conditions, measured):
        section.text("source")
    file.close()
    return model


def _measurement(row: Section) -> PublishedSize:
    rows, columns, kernel_ms, call_ms = (row.number(key) for key in ("rows", "columns", "kernel_ms", "call_ms"))
    return PublishedSize(round(rows), round(columns), kernel_ms * 1e3, call_ms * 1e3)
