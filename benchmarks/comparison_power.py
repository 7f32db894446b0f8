"""Count false alarms between equal measurements, and how often a slower node is found and named.

Run by ``make check-comparison`` on a quiet host; no test depends on it. Each pair is two measurements by 01 to 03 in
processes of their own, compared by 11, or with ``--ab`` one measurement of both in turn. The model is a row of equal
matrix products. In the slower one, a single product has 5 % more terms, so its node takes about 5 % longer and nothing
else changes; in another, a node is inserted. Stage 11 claims at most one alarm in 20 pairs of equal models, and all 20
slower nodes found by name.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
NODES, ROWS, TERMS, COLUMNS = 12, 192, 1000, 512
PLANTED = "product_5"
LOUD = ("regressed", "improved")


def model(path: Path, more_terms: float = 0.0, *, is_inserted: bool = False) -> Path:
    """Write a row of products ``x_i @ w_i``; one of them has more terms, or a node behind it."""
    nodes, inputs, weights, outputs = [], [], [], []
    for index in range(NODES):
        name = f"product_{index}"
        terms = round(TERMS * (1 + more_terms)) if name == PLANTED else TERMS
        values = np.random.default_rng(index).standard_normal((terms, COLUMNS)).astype(np.float32)
        inputs.append(helper.make_tensor_value_info(f"x_{index}", TensorProto.FLOAT, [ROWS, terms]))
        weights.append(numpy_helper.from_array(values, f"w_{index}"))
        result = f"y_{index}"
        if is_inserted and name == PLANTED:
            nodes.append(helper.make_node("MatMul", [f"x_{index}", f"w_{index}"], ["plain"], name=name))
            nodes.append(helper.make_node("Erf", ["plain"], [result], name="inserted"))
        else:
            nodes.append(helper.make_node("MatMul", [f"x_{index}", f"w_{index}"], [result], name=name))
        outputs.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, [ROWS, COLUMNS]))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def stage(script: str, *flags: object) -> None:
    """Run a stage.

    Raises:
        CalledProcessError: it failed.
    """
    command = [sys.executable, str(ROOT / script), *map(str, flags), "--quiet"]
    subprocess.run(command, check=True, cwd=ROOT)


def profiled(path: Path, out: Path, runs: int, threads: int) -> Path:
    """Measure a model as 01 to 03 do."""
    stage("01_profile_onnx.py", "--model", path, "--runs", runs, "--threads", threads, "--idle", "10ms", "--out", out)
    stage("02_shapes_flops_bytes.py", "--model", path, "--out", out)
    stage("03_merge_profile_metrics.py", "--peak-flops", "1e11", "--mem-bw", "1e10", "--out", out)
    return out


def compared(first: Path, second: Path, folder: Path, options: argparse.Namespace) -> list[dict[str, str]]:
    """Return the rows of a comparison of two models."""
    folder.mkdir()
    if options.ab:
        flags: list[object] = ["--ab", first, second, "--runs", options.runs, "--threads", options.threads]
        stage("11_compare_runs.py", *flags, "--out", folder)
    else:
        one, other = (
            profiled(path, folder / name, options.runs, options.threads)
            for path, name in ((first, "one"), (second, "other"))
        )
        flags = ["--across-models"] if first != second else []
        stage("11_compare_runs.py", "--baseline", one, "--candidate", other, *flags, "--out", folder)
    with (folder / "comparison.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def loud_nodes(rows: list[dict[str, str]]) -> set[str]:
    """Return the nodes that a comparison says have changed, and the latency where it says so of that."""
    changed = (row for row in rows if row["comparison_verdict"] in LOUD)
    return {row["compared_subject"] or row["compared_figure"] for row in changed if row["compared_kind"] != "op_type"}


def main() -> None:
    """Print a row per pair, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ab", action="store_true", help="measure both of a pair in turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        base, slower = model(root / "base.onnx"), model(root / "slower.onnx", 0.05)
        inserted = model(root / "inserted.onnx", is_inserted=True)
        cases = {"equal": (base, set()), PLANTED: (slower, {PLANTED}), "inserted": (inserted, {"inserted"})}
        for name, (other, wanted) in cases.items():
            found, alarms, undecided = 0, 0, 0
            for pair in range(options.pairs):
                rows = compared(base, other, root / f"{name}-{pair}", options)
                nodes = loud_nodes(rows) - ({"p50_us"} if wanted else set())
                judged = next(row for row in rows if row["compared_kind"] == "end_to_end")
                undecided += "busy" in judged["verdict_reason"]
                found += wanted <= nodes
                alarms += bool(nodes - wanted)
                print(f"{name:>10} {pair:>3}  {', '.join(sorted(nodes)) or '-'}", flush=True)
            named = f"found {found} of {options.pairs}, " if wanted else ""
            busy = f" ({undecided} measurements of a busy host)" if undecided else ""
            print(f"{name:>10}: {named}false alarms in {alarms} of {options.pairs}{busy}")


if __name__ == "__main__":
    main()
