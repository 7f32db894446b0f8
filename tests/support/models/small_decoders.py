"""A decoder of one product, to which the inputs that exporters add can be given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from tests.support.models.onnx_models import INT64, Shape, Typed, model

WIDTH, VOCABULARY = 8, 13


def small_decoder(
    *, tokens: str = "input_ids", new: int | str = "seq", more: Mapping[str, Typed | Shape] | None = None
) -> onnx.ModelProto:
    """Return a decoder: present = past and the rows of the tokens, logits = mean of the present · weights.

    Args:
        tokens: the input of numbers, or of rows of embeddings.
        new: tokens of a call.
        more: further inputs, which the model sums up and adds to the logits, times zero.
    """
    random = np.random.default_rng(7)
    weights = {
        "table": random.standard_normal((VOCABULARY, WIDTH)).astype(np.float32),
        "head": random.standard_normal((WIDTH, VOCABULARY)).astype(np.float32),
        "zero": np.zeros((), np.float32),
    }
    has_table = tokens != "inputs_embeds"
    rows = "rows" if has_table else tokens
    nodes = [helper.make_node("Gather", ["table", tokens], ["rows"], name="embed")] if has_table else []
    nodes += [
        helper.make_node("Concat", ["past_key_values.0.key", rows], ["present.0.key"], name="grow", axis=1),
        helper.make_node("ReduceMean", ["present.0.key"], ["mean"], name="mean", axes=[1]),
        helper.make_node("Add", [rows, "mean"], ["mixed"], name="mix"),
        helper.make_node("MatMul", ["mixed", "head"], ["scores"], name="lm_head"),
    ]
    nodes += _sums(more or {})
    table = {} if has_table else {"table"}
    first: dict[str, Typed | Shape] = {
        tokens: Typed(INT64, ("batch", new)) if has_table else ("batch", new, WIDTH),
        **(more or {}),
        "past_key_values.0.key": ("batch", "past", WIDTH),
    }
    outputs: dict[str, Shape] = {"logits": ("batch", new, VOCABULARY), "present.0.key": ("batch", "total", WIDTH)}
    return model(nodes, first, outputs, {name: array for name, array in weights.items() if name not in table})


def _sums(more: Mapping[str, Typed | Shape]) -> Sequence[onnx.NodeProto]:
    """Return nodes that read each further input without an effect, so that no name is dropped."""
    nodes, last = [], "scores"
    for name in more:
        nodes += [
            helper.make_node("Cast", [name], [f"{name}.float"], name=f"cast.{name}", to=onnx.TensorProto.FLOAT),
            helper.make_node("ReduceSum", [f"{name}.float"], [f"{name}.sum"], name=f"sum.{name}", keepdims=0),
            helper.make_node("Mul", [f"{name}.sum", "zero"], [f"{name}.none"], name=f"mul.{name}"),
            helper.make_node("Add", [last, f"{name}.none"], [f"{name}.scores"], name=f"add.{name}"),
        ]
        last = f"{name}.scores"
    return [*nodes, helper.make_node("Identity", [last], ["logits"], name="logits")]
