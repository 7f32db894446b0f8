"""Fit the law of decoders on FPGAs to published rates, and count how many of them it holds, family by family left out.

    python -m benchmarks.plans.decoders

It prints the constants of configs/decoding.yaml, and fails if the file has others. Every family of designs has the same
weight, however many figures it published. *Left out* is the rate by constants that the other families give, and the
interval is that of the other families. Rates that were found later (``referees``) take no part and are compared alone.
The forms of the law are compared by the error of the families left out.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from statistics import fmean
from typing import Any

import numpy as np
from scipy.optimize import minimize

from benchmarks.kernels.coverage import Band, Spread, spread_of
from benchmarks.process import ROOT
from common.files.configuration import Section
from common.files.yaml_file import load_yaml
from common.fpga.coefficients import load_models
from common.fpga.decoding.law import CallDemand, CardRates, DecodeLaw, read_law, token_us
from common.fpga.decoding.prompt import CallWork, PromptPlan, prompt_plan
from common.fpga.device.board_files import load_board
from common.fpga.engine_catalogue import streaming
from common.fpga.kernels.dataflow.streaming import StreamingGemv
from common.fpga.kernels.estimate import TimeScatter
from common.intervals import ThreePoint
from common.workload.layers import Matmul, Rowwise
from common.workload.tasks import Task

CONFIG, BOARDS = ROOT / "configs" / "decoding.yaml", ROOT / "configs" / "boards"
PUBLISHED = ROOT / "benchmarks" / "plans" / "published_decoders.yaml"
NO_SCATTER = TimeScatter(ThreePoint.exactly(1.0), 0.0, 0.0, 1)
ROUNDS_PER_LAYER = 4  # queries, keys and values; their output; up and gate; down
HEAD_SIZE = 64
GEMV_FORMATS = {16: "bf16", 8: "int8", 4: "int4"}  # of weights, by their bits
TOLERANCE = 0.01  # of a constant in the configuration, which is rounded


@dataclass(frozen=True, slots=True)
class Published:
    """One published time of a token or of a prompt, beside what the design has to do for it on one of its cards."""

    family: str
    name: str
    time_us: float
    demand: CallDemand
    rates: CardRates
    measured: str

    @property
    def per_s(self) -> float:
        return 1e6 / self.time_us


@dataclass(frozen=True, slots=True)
class Form:
    """A form of the law: its time for given parameters, all of which are positive."""

    name: str
    start: tuple[float, ...]
    time_us: Callable[[Published, Sequence[float]], float]


def law_of(parameters: Sequence[float]) -> DecodeLaw:
    """Return a law by its share of the memory and its time of a round."""
    return DecodeLaw(parameters[0], parameters[1], 1.0, NO_SCATTER, NO_SCATTER)


def by_law(row: Published, parameters: Sequence[float]) -> float:
    return token_us(law_of(parameters), row.rates, row.demand)


FORMS = (
    Form("share", (0.5,), lambda row, values: by_law(row, (*values, 0.0))),
    Form("share + token", (0.7, 1000.0), lambda row, values: by_law(row, (values[0], 0.0)) + values[1]),
    Form("share + round", (0.7, 30.0), by_law),
)
CHOSEN = FORMS[-1]
PROMPT = Form(
    "share of the peak", (0.1,), lambda row, values: row.demand.macs * 2e6 / row.rates.prompt_flop_per_s / values[0]
)


def model_weights(model: Mapping[str, Any]) -> tuple[int, int]:
    """Return the weights of all layers and of the head, by the sizes of a model."""
    hidden, wide = model["hidden"], model["wide"]
    layer = hidden * (2 * hidden + 2 * model["keys"]) + (3 if model["gated"] else 2) * hidden * wide
    return model["layers"] * model.get("layer_weights", layer), hidden * model["vocabulary"]


def published_tokens(content: Mapping[str, Any], part: str = "rows") -> list[Published]:
    """Return the rates that are fitted, or those of ``referees``, which take no part."""
    return [_token(row, content["models"][row["model"]]) for row in content[part]]


def _token(row: Mapping[str, Any], model: Mapping[str, Any]) -> Published:
    cards, weights = row.get("cards", 1), sum(model_weights(model))
    weight_bytes = row["weight_gb"] * 1e9 if "weight_gb" in row else weights * row["weight_bits"] / 8
    cache_bytes = 2 * model["layers"] * model["keys"] * row["past"] * row["cache_bits"] / 8
    attention = 2 * model["layers"] * model["hidden"] * row["past"]
    demand = CallDemand(
        (weights + attention) / cards,
        (weight_bytes + cache_bytes) / cards,
        model.get("rounds_per_layer", ROUNDS_PER_LAYER) * model["layers"] + 1,
    )
    rates = CardRates(row["memory_gb_per_s"] * 1e9, float("inf"), float("inf"))
    return Published(row["family"], row["name"], _published_us(row), demand, rates, row["measured"])


def _published_us(row: Mapping[str, Any]) -> float:
    return float(row["token_ms"] * 1e3 if "token_ms" in row else 1e6 / row["tokens_per_s"])


def published_prompts(content: Mapping[str, Any]) -> list[Published]:
    return [_prompt(row, content["models"][row["model"]]) for row in content["prompts"]]


def _prompt(row: Mapping[str, Any], model: Mapping[str, Any]) -> Published:
    """A prompt passes the layers; the head computes its last token alone."""
    board, length = load_board(row["board"], BOARDS), row["prompt"]
    layers, head = model_weights(model)
    macs = layers * length + head + model["layers"] * model["hidden"] * length * length
    rates = CardRates(board.memory.bytes_per_s, float("inf"), board.peak_flop_per_s("int8"))
    demand = CallDemand(macs, 0, ROUNDS_PER_LAYER * model["layers"] + 1)
    name = f"{row['model']}, {row['board']}, prompt of {length}"
    return Published(row["family"], name, row["first_token_ms"] * 1e3, demand, rates, "board")


# --- fit --------------------------------------------------------------------------------------------------------------


def families(rows: Sequence[Published]) -> list[str]:
    return list(dict.fromkeys(row.family for row in rows))


def fit(form: Form, rows: Sequence[Published]) -> tuple[float, ...]:
    """Return the parameters with the least squares of log errors, each family with the same weight."""
    count = {family: sum(row.family == family for row in rows) for family in families(rows)}

    def loss(logs: np.ndarray) -> float:
        values = [exp(value) for value in logs]
        return sum(log(row.time_us / form.time_us(row, values)) ** 2 / count[row.family] for row in rows)

    found = minimize(
        loss,
        [log(value) for value in form.start],
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 10_000},
    )
    return tuple(exp(value) for value in found.x)


def ratios(form: Form, rows: Sequence[Published], values: Sequence[float]) -> dict[str, list[float]]:
    """Return published over predicted time, by family."""
    return {
        family: [row.time_us / form.time_us(row, values) for row in rows if row.family == family]
        for family in families(rows)
    }


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A family by constants and by the interval that the other families give."""

    family: str
    rows: Sequence[Published]
    ratios: Sequence[float]
    band: Band

    @property
    def held(self) -> int:
        return sum(ratio in self.band for ratio in self.ratios)

    @property
    def mean_error(self) -> float:
        """Mean of |published rate / predicted rate - 1|."""
        return fmean(abs(1 / ratio - 1) for ratio in self.ratios)


