"""Co-simulate a whole int8 network on the Verilog of its plan, call by call as scheduled (needs Verilator).

    python -m benchmarks.plans.cosim [--board kv260] [--seed 0]

models/classifiers/resnet8.py is planned for the board. Every product that the plan has the array compute runs on the
generated Verilog of the planned size, in the plan's order and orientation. The rest of a call (bias, requantization,
addition, ReLU) computes in numpy, where the plan has the array's epilogue. Checked, with exit code 1 where one fails:
sums equal numpy's, outputs equal numpy's network and are within one step of ONNX Runtime's, and the cycles of each call
are those that the plan computes with.

Host times are those of a slow core (--host-macs-per-s), so that the plan offloads all that it can: no card pays for a
network of 12.5 M multiply-accumulates beside a fast host.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.plans.quantized_network import CONTRACTIONS, Matrix, Whole, by_numpy, run
from benchmarks.process import ROOT
from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.fpga.array_designs import ArrayDesign
from common.fpga.coefficients import load_models
from common.fpga.device.board_files import load_board
from common.fpga.hand_off.designs import array_design
from common.fpga.hand_off.schedule import Call, calls_in_order
from common.fpga.kernels.systolic.array import SystolicArray
from common.fpga.offload.baselines import Thresholds
from common.fpga.offload.effort import Effort
from common.fpga.planning.plan import Plan, make_plan
from common.fpga.planning.request import Request
from common.fpga.rtl.programs import is_there
from common.fpga.rtl.simulate import ArrayProduct, Outcome, simulate
from common.fusion.groups import fuse
from common.graphs.source_graph import from_rows
from common.intervals import ThreePoint
from common.messages.errors import PipelineError
from common.runtime.library import ort
from common.view.text import text_table
from common.workload.host_cost import ExecutedCost, HostTotals, SourceWork
from common.workload.layer_rows import layers_by_node
from common.workload.workload import Workload, make_workload
from models.classifiers.resnet8 import build_tiny_resnet8

CONFIGS = ROOT / "configs"
NODE_US = 100.0  # of the assumed host, for each node beside its MACs
COLUMNS = ["call", "kernel", "candidate", "products", "cycles", "of the plan", "sums equal"]


@dataclass(frozen=True, slots=True)
class ArrayCall:
    """A call of an array: its contractions by node, as the array sees them, and the cycles that the plan counts."""

    call: Call
    array: SystolicArray
    nodes: tuple[str, ...]

    @property
    def orientations(self) -> dict[str, bool]:
        """Whether the operands of each node change sides."""
        products = self.array.products(self.call.task)
        return {node: product.is_transposed for node, product in zip(self.nodes, products, strict=True)}

    @property
    def planned_cycles(self) -> int:
        """Cycles with operands always present, from the first operand in to the last sum out."""
        return sum(self.array.array_cycles(product.matmul) for product in self.array.products(self.call.task))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--board", default="kv260", help="default: kv260")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the image (default: 0)")
    parser.add_argument("--host-macs-per-s", type=float, default=2e8, help="of the assumed host (default: 2e8)")
    given = parser.parse_args(argv)
    if not is_there("verilator"):
        print("cosim: skipped: no verilator; make rtl-tools installs it", file=sys.stderr)
        return 0
    try:
        model = build_tiny_resnet8(seed=given.seed, batch=1)
        plan = plan_of(model, given.board, given.host_macs_per_s)
        return _cosimulate(model, plan, image_of(given.seed))
    except PipelineError as problem:
        print(f"cosim: error: {problem}", file=sys.stderr)
        return problem.exit_code


def image_of(seed: int) -> dict[str, NDArray[np.float32]]:
    return {"input": np.random.default_rng(seed + 1).standard_normal((1, 3, 32, 32)).astype(np.float32)}


def plan_of(
    model: onnx.ModelProto,
    board: str,
    macs_per_s: float,
    designs: Sequence[ArrayDesign] = (),
    *,
    has_chains: bool = True,
) -> Plan:
    """Return the plan of a model on a board, with a host of an assumed speed; with ``designs``, of these arrays."""
    request = Request(
        *(load_board(board, CONFIGS / "boards"), "int8", "group", Thresholds(0.1, 8.0, 0.1), {}, Effort(5.0)),
        designs=tuple(designs),
        has_own_arrays=not designs,
        has_chains=has_chains,
    )
    return make_plan(workload_of(model, macs_per_s), request, load_models(CONFIGS))


def workload_of(model: onnx.ModelProto, macs_per_s: float) -> Workload:
    """Return the model's groups; each node takes the assumed host its MACs and a constant."""
    with tempfile.TemporaryDirectory(prefix="cosim-") as name:
        path = Path(name) / "model.onnx"
        onnx.save(model, path)
        stage = importlib.import_module("02_shapes_flops_bytes")
        stage.main(["--model", str(path), "--out", name, "--quiet"])
        tables = Folder(Path(name), Provenance("cosim", "cosim"))
        metrics, edges = tables.rows("op_metrics"), tables.rows("op_edges")
    graph = from_rows(metrics, edges)
    work = {row["source_node"]: SourceWork(row["macs"], row["flops"]) for row in metrics}
    costs = [
        ExecutedCost(node, NODE_US + (each.macs or 0) / macs_per_s * 1e6, None, True) for node, each in work.items()
    ]
    return make_workload(
        graph,
        fuse(graph),
        layers_by_node(metrics, graph),
        work,
        frozenset(),
        costs,
        {node: [node] for node in work},
        HostTotals(ThreePoint.exactly(sum(cost.latency_us for cost in costs)), None, None),
    )


