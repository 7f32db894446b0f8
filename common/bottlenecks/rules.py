"""The rules of ``configs/bottlenecks.yaml``: what each one is about, when it holds, and what to do then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.bottlenecks.derived_figures import DERIVED_FIGURES
from common.configuration import Section
from common.names import quoted, similar_names

# What a rule can be about: see :mod:`common.bottlenecks.subjects`.
ABOUT = ("node", "all_nodes", "island", "pattern", "border", "run", "npu_node", "npu_run")
TESTS = ("is", "is_not", "below", "above")
Facts = Mapping[str, Mapping[str, object]]  # figures of any column, by table


@dataclass(frozen=True, slots=True)
class Condition:
    fact: str
    test: str
    against: tuple[object, ...] | float  # words of is and is_not, or a number

    def holds(self, value: object) -> bool:
        """Return whether a figure passes; an unknown one never does, nor a word that should be a number."""
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
        select: what a node must be like to belong to the rule's subjects; for patterns, the first node of the chain.
        when: what a subject must be like to be found.
        kept: what each node of the subject would keep of its time at best: a share, or the name of a figure, which is a
            share, or a time if its name ends in _us.
        gain_from: figure of the subject that is what mending it would gain at most, where no node's time is.
        stays: for patterns, the position in the chain of the node that stays; None: none does.
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
        for name in rule.named - known:
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
