"""Exports whose MACs PyTorch counts with a method of its own, through 02; routed ones through 01 and 03 as well."""

from __future__ import annotations

import importlib
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="comes with requirements-torch.txt")
pytest.importorskip("transformers", reason="comes with requirements-torch.txt")

import sympy
import torch

from tests.exports.counted_by_torch import FIXED, ROUTED, bound, counted_macs

profile, count, merge = (
    importlib.import_module(name) for name in ("01_profile_onnx", "02_shapes_flops_bytes", "03_merge_profile_metrics")
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The example inputs of an architecture as files, its export, its dimensions, and the MACs that PyTorch counts."""

    @cache
    def make(name):
        torch.manual_seed(7)
        folder, subject = tmp_path_factory.mktemp(name), (FIXED | ROUTED)[name]()
        subject.module.eval()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                subject.module,
                tuple(subject.inputs.values()),
                folder / f"{name}.onnx",
                dynamo=False,
                opset_version=17,
                input_names=list(subject.inputs),
                dynamic_axes=dict(subject.axes),
            )
        for key, tensor in subject.inputs.items():
            np.save(folder / f"{key}.npy", tensor.numpy())
        files = [f"--input={key}={folder / key}.npy" for key in subject.inputs]
        dims = [f"--dim={axis}={size}" for axis, size in bound(subject).items()]
        return ["--model", str(folder / f"{name}.onnx"), *dims, "--quiet"], files, counted_macs(subject)

    return make


@pytest.mark.parametrize("name", FIXED)
def test_macs_are_those_of_the_flop_counter(exported, tmp_path, name):
    flags, _, macs = exported(name)
    assert count.main([*flags, "--out", str(tmp_path)]) == 0
    counted = pd.read_csv(tmp_path / "op_metrics.csv")["macs"]
    assert (counted.isna().any(), counted.sum()) == (False, macs)


@pytest.mark.parametrize("name", ["t5", "segformer"])  # the others' shapes are no polynomials of their dimensions
def test_expressions_give_the_macs_of_the_flop_counter(exported, tmp_path, name):
    flags, _, macs = exported(name)
    unbound = [flag for flag in flags if not flag.startswith("--dim=")]
    assert count.main([*unbound, "--out", str(tmp_path)]) == 0
    dims = dict(flag.removeprefix("--dim=").split("=") for flag in flags if flag.startswith("--dim="))
    table = pd.read_csv(tmp_path / "op_metrics.csv", dtype=str, keep_default_na=False)
    counts = table["macs"].where(table["macs"] != "", table["macs_expression"])
    assert sum(sympy.sympify(text).subs(dims) for text in counts) == macs


@pytest.mark.parametrize("name", ROUTED)
def test_routed_work_is_that_of_the_executed_shapes(exported, tmp_path, name):
    flags, files, macs = exported(name)
    out = ["--out", str(tmp_path), "--quiet"]
    assert count.main([*flags, *out]) == 0
    assert profile.main([*flags, *files, *out, "--runs", "5", "--warmup", "1", "--threads", "1"]) == 0
    assert merge.main([*out, "--peak-flops", "1e11", "--mem-bw", "1e10"]) == 0
    roofline = pd.read_csv(tmp_path / "op_roofline.csv", keep_default_na=False, na_values={"macs": ""})
    nodes = roofline[roofline["row_kind"] != "gap"]
    assert nodes["macs"].sum() == macs
    heavy = nodes[nodes["macs"] > 0]
    assert heavy["roof_share"].notna().all()
