"""The rules of ``configs/bottlenecks.yaml``: the subjects of a rule, its conditions, and its remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.files.configuration import Section
from common.messages.names import quoted, similar_names

# What a rule can be about: see :mod:`common.bottlenecks.subjects`.
ABOUT = ("node", "all_nodes", "island", "pattern", "border", "run", "npu_node", "npu_run")
TESTS = ("is", "is_not", "below", "above")
Facts = Mapping[str, Mapping[str, object]]  # figures of any column, by table

# Figures that rules may name besides the columns of the tables: what follows from them, by the table it is of.
_CAUSES = ("other_process", "own_thread", "unnamed_process", "hypervisor", "page_fault", "none_recorded")
_WAITS = {
    "vtcm_acquire": "for VTCM",
    "accelerator_wait": "on the accelerator: its time less the time without waiting",
    "rpc": "in the remote call: its time less the device's part",
}
OF_NODES = {
    "unpadded_share": "op_roofline: macs over executed_macs",
    "roof_us": "op_roofline: the time of the node at its roof, at most its own",
    "fastest_share": "op_latency: corrected_min_us over corrected_median_us",
    "is_fallback": "op_latency: whether the CPU ran the node of a session on another provider",
    "result_axis_count": "op_latency: axes of the first result",
    "one_thread_share": "latency_summary: 1 over its threads",
}
OF_GROUPS = {
    "node_count": "nodes of the subject",
    "node_count_share": "node_count over all executed nodes",
    "freed_gap_us": "time between nodes that goes with the subject's nodes",
    "overhead_share": "times of the nodes and freed_gap_us, over the median",
    "match_count": "matches of a pattern",
    "operand_node_count": "executed_edges: nodes that the first node of a match reads",
    "enclosed_count": "executed_edges: nodes of an island",
    "enclosed_types": "executed_edges: operator types of an island with their counts",
    "tensor_count": "executed_edges: tensors from one provider to another",
}
OF_RUNS = {
    "early_median_us": "run_latency: median of the faster runs before a slowdown",
    "early_share": "run_latency: early_median_us over the median",
    "clock": "host_samples: the quantity of clock_share",
    "clock_share": "host_samples: mean clock during the runs over the highest one seen",
    "throttled_by": "host_samples: the reason of throttled_share",
    "throttled_share": "host_samples: share of the samples in the runs with reduced clocks, of the commonest reason",
    **{
        f"{kind}_faults_per_run_count": "os_events: page faults of a run after the warm-up"
        for kind in ("minor", "major")
    },
    **{f"{cause}_run_count": "run_disturbances: slow runs of this cause" for cause in _CAUSES},
    **{f"{cause}_excess_us": "run_disturbances: what this cause took of the mean run" for cause in _CAUSES},
}
OF_NPUS = {
    "dram_bytes": "npu_nodes: bytes read from DRAM and written there",
    "dram_bytes_share": "npu_nodes: dram_bytes over those of all nodes",
    **{f"{unit}_op_share": "npu_nodes: HTP operators that use the unit over all" for unit in ("hvx", "hmx", "dma")},
    "contraction_count": "npu_nodes: convolutions and matrix products, by qnn_op_type",
    **{f"{name}_us": f"npu_runs: wait {text}, median; _low and _high are the ends" for name, text in _WAITS.items()},
    **{f"{name}_share": f"npu_runs: wait {text}, over the run" for name, text in _WAITS.items()},
    **dict.fromkeys(
        ("hvx_utilization_percent", "hmx_utilization_percent", "vtcm_peak_usage_kb", "ddr_bandwidth_mbps"),
        "npu_summary",
    ),
}
DERIVED_FIGURES = {**OF_NODES, **OF_GROUPS, **OF_RUNS, **OF_NPUS}


@dataclass(frozen=True, slots=True)
class Condition:
    fact: str
    test: str
    against: tuple[object, ...] | float  # words of is and is_not, or a number

    def holds(self, value: object) -> bool:
        """Return whether a figure passes; an unknown figure does not, nor a word in place of a number."""
        if value is None:
            return False
        if isinstance(self.against, tuple):
            return (value in self.against) == (self.test == "is")
        if not isinstance(value, int | float):
            return False
        return value < self.against if self.test == "below" else value > self.against

    def __str__(self) -> str:
        words = ", ".join(map(str, self.against)) if isinstance(self.against, tuple) else f"{self.against:g}"
        return f"{self.fact} {self.test.replace('_', ' ')} {words}"


Chain = tuple[frozenset[str], ...]  # operator types that follow one another


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        select: conditions on a node (for patterns, on the first node of the chain) that make it a subject.
        when: conditions on a subject that make it a finding.
        kept: the time that each node of the subject would take after the best remedy: a share of its time, or the name
            of a figure, which is a share, or a time if its name ends in _us.
        gain_from: figure of the subject that states the largest gain, if it is not the time of a node.
        stays: for patterns, the position in the chain of the node that stays; None: no node stays.
        evidence: figures that are shown besides those of the conditions.
    """

    name: str
    about: str
    select: tuple[Condition, ...]
    when: tuple[Condition, ...]
    kept: float | str | None
    gain_from: str
    frees_gap: bool
    chains: tuple[Chain, ...]
    stays: int | None
    is_open: bool
    evidence: tuple[str, ...]
    hazard: str
    remedy: str
    source: str

    @property
    def facts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(condition.fact for condition in self.when), *self.evidence)))

    @property
    def named(self) -> set[str]:
        kept = {self.kept} if isinstance(self.kept, str) else set()
        gain = {f"{self.gain_from}_us"} if self.gain_from else set()
        return {*(condition.fact for condition in self.select), *self.facts, *kept, *gain}


