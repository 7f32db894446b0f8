"""The answer in one sentence: what to offload and its gain, or that no offload pays, or why nothing is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from common.graphs.operators import CONTRACTIONS
from common.messages.names import listed
from common.table_rows import (
    FormatPrecisionRow,
    OffloadComparisonRow,
    OffloadPlanRow,
    OffloadVerdictRow,
    PrecisionMixturesRow,
    Tables,
)
from common.view.plan.answer.cases import HARDWARE, is_host_alone, is_not_judged, is_per_phase, probability, within
from common.view.plan.answer.precision_text import (
    NOT_JUDGED,
    SURVIVES,
    UNDECIDED,
    arithmetic_row,
    is_broken,
    is_on_samples,
    survival,
)
from common.view.text import significant

MOST_KERNELS = 3
EXACT_FORMAT = "fp32"  # the number format in which a plan changes no output
NAMED_BY_LETTERS = re.compile(r"[a-z]{1,3}\d+[a-z]?")  # u280, zcu104: vendors write such names in capitals
VOWELS = ("a", "e", "i", "o", "ul")  # Ultra96; U280 begins as `you` does


def headline(tables: Tables) -> str:
    """Return the answer in the verdict's own words; empty where there is no verdict."""
    verdicts = tables.get("offload_verdict", ())
    if not verdicts:
        return ""
    compared, plan = tables.get("offload_comparison", ()), tables.get("offload_plan", ())
    if is_not_judged(verdicts):
        doubts = verdicts[0]["doubts"]
        more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
        return f"{verdicts[0]['verdict'].capitalize()}: {doubts[0] if doubts else 'the reason is unknown'}{more}"
    where = _where(compared, plan)
    if is_host_alone(verdicts):
        return f"Nothing is worth offloading{where}{_at_most(compared)}"
    latency = next(row for row in verdicts if row["objective"] == "latency")
    if broken := _broken(tables, latency, where):
        return broken
    answer = _offload(latency, f"{_what(plan)}{where}") + _accuracy(tables)
    if any(row["alternative"] == "plan" and is_per_phase(row) for row in compared):
        return f"Only with {HARDWARE}: {answer[0].lower()}{answer[1:]}"
    return answer


def _offload(row: OffloadVerdictRow, plan: str) -> str:
    likely, odds = row["likely"], row["pays_probability"]
    if likely is None or odds is None:
        return f"Undecided whether to offload {plan}: the speedup is unknown"
    advice = {"pays": "Offload", "does not pay": "Do not offload"}.get(row["verdict"], "Undecided whether to offload")
    speed = f"{significant(likely, 2)}x {'faster' if likely >= 1 else 'as fast'}"
    return f"{advice} {plan}: {speed}, 90 % within {within(row, 2)}, pays with probability {probability(odds)}"


def _what(plan: Sequence[OffloadPlanRow]) -> str:
    """Return the operators that the kernels compute, the slowest on the host first: ``53 Conv, 1 Gemm``."""
    slowest = sorted(plan, key=lambda row: -row["host_latency_us"])
    return listed((f"{row['group_count']} {'/'.join(operator_counts(row))}" for row in slowest), MOST_KERNELS)


def operator_counts(row: OffloadPlanRow) -> Counter[str]:
    """Return how many groups of a kernel each operator is the head of."""
    return Counter(_head(pattern) for pattern, count in row["pattern_counts"].items() for _ in range(count))


def _head(pattern: str) -> str:
    """Return the contraction that a pattern is named after, or its first operator."""
    parts = pattern.split("+")
    if "Softmax" in parts and parts.count("MatMul") > 1:
        return "attention"
    return next((op_type for op_type in parts if op_type in CONTRACTIONS), parts[0])


def _where(compared: Sequence[OffloadComparisonRow], plan: Sequence[OffloadPlanRow]) -> str:
    """Return board and number format from the plan's own row, which exists even if nothing moves to the card."""
    row = next(iter([*compared[:1], *plan[:1]]), None)
    if row is None:
        return ""
    wider = f" and {compared[0]['wider_precision']}" if compared and compared[0]["wider_precision"] else ""
    return f" to {board_name(row['board'])} in {row['precision']}{wider}"


def board_name(board: str) -> str:
    """Return the name of a board with its article, as in ``a U280``."""
    name = board.upper() if NAMED_BY_LETTERS.fullmatch(board) else board[:1].upper() + board[1:]
    return f"{'an' if board.lower().startswith(VOWELS) else 'a'} {name}"


def _at_most(compared: Sequence[OffloadComparisonRow]) -> str:
    """Return the likely speedup that no plan exceeds, by the proven bound."""
    bound = next((row["latency_speedup_factor"] for row in compared if row["alternative"] == "proven bound"), None)
    return "" if bound is None else f": at most {significant(bound)}x"


def _accuracy(tables: Tables) -> str:
    """Return what the kernels' number format does to the outputs, or that nobody judged it, if it changes them."""
    name, row = _judgement(tables)
    if name in ("", EXACT_FORMAT):
        return ""
    return f"; {survival(row) if row is not None and is_on_samples(row) else NOT_JUDGED}"


def _judgement(tables: Tables) -> tuple[str, FormatPrecisionRow | PrecisionMixturesRow | None]:
    """Return the number format of the kernels, and how it was judged: by its mixture where some layers are wider."""
    kernels, plan = tables.get("offload_plan", ()), next(iter(tables.get("offload_comparison", ())), None)
    if not kernels:
        return "", None
    if plan is None or not plan["wider_precision"]:
        name = kernels[0]["precision"]
        return name, arithmetic_row(tables.get("format_precision", ()), name)
    mixtures = tables.get("precision_mixtures", ())
    return plan["precision"], next((row for row in mixtures if row["is_written_model"]), None)


def _broken(tables: Tables, latency: OffloadVerdictRow, where: str) -> str:
    """Return that the format of the plan breaks the model, and which other format pays; empty where it does not."""
    rows, compared = tables.get("format_precision", ()), tables.get("offload_comparison", ())
    _, broken = _judgement(tables)
    if broken is None or not is_broken(broken) or latency["likely"] is None:
        return ""
    speed = f"{significant(latency['likely'], 2)}x{where} is worth nothing"
    others = {
        row["precision"]: row["latency_speedup_factor"]
        for row in compared
        if row["precision"] != broken["number_format"] and (row["latency_speedup_factor"] or 0.0) > 1
    }
    kept = [
        f"{name} pays {significant(gain, 2)}x"
        for name, gain in others.items()
        if gain
        and (
            name == EXACT_FORMAT
            or ((row := arithmetic_row(rows, name)) and row["format_verdict"] in (SURVIVES, UNDECIDED))
        )
    ]
    return "; ".join([f"{broken['number_format']} breaks the model: {survival(broken)}, so {speed}", *kept])
