"""The time of a token over the length of the caches, measured and on a card, each with its roof; the caches below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.table_rows import DecodeLengthsRow, DecodeSummaryDocument, GenerationRow, GenerationSummaryDocument
from common.view.style import BLUE, GREEN, label_log, new_figure
from common.view.text import duration, quantity, significant

MS, MB = 1e-3, 1e-6
MOST_MARKERS = 10_000  # more of them become one image in an SVG


def draw_generation(
    tokens: Sequence[GenerationRow],
    summary: GenerationSummaryDocument | None,
    lengths: Sequence[DecodeLengthsRow] = (),
    plan: DecodeSummaryDocument | None = None,
) -> Figure | None:
    """Draw each token after the warm-up, and the card in the format of the best plan; None without a second token."""
    decode = [row for row in tokens if row["generation_phase"] == "decode"]
    decode = [row for row in decode if not row["is_warmup"]] or decode
    if not decode:
        return None
    on_card = [row for row in lengths if plan and row["weight_format"] == plan["weight_format"]]
    rate = memory_rate(summary)
    figure = new_figure(_title(decode, rate, on_card, plan), _subtitle(rate, on_card))
    room = {"left": 0.09, "right": 0.97, "bottom": 0.1, "top": 0.83, "hspace": 0.12}
    times, caches = figure.subplots(2, height_ratios=(3, 1), gridspec_kw=room)
    _draw_times(times, decode, rate, on_card)
    _draw_caches(caches, decode, on_card)
    end = max(row["past_token_count"] for row in (*decode, *on_card))
    for axes in (times, caches):
        axes.set_xlim(0, max(1, end) * 1.03)
        axes.grid(visible=True, which="major")
    times.tick_params(labelbottom=False)
    return figure


def memory_rate(summary: GenerationSummaryDocument | None) -> float | None:
    """Return the bandwidth of the host's memory that the generation was compared with, in byte/s; None if unknown."""
    if summary is None or not summary["memory_roof_share"] or summary["attained_bytes_per_s"] is None:
        return None
    return summary["attained_bytes_per_s"] / summary["memory_roof_share"]


def _draw_times(
    axes: Axes, decode: Sequence[GenerationRow], rate: float | None, on_card: Sequence[DecodeLengthsRow]
) -> None:
    past = [row["past_token_count"] for row in decode]
    is_image = len(decode) > MOST_MARKERS
    times_ms = [row["token_us"] * MS for row in decode]
    axes.plot(past, times_ms, "o", label="host, measured", markersize=3, color=BLUE, alpha=0.6, rasterized=is_image)
    of_length = {row["past_token_count"]: row["bytes"] for row in decode if row["bytes"]}
    if rate and of_length:
        roof = sorted(of_length.items())
        _draw_roof(axes, [at for at, _ in roof], [moved / rate * 1e3 for _, moved in roof], BLUE, "host's roof")
    if on_card:
        lengths = [row["past_token_count"] for row in on_card]
        slow = [(row["planned_token_pessimistic_us"] or 0.0) * MS for row in on_card]
        fast = [(row["planned_token_optimistic_us"] or 0.0) * MS for row in on_card]
        axes.fill_between(lengths, fast, slow, color=GREEN, alpha=0.15)
        likely = [(row["planned_token_likely_us"] or 0.0) * MS for row in on_card]
        axes.plot(lengths, likely, color=GREEN, linewidth=1.6, label="card, planned")
        _draw_roof(axes, lengths, [row["memory_roof_us"] * MS for row in on_card], GREEN, "card's roof")
    axes.set(ylabel="time per token (ms)", yscale="log")
    label_log(axes.yaxis)
    axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(-0.01, 1.0), borderpad=0)


def _draw_roof(axes: Axes, lengths: Sequence[int], times_ms: Sequence[float], colour: str, label: str) -> None:
    axes.plot(lengths, times_ms, color=colour, linestyle=(0, (2, 1)), linewidth=1.2, label=label)


def _draw_caches(axes: Axes, decode: Sequence[GenerationRow], on_card: Sequence[DecodeLengthsRow]) -> None:
    held = sorted({row["past_token_count"]: row["cache_bytes"] or 0 for row in decode}.items())
    axes.plot([at for at, _ in held], [size * MB for _, size in held], color=BLUE)
    if on_card:
        sizes = [row["card_cache_bytes"] * MB for row in on_card]
        axes.plot([row["past_token_count"] for row in on_card], sizes, color=GREEN)
    axes.set(xlabel="tokens in the caches before the call", ylabel="caches (MB)")
    axes.set_ylim(bottom=0)


def _title(
    decode: Sequence[GenerationRow],
    rate: float | None,
    on_card: Sequence[DecodeLengthsRow],
    plan: DecodeSummaryDocument | None,
) -> str:
    last = max(row["past_token_count"] for row in decode)
    of_last = [row for row in decode if row["past_token_count"] == last]
    time_us = sum(row["token_us"] for row in of_last) / len(of_last)
    text = f"A token after {last} others takes {duration(time_us)}"
    if rate and (moved := of_last[0]["bytes"]):
        text += f", {significant(time_us / (moved / rate * 1e6))} times what the memory's bandwidth allows"
    if plan and plan["planned_tokens_per_s"] and plan["decode_side"] == "card":
        planned = f"{duration(1e6 / plan['planned_tokens_per_s'])} on average over the planned answer"
        if (at_length_us := _planned_us(on_card, last)) is not None:
            planned = duration(at_length_us)
        text += f"; on a {plan['board']} in {plan['weight_format']} {planned}"
    return text


def _planned_us(on_card: Sequence[DecodeLengthsRow], past: int) -> float | None:
    """Return the likely time of a token on the card after so many, between planned lengths; None beyond them."""
    curve = sorted((row["past_token_count"], row["planned_token_likely_us"] or 0.0) for row in on_card)
    if not curve or not curve[0][0] <= past <= curve[-1][0]:
        return None
    lengths, times_us = zip(*curve, strict=True)
    return float(np.interp(past, lengths, times_us))


def _subtitle(rate: float | None, on_card: Sequence[DecodeLengthsRow]) -> str:
    roof = f"host's roof: its bytes at {quantity(rate, 'B/s')}" if rate else "no roof: the host's bandwidth is unknown"
    card = ["card without launch and link, 90 % of designs within the band"] if on_card else []
    return " · ".join(["every token after the warm-up", roof, *card])