def figure(facts: Facts, name: str) -> object:
    return next((row[name] for row in facts.values() if name in row), None)


def number(facts: Facts, name: str) -> float | None:
    """Return a figure that is a finite number, or None."""
    value = figure(facts, name)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def meets(facts: Facts, conditions: tuple[Condition, ...]) -> bool:
    return all(condition.holds(figure(facts, condition.fact)) for condition in conditions)


def read_rules(file: Section, columns: Iterable[str]) -> tuple[Rule, ...]:
    """Read all rules of a file, whose figures must be columns of the tables or ``DERIVED_FIGURES``."""
    rules, known = file.section("rules"), {*columns, *DERIVED_FIGURES}
    read = tuple(_rule(rules.section(name), name) for name in rules)
    for rule in read:
        for name in sorted(rule.named - known):
            similar = ", ".join(similar_names(name, known)) or "docs/ARTIFACTS.md has the columns"
            raise rules.section(rule.name).error(
                "", f"names no figure of a table: {quoted(name)}", f"similar: {similar}"
            )
    file.close()
    return read


def _rule(section: Section, name: str) -> Rule:
    about = section.choice("about", ABOUT)
    return Rule(
        name=name,
        about=about,
        select=_conditions(section, "select"),
        when=_conditions(section, "when"),
        kept=_kept(section),
        gain_from=section.text("gain_from") if "gain_from" in section else "",
        frees_gap=section.switch("frees_gap", default=False),
        chains=_chains(section) if about == "pattern" else (),
        stays={"first": 0, "last": -1, "none": None}[section.choice("stays", ("first", "last", "none"))]
        if about == "pattern"
        else None,
        is_open=section.switch("is_open", default=False),
        evidence=_words(section, "evidence") if "evidence" in section else (),
        hazard=section.text("hazard"),
        remedy=section.text("remedy"),
        source=section.text("source"),
    )


def _kept(section: Section) -> float | str | None:
    if "kept" not in section:
        return None
    if isinstance(section.value("kept"), str):
        return section.text("kept")
    if not 0 <= (share := section.number("kept")) <= 1:
        raise section.error("kept", f"is {share:g}", "give 0 to 1, or the name of a figure")
    return share


def _conditions(section: Section, key: str) -> tuple[Condition, ...]:
    if key not in section:
        return ()
    tests = section.section(key)
    return tuple(_condition(tests.section(fact), fact) for fact in tests)


def _condition(section: Section, fact: str) -> Condition:
    test = next((test for test in TESTS if test in section), None)
    if test is None:
        raise section.error("", "has no test", f"give one of {', '.join(TESTS)}")
    if test in ("is", "is_not"):
        value = section.value(test)
        return Condition(fact, test, tuple(value) if isinstance(value, list) else (value,))
    section.origin()  # a threshold without a source is refused
    return Condition(fact, test, section.number(test))


def _words(section: Section, key: str) -> tuple[str, ...]:
    words = section.entries(key)
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise section.error(key, "is not a list of names")
    return tuple(words)


def _chains(section: Section) -> tuple[Chain, ...]:
    chains = tuple(
        tuple(frozenset(step.strip().split("|")) for step in text.split(">")) for text in _words(section, "chains")
    )
    if any(len(chain) < 2 or any("" in step for step in chain) for chain in chains):
        raise section.error("chains", "holds what is no chain", "write operators like Conv > Relu|Clip")
    return chains
