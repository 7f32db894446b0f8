"""The sizes of an engine, and its Verilog: the modules of this folder and of the array, and a top module."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.rtl import generate
from common.messages.errors import PipelineError

FOLDER = Path(__file__).resolve().parent
MODULES = (
    *("memory.v", "queue.v", "bursts.v", "load.v", "store.v", "weights.v"),
    *("gather.v", "feed.v", "collect.v", "epilogue.v", "rows.v", "engine.v"),
)
LOAD_WORDS, COMPUTE_WORDS, STORE_WORDS = 6, 18, 6  # 32-bit words of a descriptor
CONSTANT_BYTES = 8  # of a channel: bias, factor, shift
STAGES = 16  # cycles of the epilogue
LARGEST_ADDRESS = 1 << 16
SUM_BYTES = 4
LEAST_WORD_BYTES = 4  # an entry of a table


@dataclass(frozen=True, slots=True)
class EngineDesign:
    """An engine for int8: an output-stationary array with its buffers, a port to memory and queues of descriptors."""

    rows: int  # R, pixels of a result
    cols: int  # C, channels of a result
    simd: int = 1  # s, products that an element adds per cycle
    word_bytes: int = 8  # of a word of memory; C is a multiple of it
    input_depth: int = 4096  # words of the input buffer; half of them are a band of input lines
    window_depth: int = 256  # words of the windows of a row in each half of the operand buffer
    weight_depth: int = 4096  # steps of weights, both halves
    channel_depth: int = 64  # folds along the columns whose constants are kept, both halves
    partial_depth: int = 256  # rows of partial sums
    result_depth: int = 1024  # folds of pixels of results, both halves; residuals have the same
    burst_words: int = 32  # longest burst
    pack_cols: int = 1  # products that share a multiplier: 2 where it has 27 x 18 bits, 1 where it has 18 x 18
    has_row_work: bool = True  # whether there is the unit for row-wise work
    has_products: bool = True  # whether two tensors can be multiplied element by element

    def __post_init__(self) -> None:
        powers = {"cols": self.cols, "simd": self.simd, "word_bytes": self.word_bytes, "burst_words": self.burst_words}
        for name, value in powers.items():
            if value < 1 or value & (value - 1):
                raise PipelineError(self.name, f"{name} is {value}", "give a power of two")
        if not 2 <= self.rows <= 128:
            raise PipelineError(self.name, f"rows is {self.rows}", "give 2 to 128")
        if self.cols % self.word_bytes or self.word_bytes % self.simd:
            raise PipelineError(self.name, "cols is no multiple of word_bytes, or word_bytes none of simd")
        if self.word_bytes < LEAST_WORD_BYTES:
            raise PipelineError(self.name, f"word_bytes is {self.word_bytes}", f"give {LEAST_WORD_BYTES} or more")
        if self.burst_words > min(256, 4096 // self.word_bytes):
            raise PipelineError(
                self.name, f"burst_words is {self.burst_words}", "a burst has at most 256 words and 4 KiB"
            )
        depths = (self.input_depth, self.window_depth, self.weight_depth, self.channel_depth, self.partial_depth)
        if any(depth & (depth - 1) or not 2 <= depth <= LARGEST_ADDRESS for depth in (*depths, self.result_depth)):
            raise PipelineError(self.name, "the depth of a buffer is no power of two from 2 to 65536")

    @classmethod
    def of(cls, array: SystolicArray) -> EngineDesign:
        """Return the engine of an array of a plan: its size, its port, and buffers of at most its own contents.

        Raises:
            PipelineError: the engine has no such size or number format.
        """
        if array.precision != "int8":
            raise PipelineError(array.name, f"computes in {array.precision}", "the engine is for int8")
        bytes_of = {buffer.name: buffer.content_bytes for buffer in array.buffers}
        word_bytes = min(array.cols, _power(array.ports.count * array.ports.port_bits / 8))
        return cls(
            *(array.rows, array.cols, array.simd, word_bytes),
            input_depth=_power(bytes_of["a"] / word_bytes),
            weight_depth=_power(bytes_of["b"] / (array.cols * array.simd)),
            partial_depth=_power(bytes_of["sums"] / (array.cols * SUM_BYTES)),
            result_depth=_power(bytes_of["results"] / array.cols),
            pack_cols=generate.FORMATS["int8"].pack_cols,
        )

    @property
    def name(self) -> str:
        """Name of the top module, a Verilog identifier."""
        return f"engine_{self.rows}x{self.cols}x{self.simd}_int8"

    @property
    def words_per_fold(self) -> int:
        """Words of memory that the C channels of a pixel take."""
        return self.cols // self.word_bytes

    @property
    def steps_per_word(self) -> int:
        return self.word_bytes // self.simd

    @property
    def latency_cycles(self) -> int:
        """Cycles from a fold's last step to its last result: operands, array, columns side by side, sums, epilogue."""
        tree = 1 + (self.simd - 1).bit_length()
        return 2 + self.rows + tree + self.rows + self.cols + 2 + STAGES

    @property
    def parameters(self) -> dict[str, int]:
        return {
            "ROWS": self.rows,
            "COLS": self.cols,
            "SIMD": self.simd,
            "WORD": self.word_bytes,
            "PACK_COLS": self.pack_cols,
            "INPUT_DEPTH": self.input_depth,
            "WINDOW_DEPTH": self.window_depth,
            "WEIGHT_DEPTH": self.weight_depth,
            "CHANNEL_DEPTH": self.channel_depth,
            "PARTIAL_DEPTH": self.partial_depth,
            "RESIDUAL_DEPTH": self.result_depth,
            "RESULT_DEPTH": self.result_depth,
            "BURST": self.burst_words,
            "ROW_WORK": int(self.has_row_work),
            "PRODUCTS": int(self.has_products),
        }

    def verilog(self) -> str:
        """Return the whole text; the top module is called :attr:`name` and has the ports of engine.v."""
        texts = [(FOLDER / file).read_text(encoding="utf-8") for file in MODULES]
        engine = texts[-1]
        ports = engine[engine.index("\n) (\n") + 5 : engine.index("\n);")]
        lines = [line.split("//")[0].split() for line in ports.splitlines()]
        names = [words[-1].rstrip(",") for words in lines if words]  # others are comments
        header = ports.replace("8*WORD", str(8 * self.word_bytes)).replace("output reg", "output")
        connected = ", ".join(f".{name}({name})" for name in names)
        top = f"module {self.name} (\n{header}\n);\n  engine #({generate.connect(self.parameters)}) whole (\n"
        top += f"      {connected}\n  );\nendmodule\n"
        return "// verilator lint_off DECLFILENAME\n" + generate.modules() + "\n".join(texts) + top


def _power(most: float) -> int:
    """Return the largest power of two that is no larger, from 2 to what an address reaches."""
    return 1 << min(max(int(most), 2), LARGEST_ADDRESS).bit_length() - 1


def words_of(channels: int, design: EngineDesign) -> int:
    """Return the words that a pixel of so many channels takes in memory: whole folds."""
    return ceil(channels / design.cols) * design.words_per_fold
