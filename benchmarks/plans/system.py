"""Feed images to a whole system over its link, and compare what comes back with numpy.

    python -m benchmarks.plans.system [--model resnet8] [--images 2] [--rows 4 --cols 4 --simd 1] [--board ulx3s]
    python -m benchmarks.plans.system --litex .venv-litex/bin/python
    python -m benchmarks.plans.system --line /dev/ttyUSB0

The system is an engine, a bridge from a link of bytes to its registers and its memory, and a port to that memory
(common/fpga/rtl/system). Verilator simulates it with the memory of a board, and the link is a pair of pipes
(make rtl-tools). With --litex, the system has LiteX's bus and link instead of the bridge, and LiteDRAM with its model
of an SDRAM instead of the memory. With --line, the link is a serial line of a system that someone has built. The
program loads weights and constants once. For each image it gives the descriptors, waits until the engine is done, and
reads the outputs. Printed are the cycles of each image, as the engine's own counter has them, beside the planned ones.
The plan has the memory of configs/fabrics, which is quicker than LiteDRAM. Exit code 1: an output differs from the
integers of benchmarks/plans/integer_reference.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.plans.engine_networks import FABRICS, NETWORKS, network_in, network_of, read_model, sample_of
from benchmarks.plans.integer_reference import outputs
from common.fpga.rtl.engine.cycles import best_tilings, network_cycles
from common.fpga.rtl.engine.design import EngineDesign
from common.fpga.rtl.engine.fabric import load_fabric
from common.fpga.rtl.engine.memory_timing import MemoryTiming
from common.fpga.rtl.engine.network import UNSIGNED_MOVE, Bytes, EngineTensor
from common.fpga.rtl.engine.program import Program, program_of
from common.fpga.rtl.engine.reading.whole_folds import on_whole_folds
from common.fpga.rtl.programs import is_there
from common.fpga.rtl.system.host import AddressMap, EngineHost
from common.fpga.rtl.system.link import HostLink, Line, SerialLine
from common.fpga.rtl.system.simulate import PLACES, simulated_litex, simulated_system
from common.messages.errors import PipelineError
from common.view.text import text_table


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet8", help="a quantized model, or one of ours (default: resnet8)")
    parser.add_argument("--images", type=int, default=2, help="number of random images (default: 2)")
    parser.add_argument("--board", default="ulx3s", help="of configs/fabrics: its memory (default: ulx3s)")
    parser.add_argument("--rows", type=int, default=4, help="of the array (default: 4)")
    parser.add_argument("--cols", type=int, default=4, help="of the array (default: 4)")
    parser.add_argument("--simd", type=int, default=1, help="products of an element per cycle (default: 1)")
    parser.add_argument("--litex", type=Path, metavar="PYTHON", help="a Python with LiteX: simulate its system")
    parser.add_argument("--line", type=Path, help="a serial line, such as /dev/ttyUSB0 (default: a simulation)")
    parser.add_argument("--baud", type=int, default=1_000_000, help="of the serial line (default: 1000000)")
    given = parser.parse_args(argv)
    if given.line is None and not is_there("verilator"):
        print("system: skipped: no verilator; make rtl-tools installs it", file=sys.stderr)
        return 0
    try:
        model = network_of(given.model, 0) if given.model in NETWORKS else read_model(Path(given.model))
        network = network_in(given.model, model)
        has_row_work = any(layer.rows for layer in network.layers)
        sizes = {"word_bytes": min(8, given.cols), "weight_depth": 16384, "channel_depth": 256}
        design = EngineDesign(given.rows, given.cols, given.simd, **sizes, has_row_work=has_row_work)
        fabric = load_fabric(given.board, FABRICS)
        timing, network = fabric.timing(design.word_bytes), on_whole_folds(network, design.cols)
        divided = best_tilings(network, design, timing)
        program = program_of(network, divided, design)
        planned = sum(each.total for each in network_cycles(network, divided, timing))
        rows, is_equal = [], True
        with system_of(given.line, given.baud, given.litex, program, timing) as (line, places):
            host = EngineHost(HostLink(line), places, program)
            host.load()
            for image in range(given.images):
                expected = outputs(model, {model.graph.input[0].name: sample_of(network, image)})
                tensors = {
                    each.name: _signed(each, expected[each.name]) for each in (*network.inputs, *network.outputs)
                }
                found, cycles = host.run({each.name: tensors[each.name] for each in network.inputs})
                equal = all(np.array_equal(values, tensors[name]) for name, values in found.items())
                rows.append([str(image), f"{planned:,.0f}", f"{cycles:,}", "yes" if equal else "NO"])
                is_equal &= equal
    except PipelineError as problem:
        print(f"system: error: {problem}", file=sys.stderr)
        return problem.exit_code
    size = f"{len(program.memory):,} bytes of memory, {len(program.descriptors):,} descriptors"
    print(f"{given.model} on {design.name}: {size}")
    print(text_table(["image", "planned cycles", "cycles", "equal"], rows))
    return int(not is_equal)


def _signed(tensor: EngineTensor, values: NDArray[Any]) -> Bytes:
    """Return the integers of a tensor as the engine has them."""
    moved = values.astype(np.int64) - (UNSIGNED_MOVE if tensor.is_unsigned else 0)
    return tensor.arranged(moved).astype(np.int8)


@contextmanager
def system_of(
    path: Path | None, baud: int, litex: Path | None, program: Program, timing: MemoryTiming
) -> Iterator[tuple[Line, AddressMap]]:
    """Open a serial line, or begin a simulation that has room for the program; with it, the places in the system.

    Raises:
        PipelineError: there is no such line, or Verilator or LiteX is missing.
    """
    if path is not None:
        with SerialLine(path, baud) as line:
            yield line, PLACES
        return
    print(f"translating {program.design.name}", file=sys.stderr)
    if litex is not None:
        with simulated_litex(program.design, litex.absolute()) as of_litex:
            yield of_litex
        return
    with simulated_system(program.design, timing, len(program.memory)) as system:
        yield system, PLACES


if __name__ == "__main__":
    sys.exit(main())
