"""Broken settings: every YAML file of configs/, every flag of every program, streams, and paths of any bytes."""

from __future__ import annotations

import math
import os
import random
import re
import shutil
from pathlib import Path

from tests.fuzz.pipeline import ENGINE, STAGES, WORKLOADS, build_tables, in_child, must
from tests.fuzz.programs import KERNELS, SCRIPTS, module_of
from tests.fuzz.trial import Trial
from tests.fuzz.values import CELLS, CONTROL, FLOATS, INTEGERS, SCALARS, TEXTS, broken_bytes, recoded
from tests.support.paths import ROOT

WORKLOAD = "tiny-cnn"
MODEL = ("--model", "case.onnx", *WORKLOADS[WORKLOAD])
DECODER = ("--model", "decoder.onnx")
LOADS = ("10", "14", "18", "19", "20", "21", "22", "25")
PAIRS = ("--runs", "5", "--warmup", "1", "--threads", "1")
LOAD = ("--rate", "50", "--duration", "100ms", "--threads", "1")
GOOD = {
    "00_host_ceilings.py": ("--threads", "1", "--seconds", "0.02"),
    "01_profile_onnx.py": (*MODEL, "--runs", "5", "--warmup", "1", "--idle", "10ms", "--threads", "1"),
    "02_shapes_flops_bytes.py": MODEL,
    **{script: tuple(flags) for script, *flags in STAGES},
    "10_load_test.py": (*MODEL, *LOAD),
    "13_npu_profile.py": ("--qnn-csv", str(ROOT / "tests/npu/data/fp16/profile.csv")),
    "14_load_search.py": (*MODEL, "--budget", "1s", "--batch-max", "1", "--threads", "1"),
    "18_load_fleet.py": ("--models", "case.onnx", *WORKLOADS[WORKLOAD], *LOAD),
    "19_endurance_test.py": (*MODEL, *LOAD, "--part", "50ms"),
    "20_load_interference.py": (*MODEL, "--with", "case.onnx", *LOAD),
    "21_loadgen_scenario.py": (*MODEL, *LOAD),
    "22_provider_comparison.py": (*MODEL, "--threads", "1"),
    "26_generation.py": (*DECODER, "--prompt", "3", "--tokens", "2", "--answers", "1", "--threads", "1"),
    "27_token_streams.py": (
        *(*DECODER, "--rate", "20", "--duration", "100ms", "--input-tokens", "3", "--output-tokens", "2"),
        *("--threads", "1"),
    ),
    # Without the tables of 26 a good command line ends with one line as well.
    "31_decode_plan.py": (*DECODER, "--board", "u280"),
    "28_precision.py": (*MODEL, "--random", "2", "--threads", "1"),
    "32_build_engine.py": (
        *("--model", "quantized.onnx"),
        *("--array-rows", "4", "--array-cols", "4", "--array-simd", "2"),
    ),
    "29_board_arrays.py": ("--board", "ultra96", "--board-budget", "dsp=60"),
    "11_compare_runs.py": ("--baseline", "out"),
    "12_dashboard.py": (*MODEL, "--port", "0", "--threads", "1"),
    "15_paired_runs.py": ("--ab", "case.onnx", "case.onnx", *WORKLOADS[WORKLOAD], *PAIRS),
    "30_try_mend.py": (*MODEL, *PAIRS),
    "16_run_history.py": ("--history", "runs.sqlite"),
    "17_record_run.py": ("--append-to", "runs.sqlite"),
    "23_overlay_estimate.py": ENGINE,
    "24_what_if.py": (),
    # Nothing listens there, so a good command line ends with one line as well.
    "25_load_endpoint.py": ("--endpoint", "http://127.0.0.1:9", "--served-model", "m", "--duration", "100ms"),
}
ESTIMATES = (
    ("gemv", "--rows", "64", "--cols", "64", "--channels", "4"),
    ("gemm", "--m", "104", "--k", "64", "--n", "32", "--array", "13x16", "--simd", "8", "--dtype", "fp32"),
    ("conv", "--in-channels", "16", "--height", "14", "--out-channels", "16", "--dtype", "int8"),
    ("attention", "--heads", "3", "--tokens", "64", "--head-dim", "16", "--dtype", "int8"),
    ("layernorm", "--rows", "64", "--width", "96"),
)
PLANNERS = ("07_fpga_candidates.py", KERNELS)
FILE_FLAGS = {
    "bottlenecks.yaml": ("09_trace_report.py", "--rules"),
    "energy.yaml": ("05_energy_estimate.py", "--energy-config"),
}
SLOW = re.compile(r"--(runs|duration|budget|seconds|warmup|idle|effort|threads|sensor-rate-hz)$")
NAMES = (
    "x" * 255,
    "x" * 256,
    "é",
    "名前",
    "a b",
    "-",
    "\udcff\udcfe",
    "a\nb",
    "\x1b[31m",
    "\u202eb",
    "a'b\"c",
    "<out>",
    "%s",
)
ENCODINGS = ("utf-8", "utf-8", "ascii", "latin-1", "cp1252")


