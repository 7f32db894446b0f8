"""FPGA kernels without an ONNX model: draw a list of kernels under the roofs of boards, or estimate one kernel.

    python -m common.fpga kernels     tables and plots of a kernel list, as its source states it and corrected
    python -m common.fpga estimate    cycles, time, resources and power of one kernel as one JSON object

For example:

    python -m common.fpga estimate gemv --board u280 --rows 4096 --cols 4096 --dtype fp64 --channels 16 --clock-mhz 333
    python -m common.fpga estimate gemm --board u250 --m 1040 --k 1024 --n 1024 --array 13x16 --simd 8 --dtype fp32
    python -m common.fpga estimate conv --board u280 --in-channels 64 --height 56 --out-channels 64 --dtype int8
    python -m common.fpga estimate attention --board u280 --heads 12 --tokens 1024 --head-dim 64 --dtype int8
    python -m common.fpga estimate layernorm --rows 1024 --width 768
    python -m common.fpga estimate gemv --help          the flags of one kernel
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.process import startup

    startup.begin()  # first of all: the imports below take most of a second

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import cli
from common.cli.texts.wording import flag
from common.files.configuration import Section
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board, load_ceilings
from common.fpga.kernel_study.kernel_list import (
    KernelList,
    absent_peaks,
    ceiling_rows,
    corrected_rows,
    correction_of,
    read_kernel_list,
    roof_of,
    stated_rows,
)
from common.fpga.kernel_study.one_kernel import estimate_kernel, kernel_request
from common.fpga.kernel_study.quantities import COMMON, KERNELS, KernelKind, number_format
from common.messages.errors import CommandLineError
from common.messages.names import quoted
from common.view.plan.kernel_text import kernels_report

PROGRAM = "python -m common.fpga"
CONFIGS = cli.ROOT / "configs"
KERNELS_HELP = """Draw a list of kernels under the roofs of two boards, and write its tables.

Writes  kernels.csv (the list as its source states it), kernels_corrected.csv (with all calls, and the products that the
        source leaves out), kernel_ceilings.csv, and a plot of each list.

    python -m common.fpga kernels
    python -m common.fpga kernels --list configs/kernels/vision-encoder.yaml --out out
"""
NO_QUANTITY = {"out", "config", "quiet", "board", "clock_mhz"}  # settings that no kernel builder reads


def kernels(argv: Sequence[str]) -> int:
    parser = cli.Parser(f"{PROGRAM} kernels", KERNELS_HELP)
    default = CONFIGS / "kernels" / "vision-encoder.yaml"
    parser.setting(
        "--list", type=cli.path, default=default, metavar="FILE", help="kernel list, like those of configs/kernels"
    )
    parser.defaults["out"] = Path(cli.DEFAULT_OUT)
    with cli.stage(parser, argv) as stage:
        kernel_list = read_kernel_list(Section.of_file(stage.settings.list))
        boards = (kernel_list.as_stated.board, kernel_list.corrected.board)
        roofs = {board: load_ceilings(board, CONFIGS / "boards") for board in boards}
        roof_of(roofs[kernel_list.as_stated.board], kernel_list.drawn_precision)  # fail before anything is written
        stated = [*stated_rows(kernel_list)]
        corrected = [*corrected_rows(kernel_list, roofs[kernel_list.corrected.board])]
        stage.note(f"kernels: {kernel_list.source}", *absent_peaks(roofs.values(), kernel_list.precisions))
        with stage.writing() as transaction:
            tables = {
                "kernels": transaction.add_rows("kernels", stated),
                "kernels_corrected": transaction.add_rows("kernels_corrected", corrected),
            }
            peaks = transaction.add_rows("kernel_ceilings", ceiling_rows(roofs.values(), kernel_list.precisions))
            for (name, table), board in zip(tables.items(), boards, strict=True):
                transaction.add_picture(f"{name}_plot", plot(kernel_list, table, peaks, board))
        sums = correction_of(kernel_list)
        stage.show(kernels_report(kernel_list.title, stated, corrected, kernel_list.drawn_precision, sums))
    return 0


def plot(kernel_list: KernelList, table: Any, ceilings: Any, board: str) -> Mapping[str, bytes]:
    from common.view.plan.pictures.kernel_roofline_plot import draw_kernels  # an estimate needs no matplotlib
    from common.view.style import render

    roof = ceilings[ceilings["board"] == board]
    return render(draw_kernels(kernel_list.title, table, roof, kernel_list.drawn_precision))


def estimate(argv: Sequence[str]) -> int:
    kind = argv[0] if argv else ""
    if kind in ("", "-h", "--help"):
        print(__doc__)
        return 0
    if kind not in KERNELS:
        raise CommandLineError("estimate", f"{quoted(kind)} is not a kernel", f"it takes {', '.join(KERNELS)}")
    if "--describe" in argv:
        raise CommandLineError("--describe", "an estimate writes no table", "it prints one JSON object")
    with cli.parsed(estimate_arguments(kind), argv[1:]) as settings:
        board = load_board(settings.board, CONFIGS / "boards")
        if settings.clock_mhz is not None:
            board = board.clocked(settings.clock_mhz)
        values = settings.values.items()
        given = {name: value for name, value in values if value is not None and name not in NO_QUANTITY}
        result = estimate_kernel(kernel_request(kind, given, board), board, load_models(CONFIGS))
        cli.show(settings, json.dumps(result, indent=2, allow_nan=False))
    return 0


def estimate_arguments(kind: str) -> cli.Parser:
    parser = cli.Parser(f"{PROGRAM} estimate {kind}", estimate_help(kind, KERNELS[kind]))
    for quantity in (*KERNELS[kind].quantities, *COMMON):
        parser.setting(
            *map(flag, (quantity.name, *quantity.aliases)),
            type=CONVERTERS[quantity.form],
            default=quantity.default,
            metavar=quantity.placeholder,
            help=quantity.meaning,
        )
    return parser


def estimate_help(name: str, kind: KernelKind) -> str:
    return (
        f"{kind.meaning}\n\n"
        "Prints one JSON object. cycles and time_us are the likely values; each estimate also has a pessimistic\n"
        "and an optimistic value (time_pessimistic_us …). bytes counts the traffic of the card's memory.\n"
        "short_of lists the resources that the board lacks.\n\n"
        f"EXAMPLE\n\n    {PROGRAM} estimate {example(name, kind)}"
    )


def example(name: str, kind: KernelKind) -> str:
    return " ".join([name, *(f"{flag(quantity)} {value}" for quantity, value in kind.example.items())])


def pair(text: str) -> tuple[int, int]:
    """Convert ``13x16`` to two numbers; a single number means both."""
    first, _, second = text.lower().partition("x")
    return cli.positive_int(first), cli.positive_int(second or first)


CONVERTERS: dict[str, Callable[[str], Any]] = {
    "count": cli.positive_int,
    "count or zero": cli.non_negative_int,
    "positive number": cli.positive_float,
    "pair": pair,
    "number format": number_format,
    "text": str,
}


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run_command({"kernels": kernels, "estimate": estimate}, __doc__ or "", argv)


if __name__ == "__main__":
    sys.argv[0] = PROGRAM  # so that errors name the program instead of this file
    cli.run(main)
