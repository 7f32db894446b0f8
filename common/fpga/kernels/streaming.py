"""Streaming GEMV: y = A·x, a matrix read once through many memory channels.

The kernel is the 16-channel one of Vitis BLAS (L2, gemvStreamCh16): the rows of A are dealt out to the channels, each
channel takes a word of A and a word of x in every cycle, and a row's sum is drained before the next row begins.

    cycles = first word + passes · products · ⌈rows / ports⌉ · (⌈columns / elements per word⌉ · word cycles + row drain)
    word cycles = max(1 + stall share, what the ports ask of the channels / what the channels sustain)

The three times are fitted or given in configs/streaming.yaml. ``vectors`` rows of activations use each word of the
weights at once, each with its own lanes and its own port; more rows read the weights again, a pass for each set.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from common.configuration import Section
from common.errors import UnusableValueError
from common.fpga.device.resources import Resources
from common.fpga.kernels.estimate import KernelEstimate
from common.fpga.kernels.operators import DataflowCosts
from common.fpga.kernels.ports import MemoryPorts
from common.intervals import ThreePoint
from common.number_formats import PRECISION_BITS
from common.workload.layers import Matmul, Pointwise
from common.workload.tasks import Task


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """What keeps the kernel from taking a word in every cycle.

    Attributes:
        row_drain_cycles: from a row's last word to the next row's first: the tail of the sum.
        stall_share: cycles without a word per cycle with one (refresh, rows of the DRAM that are opened).
        first_word_ns: from the start to the first word.
    """

    row_drain_cycles: float
    stall_share: float
    first_word_ns: float


@dataclass(frozen=True, slots=True)
class PublishedSize:
    """One published size: the kernel alone, and the host's call of it on loaded memory."""

    rows: int
    columns: int
    kernel_us: float
    call_us: float


@dataclass(frozen=True, slots=True)
class StreamingModel:
    """configs/streaming.yaml: the fitted times, and what they were fitted on."""

    timing: StreamTiming
    efficiency: ThreePoint
    host_call_us: ThreePoint
    link_bytes_per_s: float
    ports: MemoryPorts
    precision: str
    measurements: tuple[PublishedSize, ...]
    worst_left_out_error: float