class Configurations:
    """The campaign.

    Args:
        scripts: whose command lines and settings are broken; empty: those of all stages, measurements seldom.
    """

    name = "configurations"

    def __init__(self, *scripts: str) -> None:
        """Run nothing yet."""
        self.scripts = scripts

    def prepare(self, folder: Path, unit: float) -> None:
        """Run all stages once."""
        self.source = folder / WORKLOAD
        in_child(build_tables, folder, (WORKLOAD,))
        os.chdir(self.source)
        in_child(must, "17_record_run.py", *GOOD["17_record_run.py"])

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Break a file or a flag, and run a program that reads it."""
        hidden = shutil.ignore_patterns(".*", "plots", "ort_trace*")
        shutil.copytree(self.source, trial.folder, dirs_exist_ok=True, ignore=hidden)
        streams = {"encoding": rng.choice(ENCODINGS), "stdout": "/dev/full" if rng.random() < 0.03 else None}
        for script in PLANNERS:
            module_of(script).CONFIGS = ROOT / "configs"
        kind = rng.choice((*(() if self.scripts else ("file", "file")), "settings", "flags", "flags", "flags", "place"))
        command = getattr(self, f"_{kind}")(rng, trial)
        trial.tell(f"{kind}, {streams}")
        trial.run(*command, **streams)

    def _file(self, rng: random.Random, trial: Trial) -> tuple[str, ...]:
        """A file of configs/, broken, and a program that reads it."""
        copy = trial.folder / "configs"
        shutil.copytree(ROOT / "configs", copy)
        path = rng.choice(sorted(path for path in copy.rglob("*.*") if path.suffix in (".yaml", ".ini")))
        _break(rng, trial, path)
        for script in PLANNERS:
            module_of(script).CONFIGS = copy
        return _reader(rng, path, str(path.relative_to(trial.folder)))

    def _settings(self, rng: random.Random, trial: Trial) -> tuple[str, ...]:
        """A file of settings with a value that its flag does not take."""
        script = self._script(rng)
        path = trial.folder / "settings.ini"
        path.write_bytes(content := _settings_text(rng, script).encode("utf-8", "surrogatepass"))
        trial.tell(repr(content[:2000]))
        if rng.random() < 0.1:
            _break(rng, trial, path)
        return (script, *GOOD[script], "--config", "settings.ini")

    def _flags(self, rng: random.Random, trial: Trial) -> tuple[str, ...]:
        """A command line with flags that are wrong, repeated, or of another kind."""
        _odd_files(trial.folder)
        if rng.random() < 0.15 and not self.scripts:
            return _estimate(rng)
        script = self._script(rng)
        flags = list(GOOD[script])
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(0, len(flags) + 1)
            flags[at:at] = _wrong_flag(rng, script)
        return (script, *flags)

    def _place(self, rng: random.Random, trial: Trial) -> tuple[str, ...]:
        """A folder or a file of a strange name, or a current folder that is gone."""
        script = self._script(rng, measured=0.02)
        name, flags = rng.choice(NAMES), list(GOOD[script])
        draw = rng.random()
        if draw < 0.1:
            (gone := trial.folder / "gone").mkdir()
            os.chdir(gone)
            gone.rmdir()
        elif draw < 0.3 and len(os.fsencode(name)) < 256:
            (place := trial.folder / name).mkdir()
            for entry in ("out", "case.onnx"):
                (trial.folder / entry).rename(place / entry)
            os.chdir(place)
            trial.out = place / "out"
        elif draw < 0.5 and "--model" in flags and len(os.fsencode(name)) < 250:
            (trial.folder / "case.onnx").rename(trial.folder / f"{name}.onnx")
            flags[flags.index("--model") + 1] = f"{name}.onnx"
        elif draw < 0.8:
            flags += [
                "--out",
                rng.choice((name, f"{name}/{name}", "case.onnx", "case.onnx/out", "/dev/null", "/proc/x", "l")),
            ]
            (trial.folder / "l").symlink_to("l")
        else:
            flags += ["--config", rng.choice((name, "/dev/null", ".", "l", "pipe", "case.onnx"))]
            _odd_files(trial.folder)
        return (script, *flags)

    def _script(self, rng: random.Random, measured: float = 0.06) -> str:
        return rng.choice(self.scripts) if self.scripts else _any_script(rng, measured)


def _any_script(rng: random.Random, measured: float = 0.06) -> str:
    """A stage; a measurement is rare, because it takes seconds."""
    if rng.random() < measured:
        return rng.choice(("01_profile_onnx.py", "01_profile_onnx.py", "10_load_test.py", "00_host_ceilings.py"))
    return rng.choice([script for script in SCRIPTS[2:] if script[:2] not in LOADS])


def _odd_files(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "empty.npy").touch()
    (folder / "l").symlink_to("l")


def _reader(rng: random.Random, path: Path, name: str) -> tuple[str, ...]:
    """The command that reads a file of configs/."""
    if path.parent.name == "boards":
        readers = [("07_fpga_candidates.py", *GOOD["07_fpga_candidates.py"], "--board", name)]
        readers.append((KERNELS, "estimate", *rng.choice(ESTIMATES), "--board", name))
        return rng.choice(readers)
    if path.parent.name == "engines":
        return ("23_overlay_estimate.py", *ENGINE, "--engine", name)
    if path.parent.name == "kernels":
        return (KERNELS, "kernels", "--list", name, "--out", "out")
    if path.name == "settings.ini":
        script = _any_script(rng)
        return (script, *GOOD[script], "--config", name)
    if path.name in FILE_FLAGS:
        script, flag = FILE_FLAGS[path.name]
        return (script, *GOOD[script], flag, name)
    return ("07_fpga_candidates.py", *GOOD["07_fpga_candidates.py"], "--fpga-config", "configs/fpga.yaml")


def _break(rng: random.Random, trial: Trial, path: Path) -> None:
    content, draw = path.read_bytes(), rng.random()
    if draw < 0.1:
        changed = broken_bytes(rng, content)
    elif draw < 0.18:
        changed = recoded(rng, content)
    elif draw < 0.21:
        path.unlink()
        trial.tell(f"{path.name} is {(what := rng.choice(('missing', 'a folder', 'a pipe')))}")
        if what != "missing":
            (path.mkdir if what == "a folder" else lambda: os.mkfifo(path))()
        return
    else:
        lines = content.decode().splitlines()
        for _ in range(rng.choice((1, 1, 2, 4))):
            trial.tell(f"{path.name}: {_change_line(rng, lines)}")
        changed = "\n".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(changed)


def _change_line(rng: random.Random, lines: list[str]) -> str:
    """Change the value or the key of a line, its margin, or its place."""
    lines[:] = lines or [""]
    usable = [number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")]
    at = rng.choice(usable or [0])
    key, colon, value = lines[at].partition("=" if " = " in lines[at] else ":")
    draw = rng.random()
    if draw < 0.6:
        inner = re.search(r"(\w+): *([^,{}\[\]]+)", value) if rng.random() < 0.7 else None
        new = rng.choice((*SCALARS, *(str(number) for number in (*INTEGERS, *FLOATS))))
        value = f" {value[: inner.start(2)]}{new}{value[inner.end(2) :]}" if inner else f" {new}"
        lines[at] = f"{key}{colon or ':'}{value}"
    elif draw < 0.75:
        del lines[at]
        return f"line {at + 1} deleted"
    elif draw < 0.85:
        margin = len(key) - len(key.lstrip())
        lines[at] = f"{' ' * margin}{rng.choice((*SCALARS[:12], *TEXTS[:14], 'value', 'low'))}{colon}{value}"
    elif draw < 0.92:
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    else:
        lines[at] = rng.choice((" ", "  ", "\t", "- ", "- - ")) + lines[at]
    return f"line {at + 1}: {lines[at]!r:.100}"


def _settings_text(rng: random.Random, script: str) -> str:
    """A file of settings: a hostile value, key, script or model in it."""
    stem, keys = script.removesuffix(".py"), sorted(module_of(script).arguments().defaults)
    key, draw = rng.choice(keys), rng.random()
    one, two = (rng.choice((*SCALARS, *(str(number) for number in (*INTEGERS, *FLOATS)))) for _ in range(2))
    if draw < 0.65:
        value = "3" if SLOW.match(f"--{key.replace('_', '-')}") and is_long(one) else one
        spelled, gap = rng.choice((key, key.replace("_", "-"))), rng.choice((" ", "\n  "))
        return f"[{stem}]\n{spelled} ={gap}{value}\n"
    if draw < 0.75:
        return f"[{one}]\n{key} = {two}\n"
    if draw < 0.9:
        name = rng.choice(("case.onnx", two, "1", "[a]", ""))
        return f"[model {name}]\n{rng.choice(('dim', 'dims', two))} = {rng.choice((f'batch={one}', one))}\n"
    forms = (f"[{one}\n", f"[model {one}]\n", f"{one} = {two}\n", one, f"[{stem}]\n{one}\n")
    return rng.choice(forms)


def is_long(value: str) -> bool:
    """Whether a value would let a measurement run for long; what is no number at all is refused at once."""
    try:
        number = float(value.rstrip("hms"))
    except ValueError:
        return False
    return math.isfinite(number) and number > 5


def _wrong_flag(rng: random.Random, script: str) -> list[str]:
    actions = [action for action in module_of(script).arguments()._actions if action.option_strings]
    action = rng.choice(actions)
    flag = rng.choice(action.option_strings)
    draw = rng.random()
    if draw < 0.06:
        return [rng.choice((f"{flag}x", flag[:-2], "--", "-x", "stray", "", "--no-such", "\udcff", *CONTROL))]
    if action.nargs == 0:
        return [flag] if draw < 0.8 else [f"{flag}=1"]
    if draw < 0.1:
        return [flag]
    value = _value(rng, flag)
    if "\x00" in value or (SLOW.match(flag) and is_long(value)):
        value = "3"  # no command line holds a zero byte
    return [f"{flag}={value}"] if rng.random() < 0.3 else [flag, value]


def _value(rng: random.Random, flag: str) -> str:
    """A value: of any kind, a path, a number, or an assignment."""
    pool = (*TEXTS, *CELLS, *SCALARS)
    numbers = (
        *(str(number) for number in INTEGERS),
        *(repr(number) for number in FLOATS),
        "１",
        "1_0",
        "0x5",
        "5e0",
        " 5 ",
    )
    paths = (
        "pipe",
        "l",
        ".",
        "..",
        "/",
        "/dev/null",
        "case.onnx",
        "out/op_metrics.csv",
        "out",
        "empty.npy",
        "absent",
        "\udcff",
    )
    names = (
        "batch",
        "input",
        "Conv",
        "K1",
        "board",
        "precision",
        "clock_mhz",
        "engine",
        "seq",
        "1",
        "",
        "a=b",
        rng.choice(pool),
    )
    draw = rng.random()
    if draw < 0.3 or flag in ("--dim", "--input", "--what-if", "--kernel-speedup"):
        right = rng.choice((*numbers, *paths, rng.choice(pool), "u50", "fp32", "zcu104", "300"))
        return rng.choice(
            (
                f"{rng.choice(names)}={right}",
                f"{rng.choice(names)}={right},{rng.choice(names)}={right}",
                rng.choice(pool),
            )
        )
    return rng.choice(rng.choice((pool, numbers, paths, NAMES)))


def _estimate(rng: random.Random) -> tuple[str, ...]:
    """One kernel, with one size that is wrong."""
    kind, *flags = rng.choice(ESTIMATES)
    at = rng.randrange(len(flags))
    value = _value(rng, "--size").replace("\x00", "")
    flags[at] = value if at % 2 else rng.choice((flags[at], f"{flags[at]}x", value))
    extra = [] if rng.random() < 0.7 else [rng.choice(("--clock-mhz", "--board", "--dtype", "--out")), value]
    return (KERNELS, "estimate", kind, *flags, *extra)
