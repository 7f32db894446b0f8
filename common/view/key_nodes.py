"""The nodes that matter, numbered alike in every picture and table, under names that fit beside a drawing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from common.view.text import shorten

COUNT = 10
LABEL_WIDTH = 24
# What ONNX Runtime's layout passes append to a name, and exporters to that of an output.
_SUFFIX = re.compile(r"(_(nchwc|bn|mul|token_\d+|output_\d+))+$")
_OPERATOR = re.compile(r"[A-Z][A-Za-z]*(_\d+)?")


@dataclass(frozen=True, slots=True)
class KeyNode:
    """A node that decides the latency; ``number`` is its rank and its mark in the pictures."""

    number: int
    name: str
    label: str
    latency_us: float


def rank_nodes(nodes: pd.DataFrame, count: int = COUNT) -> tuple[KeyNode, ...]:
    """The slowest nodes; those that the profiler's correction dominates, and the gap, are not ranked."""
    ranked = nodes
    if "row_kind" in nodes:
        ranked = ranked[ranked["row_kind"] != "gap"]
    if "is_correction_dominated" in nodes:
        ranked = ranked[~ranked["is_correction_dominated"]]
    ranked = ranked.nlargest(count, "node_latency_us", keep="first")
    labels = label_nodes(ranked["executed_node"])
    return tuple(
        KeyNode(number, row["executed_node"], labels[row["executed_node"]], float(row["node_latency_us"]))
        for number, row in enumerate(ranked.to_dict("records"), start=1)
    )


def label_nodes(names: Iterable[str]) -> dict[str, str]:
    """A short label for each name; two names never share one."""
    names = list(names)
    short = {name: shorten(_plain(name), LABEL_WIDTH) for name in names}
    uses = Counter(short.values())
    return {name: label if uses[label] == 1 else shorten(name, LABEL_WIDTH) for name, label in short.items()}


def _plain(name: str) -> str:
    """``/layer1/layer1.0/relu/Relu_output_0_nchwc`` is ``layer1.0/relu``."""
    parts = [part for part in _SUFFIX.sub("", name).split("/") if part]
    if len(parts) > 1 and _OPERATOR.fullmatch(parts[-1]):
        parts.pop()
    kept = [part for part, inner in pairwise(parts) if not inner.startswith(f"{part}.")]
    return "/".join([*kept, *parts[-1:]]) or name
