"""Values that a model names for an input: an encoder refuses a category that it does not know."""

from __future__ import annotations

from collections import deque
from typing import Any

from common.graphs.graph import Graph, Node
from common.graphs.operators import COPIES, RESHAPES

ENCODERS = frozenset({"LabelEncoder", "OneHotEncoder", "CategoryMapper", "TfIdfVectorizer"})
TEXTS = ("keys_strings", "cats_strings", "classes_strings", "pool_strings")
INTEGERS = ("keys_int64s", "cats_int64s", "pool_int64s")
# Operators whose results are elements of their first operand.
SELECTIONS = COPIES | RESHAPES | {"Transpose", "Gather", "Slice", "Expand", "ArrayFeatureExtractor", "StringNormalizer"}


def named_categories(graph: Graph, name: str) -> list[str] | list[int]:
    """Return the categories that the nearest encoder behind an input names; none where there is no encoder."""
    dtype = graph.tensors[name].dtype
    lists = TEXTS if dtype == "string" else INTEGERS if dtype.startswith("int") else ()
    waiting, seen = deque([name]), {name}
    while waiting and lists:
        current = waiting.popleft()
        for node in (graph.by_name[consumer] for consumer in graph.consumers.get(current, ())):
            if node.op_type in ENCODERS and (categories := _listed(node, lists)):
                return categories
            is_passed = node.op_type == "Concat" or (node.op_type in SELECTIONS and node.inputs[0] == current)
            new = [output for output in node.outputs if is_passed and output not in seen]
            waiting += new
            seen |= {*new}
    return []


def _listed(node: Node, lists: tuple[str, ...]) -> list[Any]:
    items = next((node.attributes[name] for name in lists if node.attributes.get(name)), ())
    listed = items if isinstance(items, list | tuple) else ()
    return [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in listed]
