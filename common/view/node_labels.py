"""Short, distinct labels for executed nodes: each is named after the operator that does its work.

ONNX Runtime names a fused node after the tensor that it ends with: ``/layer4/layer4.1/relu_1/Relu_output_0_nchwc`` is
a convolution. Its label is the module path of that convolution, ``layer4.1/conv2``. Tables keep the full name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any, TypedDict, cast

from common.graphs import operators as kinds
from common.graphs.operators import CONTRACTIONS
from common.messages.names import printable
from common.table_rows import OpMetricsRow
from common.view.text import numbered

LABEL_WIDTH = 28
# Operator types by the work that they do, most first; one that is in none of these is between the last two.
# Erf is the heart of a Gelu written out.
REDUCING = kinds.NORMALIZATIONS | kinds.REDUCTIONS | kinds.POOLS | kinds.SOFTMAX | kinds.GELUS | {"Erf"}
MOVING = kinds.MOVEMENT | kinds.COPIES | kinds.QUANTIZERS | kinds.SHAPE_CONSTANTS | {"Cast"}
Source = tuple[str, str]  # name and operator type of a source node; the type is empty where it is unknown
Path = tuple[str, ...]
# What ONNX Runtime's layout passes append to a node name, and exporters to the name of an output.
_SUFFIX = re.compile(r"(_(nchwc|bn|mul|token_\d+|output_\d+))+$")
_OPERATOR = re.compile(r"[A-Z][A-Za-z]*(_\d+)?")
_NUMBERED = re.compile(r"(.*?)([._]?\d*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NodePath:
    """Where an executed node works: a module of the model and the operator in it. Either may be empty."""

    module: Path
    operator: str
    is_contraction: bool = False

    @property
    def path(self) -> Path:
        return (*self.module, *filter(None, (self.operator,)))


class NodeRow(TypedDict):
    """Columns of tables of executed nodes. Some have ``source_nodes``, ``op_types``, ``row_kind``, ``layout_of``."""

    executed_node: str


def labels_of(nodes: Iterable[NodeRow]) -> dict[str, str]:
    """Return a label for each executed node of a table; the gap keeps its name."""
    rows = [*map(_cells, nodes)]
    labels = label_nodes({row["executed_node"]: _sources(row) for row in rows if row.get("row_kind") != "gap"})
    return {row["executed_node"]: labels.get(row["executed_node"], row["executed_node"]) for row in rows}


def modules_of(nodes: Iterable[NodeRow]) -> dict[str, Path]:
    """Return the module that each executed node of a table works in, the outermost first.

    A node that the runtime inserted is in the module of the node that it serves, or else of the one before it.
    """
    rows = [row for row in map(_cells, nodes) if row.get("row_kind") != "gap"]
    known = {
        row["executed_node"]: _place(row["executed_node"], sources).module for row in rows if (sources := _sources(row))
    }
    modules: dict[str, Path] = {}
    before: Path = ()
    for row in rows:
        before = known.get(row["executed_node"], known.get(row.get("layout_of") or "", before))
        modules[row["executed_node"]] = before
    return modules


def _cells(row: NodeRow) -> Mapping[str, Any]:
    """Return the cells of a row by any name, because tables differ in what they say of a node."""
    return cast("Mapping[str, Any]", row)


def with_labels(text: str, labels: Mapping[str, str]) -> str:
    """Replace the names of executed nodes in a text by their labels; a name of one part may be a word and is left."""
    shown = {printable(name): label for name, label in labels.items() if "/" in name and printable(name) in text}
    names = sorted(shown, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w/.])({'|'.join(map(re.escape, names))})(?![\w/])")
    return pattern.sub(lambda match: shown[match[0]], text) if names else text


def _sources(row: Mapping[str, Any]) -> list[Source]:
    return typed_sources(row.get("source_nodes", ()), row.get("op_types", ()))


def typed_sources(names: Sequence[str], op_types: Sequence[str] = ()) -> list[Source]:
    """Return source nodes with their operator types; where these are unknown, the names."""
    if len(op_types) != len(names):
        op_types = [re.sub(r"_\d+$", "", name.rpartition("/")[2]) for name in names]
    return list(zip(names, op_types, strict=True))


def label_nodes(sources_of: Mapping[str, Sequence[Source]], width: int = LABEL_WIDTH) -> dict[str, str]:
    """Return a label of at most ``width`` characters for each executed node; no two nodes share one.

    ``sources_of`` has the source nodes that each executed node computes, in graph order. A node without any, which the
    runtime inserted, is labelled by its own name.
    """
    own = _own_names([name for name, sources in sources_of.items() if not sources])
    places = {name: _place(own.get(name, name), sources) for name, sources in sources_of.items()}
    places = _without_plain_operators(places)
    uses = Counter(place.path[start:] for place in places.values() for start in range(len(place.path)))
    return _fit({name: _distinct_end(place, uses) for name, place in places.items()}, width)


def source_labels(sources: Mapping[str, Sequence[str]], metrics: Iterable[OpMetricsRow]) -> dict[str, str]:
    """Return the labels of executed nodes by the source nodes that each computes; op_metrics has their operators."""
    types = {row["source_node"]: row["op_type"] for row in metrics}
    return label_nodes({name: [(source, types.get(source, "")) for source in of] for name, of in sources.items()})


def _own_names(names: Sequence[str]) -> dict[str, str]:
    """Return names without what layout passes appended, as far as they stay distinct."""
    short = {name: _SUFFIX.sub("", name) or name for name in names}
    uses = Counter(short.values())
    return {name: text if uses[text] == 1 else name for name, text in short.items()}


def _place(name: str, sources: Sequence[Source]) -> NodePath:
    """Return the place of the source node that does the work, or of all contractions where there are several."""
    if not sources:
        return _split(name, "")
    contractions = [source for source in sources if source[1] in CONTRACTIONS]
    if len(contractions) > 1 and (common := _common([_split(*source).module for source in contractions])):
        return NodePath(common, "", is_contraction=True)
    return _split(*min(sources, key=lambda source: _rank(source[1])))


def _rank(op_type: str) -> int:
    """Rank an operator type by work: contractions, then reductions, then other arithmetic, then what moves data."""
    return 0 if op_type in CONTRACTIONS else 1 if op_type in REDUCING else 3 if op_type in MOVING else 2


def _split(name: str, op_type: str) -> NodePath:
    """Split a node name into module and operator; the operator is the last part if it is named after its type."""
    parts = tuple(part for part in printable(name).split("/") if part) or (name,)
    is_operator = (
        re.fullmatch(rf"{re.escape(op_type)}(_\d+)?", parts[-1]) if op_type else _OPERATOR.fullmatch(parts[-1])
    )
    module, operator = (parts[:-1], parts[-1]) if is_operator else (parts, "")
    return NodePath(_without_repeats(module), operator, op_type in CONTRACTIONS)


def _without_repeats(module: Path) -> Path:
    """Drop each part that the next one repeats: exporters write ``layer4/layer4.1``."""
    kept = (part for part, inner in pairwise(module) if not inner.startswith((f"{part}.", f"{part}_")))
    return (*kept, *module[-1:])


def _common(modules: Sequence[Path]) -> Path:
    together = takewhile(lambda parts: len({*parts}) == 1, zip(*modules, strict=False))
    return tuple(parts[0] for parts in together)


def _without_plain_operators(places: Mapping[str, NodePath]) -> dict[str, NodePath]:
    """Drop the operator of each node that its module alone identifies.

    That is so for a module without modules of its own, if the node is its only one or its only contraction.
    """
    members: dict[Path, list[str]] = {}
    for name, place in places.items():
        members.setdefault(place.module, []).append(name)
    outer = {module[:end] for module in members for end in range(len(module))}
    kept = dict(places)
    for module, names in members.items():
        contractions = [name for name in names if places[name].is_contraction]
        identified = names if len(names) == 1 else contractions
        if module and len(identified) == 1 and module not in outer:
            kept[identified[0]] = replace(places[identified[0]], operator="")
    return kept


def _distinct_end(place: NodePath, uses: Mapping[Path, int]) -> Path:
    """Return the shortest end of a path that no other path has; it names two modules at least, where there are two."""
    path, least = place.path, 2 + bool(place.operator)
    ends = (path[start:] for start in reversed(range(max(len(path) - least + 1, 0))))
    return next((end for end in ends if uses[end] == 1), path)


def _fit(paths: Mapping[str, Path], width: int) -> dict[str, str]:
    """Write each path within the width: whole, without its middle, with short parts, or numbered at last."""
    labels: dict[str, str] = {}
    for form in (_whole, _without_middle, _abbreviated):
        texts = {name: form(path, width) for name, path in paths.items() if name not in labels}
        uses = Counter([*labels.values(), *texts.values()])
        labels |= {name: text for name, text in texts.items() if len(text) <= width and uses[text] == 1}
    taken = set(labels.values())
    for name, path in paths.items():
        if name not in labels:
            labels[name] = numbered("/".join(path), width, taken)
            taken.add(labels[name])
    return {name: labels[name] for name in paths}


def _whole(path: Path, _: int) -> str:
    return "/".join(path)


def _without_middle(path: Path, width: int) -> str:
    """Replace parts after the first by an ellipsis, as few as need be."""
    texts = ("/".join((path[0], "…", *path[start:])) for start in range(2, len(path)))
    return next((text for text in texts if len(text) <= width), "/".join(path))


def _abbreviated(path: Path, width: int) -> str:
    """Cut the ends of the longest parts, but keep their numbers: ``denseb…1/densel…2/conv1``."""
    split = [list(match.groups()) for part in path if (match := _NUMBERED.fullmatch(part))]
    stems, numbers = [stem for stem, _ in split], [number for _, number in split]
    sizes = [len(stem) for stem in stems]

    def text() -> str:
        cut = (stem if size == len(stem) else f"{stem[:size]}…" for stem, size in zip(stems, sizes, strict=True))
        return "/".join(f"{stem}{number}" for stem, number in zip(cut, numbers, strict=True))

    while len(text()) > width and max(sizes) > 1:
        longest = sizes.index(max(sizes))
        sizes[longest] -= 2 if sizes[longest] == len(stems[longest]) and sizes[longest] > 2 else 1  # "…" takes one
    return text()
