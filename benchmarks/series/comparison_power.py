"""Count false alarms between equal measurements, and how often a slower node is found and named.

Run by ``make check-comparison`` on a quiet host; no test depends on it. The model is SqueezeNet. Two changes are
planted in it, both in the graph that the runtime executes. In one, the last convolution has 6 % more channels, so it
runs about 5 % longer. In the other, a node is inserted behind the first group of convolutions.

In each round 15 measures and compares three pairs, run by run in turn: the model with itself, and with each changed
one. The claim: at most one alarm in 20 pairs of equal models, and both changes found by the names of their nodes in 20
of 20. With ``--folders`` a round measures the model twice and both changed ones once, by 01 to 03 in processes of their
own, and 11 compares their tables. Drift between the measurements does not cancel then. So such pairs give no more
alarms, and on a host that is not quiet they leave a change undecided.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from benchmarks.process import ROOT
from models.__main__ import BUILDERS

WIDENED, BEHIND = "conv10", "pool10"  # the last convolution, and the layer behind it
INSERTED, BEFORE_IT, AROUND = "inserted", "fire2", ("fire2/", "fire3/")  # the neighbours may get other layouts
MORE_CHANNELS = 0.06  # the runtime computes 16 at a time: 67 blocks instead of 63
LOUD = ("regressed", "improved")
Row = Mapping[str, str]


@dataclass
class Tally:
    """The verdicts on one kind of pairs."""

    source: str  # a source node that must be named as slower; empty for equal models
    touched: tuple[str, ...] = ()  # parts of names of the source nodes that the change may move as well
    named_count: int = 0  # pairs in which it was named
    alarms: list[set[str]] = field(default_factory=list)  # what else was said to differ, by pair
    shares: list[float] = field(default_factory=list)  # measured change of the latency
    busy: int = 0

    def enter(self, rows: list[Row]) -> str:
        judged = next(row for row in rows if row["compared_kind"] == "end_to_end")
        self.busy += "busy" in judged["verdict_reason"]
        self.shares.append(float(judged["difference_share"]))
        loud = [row for row in rows if row["comparison_verdict"] in LOUD and row["compared_kind"] != "op_type"]
        if self.source:
            loud = [row for row in loud if row["compared_kind"] == "node"]
        named = [row for row in loud if self.source and self.source in json.loads(row["source_nodes"])]
        self.named_count += any(row["comparison_verdict"] == "regressed" for row in named)
        others = [row for row in loud if not self._is_touched(row)]
        self.alarms.append({row["compared_subject"] or row["compared_figure"] for row in others})
        texts = [f"{row['compared_subject'] or row['compared_figure']} {_percent(row)}" for row in [*named, *others]]
        return f"latency {_percent(judged)} {judged['comparison_verdict']}; {', '.join(texts) or 'no node'}"

    def _is_touched(self, row: Row) -> bool:
        sources = json.loads(row["source_nodes"])
        return any(part in source for source in sources for part in self.touched)

    def summary(self, name: str) -> str:
        pairs = len(self.alarms)
        named = f"named {self.named_count} of {pairs}, " if self.source else ""
        busy = f" ({self.busy} of them on a busy host, which judges no time)" if self.busy else ""
        middle = sorted(self.shares)[pairs // 2]
        return (
            f"{name:>9}: {named}false alarms in {sum(map(bool, self.alarms))} of {pairs}{busy}; latency {middle:+.1%}"
        )


def _percent(row: Row) -> str:
    return f"{float(row['difference_share']):+.1%}" if row["difference_share"] else "new"


def widened(model: onnx.ModelProto) -> str:
    """Give the last convolution more output channels, by repeating some, and return its name."""
    node = next(node for node in model.graph.node if node.op_type == "Conv" and WIDENED in node.name)
    for tensor in (tensor for tensor in model.graph.initializer if tensor.name in node.input[1:]):
        values = numpy_helper.to_array(tensor)
        values = np.concatenate([values, values[: round(MORE_CHANNELS * len(values))]])
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = len(values)
    del model.graph.value_info[:]
    return str(node.name)


def insert_node(model: onnx.ModelProto) -> None:
    """Insert a node behind the first concatenation."""
    nodes = model.graph.node
    place, before = next(
        (place, node) for place, node in enumerate(nodes) if node.op_type == "Concat" and BEFORE_IT in node.name
    )
    result, new = before.output[0], f"{before.output[0]}_after"
    for reader in nodes:
        reader.input[:] = [new if name == result else name for name in reader.input]
    nodes.insert(place + 1, helper.make_node("Erf", [result], [new], name=INSERTED))


def run(script: str, *flags: object) -> None:
    subprocess.run([sys.executable, str(ROOT / script), *map(str, flags), "--quiet"], check=True, cwd=ROOT)


def profiled(path: Path, out: Path, options: argparse.Namespace) -> Path:
    """Measure a model as 01 to 03 do."""
    settings = ("--runs", options.runs, "--threads", options.threads, "--idle", "10ms")
    run("01_profile_onnx.py", "--model", path, "--dim", "N=1", *settings, "--out", out)
    run("02_shapes_flops_bytes.py", "--model", path, "--dim", "N=1", "--out", out)
    run("03_merge_profile_metrics.py", "--peak-flops", "1e11", "--mem-bw", "1e10", "--out", out)
    return out


def rows_of(file: Path) -> list[Row]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def measured_round(
    models: Mapping[str, Path], folder: Path, options: argparse.Namespace
) -> Iterator[tuple[str, list[Row]]]:
    """Yield the comparison of each kind of pairs, from two measurements of the base and one of each changed model."""
    base = profiled(models["equal"], folder / "base", options)
    for name, path in models.items():
        candidate = profiled(path, folder / name, options)
        run("11_compare_runs.py", "--baseline", base, "--across-models", "--out", candidate)
        yield name, rows_of(candidate / "comparison.csv")


def paired_round(
    models: Mapping[str, Path], folder: Path, options: argparse.Namespace
) -> Iterator[tuple[str, list[Row]]]:
    """Yield the comparison of each kind of pairs, measured run by run in turn."""
    for name, path in models.items():
        settings = ("--runs", options.runs, "--threads", options.threads, "--dim", "N=1")
        run("15_paired_runs.py", "--ab", models["equal"], path, *settings, "--out", folder / name)
        yield name, rows_of(folder / name / "paired_comparison.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folders", action="store_true", help="compare measurements that were made one after another")
    parser.add_argument("--keep", type=Path, help="folder for the tables of all measurements")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        models = {name: root / f"{name}.onnx" for name in ("equal", "widened", "inserted")}
        base, wider, longer = (BUILDERS["squeezenet"]() for _ in models)
        tallies = {
            "equal": Tally(""),
            "widened": Tally(widened(wider), (WIDENED, BEHIND)),
            "inserted": Tally(INSERTED, (INSERTED, *AROUND)),
        }
        insert_node(longer)
        root.mkdir(exist_ok=True)
        for path, model in zip(models.values(), (base, wider, longer), strict=True):
            onnx.save(model, path)
        for pair in range(options.pairs):
            (folder := root / f"round-{pair}").mkdir()
            for name, rows in (measured_round if options.folders else paired_round)(models, folder, options):
                print(f"{name:>9} {pair:>3}  {tallies[name].enter(rows)}", flush=True)
        print("\n".join(tally.summary(name) for name, tally in tallies.items()))


if __name__ == "__main__":
    main()
