"""Map the layers of models on an accelerator one by one: the optimum, the time, and how far engines stay above it.

Models are built without weights and counted by 02; of other models, give the folders of 02's tables. The peak is that
of the whole process. The lines below a model are the products that engines find with 1,000 evaluations per distinct
layer, over the optimum, for three seeds. An engine whose package is not installed has no line.

    gemmini          layers distinct  evaluated  seconds    MB   uJ·cycles
    resnet18             21       12    200,960      1.7   137  4.3562e+10
      random          1.396 1.590 1.455
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from benchmarks.process import ROOT
from common.artifacts.folder import Folder
from common.artifacts.provenance import Provenance
from common.design_space.accelerator.hardware import Hardware
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.space.layer_by_layer import NestSearches, exact, repeats_of
from common.design_space.mapping.space.mapping_problem import MappingProblem
from common.design_space.search.engines.registry import engine, is_installed
from common.design_space.search.search import ModelPart, search
from common.graphs.source_graph import from_rows
from common.workload.loop_nests import LoopNest
from common.workload.nest_rows import nests_by_node
from models.__main__ import BUILDERS

MODELS = ("resnet18", "mobilenet-v1", "vgg16", "bert-base", "vit-b16")
LARGEST_S, LARGEST_MB = 60.0, 1000.0
EVALUATIONS, SEEDS = 1000, 3
ENGINES = ("random", "two-step", "cma")
DIMENSIONS = ("N=1", "batch=1", "seq=128")


def nests_of(name: str, folder: Path) -> dict[str, LoopNest]:
    """Return the loop nests of a model of ``models/``."""
    path = folder / f"{name}.onnx"
    model = BUILDERS[name](has_weights=False)
    onnx.save(model, path)
    named = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    dims = [word for text in DIMENSIONS if text.split("=")[0] in named for word in ("--dim", text)]
    script = [sys.executable, "02_shapes_flops_bytes.py", "--model", str(path), *dims]
    subprocess.run([*script, "--out", str(folder / name), "--quiet"], cwd=ROOT, check=True)
    return nests_in(folder / name)


def nests_in(folder: Path) -> dict[str, LoopNest]:
    """Return the loop nests of a model, from the tables that 02 wrote of it."""
    tables = Folder(folder, Provenance("", ""))
    metrics = tables.rows("op_metrics")
    by_node = nests_by_node(metrics, from_rows(metrics, tables.rows("op_edges")))
    return {f"{node}.{index}": nest for node, nests in by_node.items() for index, nest in enumerate(nests)}


def products(nests: Mapping[str, LoopNest], hardware: Hardware, name: str) -> list[float]:
    """Return the energy-delay product that an engine finds for each seed."""
    parts = {nest: ModelPart(MappingProblem(nest, hardware), times) for nest, times in repeats_of(nests).items()}
    return [search(parts, engine(name), EVALUATIONS * len(parts), seed).edp for seed in range(SEEDS)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="gemmini", help="a file of configs/hardware")
    parser.add_argument("--models", nargs="*", default=MODELS, help="models that can be built without weights")
    parser.add_argument("--tables", nargs="*", default=[], type=Path, help="folders of 02's tables")
    parser.add_argument("--engines", nargs="*", default=ENGINES, help="engines of 08_design_space.py, but exact")
    given = parser.parse_args(argv)
    hardware = load_hardware(given.hardware, ROOT / "configs" / "hardware")
    titles = f"{'layers':>7}{'distinct':>9}{'evaluated':>11}{'seconds':>9}{'MB':>6}{'uJ·cycles':>12}"
    print(f"{given.hardware:<16}{titles}")
    is_kept = True
    with tempfile.TemporaryDirectory() as scratch:
        models = {name: nests_of(name, Path(scratch)) for name in given.models}
        models |= {folder.name: nests_in(folder) for folder in given.tables}
        for name, nests in models.items():
            searches, start = NestSearches(), time.perf_counter()
            optimum = exact(nests, hardware, searches=searches)
            seconds = time.perf_counter() - start
            peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
            counts = f"{len(nests):>7}{len(set(nests.values())):>9}{searches.mapping_count:>11,}"
            figures = f"{counts}{seconds:>9.1f}{peak_mb:>6.0f}"
            print(f"{name:<16}{figures}{optimum.edp * 1e-6:>12.4e}")
            for other in filter(is_installed, given.engines):
                ratios = [f"{edp / optimum.edp:.3f}" for edp in products(nests, hardware, other)]
                print(f"  {other:<16}{' '.join(ratios)}")
            is_kept &= seconds <= LARGEST_S and peak_mb <= LARGEST_MB
    return int(not is_kept)


if __name__ == "__main__":
    sys.exit(main())
