"""Folders of real tables: one run of all stages on tiny models, which later campaigns damage copies of."""

from __future__ import annotations

import os
from pathlib import Path

from models.__main__ import BUILDERS
from tests.fuzz.programs import run_here

PROFILE = ("--runs", "5", "--warmup", "1", "--idle", "10ms", "--threads", "1")
CEILINGS = ("--ceilings", "out/host_ceilings.json")
ENGINE = ("--engine", "dpu-b4096", "--board", "zcu102")
# The stages in their order, with flags that make them short; 00 runs once for all folders.
STAGES = (
    ("03_merge_profile_metrics.py", *CEILINGS),
    ("04_critical_path.py",),
    ("05_energy_estimate.py", *CEILINGS),
    ("07_fpga_candidates.py", "--effort", "0.1"),
    ("06_plots.py", *CEILINGS),
    ("08_design_space.py", "--hardware", "fa-dosa"),
    ("09_trace_report.py",),
)
CEILINGS_STAGE = ("00_host_ceilings.py", "--threads", "1", "--seconds", "0.05")
WORKLOADS = {
    "tiny-cnn": ("--dim", "batch=1"),
    "tiny-if-loop": ("--dim", "batch=3"),
    "tiny-transformer": ("--dim", "batch=2", "--dim", "seq=5"),
}


def in_child(function, *arguments) -> None:
    """Call a function in a process of its own: ONNX Runtime starts threads, and a process that forks has none.

    Raises:
        RuntimeError: it raised; its traceback is on stderr.
    """
    process = os.fork()
    if not process:
        code = 1
        try:
            function(*arguments)
            code = 0
        except Exception:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    if status:
        raise RuntimeError(f"{function.__name__} failed")


def must(script: str, *flags: str) -> None:
    """Run a stage that has no reason to fail."""
    ended = run_here(script, *flags)
    if ended.code != 0:
        raise RuntimeError(f"{script}: {ended.err}{ended.trace}")


def build_tables(folder: Path, workloads: tuple[str, ...] = tuple(WORKLOADS)) -> None:
    """Make a folder for each workload: its model as ``case.onnx``, those of 26 and 32, all tables in ``out``."""
    for name in workloads:
        place = folder / name
        if place.exists():
            continue  # another campaign made it
        (place / "out").mkdir(parents=True)
        (place / "case.onnx").write_bytes(BUILDERS[name]().SerializeToString())
        (place / "decoder.onnx").write_bytes(BUILDERS["tiny-decoder"]().SerializeToString())
        (place / "quantized.onnx").write_bytes(BUILDERS["tiny-resnet8"](batch=1).SerializeToString())
        os.chdir(place)
        if name == workloads[0]:
            must(*CEILINGS_STAGE)
        for file in (folder / workloads[0] / "out").glob("host_ceilings.*"):
            if name != workloads[0]:
                (place / "out" / file.name).write_bytes(file.read_bytes())
        model = ("--model", "case.onnx", *WORKLOADS[name])
        must("01_profile_onnx.py", *model, *PROFILE)
        must("02_shapes_flops_bytes.py", *model)
        for script, *flags in STAGES:
            must(script, *flags)
    os.chdir(folder)
