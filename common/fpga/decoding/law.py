"""How long a card takes for one token of a decoder, and for a prompt, by what published decoders on FPGAs attain.

Decode has one row per product, so each weight and each cached key and value is read once per token. The engines are as
wide as the channels of the card's memory, and compute what they read as it comes (GEMV; Pope et al. 2022,
arXiv:2211.05102, section 2.1). A round is the products that read the same activations, such as the queries, keys and
values of a layer. Rounds follow each other: the sums of one drain before the next begins.

    token = max(read bytes / (memory rate · memory share), FLOPs / peak) + rounds · round time
    prompt = max(FLOPs / (peak · prompt share), token of the same bytes)

``memory share``, ``round time`` and ``prompt share`` are fitted to published decoders, each family with the same weight
(benchmarks/plans/decoders.py). The interval is that for a further family.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.files.configuration import Section
from common.fpga.kernels.estimate import TimeScatter, read_scatter, scattered
from common.intervals import ThreePoint


@dataclass(frozen=True, slots=True)
class DecodeLaw:
    """Content of configs/decoding.yaml."""

    memory_share: float  # share of the theoretical rate of the memory at which weights and caches are read
    round_us: float  # time between two rounds
    prompt_share: float  # share of the peak in int8 that a whole prompt attains
    token_scatter: TimeScatter  # how published times scatter around those of the law
    prompt_scatter: TimeScatter


@dataclass(frozen=True, slots=True)
class CardRates:
    """What bounds a decoder on a card."""

    memory_bytes_per_s: float  # theoretical rate of all channels
    token_flop_per_s: float  # peak of the engines of decode, whose activations stay in bf16
    prompt_flop_per_s: float  # peak of an array in int8


@dataclass(frozen=True, slots=True)
class CallDemand:
    """One call of a decoder: its MACs, the bytes of weights and caches that it reads, and its rounds of products."""

    macs: float
    read_bytes: float
    rounds: int


def token_us(law: DecodeLaw, rates: CardRates, call: CallDemand) -> float:
    """Return the likely time of a call for one token, in µs."""
    stream_s = call.read_bytes / (rates.memory_bytes_per_s * law.memory_share)
    return max(stream_s, 2 * call.macs / rates.token_flop_per_s) * 1e6 + call.rounds * law.round_us


def prompt_us(law: DecodeLaw, rates: CardRates, call: CallDemand) -> float:
    """Return the likely time of a call for a whole prompt, in µs: no prompt takes less than its last token alone."""
    of_array = 2 * call.macs / (rates.prompt_flop_per_s * law.prompt_share) * 1e6
    stream = call.read_bytes / (rates.memory_bytes_per_s * law.memory_share) * 1e6 + call.rounds * law.round_us
    return max(of_array, stream)


def token_cases_us(law: DecodeLaw, rates: CardRates, call: CallDemand) -> ThreePoint:
    """Return the time of a call for one token; no case is faster than the theoretical rate, or than the peak."""
    floor = max(call.read_bytes / rates.memory_bytes_per_s, 2 * call.macs / rates.token_flop_per_s) * 1e6
    return scattered(token_us(law, rates, call), law.token_scatter.band, floor)


def prompt_cases_us(law: DecodeLaw, rates: CardRates, call: CallDemand) -> ThreePoint:
    """Return the time of a call for a prompt; no case is faster than the theoretical rate, or than the peak."""
    floor = max(call.read_bytes / rates.memory_bytes_per_s, 2 * call.macs / rates.prompt_flop_per_s) * 1e6
    return scattered(prompt_us(law, rates, call), law.prompt_scatter.band, floor)


def read_law(file: Section) -> DecodeLaw:
    """Read configs/decoding.yaml; errors are those of :class:`Section`."""
    law = DecodeLaw(
        file.constant("memory_share").likely,
        file.constant("round_us").likely,
        file.constant("prompt_share").likely,
        read_scatter(file.section("token")),
        read_scatter(file.section("prompt")),
    )
    file.close()
    return law
