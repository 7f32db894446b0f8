"""Flags that several scripts have, each declared once: ``Parser.shared`` (``settings.py``) adds them by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.cli.flags import flag_types

BOTTLENECKS = Path(__file__).resolve().parents[3] / "configs" / "bottlenecks.yaml"
COUNT: dict[str, Any] = {"type": flag_types.positive_int, "metavar": "N"}
AMOUNT: dict[str, Any] = {"type": flag_types.positive_float}
FILE: dict[str, Any] = {"type": flag_types.path, "metavar": "FILE"}
NAME: dict[str, Any] = {"metavar": "NAME"}
TIME: dict[str, Any] = {"type": flag_types.duration, "metavar": "T"}
REPEATED: dict[str, Any] = {"action": "append", "default": []}
BINDING = REPEATED | {"type": flag_types.binding, "metavar": "NAME=N"}
INPUT = REPEATED | {"type": flag_types.assignment, "metavar": "NAME=FILE"}
KINDS_OF_MODEL = "an ONNX file, a folder of GenAI or optimum, or a name in models/"
CACHE = "input of a cache, and the output that feeds it in the next call (default: paired by name); repeatable"
DECODER: dict[str, Any] = {"default": None, "help": f"a decoder: {KINDS_OF_MODEL}; no default"}
MODEL = ("--model", "--dim", "--input")  # of the stages that load a model
SHARED: dict[str, dict[str, Any]] = {
    "--model": {"default": "resnet50-fp32.onnx", "metavar": "FILE", "help": KINDS_OF_MODEL},
    "--dim": {"help": "size of a dynamic dimension; repeatable", **BINDING},
    "--input": {"help": "an input from a .npy file or an image; repeatable", **INPUT},
    "--phase": {
        "type": flag_types.phase_lengths,
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "PHASE:N,N",
        "help": "tokens of the prompt (prefill) or in the caches (decode), such as prefill:128,512 decode:128,1024",
    },
    "--cache": {"help": CACHE, **INPUT, "metavar": "PAST=PRESENT"},
    "--threads": {"help": "intra-op threads (default: all that this process may use)", **COUNT},
    "--warmup": {"default": 10, "help": "minimum number of warm-up runs", **COUNT},
    "--provider": {"default": "cpu", "help": "execution provider; python -m common.runtime lists them", **NAME},
    "--optimization": {"default": "all", "metavar": "LEVEL", "help": "graph optimization level"},
    "--run-timeout": {"default": 600.0, "help": "end a run that takes longer, with an error", **TIME},
    "--seed": {"type": flag_types.non_negative_int, "default": 0, "metavar": "N", "help": "seed of the random inputs"},
    "--ceilings": {"help": "measured ceilings (default: out/host_ceilings.json, else that of --out)", **FILE},
    "--rules": {"default": BOTTLENECKS, "help": "rules that find bottlenecks", **FILE},
    "--avg-power-w": {"metavar": "W", "help": "mean power, where no sensor measures it", **AMOUNT},
    "--usd-per-hour": {"metavar": "USD", "help": "price of this host, for the cost", **AMOUNT},
    "--board": {"help": "board: a name in configs/boards, or a YAML file", **NAME},
    "--engine": {"help": "overlay engine: a name in configs/engines, or a YAML file", **NAME},
    "--cluster": {"help": "work on a running cluster instead"},
    "--cluster-address": {
        "default": "",
        "metavar": "ADDRESS",
        "help": "address of the cluster (default: DASK_SCHEDULER_ADDRESS or RAY_ADDRESS)",
    },
}
