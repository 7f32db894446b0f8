"""Plant causes of slowness in models, and count which of them 09 finds first, and whether mending gains what it says.

Run by ``make check-findings``; no test depends on it. Each pair is a model with a planted cause and a twin that was
mended by hand. 01 to 03 and 09 look at the first one, and both run in turn. A model of a pair that should
return the same as its twin must do so. Models without a cause should have no finding. What 09 finds of the host (its
clocks, other work, cold caches) is left out.

The last table says which share of the greatest possible gain mending gained, by rule: ``realized`` of
configs/bottlenecks.yaml holds it, from three quarters of the least share to five quarters of the largest. Held out: the
same interval from the other pairs of the rule.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.planted.causes import PLANTED, Plant
from benchmarks.planted.experiment import Gain, Outcome, Settings, confirmed, findings, run
from benchmarks.planted.forms import FORMS, as_built
from benchmarks.planted.sound import SOUND
from benchmarks.process import ROOT
from common.artifacts.columns import COLUMNS
from common.bottlenecks.rules import Rule, read_rules
from common.files.configuration import Section

RULES = ROOT / "configs" / "bottlenecks.yaml"
WIDENED = (0.75, 1.25)  # from the least share that mends gained, to the largest one
THREADS = (1, 2)
UNSTEADY = frozenset({"unsteady_nodes", "pool_imbalance"})  # what other work on the host does
DISTURBED, NO_DOUBTS = "not judged, the host was disturbed: ", "[]"
SILENT = 3  # but for errors
AGREES = 0.02  # of the largest element: sums in another order, and fp16


def same_results(models: tuple[onnx.ModelProto, onnx.ModelProto], sizes: Mapping[str, int]) -> bool:
    """Return whether both models return the same on one random input."""
    results = []
    options = ort.SessionOptions()
    options.log_severity_level = SILENT
    for model in models:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        given = session.get_inputs()[0]
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in given.shape]
        kind = np.float16 if given.type == "tensor(float16)" else np.float32
        values = np.random.default_rng(5).uniform(-1, 1, shape).astype(kind)
        results.append(np.asarray(session.run(None, {given.name: values})[0], np.float64))
    return bool(np.abs(results[0] - results[1]).max() <= AGREES * max(1e-9, np.abs(results[0]).max()))


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _interval(gain: Gain) -> str:
    return f"{_us(gain.likely_us)} ({_us(gain.low_us)} to {_us(gain.high_us)})"


def line(plant: Plant, outcome: Outcome) -> str:
    """Return a row of the table in Markdown: times in us."""
    rank = "not found" if outcome.rank is None else f"{outcome.rank}{', near miss' if outcome.is_near_miss else ''}"
    inside = {True: "yes", False: "no", None: "–"}[outcome.is_inside]
    cells = (
        *(plant.rule, plant.name, rank if outcome.rank == 1 else f"{rank} (first: {outcome.first or 'nothing'})"),
        *(_us(outcome.median_us), _interval(outcome.predicted), _interval(outcome.measured), inside),
    )
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| rule | planted | rank | latency | predicted gain (interval) | measured gain (interval) | inside |\n"
    "|---|---|---|---:|---:|---:|---|"
)


def realized_shares(outcomes: Iterable[tuple[Plant, Outcome]], rules: Mapping[str, Rule]) -> dict[str, list[float]]:
    """Return by the rule that predicted it which share of the greatest possible gain each mend gained."""
    shares: dict[str, list[float]] = {}
    for _, outcome in outcomes:
        predicted, measured = outcome.predicted.likely_us, outcome.measured.likely_us
        if predicted and measured is not None:
            of_rule = shares.setdefault(outcome.found_by, [])
            of_rule.append(measured * rules[outcome.found_by].realized.likely / predicted)
    return shares


def bounds(shares: Sequence[float]) -> tuple[float, float]:
    return min(1.0, max(0.0, WIDENED[0] * min(shares))), WIDENED[1] * max(0.0, *shares, 0.0)


def shares_text(shares: Mapping[str, Sequence[float]]) -> str:
    """Return the shares by rule, with their interval, and how many of them the intervals of the others hold."""
    lines, held, judged = ["| rule | pairs | low | likely | high |", "|---|---:|---:|---:|---:|"], 0, 0
    for rule, of_rule in shares.items():
        low, high = bounds(of_rule)
        likely = min(max(0.0, statistics.median(of_rule)), 1.0)  # nobody expects more than the greatest possible gain
        lines.append(f"| {rule} | {len(of_rule)} | {low:.2f} | {likely:.2f} | {high:.2f} |")
        for place, share in enumerate(of_rule) if len(of_rule) > 1 else ():
            low, high = bounds([*of_rule[:place], *of_rule[place + 1 :]])
            held, judged = held + (low <= share <= high), judged + 1
    return "\n".join([*lines, f"held out: {held} of {judged} shares are inside the interval of the rule's other pairs"])


def summary(outcomes: Sequence[tuple[Plant, Outcome]]) -> str:
    first = sum(outcome.rank == 1 for _, outcome in outcomes)
    found = sum(outcome.rank is not None for _, outcome in outcomes)
    inside = [outcome.is_inside for _, outcome in outcomes if outcome.is_inside is not None]
    busy = sum(outcome.is_busy for _, outcome in outcomes)
    return (
        f"{len(outcomes)} pairs: the planted cause is first in {first} and found in {found}; the measured gain is "
        f"inside the predicted interval in {sum(inside)} of {len(inside)}; {busy} pairs on a busy host"
    )


def sound_report(folder: Path, settings: Settings) -> str:
    told = dict[str, str]()
    for index, (name, build) in enumerate(SOUND.items()):
        (own := folder / f"sound-{index}").mkdir(exist_ok=settings.is_measured)
        onnx.save(build(), own / "sound.onnx")
        rows = findings(own / "sound.onnx", own / "out", settings)
        found = [row for row in rows if row["is_near_miss"] != "True"]
        texts = [f"{row['finding']} {_us(float(row['gain_us'] or 0))}" for row in found]
        is_doubted = any(row["doubts"] != NO_DOUBTS for row in rows)
        told[name] = f"{DISTURBED if is_doubted else ''}{'; '.join(texts) or 'none'}"
        print(f"| {name} | {told[name]} |", flush=True)
    judged = [text for text in told.values() if not text.startswith(DISTURBED)]
    return f"{judged.count('none')} of {len(judged)} models without a cause have no finding on an undisturbed host"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="of each model; pairs have four times as many")
    parser.add_argument("--form", choices=[*FORMS], default="as built", help="of both models of each pair")
    parser.add_argument("--rule", action="append", help="only the pairs of a rule; repeatable")
    parser.add_argument("--after", type=int, default=0, metavar="N", help="leave the first N pairs out")
    parser.add_argument("--without-sound", action="store_true", help="leave the models without a cause out")
    parser.add_argument("--peak-flops", help="of the host (default: measured)")
    parser.add_argument("--mem-bw", help="of the host (default: measured)")
    parser.add_argument("--rules", type=Path, default=RULES)
    parser.add_argument("--keep", type=Path, help="folder for the tables of all measurements")
    parser.add_argument("--again", action="store_true", help="judge what --keep holds again, by 03 and 09 alone")
    options = parser.parse_args(argv)
    rules = {rule.name: rule for rule in read_rules(Section.of_file(options.rules), COLUMNS)}
    chosen = [plant for plant in PLANTED[options.after :] if not options.rule or plant.rule in options.rule]
    change = FORMS[options.form]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        of_host = frozenset(name for name, rule in rules.items() if rule.about == "run") | UNSTEADY
        settings = {
            threads: Settings(
                options.runs, threads, _ceilings(options, folder, threads), options.rules, of_host, options.again
            )
            for threads in THREADS
        }
        print(HEADER, flush=True)
        outcomes = list[tuple[Plant, Outcome]]()
        for plant in chosen:
            models = change(plant.build(mended=False)), change(plant.build(mended=True))
            if plant.returns_the_same and not same_results(models, plant.sizes):
                if change is as_built:
                    sys.exit(f"{plant.rule}, {plant.name}: the twin returns something else")
                print(f"| {plant.rule} | {plant.name} | left out: in this form the twin rounds to something else |")
                continue
            of_pair = folder / f"pair-{PLANTED.index(plant)}"
            own = settings[plant.threads]
            outcome = confirmed(plant.rule, models, of_pair, own, plant.optimization, plant.sizes)
            outcomes.append((plant, outcome))
            print(line(plant, outcome), flush=True)
        print(f"\n{summary(outcomes)}\n\n{shares_text(realized_shares(outcomes, rules))}\n", flush=True)
        if not options.without_sound:
            print(sound_report(folder, settings[1]))


def _ceilings(options: argparse.Namespace, folder: Path, threads: int) -> tuple[str, ...]:
    """Return the flags of 03: the ceilings that were given, or that 00 measures."""
    if options.peak_flops and options.mem_bw:
        return ("--peak-flops", options.peak_flops, "--mem-bw", options.mem_bw)
    out = folder / f"ceilings-{threads}"
    if not options.again:
        run("00_host_ceilings.py", "--threads", threads, "--out", out)
    return ("--ceilings", str(out / "host_ceilings.json"))


if __name__ == "__main__":
    main()