def array_calls(plan: Plan) -> list[ArrayCall]:
    """Return the calls of arrays that have Verilog, in the plan's order."""
    engines = {kernel.name: kernel.engine for kernel in plan.kernels}
    calls = []
    for call in calls_in_order(plan):
        engine = engines[call.kernel]
        if isinstance(engine, SystolicArray) and array_design(engine) is not None:
            nodes = tuple(head for group in call.groups for head in plan.workload.groups[group].heads)
            calls.append(ArrayCall(call, engine, nodes))
    return calls


def products_of(
    model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.float32]], calls: Sequence[ArrayCall]
) -> dict[str, ArrayProduct]:
    """Return the product that the array computes for each node, by a run of the network in numpy."""
    operands: dict[str, tuple[Matrix, Matrix]] = {}

    def noted(node: str, a: Matrix, b: Matrix) -> Matrix:
        operands[node] = a, b
        return by_numpy(node, a, b)

    run(model, feeds, noted)
    products = {}
    for call in calls:
        design = array_design(call.array)
        for node, is_transposed in call.orientations.items():
            a, b = operands[node]
            assert design is not None
            products[node] = ArrayProduct(design, b.T, a.T) if is_transposed else ArrayProduct(design, a, b)
    return products


def run_on_array(
    model: onnx.ModelProto,
    feeds: Mapping[str, NDArray[np.float32]],
    calls: Sequence[ArrayCall],
    outcomes: Mapping[str, Outcome],
) -> Whole:
    """Return the network's output with the sums of the Verilog."""
    turned = {node: is_transposed for call in calls for node, is_transposed in call.orientations.items()}

    def product(node: str, a: Matrix, b: Matrix) -> Matrix:
        if node not in outcomes:
            return by_numpy(node, a, b)
        sums = outcomes[node].product
        return sums.T if turned[node] else sums

    output: Whole = run(model, feeds, product)[model.graph.output[0].name]
    return output


def by_runtime(model: onnx.ModelProto, feeds: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the network's output by ONNX Runtime."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    output: NDArray[np.float32] = session.run(None, dict(feeds))[0]
    return output


def _cosimulate(model: onnx.ModelProto, plan: Plan, feeds: Mapping[str, NDArray[np.float32]]) -> int:
    calls = array_calls(plan)
    if not calls:
        raise PipelineError(plan.request.board.name, "the plan has no array", "give a slower host")
    products = products_of(model, feeds, calls)
    print(f"simulating {', '.join({call.array.name: None for call in calls})}", file=sys.stderr)
    outcomes = dict(zip(products, simulate(list(products.values())), strict=True))
    rows = [_row(number, call, products, outcomes) for number, call in enumerate(calls, start=1)]
    print(text_table(COLUMNS, rows))
    contractions = sum(node.op_type in CONTRACTIONS for node in model.graph.node)
    print(f"{len(products)} of {contractions} contractions are on the array")
    output, expected = run_on_array(model, feeds, calls, outcomes), run(model, feeds)[model.graph.output[0].name]
    is_equal = np.array_equal(output.values, expected.values)
    steps = float(np.abs(by_runtime(model, feeds) / output.scale - output.values).max())
    print(f"outputs {'equal' if is_equal else 'DIFFER from'} numpy's; {steps:.3f} steps from ONNX Runtime's")
    are_right = all(row[-1] == "yes" and row[-2] == row[-3] for row in rows)
    return int(not (are_right and is_equal and steps <= 1.001))


def _row(
    number: int, call: ArrayCall, products: Mapping[str, ArrayProduct], outcomes: Mapping[str, Outcome]
) -> list[str]:
    of_call = [(products[node], outcomes[node]) for node in call.nodes]
    shapes = " ".join(f"{p.a.shape[0]}x{p.a.shape[1]}x{p.b.shape[1]}" for p, _ in of_call)
    cycles = sum(outcome.cycles for _, outcome in of_call)
    are_equal = all(np.array_equal(outcome.product, p.a @ p.b) for p, outcome in of_call)
    return [
        *(str(number), call.call.kernel, call.call.candidate, shapes, f"{cycles:,}", f"{call.planned_cycles:,}"),
        "yes" if are_equal else "NO",
    ]


if __name__ == "__main__":
    sys.exit(main())
