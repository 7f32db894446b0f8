"""A decoder on a card as text: one sentence in tokens per second, and a line for each format and cut."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from common.messages.host_doubts import OTHER_HOST
from common.table_rows import DecodePlansRow, DecodeSummaryDocument
from common.view.tables import Table, TableColumn
from common.view.text import duration, joules, percent, quantity, significant, span

UJ_PER_J = 1e6


def _rate(row: DecodePlansRow) -> str:
    likely, low, high = row["planned_tokens_per_s"], row["planned_low_tokens_per_s"], row["planned_high_tokens_per_s"]
    return "" if likely is None or low is None or high is None else f"{significant(likely)} ({span(low, high)})"


PLANS: Table[DecodePlansRow] = Table(
    TableColumn("weights", lambda row: row["weight_format"]),
    TableColumn("prefill", lambda row: row["prefill_side"]),
    TableColumn("decode", lambda row: row["decode_side"]),
    TableColumn("memory", lambda row: quantity(row["card_resident_bytes"], "B")),
    TableColumn("first token", lambda row: duration(row["planned_first_token_likely_us"])),
    TableColumn("tokens/s", _rate),
    TableColumn("answer", lambda row: duration(row["planned_answer_likely_us"])),
    TableColumn("J/token", lambda row: joules(energy_j * UJ_PER_J) if (energy_j := row["card_token_likely_j"]) else ""),
    TableColumn("verdict", lambda row: row["verdict"] if row["fits_memory"] else "does not fit", is_left=True),
)


def decode_sentence(summary: DecodeSummaryDocument) -> str:
    """Return the host's rate with what bounds it, and the card's rate with its interval and the verdict."""
    host_rate, card_rate = summary["host_tokens_per_s"], summary["planned_tokens_per_s"]
    host, planned = duration(summary["host_answer_us"]), duration(summary["planned_answer_likely_us"])
    if host_rate is None or card_rate is None:
        return f"an answer of one token takes {host} on the host and {planned} with a {summary['board']}"
    share = summary["memory_roof_share"] if summary["bound"] == "memory" else None
    bound = f", bound by weight traffic at {percent(share, 0)} of memory bandwidth" if share else ""
    if summary["decode_side"] == "host":
        card, accuracy = f"with its prompts on a {summary['board']}, an answer takes {planned} instead of {host}", ""
    else:
        low, high = summary["planned_low_tokens_per_s"], summary["planned_high_tokens_per_s"]
        ends = f" ({span(low, high)})" if low and high else ""
        card = f"a {summary['board']} in {summary['weight_format']}: {significant(card_rate)}{ends}"
        accuracy = f"; accuracy in {summary['weight_format']} not judged"
    return f"{significant(host_rate)} tokens/s{bound}; {card}, {summary['verdict']}{accuracy}"


def decode_report(rows: Sequence[DecodePlansRow], summary: DecodeSummaryDocument) -> str:
    """Return the sentence, the whole answer, and a line for each format and cut."""
    answer = (
        f"prompt of {summary['planned_prompt_count']}, answer of {summary['planned_output_count']}: "
        f"{duration(summary['host_answer_us'])} on the host, {duration(summary['planned_answer_likely_us'])} planned"
    )
    if (gain := summary["speedup_p50_factor"]) is not None:
        low, high = summary["speedup_p5_factor"], summary["speedup_p95_factor"]
        answer += f", {significant(gain)}x" + (f" ({span(low, high)})" if low and high else "")
    return "\n".join((decode_sentence(summary), answer, *_prompt_lines(rows, summary), PLANS.text(rows)))


def _prompt_lines(rows: Sequence[DecodePlansRow], summary: DecodeSummaryDocument) -> Iterator[str]:
    """Yield the time of a prompt on the card, the kernels that compute it with their regions, and those of tokens."""
    of_format = [row for row in rows if row["weight_format"] == summary["weight_format"]]
    if row := next((row for row in of_format if row["prefill_engines"]), None):
        likely = duration(row["planned_first_token_likely_us"])
        low, high = map(duration, (row["planned_first_token_optimistic_us"], row["planned_first_token_pessimistic_us"]))
        placed = zip(row["prefill_engines"].split(), row["prefill_regions"].split(), strict=True)
        engines = ", ".join(f"{engine} ({region})" for engine, region in placed)
        yield f"prompt on the card: {likely} ({low} to {high}) on {engines}"
    if kernel := next((row["decode_engine"] for row in of_format if row["decode_engine"]), None):
        yield f"tokens on the card: on {kernel}, an engine for each port of the memory but one"


def _beyond_prompts(length: int, measured: Collection[int]) -> list[str]:
    low, high = min(measured, default=length), max(measured, default=length)
    if low <= length <= high:
        return []
    span = f"{low}" if low == high else f"{low} to {high}"
    least = ", and at least that of a token" if length < low else ""
    return [
        f"the host was measured with prompts of {span} tokens, and this one has {length}: its time is in proportion to "
        f"the length{least}"
    ]


def decode_notes(
    rows: Sequence[DecodePlansRow], summary: DecodeSummaryDocument, prompts: Collection[int] = ()
) -> list[str]:
    """Return what the plan leaves out, and where it goes beyond what was measured (``prompts``: lengths that were)."""
    of_host = " for it; run <generation_summary> there, and plan with its tables"
    notes = [f"{doubt}: no plan is judged{of_host * doubt.startswith(OTHER_HOST)}" for doubt in summary["doubts"]]
    notes += _beyond_prompts(summary["planned_prompt_count"], prompts)
    last = summary["planned_prompt_count"] + summary["planned_output_count"] - 2
    if last > summary["measured_length_count"]:
        notes.append(
            f"the host was measured up to {summary['measured_length_count']} tokens in the caches, and the answer ends "
            f"at {last}: its times beyond are a line through the measured ones"
        )
    of_prompts = [row for row in rows if row["prefill_side"] == "card" and row["token_link_bytes"]]
    no_array = ((row["board"], row["weight_format"]) for row in of_prompts if not row["prefill_engines"])
    notes += [
        f"a prompt on the {board} in {name} has the time of published decoders: no array of this project is for it, or "
        "none fits beside the kernel of decode"
        for board, name in dict.fromkeys(no_array)
    ]
    of_tokens = [row for row in rows if row["fits_memory"] and row["decode_side"] == "card"]
    no_kernel = ((row["board"], row["weight_format"]) for row in of_tokens if not row["decode_engine"])
    notes += [
        f"the {board} has no room for engines on all ports of the memory but one in {name}: published decoders with "
        "fewer lanes give the time of a token"
        for board, name in dict.fromkeys(no_kernel)
    ]
    unfit = dict.fromkeys(row["weight_format"] for row in rows if not row["fits_memory"])
    for name in unfit:
        row = next(row for row in rows if row["weight_format"] == name)
        need, room = quantity(row["card_resident_bytes"], "B"), quantity(row["card_memory_bytes"], "B")
        notes.append(f"in {name}, weights and caches take {need}, and the {row['board']} has {room}")
    if crossing := next((row for row in rows if row["token_link_bytes"]), None):
        sent, scores_us = crossing["token_link_bytes"], crossing["logits_link_us"]
        others = f"; all scores would take {duration(scores_us)} more" if scores_us else ""
        notes.append(f"the card chooses the token, so {sent} bytes cross the link for each{others}")
    return notes
