"""Compare the loops of a hand-off's C++ with the cycles that the plan counts, over all products of whole networks.

    python -m benchmarks.plans.hand_off_loops [--board u280] [--network resnet50 resnet18 mobilenet vit bert]

Each product of a network runs on the largest array that the catalogue offers for the network and the board, in int8.
The loops are counted by common/fpga/hand_off/trips.py, with the plan's cycles for a word of a port; tests count the
same trips and words in the compiled C++. Exit code 1 where a network's loops take over a tenth more or less than
its plan.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import onnx

from benchmarks.plans.cosim import CONFIGS, workload_of
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import arrays
from common.fpga.hand_off.specification import loops
from common.fpga.kernels.systolic.array import MappedProduct
from common.view.text import text_table
from common.workload.formats import candidates_in
from common.workload.layers import Convolution, Matmul
from models.classifiers.mobilenet_v1 import build_mobilenet_v1
from models.classifiers.resnet import build_resnet18, build_resnet50
from models.transformers.bert import build_bert
from models.transformers.vit import build_vit

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: build_resnet50(batch=1, has_weights=False),
    "resnet18": lambda: build_resnet18(batch=1, has_weights=False),
    "mobilenet": lambda: build_mobilenet_v1(batch=1, has_weights=False),
    "vit": lambda: build_vit(batch=1, has_weights=False),
    "bert": lambda: build_bert(batch=1, seq=128, has_weights=False),
}
HOST_MACS_PER_S = 2e9  # MACs of an assumed host, whose times decide nothing here
MOST = 0.1  # of the planned cycles
COLUMNS = ["network", "array", "products", "planned", "loops", "ratio", "least", "most", "of"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--board", default="u280", help="default: u280")
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="default: all")
    given = parser.parse_args(argv)
    rows = [compared(name, given.board) for name in given.network]
    print(text_table(COLUMNS, rows))
    return int(any(abs(float(row[COLUMNS.index("ratio")]) - 1) > MOST for row in rows))


def compared(name: str, board_name: str) -> list[str]:
    """Return the row of a network."""
    board, models = load_board(board_name, CONFIGS / "boards"), load_models(CONFIGS)
    workload = workload_of(NETWORKS[name](), HOST_MACS_PER_S)
    candidates = candidates_in(workload, ["int8"] * len(workload.groups))
    tasks = [each.task for each in candidates if each.task is not None]
    array = arrays(board, "int8", models, tasks, max(board.budgets, key=lambda budget: budget.dsp))[0]
    counted = []
    for task, count in Counter(task.nameless for task in tasks if task.kind != "chain").items():
        contractions = [layer for layer in task.layers if isinstance(layer, Matmul | Convolution)]
        if len(contractions) == 1 and array.estimate(task) is not None:
            (product,) = array.products(task)
            found = loops(array, contractions[0], product, task)
            counted.append((count, found["loop_cycles"], found["planned_cycles"], product))
    planned = sum(count * plan for count, _, plan, _ in counted)
    looped = sum(count * loop for count, loop, _, _ in counted)
    ratios = [(loop / plan, _text(product)) for _, loop, plan, product in counted]
    number = sum(count for count, *_ in counted)
    least, most = min(ratios)[0], max(ratios)
    figures = f"{planned:,.0f}", f"{looped:,.0f}", f"{looped / planned:.3f}", f"{least:.2f}", f"{most[0]:.2f}"
    return [name, array.name, str(number), *figures, most[1]]


def _text(product: MappedProduct) -> str:
    matmul = product.matmul
    return f"{matmul.m} x {matmul.k} x {matmul.n}" + (f", {matmul.batch} times" if matmul.batch > 1 else "")


if __name__ == "__main__":
    sys.exit(main())
