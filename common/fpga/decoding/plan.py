"""Plans of a decoder on a card: each format of the weights with each cut between host and card, and each length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from common.fpga.decoding.answer import CARD, CUTS, AnswerDemand, CutAnswer, HostAnswer, card_rates, cut_answer
from common.fpga.decoding.law import CallDemand, DecodeLaw, token_cases_us
from common.fpga.device.board import Board
from common.fpga.speedup.energy import CardEnergy, kernel_energy_uj
from common.fpga.speedup.totals import CardWork
from common.fpga.speedup.verdict import Judgement, judged
from common.intervals import ThreePoint, combine
from common.messages.errors import UnusableValueError
from common.table_rows import DecodeLengthsRow, DecodePlansRow, DecodeSummaryDocument

WITHOUT_HOST: Mapping[str, object] = dict.fromkeys(
    ("pays_probability", *(f"speedup_p{percent}_factor" for percent in (5, 25, 50, 75, 95)))
)
ARITHMETIC = "bf16"  # of activations and sums, whatever the format of the weights


@dataclass(frozen=True, slots=True)
class LengthDemand:
    """A call for one token after ``past`` ones: on the card, and on the host in µs."""

    past: int
    call: CallDemand
    cache_bytes: int
    host_us: float


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """The plan in one format of the weights."""

    weight_format: str
    demand: AnswerDemand
    lengths: Sequence[LengthDemand]
    cuts: Sequence[CutAnswer]  # one answer for each cut; none where weights and caches exceed the card's memory

    @property
    def fits(self) -> bool:
        return bool(self.cuts)


def decode_plans(
    law: DecodeLaw, board: Board, host: HostAnswer, demands: Mapping[str, tuple[AnswerDemand, Sequence[LengthDemand]]]
) -> list[DecodePlan]:
    """Return a plan for each format of the weights.

    Raises:
        UnusableValueError: weights and caches fit the card in none of the formats.
    """
    plans = []
    for weight_format, (demand, lengths) in demands.items():
        fits = demand.resident_bytes <= board.memory.capacity_bytes
        cuts = [cut_answer(law, board, demand, host, cut) for cut in CUTS if demand.tokens or cut.decode != CARD]
        plans.append(DecodePlan(weight_format, demand, lengths, cuts if fits else ()))
    if not any(plan.fits for plan in plans):
        least = min(plans, key=lambda plan: plan.demand.resident_bytes)
        problem = (
            f"weights in {least.weight_format} and caches take {least.demand.resident_bytes / 1e9:.3g} GB, and the "
            f"{board.name} has {board.memory.capacity_bytes / 1e9:.3g} GB"
        )
        raise UnusableValueError("board", problem, "give a board with more memory, a shorter answer or fewer bits")
    return plans


def best_of(plans: Sequence[DecodePlan]) -> tuple[DecodePlan, CutAnswer]:
    """Return the plan and the cut with the shortest likely answer."""
    every = [(plan, cut) for plan in plans for cut in plan.cuts]
    return min(every, key=lambda pair: pair[1].answer_us.likely)


# --- rows -------------------------------------------------------------------------------------------------------------


def plan_rows(
    plans: Sequence[DecodePlan],
    board: Board,
    law: DecodeLaw,
    host: HostAnswer,
    energy: CardEnergy,
    *,
    obstacle: Judgement | None = None,
) -> list[DecodePlansRow]:
    """Return a row for each format and cut; a format that does not fit has one row, without times.

    Where the host's times decide nothing, the verdict is the ``obstacle``, and no row has a gain.
    """
    best = best_of(plans)[1]
    rows = []
    for plan in plans:
        for cut in plan.cuts or (None,):
            row = _row(plan, cut, board, law, host, energy, is_best=cut is best)
            judged_row = {**row, "verdict": obstacle, **WITHOUT_HOST} if obstacle and cut else row
            rows.append(cast("DecodePlansRow", judged_row))
    return rows


def _row(
    plan: DecodePlan,
    cut: CutAnswer | None,
    board: Board,
    law: DecodeLaw,
    host: HostAnswer,
    energy: CardEnergy,
    *,
    is_best: bool,
) -> DecodePlansRow:
    demand = plan.demand
    token_us = mean_token_us(plan, cut, board, law, host) if cut else None
    on_card = cut is not None and cut.cut.decode == CARD
    prompt = demand.prompt_plan if cut and cut.cut.prefill == CARD else None
    watts_j = _token_energy_j(plan, board, energy, token_us) if token_us and on_card else None
    quantiles = cut.odds.quantiles if cut else (None,) * 5
    row = {
        "board": board.name,
        "weight_format": plan.weight_format,
        "prefill_side": cut.cut.prefill if cut else CARD,
        "decode_side": cut.cut.decode if cut else CARD,
        "fits_memory": plan.fits,
        "is_best_plan": is_best,
        # The kernels of each phase on the card; None for one on the host, or by published decoders.
        "prefill_engines": " ".join(prompt.engines) if prompt else None,
        "prefill_regions": " ".join(prompt.regions) if prompt else None,
        "decode_engine": demand.decode_engine if on_card else None,
        "card_resident_bytes": demand.resident_bytes,
        "card_memory_bytes": board.memory.capacity_bytes,
        **_cases("planned_first_token", "_us", cut.first_token_us if cut else None),
        **_cases("planned_token", "_us", token_us),
        **_rates(token_us),
        **_cases("planned_answer", "_us", cut.answer_us if cut else None),
        "host_answer_us": host.answer_us.likely,
        # The share of the host's answer that moves to the card is the fraction of Amdahl's law.
        "moved_share": host.answer_us_of(cut.cut, CARD).likely / host.answer_us.likely if cut else None,
        "answer_link_bytes": cut.link_bytes if cut else None,
        "token_link_bytes": cut.token_link_bytes if cut else None,
        "logits_link_us": demand.logit_bytes / board.link.bytes_per_s.likely * 1e6,
        **_cases("card_token", "_j", watts_j),
        "verdict": judged(cut.odds) if cut else "unknown",
        "pays_probability": cut.odds.pays_probability if cut else None,
        **{f"speedup_p{percent}_factor": each for percent, each in zip((5, 25, 50, 75, 95), quantiles, strict=True)},
    }
    return cast("DecodePlansRow", row)


def mean_token_us(
    plan: DecodePlan, cut: CutAnswer, board: Board, law: DecodeLaw, host: HostAnswer
) -> ThreePoint | None:
    """Return the mean time of a token after the first, launch and link included; None for an answer of one token."""
    count = len(plan.demand.tokens)
    if not count:
        return None
    if cut.cut.decode != CARD:
        return combine(lambda us: us / count, host.tokens_us)
    rates = card_rates(board)
    each = [token_cases_us(law, rates, call) for call in plan.demand.tokens]
    kernels = combine(lambda *us: sum(us) / count, *each)
    per_link = combine(lambda rate: cut.token_link_bytes / rate * 1e6, board.link.bytes_per_s)
    return combine(lambda *us: sum(us), kernels, board.launch_us, per_link)


def _token_energy_j(plan: DecodePlan, board: Board, energy: CardEnergy, token_us: ThreePoint) -> ThreePoint:
    """Return the energy of the card for a mean token: static power over its time, arithmetic and memory."""
    calls = plan.demand.tokens
    macs, read = (sum(getattr(call, name) for call in calls) / len(calls) for name in ("macs", "read_bytes"))
    work = CardWork({ARITHMETIC: round(2 * macs)}, round(read))
    return combine(lambda uj: uj / 1e6, kernel_energy_uj(work, token_us, board, energy))


def _cases(stem: str, unit: str, cases: ThreePoint | None) -> dict[str, float | None]:
    values = cases.cases if cases else (None, None, None)
    return {
        f"{stem}_{name}{unit}": one for name, one in zip(("pessimistic", "likely", "optimistic"), values, strict=True)
    }


def _rates(token_us: ThreePoint | None) -> dict[str, float | None]:
    names = ("planned_low_tokens_per_s", "planned_tokens_per_s", "planned_high_tokens_per_s")
    values = sorted(1e6 / us for us in token_us.cases) if token_us else [None] * 3
    return dict(zip(names, values, strict=True))


def length_rows(plans: Sequence[DecodePlan], board: Board, law: DecodeLaw) -> list[DecodeLengthsRow]:
    """Return the time of one token at each length, for each format that fits."""
    rates, rows = card_rates(board), []
    for plan in (plan for plan in plans if plan.fits):
        for length in plan.lengths:
            row = {
                "weight_format": plan.weight_format,
                "past_token_count": length.past,
                "host_token_us": length.host_us,
                **_cases("planned_token", "_us", token_cases_us(law, rates, length.call)),
                "memory_roof_us": length.call.read_bytes / rates.memory_bytes_per_s * 1e6,
                "card_read_bytes": round(length.call.read_bytes),
                "card_cache_bytes": length.cache_bytes,
            }
            rows.append(cast("DecodeLengthsRow", row))
    return rows


def summary_of(
    rows: Sequence[DecodePlansRow], host: HostAnswer, prompt: int, tokens: int, basis: Mapping[str, object]
) -> DecodeSummaryDocument:
    """Return the best plan beside the host, and what the host's own figures rest on."""
    best = next(row for row in rows if row["is_best_plan"])
    names = (
        *("board", "weight_format", "prefill_side", "decode_side", "planned_tokens_per_s", "planned_low_tokens_per_s"),
        *("planned_high_tokens_per_s", "planned_first_token_likely_us", "planned_answer_likely_us", "host_answer_us"),
        *("card_token_likely_j", "token_link_bytes", "verdict", "pays_probability", "speedup_p5_factor"),
        *("speedup_p50_factor", "speedup_p95_factor"),
    )
    later = max(tokens - 1, 0)
    figures = {
        **{name: best[name] for name in names},  # type: ignore[literal-required]
        "planned_prompt_count": prompt,
        "planned_output_count": tokens,
        "host_first_token_us": host.prompt_us.likely,
        "host_tokens_per_s": later / host.tokens_us.likely * 1e6 if later else None,
        **basis,
    }
    return cast("DecodeSummaryDocument", figures)
