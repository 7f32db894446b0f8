"""Mutated models: protobuf fields and bytes of many models, through 02, and some of them through the other stages."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from tests.fuzz.protos import dimension_names, mutated_bytes
from tests.fuzz.seed_models import EXTERNAL_CONTENT, backend_models, contrib_models, seed_models
from tests.fuzz.traps import TRAPS
from tests.fuzz.trial import Trial
from tests.fuzz.values import broken_bytes

SHAPES, PROFILE = "02_shapes_flops_bytes.py", "01_profile_onnx.py"
MODEL = ("--model", "case.onnx")
QUICK = ("--runs", "5", "--warmup", "1", "--idle", "10ms", "--threads", "1")
CEILINGS = ("--peak-flops", "1e11", "--mem-bw", "1e10")
LONG = 4096  # an extent that is counted; to run it may take gigabytes
LARGE = ("tiny-bert", "tiny-densenet", "tiny-transformer", "tiny-vision-encoder", "tiny-vit")
REST = (
    ("03_merge_profile_metrics.py", *CEILINGS),
    ("04_critical_path.py",),
    ("05_energy_estimate.py",),
    ("07_fpga_candidates.py", "--effort", "0.1"),
    ("06_plots.py",),
)


class Models:
    """The campaign.

    Args:
        with_backend: mutate ONNX's own test models too.
    """

    name = "models"

    def __init__(self, *, with_backend: bool = True) -> None:
        """Build nothing yet."""
        self.with_backend = with_backend

    def prepare(self, folder: Path, unit: float) -> None:
        """Build the models that are mutated."""
        self.seeds = seed_models()
        self.others = contrib_models() | (backend_models() if self.with_backend else {})
        self.donors = list(self.seeds.values())

    def run(self, rng: random.Random, trial: Trial) -> None:
        """Mutate a model, and give it to the stages."""
        (trial.folder / "case.onnx").write_bytes(content := self._content(rng, trial))
        _external(rng, trial.folder / "case.data")
        flags = (*MODEL, *_flags(rng, trial, dimension_names(content)))
        code = trial.run(SHAPES, *flags).code
        if code == 0 and rng.random() < 0.03:
            trial.run("23_overlay_estimate.py", "--engine", "dpu-b4096", "--board", "zcu102")
        if rng.random() < (0.007 if code == 0 else 0.003) and not any(flag.endswith(f"={LONG}") for flag in flags):
            _profile(trial, flags)

    def _content(self, rng: random.Random, trial: Trial) -> bytes:
        if rng.random() < 0.02:
            name = rng.choice(sorted(TRAPS))
            trial.tell(f"trap {name}")
            return TRAPS[name](rng)
        family = self.seeds if rng.random() < 0.7 else self.others
        name = rng.choice(sorted(family))
        if name in LARGE and rng.random() < 0.7:
            name = rng.choice(sorted(family))  # what takes long is drawn less often
        content, changes = mutated_bytes(rng, family[name], self.donors)
        trial.tell(f"model {name}: {changes}")
        return content


def _external(rng: random.Random, path: Path) -> None:
    """The file of external data: whole, broken, a pipe that nobody writes to, or none."""
    if (draw := rng.random()) < 0.98:
        path.write_bytes(EXTERNAL_CONTENT if draw < 0.9 else broken_bytes(rng, EXTERNAL_CONTENT))
    elif draw < 0.99:
        os.mkfifo(path)


def _flags(rng: random.Random, trial: Trial, names: list[str]) -> list[str]:
    """Bind none, some or all of the dimensions, and rarely the value of an input."""
    flags: list[str] = []
    share = rng.choice((0.0, 0.0, 0.5, 1.0, 1.0))
    for name in names:
        if rng.random() < share:
            flags += ["--dim", f"{name}={rng.choice((1, 2, 3, 5, 5, 7, 0, LONG))}"]
    if rng.random() < 0.05:
        np.save(trial.folder / "case.npy", _array(rng), allow_pickle=True)
        flags += ["--input", f"{rng.choice(('x', 'input', 'trips', 'ids', 'text', 'name'))}=case.npy"]
    return flags


def _array(rng: random.Random) -> np.ndarray:
    shape = tuple(rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(5)))
    kind = rng.choice(("f4", "f8", "i8", "i4", "?", "U3", "O", "c8", "f2", "M8[s]", "u1"))
    return np.ones(shape, kind) if kind != "O" else np.full(shape, rng.choice(("a", None, 3)), object)


def _profile(trial: Trial, flags: tuple[str, ...]) -> None:
    """Run what reads the model's measurement, until a stage refuses."""
    if trial.run(PROFILE, *flags, *QUICK).code != 0:
        return
    for script, *others in REST:
        if trial.run(script, *others).code != 0:
            return
