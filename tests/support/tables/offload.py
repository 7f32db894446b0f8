"""Synthetic tables of 07 for the view: speedup, kernels, the timeline and the board."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import NormalDist
from typing import Any

import pandas as pd

from tests.support.tables.fpga import frame

# Per case (pessimistic, likely, optimistic), as shares of the former total.
KERNEL_SPEEDUP = {"latency": (0.7, 1.6, 3.1), "energy": (0.2, 0.5, 1.3)}
ADDED = {
    "latency": {"transfer": (0.005, 0.003, 0.002), "conversion": (0.003, 0.002, 0.001), "launch": (0.02, 0.011, 0.006)},
    "energy": {"transfer": (0.004, 0.003, 0.002), "host_idle": (0.02, 0.01, 0.003), "card_static": (0.4, 0.3, 0.2)},
}
HIDDEN = {"latency": {"overlap": (0.004, 0.003, 0.002)}, "energy": {}}
SPLIT = {"card_compute": 7 / 12, "card_memory": 4 / 12, "card_on_chip": 1 / 12}
MOVED = 0.6
WEAKER = "the card's energy is known less well: it is modelled, within a factor of 5.7"
Cases = Sequence[float | None]


def speedup(total_us: float, energy_uj: float) -> pd.DataFrame:
    """60 % moves, to kernels 0.7, 1.6 and 3.1 times as fast; a pipeline waits for the busier of both."""
    rows = _objective("latency", "us", total_us)
    extra = {
        "break_even_launch": ((None, 0.02 * total_us, 0.03 * total_us), "us"),
        "break_even_batch": ((None, 1.0, 1.0), "count"),
        "weight_load": ((5_003.0, 3_001.0, 2_003.0), "us"),
        "payback_runs": ((None, 2.0, 1.0), "count"),
    }
    rows += [_row("latency", term, values, unit) for term, (values, unit) in extra.items()]
    rows += _objective("energy", "uj", energy_uj)
    interval = [max(MOVED / s, 1 - MOVED) * total_us for s in KERNEL_SPEEDUP["latency"]]
    rate = [1e6 / each for each in interval]
    pipeline: dict[str, tuple[Cases, str]] = {
        "host_total": ((total_us,) * 3, "us"),
        "busy_host": (((1 - MOVED) * total_us,) * 3, "us"),
        "busy_engine": ([MOVED / s * total_us for s in KERNEL_SPEEDUP["latency"]], "us"),
        "new_total": (interval, "us"),
        "host_rate": ((1e6 / total_us,) * 3, "per_s"),
        "new_rate": (rate, "per_s"),
        "total_speedup": ([total_us / each for each in interval], "ratio"),
    }
    rows += [_row("throughput", term, values, unit) for term, (values, unit) in pipeline.items()]
    return frame("speedup", rows)


def verdicts(gains: pd.DataFrame, doubts: Sequence[str] = ()) -> pd.DataFrame:
    """The verdict on each objective of a speedup table, by hand."""
    rows = []
    for row in gains[gains["term"] == "total_speedup"].to_dict("records"):
        likely, odds = row["likely"], {} if doubts else distribution(row)
        chance = odds.get("pays_probability")
        word = "unknown" if chance is None else "pays" if chance >= 0.95 else "undecided"
        word = "not judged" if doubts else "does not pay" if chance is not None and chance <= 0.05 else word
        side = WEAKER if row["objective"] == "energy" and not pd.isna(likely) else ""
        host = {"is_judged": not doubts, "host_basis": "profiled", "judged_host": "AMD EPYC, as profiled"}
        rows.append({**row, **host, **odds, "verdict": word, "doubts": list(doubts), "weaker_side": side})
    return frame("offload_verdict", rows)


def distribution(row: dict[str, Any]) -> dict[str, float]:
    """A distribution three quarters as wide as the cases, with the likely value as its median."""
    low, likely, high = (row[case] for case in ("pessimistic", "likely", "optimistic"))
    if pd.isna(likely):
        return {}
    ends = [likely * (end / likely) ** 0.75 for end in (low, high)]
    at = {5: ends[0], 25: (ends[0] * likely) ** 0.5, 50: likely, 75: (ends[1] * likely) ** 0.5, 95: ends[1]}
    side = ends[0] if likely > 1 else ends[1]
    spread = abs(log(side / likely)) / NormalDist().inv_cdf(0.95)
    chance = NormalDist().cdf(log(likely) / spread) if spread else float(likely > 1)
    return {"pays_probability": chance} | {f"speedup_p{percent}_factor": value for percent, value in at.items()}


def uncertainty(*, is_judged: bool = True) -> pd.DataFrame:
    """Two terms for each objective; the efficiency of the kernels would decide the latency."""
    terms = (("efficiency of systolic kernels", 0.71, 0.97, 117.0), ("clock of the card", 0.23, 0.83, 11.0))
    rows = [
        {
            "objective": objective,
            "uncertain_term": term,
            "variance_share": share,
            "known_pays_probability": chance if is_judged else None,
            "information_value": saved if is_judged else None,
            "term_unit": "uj" if objective == "energy" else "us",
            "is_judged": is_judged,
        }
        for objective in ("latency", "energy", "throughput")
        for term, share, chance, saved in terms
    ]
    return frame("offload_uncertainty", rows)


def front(total_us: float) -> pd.DataFrame:
    """Plans for three objectives, and two inferences at once; the energy of the last is unknown."""
    plans = (
        ("latency", "one by one", 1, 1, (1.28, 0.788, 0.6), (1 / 1.28, 1 / 0.788, 1 / 0.6), 0.523, False),
        ("latency", "streaming", 1, 2, (1.28, 0.788, 0.6), (1.1, 2.0, 2.5), 0.4, True),
        ("throughput", "streaming", 1, 3, (1.5, 0.9, 0.7), (1.5, 3.1, 4.0), 0.39, True),
        ("energy", "streaming", 2, 6, (2.5, 1.5, 1.1), (1.4, 3.0, 3.9), None, False),
    )
    cases = ("pessimistic", "likely", "optimistic")
    rows = [
        {
            "objective": objective,
            "operation": operation,
            "inference_count": count,
            "in_flight_count": in_flight,
            "plan_status": "optimal",
            **{f"batch_latency_{case}_us": share * total_us for case, share in zip(cases, latency, strict=True)},
            **{f"{case}_inferences_per_s": 1e6 * share / total_us for case, share in zip(cases, rate, strict=True)},
            **{f"inference_energy_{case}_uj": energy and 1e5 * energy for case in cases},
            "engines": ["systolic-32x32x4-fp32"],
            "batch_call_count": 53,
            "is_on_front": is_on_front,
        }
        for objective, operation, count, in_flight, latency, rate, energy, is_on_front in plans
    ]
    return frame("offload_front", rows)


def _objective(objective: str, unit: str, total: float) -> list[dict[str, Any]]:
    kernel, added, hidden = KERNEL_SPEEDUP[objective], ADDED[objective], HIDDEN[objective]
    over = [sum(v[c] for v in added.values()) - sum(v[c] for v in hidden.values()) for c in range(3)]
    news = [1 - MOVED + MOVED / s + more for s, more in zip(kernel, over, strict=True)]
    split = SPLIT if objective == "energy" else {}
    parts = {name: [share * MOVED / s for s in kernel] for name, share in split.items()} | added | hidden
    cells: dict[str, tuple[Cases, str]] = {
        "host_total": ((total,) * 3, unit),
        "accelerated_fraction": ((MOVED,) * 3, "share"),
        "kernel_speedup": (kernel, "ratio"),
        **{name: ([total * value for value in values], unit) for name, values in parts.items()},
        "new_total": ([total * new for new in news], unit),
        "total_speedup": ([1 / new for new in news], "ratio"),
        "break_even_kernel_speedup": ((1.05, 1.02, 1.01), "ratio"),
    }
    return [_row(objective, term, values, unit) for term, (values, unit) in cells.items()]


def _row(objective: str, term: str, values: Cases, unit: str) -> dict[str, Any]:
    ends = dict(zip(("pessimistic", "likely", "optimistic"), values, strict=True))
    return {"objective": objective, "term": term, "term_unit": unit, **ends}


def plan(total_us: float) -> pd.DataFrame:
    """Two engines, for convolutions and for a Gemm."""
    convolutions = {"Conv+BatchNormalization+Relu": 36, "Conv+Add": 16}
    engines = (
        ("systolic-32x32x4-fp32", "systolic", "SLR0", convolutions, 52, 0.5, 2_048),
        ("streaming-16", "streaming", "board", {"Gemm": 1}, 1, 0.1, 160),
    )
    rows = [
        {
            "kernel": f"K{rank}",
            "engine": name,
            "engine_kind": kind,
            "pattern_counts": patterns,
            "board": "u280",
            "region": region,
            "precision": "fp32",
            "clock_mhz": 300.0,
            "group_count": count,
            "call_count": count,
            "host_latency_us": share * total_us,
            "host_latency_share": share,
            "host_energy_share": share,
            "board_bound": "compute",
            "kernel_latency_pessimistic_us": share * total_us / 0.7,
            "kernel_latency_likely_us": share * total_us / 1.6,
            "kernel_latency_optimistic_us": share * total_us / 3.1,
            "lut_count": 203_017.0,
            "ff_count": 301_003.0,
            "bram36_count": 211.5,
            "uram_count": 0.0,
            "dsp_count": float(dsp),
            "dsp_pessimistic_count": 1.1 * dsp,
            "dsp_likely_count": float(dsp),
            "dsp_optimistic_count": 0.9 * dsp,
            "clock_pessimistic_mhz": 249.0,
            "clock_likely_mhz": 300.0,
            "clock_optimistic_mhz": 300.0,
            "memory_channel_count": 16.0,
            "launch_count": count,
            "launch_us": 81.0 * count,
            "kernel_power_pessimistic_w": 131.0,
            "kernel_power_likely_w": 67.0,
            "kernel_power_optimistic_w": 43.0,
            "comment": "fuse BN/Relu; kernel 1.6x (likely); 100 % of its host time is on the critical path",
        }
        for rank, (name, kind, region, patterns, count, share, dsp) in enumerate(engines, start=1)
    ]
    return frame("offload_plan", rows)


def timeline() -> pd.DataFrame:
    """A stays, B (101 us) moves and takes 13 us of launch and 29 us there, C runs meanwhile, D follows."""
    spans = [
        ("before", "host", "host", "A", 0, 17),
        ("before", "host", "host", "B", 17, 118),
        ("before", "host", "host", "C", 118, 161),
        ("before", "host", "host", "D", 161, 172),
        ("after", "host", "host", "A", 0, 17),
        ("after", "h2d", "transfer", "a", 17, 22),
        ("after", "host", "host", "C", 17, 60),
        ("after", "convert-in", "conversion", "a", 22, 24),
        ("after", "array", "launch", "B", 24, 37),
        ("after", "array", "kernel", "B", 37, 66),
        ("after", "convert-out", "conversion", "b", 66, 69),
        ("after", "d2h", "transfer", "b", 69, 76),
        ("after", "host", "host", "D", 76, 87),
    ]
    columns = ("scenario", "lane", "activity", "item", "interval_start_us", "interval_finish_us")
    rows = [dict(zip(columns, span, strict=True)) | {"interval_index": index} for index, span in enumerate(spans)]
    return frame("offload_schedule", rows)


def board(used_dsp: float = 2_048) -> pd.DataFrame:
    """Three regions of 2,880 DSPs of which 2,733 are left and 2,186.4 close timing."""
    rows = []
    for rank, region in enumerate(("SLR0", "SLR1", "SLR2", "board")):
        times, used = (3, used_dsp) if region == "board" else (1, used_dsp if rank == 0 else 0)
        counts = {"lut": (101_003, 258_000, 369_000, 440_000), "dsp": (None, 2_186.4, 2_733, 2_880)}
        for resource, (taken, budget, usable, total) in counts.items():
            amount = used if taken is None else taken * (used > 0)
            amounts = (amount, times * budget, times * usable, times * total)
            rows.append(_use(region, resource, amounts))
    rows.append(_use("board", "memory_channels", (16, 32, 32, 32)))
    return frame("board_resources", rows)


def _use(region: str, resource: str, amounts: Sequence[float]) -> dict[str, Any]:
    names = ("used_count", "budget_count", "usable_count", "total_count")
    return {"board": "u280", "region": region, "resource": resource, **dict(zip(names, amounts, strict=True))}


def comparison(total_us: float) -> pd.DataFrame:
    """The plan takes 78.8 % of the time on the host."""
    finishes = (
        ("plan", "optimal", 0.788, (0.6, 1.28), 0.523),
        ("host alone", "", 1.0, None, None),
        ("greedy", "", 0.8, None, None),
        ("rule of thumb", "", 0.9, None, None),
        ("proven bound", "", 0.787, None, None),
        ("board=u50,precision=int8", "feasible", 0.5, (0.4, 0.7), 1.1),
    )
    rows = [
        {
            "alternative": name,
            "board": "u50" if "u50" in name else "u280",
            "precision": "fp32",
            "wider_precision": "",
            "clock_mhz": 300.0,
            "launch_per": "group",
            "plan_status": status,
            "plan_latency_pessimistic_us": ends and ends[1] * total_us,
            "plan_latency_likely_us": share * total_us,
            "plan_latency_optimistic_us": ends and ends[0] * total_us,
            "latency_speedup_factor": 1 / share,
            "energy_speedup_factor": energy,
        }
        for name, status, share, ends, energy in finishes
    ]
    return frame("offload_comparison", rows)
