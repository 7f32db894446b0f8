"""What a decoder keeps in a card's memory, and reads of it for each call, with its weights in a given format.

The format is that of matrices alone (weight-only). Vectors of weights, the table of the embedding and the caches keep
at most 16 bits. What the file has in fewer bits stays as it is. Products that read the same activations are a round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from common.generation.decoder import CallSizes, Decoder
from common.generation.phases import HEAD, model_parts, valid_bytes
from common.graphs.expressions import at, sum_of
from common.graphs.graph import Count, Graph, Node, Tensor
from common.graphs.grouping import grouped
from common.graphs.operators import ATTENTION, MICROSOFT
from common.messages.errors import UnusableValueError
from common.onnx_graph.counts import NodeCount, count_nodes

# A scale of 16 bits for each 128 weights of 4 bits, as GPTQ and AWQ write it (Lin et al. 2024, arXiv:2306.00978).
WEIGHT_BITS: Mapping[str, float] = {"bf16": 16.0, "int8": 8.0, "int4": 4 + 16 / 128}
OTHER_BITS = 16.0
ONE_TOKEN = CallSizes(0, 1)
Key = TypeVar("Key", bool, float)
PROJECTED = ("Attention", MICROSOFT)  # the only attention that has the projections of its queries, keys and values


@dataclass(frozen=True, slots=True)
class ResidentCall:
    """One call on a card: MACs, bytes of weights and of caches that it reads."""

    macs: int
    weight_bytes: int
    cache_bytes: int

    @property
    def read_bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes


@dataclass(frozen=True)
class Resident:
    """A decoder whose weights and caches stay in a card's memory, in one format of the weights."""

    decoder: Decoder
    weight_format: str

    @cached_property
    def counts(self) -> Sequence[NodeCount]:
        return [count for count in count_nodes(self.decoder.model.graph, None) if not count.is_of_either]

    @cached_property
    def parts(self) -> Mapping[str, str]:
        return model_parts(self.decoder)

    @property
    def graph(self) -> Graph:
        return self.decoder.model.graph

    @cached_property
    def weight_bytes(self) -> int:
        """All weights, each once, with the whole table of the embedding."""
        shares = {name: self._share(count, name) for count in self.counts for name in self._weights(count.node)}
        sizes = {name: self.decoder.at(self.graph.tensors[name].size_bytes, ONE_TOKEN) or 0 for name in shares}
        return round(sum(sizes[name] * share for name, share in shares.items()))

    @cached_property
    def rounds(self) -> int:
        """Groups of products with weights that follow each other in one call."""
        products = (count.node for count in self.counts if self._is_product(count))
        computed = ([name for name in node.inputs if name and not self._is_constant(name)] for node in products)
        return len({names[0] for names in computed if names})

    def call(self, call: CallSizes) -> ResidentCall:
        """Return what a call computes and reads. The head computes the last token alone: an answer needs no other."""
        decoder = self.decoder
        macs = [decoder.at(of_part, call) or 0 for of_part in self._macs]
        read = sum((decoder.at(size, call) or 0) * share for share, size in self._reads.items())
        return ResidentCall(macs[0] + macs[1] // call.new, round(read), self.cache_bytes(call))

    @cached_property
    def _macs(self) -> tuple[Count, Count]:
        """MACs of all but the head, and of the head; UnusableValueError: those of a node depend on data."""
        names = ((count, count.node.name) for count in self.counts)
        sums = _sums((self.parts[name] == HEAD, _known(count.figure("macs"), name)) for count, name in names)
        return sums.get(False, 0), sums.get(True, 0)

    @cached_property
    def _reads(self) -> Mapping[float, Count]:
        """Bytes in the file that a call reads of all weights, by the share of them that stays on the card."""
        weights = ((count, name) for count in self.counts for name in self._weights(count.node))
        return _sums((self._share(count, name), _known(count.read_bytes(name), name)) for count, name in weights)

    def cache_bytes(self, call: CallSizes) -> int:
        """Return the bytes of all caches after a call, and of inputs that no call changes, such as an encoder's keys.

        Each token reads all of them.
        """
        grown = replace(call, room=None)
        return round(sum((self.decoder.at(size, grown) or 0) * share for share, size in self._caches.items()))

    @cached_property
    def _caches(self) -> Mapping[float, Count]:
        sizes = [(pair.present, valid_bytes(self.decoder, pair)) for pair in self.decoder.pairs]
        sizes += [(tensor, tensor.size_bytes) for tensor in self.decoder.still]
        return _sums((_kept(tensor, OTHER_BITS), _known(size, tensor.name)) for tensor, size in sizes)

    def logit_bytes(self) -> int:
        """Return the bytes of one token's scores in 16 bits; 0 for a model without scores."""
        shape = self.decoder.logits.shape if self.decoder.logits else None
        return int(at(shape[-1], self.decoder.sizes(ONE_TOKEN)) * OTHER_BITS / 8) if shape else 0

    def _weights(self, node: Node) -> Sequence[str]:
        return [name for name in node.inputs if name and self.graph.tensors[name].kind == "weight"]

    def _share(self, count: NodeCount, name: str) -> float:
        """Return the bytes of a weight on the card over those in the file."""
        tensor, is_matrix = self.graph.tensors[name], name in self._matrices
        wanted = WEIGHT_BITS[self.weight_format] if is_matrix else OTHER_BITS
        # The experts that a token chooses are a count of the call, and their bits per weight are the same in each call.
        packed, size = (self.decoder.at(one, ONE_TOKEN) for one in (count.work.dequantized, count.work.weight_bytes))
        if is_matrix and packed:
            return min(1.0, wanted / (8 * size / packed)) if size else 1.0
        return _kept(tensor, wanted)

    @cached_property
    def _matrices(self) -> Collection[str]:
        """Weights of products, dequantized or not; the rotary tables that attention reads are none."""
        read = {name for count in self.counts if self._is_product(count) for name in count.node.inputs if name}
        makers = [self.graph.by_name[maker] for name in read if (maker := self.graph.producer.get(name))]
        made = {name for node in makers if self._is_constant(node.outputs[0]) for name in node.inputs if name}
        return {name for name in read | made if len(self.graph.tensors[name].shape or ()) > 1}

    def _is_product(self, count: NodeCount) -> bool:
        node = count.node
        is_attention = node.op_type in ATTENTION and (node.op_type, node.domain) != PROJECTED
        weighs = any(self._is_constant(name) for name in node.inputs if name)
        return weighs and not is_attention and count.figure("macs") != 0

    def _is_constant(self, name: str) -> bool:
        """Return whether a tensor is a weight, or made of weights alone, such as a dequantized one."""
        maker = self.graph.producer.get(name)
        read = [name] if maker is None else filter(None, self.graph.by_name[maker].inputs)
        return all(self.graph.tensors[one].kind == "weight" for one in read)


def _sums(counts: Iterable[tuple[Key, Count]]) -> dict[Key, Count]:
    """Return the sum of the counts of each key."""
    return {key: sum_of(of_key) for key, of_key in grouped(counts).items()}


def _known(figure: Count | None, name: str) -> Count:
    if figure is None:
        problem = f"the work of {name} depends on data, so no time on a card follows"
        raise UnusableValueError("model", problem, "give sizes with <dim>")
    return figure


def _kept(tensor: Tensor, bits: float) -> float:
    """Return the share of a tensor's bytes that stays if its elements take at most so many bits."""
    return min(1.0, bits / tensor.element_bits) if tensor.element_bits else 1.0
