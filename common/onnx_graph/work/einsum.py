"""Einstein sums: any equation, contracted pairwise from left to right, as ONNX Runtime does.

Before two operands meet, each is reduced to the labels that another operand or the result still needs: a repeated label
to its diagonal (a view), a label that nothing else has to its sum (additions, no MACs). The product of two reduced
operands is one MAC for each combination of their labels. So ``ij,jk->ik`` is a matrix product, ``ij->ji`` and
``ii->i`` have no MACs and no FLOPs, and ``ij->i`` has additions only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from common.graphs.graph import Count
from common.onnx_graph.work.registry import Cost, Gemm, Operation, broadcast, formula

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Equation:
    """The labels of each operand and of the result, and the extent of each label."""

    operands: tuple[Labels, ...]
    result: Labels
    extents: Mapping[str, Count]

    def size(self, labels: Sequence[str]) -> Count:
        return prod(self.extents[label] for label in labels)


def _parsed(operation: Operation) -> Equation:
    """Read an equation: spaces are ignored, an ellipsis means leading axes that broadcast."""
    shapes = [operation.shape(index) for index in range(len(operation.inputs))]
    left, arrow, right = operation.text("equation", "").replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise operation.malformed(f"its equation has {len(terms)} terms for {len(shapes)} operands")
    operands = tuple(tuple(_labels(term, len(shape))) for term, shape in zip(terms, shapes, strict=True))
    extents: dict[str, Count] = {}
    for labels, shape in zip(operands, shapes, strict=True):
        if len(labels) != len(shape):
            raise operation.malformed(
                f"its equation has {len(labels)} labels for an operand of {len(shape)} dimensions"
            )
        for label, extent in zip(labels, shape, strict=True):
            extents[label] = broadcast(extents.get(label, 1), extent)
    covered = max((sum(label.isdigit() for label in labels) for labels in operands), default=0)
    result = tuple(_labels(right, None, covered)) if arrow else _implicit(left, covered)
    if unknown := set(result) - extents.keys():
        raise operation.malformed(f"its result has labels that no operand has: {', '.join(sorted(unknown))}")
    return Equation(operands, result, extents)


def _labels(term: str, rank: int | None, covered: int = 0) -> Iterator[str]:
    """Return one label per axis; the axes of an ellipsis are numbered from the right, the last one is ``0``."""
    before, ellipsis, after = term.partition("...")
    yield from before
    if ellipsis:
        width = covered if rank is None else rank - len(before) - len(after)
        yield from (str(place) for place in reversed(range(width)))
    yield from after


def _implicit(left: str, covered: int) -> Labels:
    """Return the result's labels without an arrow: the ellipsis, then the letters that occur once, in order."""
    letters = Counter(character for character in left if character.isalpha())
    once = sorted(letter for letter, count in letters.items() if count == 1)
    return (*(str(place) for place in reversed(range(covered))), *once)


@formula("Einsum")
def count_einsum(operation: Operation) -> Cost:
    """Count the MACs of the products of pairs, and one FLOP per element that is summed before a product."""
    equation = _parsed(operation)
    macs, flops, gemm = 0, 0, None
    current: Labels = ()
    for place, labels in enumerate(equation.operands):
        later = equation.operands[place + 1 :]
        needed = {*equation.result, *(label for labels in later for label in labels)}
        added = tuple(dict.fromkeys(labels))
        if place == 0:
            current, additions = _reduce(equation, added, needed)
        else:
            added, additions = _reduce(equation, added, {*needed, *current})
            gemm = _product(equation, current, added, needed)
            macs += gemm.batch * gemm.m * gemm.k * gemm.n
            current = tuple(label for label in dict.fromkeys((*current, *added)) if label in needed)
        flops += additions
    return Cost(macs, flops, gemm if len(equation.operands) == 2 else None)


def _reduce(equation: Equation, labels: Labels, needed: set[str]) -> tuple[Labels, Count]:
    """Sum an operand over the labels that nothing needs; return the other labels and the FLOPs, one per element."""
    kept = tuple(label for label in labels if label in needed)
    return kept, equation.size(labels) if len(kept) < len(labels) else 0


def _product(equation: Equation, left: Labels, right: Labels, needed: set[str]) -> Gemm:
    """Return the product of two operands. Labels of both are the batch if needed later, else they are summed."""
    both = [label for label in left if label in right]
    return Gemm(
        equation.size([label for label in both if label in needed]),
        equation.size([label for label in left if label not in right]),
        equation.size([label for label in both if label not in needed]),
        equation.size([label for label in right if label not in left]),
    )
