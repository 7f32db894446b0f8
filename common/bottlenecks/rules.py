"""The rules of ``configs/bottlenecks.yaml``: the subjects of a rule, its conditions, and its remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from common.files.configuration import Constant, Section
from common.messages.names import quoted, similar_names

# What a rule can be about: see :mod:`common.bottlenecks.subjects`.
ABOUT = ("kind", "all_nodes", "chain", "island", "pattern", "border", "run", "npu_node", "npu_run")
GAIN_SHARE = "gain_share"  # the likely gain over the median
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
    "unpadded_share": "op_roofline: macs over executed_macs; unknown without macs",
    "roof_us": "op_roofline: the time of the node at its roof, at most its own",
    "is_normalization": "op_roofline: whether a convolution computes a BatchNormalization and no convolution",
    "is_unblocked": "op_latency: whether a convolution over maps in fp32 is not in the runtime's blocked layout",
    "unblocked_roof_us": "op_roofline: roof_us of a convolution outside the blocked layout, and of no other node",
    "wide_roof_us": "op_roofline: roof_us of a node in fp64, and of no other node",
    "whole_block_us": "op_roofline: unblocked_roof_us with as many channels as whole blocks of 16 hold",
    "read_channel_count": "op_latency: channels that a convolution reads",
    "filled_share": "op_latency: read_channel_count over what whole blocks of 16 hold",
    "fastest_share": "op_latency: corrected_min_us over corrected_median_us",
    "is_fallback": "op_latency: whether the CPU ran the node of a session on another provider",
    "graph_optimization": "latency_summary",
    "is_at_border": "executed_edges: whether the node reads no other one, or the model returns its result",
    "one_thread_share": "latency_summary: 1 over its threads",
}
OF_GROUPS = {
    GAIN_SHARE: "the likely gain over the median",
    "unfused_share": "executed_edges: bytes of a chain's nodes that are no tensors between them, over all their bytes",
    "merged_bytes": "op_roofline: constants of a chain of sums and products that its other constants could hold",
    "between_bytes": "executed_edges: bytes that the nodes of a chain write for one another, and read again",
    "node_count": "nodes of the subject",
    "node_count_share": "node_count over all executed nodes",
    "freed_gap_us": "time between nodes that goes with the subject's nodes",
    "match_count": "matches of a pattern",
    "operand_node_count": "executed_edges: nodes that the first node of a match reads",
    "enclosed_count": "executed_edges: nodes of an island",
    "enclosed_types": "executed_edges: operator types of an island with their counts",
    "tensor_count": "executed_edges: tensors from one provider to another",
}
OF_RUNS = {
    "first_run_excess_us": "latency_summary: first_run_us less the median",
    "first_run_share": "latency_summary: the median over first_run_us",
    "processor_count": "the host's logical processors",
    "threads_per_processor_share": "latency_summary: threads over processor_count",
    "unused_gpu": "host_samples: the domain of a GPU's sensor, where the session ran on the processor",
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
    """A test of one figure."""

    fact: str
    test: str
    against: tuple[object, ...] | float  # words of is and is_not, or a number
    near: float | None = None  # the number up to which a figure that fails is a near miss; None: there is no near miss

    @property
    def relaxed(self) -> Condition:
        """The condition that near misses fulfil as well."""
        return self if self.near is None else replace(self, against=self.near)

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
# Which share of the greatest possible gain a remedy reaches, where it was not measured.
UNMEASURED = Constant(0.0, 1.0, 1.0, "No remedy of this rule was measured.", "assumed")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    name: str
    about: str
    # Conditions on a node (for patterns, on the first node of the chain) that make it a subject
    select: tuple[Condition, ...]
    when: tuple[Condition, ...]  # conditions on a subject that make it a finding
    # The time that each node of the subject would take after the best remedy: a share of its time, or the name of a
    # figure, which is a share, or a time if its name ends in _us
    kept: float | str | None
    gain_from: str  # figure of the subject that states the largest gain, if it is not the time of a node
    realized: Constant  # which share of the greatest possible gain mends gained where that was measured
    frees_gap: bool
    chains: tuple[Chain, ...]
    stays: int | None  # for patterns, the position in the chain of the node that stays; None: no node stays
    stays_kept: str  # for patterns and islands, what nodes that stay would keep of their time; empty: all of it
    is_open: bool
    evidence: tuple[str, ...]  # figures that are shown besides those of the conditions
    hazard: str
    remedy: str
    source: str

    @property
    def facts(self) -> tuple[str, ...]:
        """Figures that are evidence; the gain has columns of its own."""
        tested = (condition.fact for condition in self.when if condition.fact != GAIN_SHARE)
        return tuple(dict.fromkeys((*tested, *self.evidence)))

    @property
    def relaxed(self) -> Rule:
        """The rule that finds its near misses as well."""
        select, when = (tuple(condition.relaxed for condition in conditions) for conditions in (self.select, self.when))
        return replace(self, select=select, when=when)

    @property
    def named(self) -> set[str]:
        kept = {name for name in (self.kept, self.stays_kept) if isinstance(name, str) and name}
        gain = {f"{self.gain_from}_us"} if self.gain_from else set()
        tested = (condition.fact for condition in (*self.select, *self.when))
        return {*tested, *self.facts, *kept, *gain}


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
        realized=section.constant("realized", positive=False) if "realized" in section else UNMEASURED,
        frees_gap=section.switch("frees_gap", default=False),
        chains=_chains(section) if about == "pattern" else (),
        stays={"first": 0, "last": -1, "none": None}[section.choice("stays", ("first", "last", "none"))]
        if about == "pattern"
        else None,
        stays_kept=section.text("stays_kept") if about in ("pattern", "island") and "stays_kept" in section else "",
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
    against, near = section.number(test), section.number("near") if "near" in section else None
    if near is not None and (near <= against if test == "below" else near >= against):
        raise section.error("near", f"is {near:g}", f"give a number that is {test} {against:g} no longer")
    return Condition(fact, test, against, near)


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