def around(spread: Spread) -> Band:
    """Return the interval around the law, whose residuals have no mean of their own."""
    return Band(exp(-spread.reach()), exp(spread.reach()))


def left_out(form: Form, rows: Sequence[Published]) -> list[LeftOut]:
    found = []
    for family in families(rows):
        others, own = ([row for row in rows if (row.family == family) == is_own] for is_own in (False, True))
        values = fit(form, others)
        spread = spread_of(ratios(form, others, values))
        found.append(LeftOut(family, own, [row.time_us / form.time_us(row, values) for row in own], around(spread)))
    return found


def refereed(law: DecodeLaw, rows: Sequence[Published]) -> list[LeftOut]:
    """Return rates that took no part in the law, by its configured constants and interval."""
    band = Band(law.token_scatter.band.optimistic, law.token_scatter.band.pessimistic)
    return [
        LeftOut(family, own, [row.time_us / token_us(law, row.rates, row.demand) for row in own], band)
        for family in families(rows)
        for own in [[row for row in rows if row.family == family]]
    ]


# --- the GEMV kernel of Vitis BLAS ------------------------------------------------------------------------------------


def by_gemv(content: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return published time over that of streaming GEMV kernels on all channels, by family."""
    models = load_models(CONFIG.parent)
    found: dict[str, list[float]] = {}
    for row in (row for row in content["rows"] if "gemv" in row):
        bits = row.get("weight_bits", 4)
        engine = streaming(load_board(row["gemv"][0], BOARDS), GEMV_FORMATS[bits], models, row["gemv"][1])
        time_us = gemv_us(engine, content["models"][row["model"]], row)
        found.setdefault(row["family"], []).append(_published_us(row) / time_us)
    return found


def gemv_us(engine: StreamingGemv, model: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """Return the likely time of all products of a token on one card, one after the other, with the caches."""
    hidden, wide, cards = model["hidden"], model["wide"], row.get("cards", 1)
    layer = [(hidden + 2 * model["keys"], hidden), (hidden, hidden), (hidden, wide)]
    layer.append(((2 if model["gated"] else 1) * wide, hidden))
    matrices = [*layer * model["layers"], (model["vocabulary"], hidden)]
    products = sum(engine.estimate_gemv(ceil(rows / cards), columns).time_us.likely for rows, columns in matrices)
    cache = 2 * model["layers"] * model["keys"] * row["past"] * row["cache_bits"] / 8 / cards
    return products + engine.ports.stream_cycles(cache) / engine.clock_mhz


# --- a prompt on an array of 07's model ------------------------------------------------------------------------------


def by_array(content: Mapping[str, Any]) -> list[tuple[str, float, PromptPlan]]:
    """Return each published prompt by name with its time, and the plan of the same prompt, which is fitted to none."""
    models, found = load_models(CONFIG.parent), []
    for row in content["prompts"]:
        model, board = content["models"][row["model"]], load_board(row["board"], BOARDS)
        plan = prompt_plan(CallWork(prompt_tasks(model, row["prompt"])), board, "int8", models)
        if plan is not None:
            name = f"{row['family']}, {row['model']}, {row['board']}, prompt of {row['prompt']}"
            found.append((name, row["first_token_ms"] * 1e3, plan))
    return found


def prompt_tasks(model: Mapping[str, Any], length: int) -> Counter[Task]:
    """Return the products of a prompt in int8: those of each layer, its attention, and the head for the last token."""
    hidden, wide, heads = model["hidden"], model["wide"], model["hidden"] // HEAD_SIZE

    def product(rows: int, inner: int, columns: int) -> Task:
        layers = (Matmul(rows, inner, columns),)
        return Task("", "gemm", layers, "int8", inner * columns, rows * inner, rows * columns)

    attention = (
        Matmul(length, HEAD_SIZE, length, heads, has_weight=False),
        Rowwise("Softmax", heads * length, length),
        Matmul(length, length, HEAD_SIZE, heads, has_weight=False),
    )
    layer = [
        product(length, hidden, hidden + 2 * model["keys"]),
        product(length, hidden, hidden),
        product(length, hidden, (2 if model["gated"] else 1) * wide),
        product(length, wide, hidden),
        Task("", "attention", attention, "int8", 0, 3 * length * hidden, length * hidden),
    ]
    return Counter({product(1, hidden, model["vocabulary"]): 1}) + Counter(layer * model["layers"])


# --- output -----------------------------------------------------------------------------------------------------------


def print_families(found: Sequence[LeftOut]) -> None:
    print(f"\n{'family':14} {'figure':34} {'measured':>10} {'published':>10} {'left out':>10} {'90 % within':>16}")
    for family in found:
        for row, ratio in zip(family.rows, family.ratios, strict=True):
            predicted = row.per_s * ratio
            ends = f"{predicted / family.band.high:.3g} to {predicted / family.band.low:.3g}"
            inside = "" if ratio in family.band else "  outside"
            figure = f"{row.family:14} {row.name:34} {row.measured:>10}"
            print(f"{figure} {row.per_s:10.3g} {predicted:10.3g} {ends:>16}{inside}")
    print(f"\n{'family':14} {'figures':>7} {'inside':>7} {'mean error':>11}")
    for family in found:
        print(f"{family.family:14} {len(family.rows):7} {family.held:7} {family.mean_error:11.0%}")
    share = fmean(family.held / len(family.rows) for family in found)
    error = fmean(family.mean_error for family in found)
    print(f"{'mean':14} {sum(len(f.rows) for f in found):7} {share:7.0%} {error:11.0%}")


def log_error(found: Sequence[LeftOut]) -> float:
    """Return the mean over families of the mean |ln(published / predicted)|, as a factor."""
    return exp(fmean(fmean(abs(log(ratio)) for ratio in family.ratios) for family in found))


def disagreements(law: DecodeLaw, values: Mapping[str, float]) -> list[str]:
    """Return what the configuration has otherwise than the fit."""
    scatters = {"token": law.token_scatter, "prompt": law.prompt_scatter}
    configured = {"memory_share": law.memory_share, "round_us": law.round_us, "prompt_share": law.prompt_share}
    for name, scatter in scatters.items():
        configured |= {f"{name}.high": scatter.band.pessimistic, f"{name}.low": scatter.band.optimistic}
        configured |= {f"{name}.family_sd": scatter.family_sd, f"{name}.design_sd": scatter.design_sd}
        configured |= {f"{name}.family_count": scatter.family_count}
    return [
        f"{name}: {configured[name]:g} in {CONFIG.name}, {value:.4g} by the fit"
        for name, value in values.items()
        if abs(configured[name] - value) > max(TOLERANCE * abs(value), 0.002)
    ]


def fitted(tokens: Sequence[Published], prompts: Sequence[Published]) -> dict[str, float]:
    """Return every constant of configs/decoding.yaml."""
    found: dict[str, float] = {}
    for name, form, rows in (("token", CHOSEN, tokens), ("prompt", PROMPT, prompts)):
        values = fit(form, rows)
        spread = spread_of(ratios(form, rows, values))
        found |= dict(zip(("memory_share", "round_us") if name == "token" else ("prompt_share",), values, strict=True))
        found |= {f"{name}.low": around(spread).low, f"{name}.high": around(spread).high}
        found |= {f"{name}.family_sd": spread.family_sd, f"{name}.design_sd": spread.design_sd}
        found |= {f"{name}.family_count": spread.family_count}
    return found


def main() -> int:
    content = load_yaml(PUBLISHED)
    tokens, prompts = published_tokens(content), published_prompts(content)
    for form in FORMS:
        found = left_out(form, tokens)
        held = fmean(family.held / len(family.rows) for family in found)
        print(f"{form.name:16} left out: factor {log_error(found):.2f} off in the mean, {held:.0%} inside")
    kernels = by_gemv(content)
    factor = exp(fmean(fmean(abs(log(ratio)) for ratio in of_family) for of_family in kernels.values()))
    print(f"{'GEMV kernels':16} not fitted: factor {factor:.2f} off in the mean; published over their time by family:")
    print("  " + ", ".join(f"{name} {exp(fmean(map(log, of_family))):.2f}" for name, of_family in kernels.items()))
    values = fitted(tokens, prompts)
    print("\n" + "\n".join(f"{name}: {value:.4g}" for name, value in values.items()))
    law = read_law(Section.of_file(CONFIG))
    print_families(left_out(CHOSEN, tokens))
    print("\nfound later, which took no part in any constant or interval; left out is by the constants of all others")
    print_families(refereed(law, published_tokens(content, "referees")))
    print_families(left_out(PROMPT, prompts))
    print(f"\n{'prompt on an array, not fitted':46} {'published':>10} {'planned':>10}")
    for name, published_us, plan in by_array(content):
        low, high = plan.time_us.optimistic, plan.time_us.pessimistic
        inside = "" if low <= published_us <= high else "  outside"
        planned = f"{plan.time_us.likely / 1e3:10.3g} {f'{low / 1e3:.3g} to {high / 1e3:.3g}':>16}"
        print(f"{name:46} {published_us / 1e3:10.3g} {planned} ms{inside}")
    problems = disagreements(law, values)
    print("\n".join(problems) or f"\n{CONFIG.name} has these constants")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
