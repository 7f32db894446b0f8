"""Mappings that other programs found and their authors published, priced by this project's cost function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.process import ROOT
from common.design_space.accelerator.hardware import Hardware, Level
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.mapping.cost import cost
from common.design_space.mapping.mappings import parse_mappings
from common.design_space.mapping.traffic import Nests
from common.workload.loop_nests import LoopNest

FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class PublishedMapping:
    """A mapping of a peer, and its product in pJ·cycles by our price; ``fits`` is whether its tiles fit."""

    peer: str
    problem: str
    nest: LoopNest
    edp: float
    fits: bool


def accelerator(given: dict[str, Any]) -> Hardware:
    """Return Gemmini with the memories, energies and bandwidths of the published mappings."""
    gemmini = load_hardware("gemmini", ROOT / "configs" / "hardware").resized(capacity_kib=given["kib"])
    levels = tuple(_level(level, given) for level in gemmini.levels)
    return replace(gemmini, levels=levels, array=replace(gemmini.array, mac_pj=given["mac_pj"]), rtl=None)


def _level(level: Level, given: dict[str, Any]) -> Level:
    words = given["words_per_cycle"].get(level.name)
    return replace(
        level,
        base_pj_per_byte=given["pj_per_word"][level.name] / level.word_bytes,
        slope_pj_per_byte_per_kib=0.0,
        block_words=1,
        bytes_per_cycle=None if words is None else words * level.word_bytes,
        bandwidth_of="copy",
    )


def published_mappings() -> tuple[Hardware, list[PublishedMapping]]:
    """Return the accelerator, and the mappings of the file with their prices on it."""
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    hardware = accelerator(content["accelerator"])
    return hardware, [*_priced(content["mappings"], hardware)]


def _priced(rows: list[dict[str, Any]], hardware: Hardware) -> Iterator[PublishedMapping]:
    for row in rows:
        nest = LoopNest(**row["nest"])
        found = cost(parse_mappings([row["mapping"]], hardware), Nests.of([nest]), hardware)
        edp = float((np.asarray(found.cycles) * np.asarray(found.energy_pj))[0])
        yield PublishedMapping(row["peer"], row["problem"], nest, edp, bool(np.asarray(found.fits)[0]))
