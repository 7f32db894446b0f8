"""Figures of a generation: each token with the work and bytes of its call, each phase with its shares of the roofs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from common.generation.decoder import Decoder
from common.generation.loop import GenerationPlan, Token
from common.generation.phases import DECODE, PREFILL, PartWork, moved_bytes
from common.graphs.grouping import grouped
from common.graphs.sums import product, ratio, total
from common.latency.statistics import estimate_columns, percentile
from common.table_rows import GenerationPhasesRow, GenerationRow, GenerationSummaryDocument

# Figures of the longest decode that the summary repeats.
OF_DECODE = (
    *("token_p50_us", "token_p50_low_us", "token_p50_high_us", "tokens_per_s", "joules_per_token_j", "bound"),
    *("arithmetic_intensity_flop_per_byte", "attained_bytes_per_s", "memory_roof_share", "compute_roof_share"),
)


@dataclass(frozen=True, slots=True)
class HostRates:
    """The peak, the memory bandwidth and the mean power of the host; None is unknown."""

    peak_flop_per_s: float | None = None
    memory_bytes_per_s: float | None = None
    average_power_w: float | None = None


def phase(token: Token) -> str:
    """Return the phase of a call: decode if tokens are before it, and for each step of a loop of states."""
    return DECODE if token.call.past or token.chosen is None else PREFILL


def generation_rows(
    tokens: Sequence[Token], decoder: Decoder, work: PartWork, plan: GenerationPlan
) -> list[GenerationRow]:
    return [
        {
            "answer_index": token.answer,
            "token_index": token.index,
            "is_warmup": plan.is_warmup(token.answer),
            "generation_phase": phase(token),
            "past_token_count": token.call.past,
            "new_token_count": token.call.new,
            "token_us": token.time_us,
            "sampling_us": token.sampling_us,
            "token_id": token.chosen,
            "macs": decoder.at(work.macs, token.call),
            "flops": decoder.at(work.flops, token.call),
            "weight_bytes": decoder.at(work.weight_bytes, token.call),
            "cache_bytes": decoder.at(work.cache_bytes, replace(token.call, room=None)),
            "bytes": moved_bytes(decoder, work, token.call),
        }
        for token in tokens
    ]


# --- phases -----------------------------------------------------------------------------------------------------------


def phase_figures(
    rows: Sequence[GenerationRow], plan: GenerationPlan, rates: HostRates, sequences: int = 1
) -> list[GenerationPhasesRow]:
    """Return the calls of each phase of each answer under the roofs of the host, in the order of the answers.

    Every one of a call's ``sequences`` takes and gives tokens.
    """
    groups = grouped(((plan.place(row["answer_index"]), row["generation_phase"]), row) for row in counted(rows))
    return [_phase_row(place, of_phase, rates, sequences) for (place, _), of_phase in groups.items()]


def counted(rows: Sequence[GenerationRow]) -> Sequence[GenerationRow]:
    """Return the tokens after the warm-up, or all tokens if a failure left only those of the warm-up."""
    return [row for row in rows if not row["is_warmup"]] or rows


def _phase_row(place: int, rows: Sequence[GenerationRow], rates: HostRates, sequences: int) -> GenerationPhasesRow:
    """Return the figures of the calls of one phase: sums over sums; bytes are compulsory traffic."""
    first, count = rows[0], len(rows)
    taken = count * first["new_token_count"] * sequences
    time_s = sum(row["token_us"] for row in rows) / 1e6
    flops, moved = total(row["flops"] for row in rows), total(row["bytes"] for row in rows)
    compute_s, memory_s = ratio(flops, rates.peak_flop_per_s), ratio(moved, rates.memory_bytes_per_s)
    roof_s = None if compute_s is None or memory_s is None else max(compute_s, memory_s)
    times_us = np.array([row["token_us"] for row in rows])
    row = {
        "length_index": place,
        "generation_phase": first["generation_phase"],
        "past_token_count": first["past_token_count"],
        "new_token_count": first["new_token_count"],
        "phase_call_count": count,
        "token_mean_us": float(times_us.mean()),
        **estimate_columns("token_p50", percentile(times_us, 0.5)),
        "sampling_us": float(np.median([row["sampling_us"] for row in rows])),
        "tokens_per_s": taken / time_s if time_s else None,
        "macs": _mean([row["macs"] for row in rows]),
        "weight_bytes": first["weight_bytes"],
        "cache_bytes": rows[-1]["cache_bytes"],
        "arithmetic_intensity_flop_per_byte": ratio(flops, moved),
        "attained_flop_per_s": ratio(flops, time_s),
        "attained_bytes_per_s": ratio(moved, time_s),
        "compute_roof_share": ratio(compute_s, time_s),
        "memory_roof_share": ratio(memory_s, time_s),
        "bound": None if roof_s is None else "compute" if roof_s == compute_s else "memory",
        "joules_per_token_j": ratio(product((rates.average_power_w, time_s)), taken),
    }
    return cast("GenerationPhasesRow", row)


def _mean(counts: Sequence[int | None]) -> int | None:
    whole = total(counts)
    return None if whole is None else round(whole / len(counts))


# --- summary ----------------------------------------------------------------------------------------------------------


def generation_summary(
    rows: Sequence[GenerationRow], phases: Sequence[GenerationPhasesRow], plan: GenerationPlan, threads: int
) -> GenerationSummaryDocument:
    """Return the time to the first token of the longest prompt, and the time per token after the longest past."""
    first = _longest(phases, PREFILL, "new_token_count")
    later = _longest(phases, DECODE, "past_token_count")
    of_prompt = (first["length_index"], PREFILL) if first else None
    answers = counted(rows)
    prompts = [row for row in answers if (plan.place(row["answer_index"]), row["generation_phase"]) == of_prompt]
    first_us = np.array([row["token_us"] for row in prompts])
    last = later or first
    of_decode = {name: later[name] if later else None for name in OF_DECODE}  # type: ignore[literal-required]
    figures = {
        "threads": threads,
        "prompt_token_count": first["new_token_count"] if first else None,
        "answer_token_count": max(answer.count for answer in plan.answers),
        "answer_count": len({row["answer_index"] for row in answers}),
        "first_token_us": float(first_us.mean()) if prompts else None,
        "first_token_low_us": float(first_us.min()) if prompts else None,
        "first_token_high_us": float(first_us.max()) if prompts else None,
        "weight_bytes": last["weight_bytes"] if last else None,
        "cache_bytes": last["cache_bytes"] if last else None,
        **of_decode,
    }
    return cast("GenerationSummaryDocument", figures)


def _longest(phases: Sequence[GenerationPhasesRow], phase: str, length: str) -> GenerationPhasesRow | None:
    of_phase = [row for row in phases if row["generation_phase"] == phase]
    return max(of_phase, key=lambda row: row[length], default=None)  # type: ignore[literal-required]