@dataclass(frozen=True, slots=True)
class StreamingGemv:
    """The kernel at one number format, over the ports that it was given.

    Attributes:
        precision: of the matrix, the vector and the result.
        ports: those of the matrix. Each vector has one more, which carries its x and y.
        timing: as fitted.
        costs: resources of its parts.
        efficiency: share of a full stream that published runs attain.
        vectors: rows of activations that share one pass over the weights.
        macs_per_dsp: of the board, where it differs from the costs' own.
        shares_channel: whether x and y meet the matrix at the board's only channel.
    """

    precision: str
    ports: MemoryPorts
    timing: StreamTiming
    costs: DataflowCosts
    efficiency: ThreePoint
    vectors: int = 1
    macs_per_dsp: float | None = None
    shares_channel: bool = False

    @property
    def name(self) -> str:
        """``streaming-16ch-int8``, and the vectors where there is more than one."""
        return f"streaming-{self.ports.count}ch-{self.precision}" + (f"-x{self.vectors}" if self.vectors > 1 else "")

    @property
    def kind(self) -> str:
        """The model behind it."""
        return "streaming"

    @property
    def clock_mhz(self) -> float:
        """The clock of ports and lanes."""
        return self.ports.clock_mhz

    @property
    def spans_regions(self) -> bool:
        """Each channel's lanes stand alone: only x and y cross between them."""
        return True

    @property
    def lanes_per_port(self) -> int:
        """Multiply-accumulates that one word of the matrix meets with one vector."""
        return self.ports.elements_per_word(PRECISION_BITS[self.precision])

    @property
    def lanes(self) -> int:
        """Multiply-accumulates in one cycle."""
        return self.ports.count * self.lanes_per_port * self.vectors

    @property
    def resources(self) -> Resources:
        """Lanes, ports with their burst buffers, control; a channel for each group of ports and each vector."""
        channels = Resources(memory_channels=self.ports.channel_count + self.vectors)
        lanes = self.costs.mac(self.precision, self.macs_per_dsp).times(self.lanes)
        # y leaves by a port of its own on the channel of x.
        ports = self.costs.ports(self.ports.count + 2 * self.vectors, self.ports.port_bits)
        return (self.costs.control + lanes + ports + channels).whole()

    def refusal(self, task: Task) -> str:
        """Why it cannot compute a task, or an empty word."""
        matmuls = [layer for layer in task.layers if isinstance(layer, Matmul)]
        if task.precision != self.precision:
            return f"it is built for {self.precision}"
        if task.on_chip_bytes:
            return "it keeps nothing on the chip"
        if len(matmuls) != 1 or not all(isinstance(layer, Matmul | Pointwise) for layer in task.layers):
            return "it computes one matrix product and what rides on its result"
        return ""

    def estimate(self, task: Task) -> KernelEstimate | None:
        """One call: the second operand is streamed, its columns being the rows of the GEMV."""
        if self.refusal(task):
            return None
        product = next(layer for layer in task.layers if isinstance(layer, Matmul))
        bits = PRECISION_BITS[self.precision]
        own = ceil(product.batch * (product.k * product.n + product.m * (product.k + product.n)) * bits / 8)
        beside = max(0, task.border_bytes - own)
        return self.estimate_gemv(product.n, product.k, product.m, product.batch, bytes_beside=beside)

    def estimate_gemv(
        self, rows: int, columns: int, vectors: int = 1, products: int = 1, *, bytes_beside: int = 0
    ) -> KernelEstimate:
        """``products`` matrices of rows by columns, each times ``vectors`` vectors.

        Args:
            rows: of the streamed matrix; results of one product.
            columns: of the streamed matrix; length of the sums.
            vectors: activations that meet each matrix.
            products: matrices, one after the other.
            bytes_beside: further traffic of a fused group, through the vectors' ports.

        Raises:
            UnusableValueError: an extent below one.
        """
        if min(rows, columns, vectors, products) < 1:
            raise UnusableValueError("rows, cols, vectors", "an extent is below 1", "give whole numbers of 1 or more")
        turns = products * ceil(vectors / self.vectors)
        words, rows_of_port = ceil(columns / self.lanes_per_port), ceil(rows / self.ports.count)
        streaming = turns * rows_of_port * words * self.ports.word_cycles
        overhead = turns * rows_of_port * self.timing.row_drain_cycles
        start = self.timing.first_word_ns * self.clock_mhz / 1e3
        beside = ceil(bytes_beside / (self.vectors * self.ports.word_bytes)) * self.ports.word_cycles
        macs = products * vectors * rows * columns
        matrix_bytes = turns * rows * words * self.ports.word_bytes
        # x is not kept: it is read again for every row that a port takes, as the published kernel does.
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
    """The host's call with the matrix on the card: the kernel, x and y over the link, and the call itself."""
    return kernel_us + call_us + vector_bytes / link_bytes_per_s * 1e6


def read_streaming(file: Section) -> StreamingModel:
    """Read configs/streaming.yaml.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    timing, conditions = file.section("timing"), file.section("conditions")
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
        measurements=_measurements(file.section("measurements")),
        worst_left_out_error=file.constant("worst_left_out_error").likely,
    )
    conditions.text("source")
    file.close()
    return model


def _measurements(section: Section) -> tuple[PublishedSize, ...]:
    """Return the published sizes in the order of the file."""
    section.text("source")
    return tuple(_measurement(section.section(name)) for name in section if name != "source")


def _measurement(row: Section) -> PublishedSize:
    rows, columns, kernel_ms, call_ms = (row.number(key) for key in ("rows", "columns", "kernel_ms", "call_ms"))
    return PublishedSize(round(rows), round(columns), kernel_ms * 1e3, call_ms * 1e3)
