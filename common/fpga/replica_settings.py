"""Reader of configs/replicas.yaml: which arrays may have pumped DSPs, and how many frames one array takes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.files.configuration import Section
from common.intervals import ThreePoint


@dataclass(frozen=True, slots=True)
class Pumping:
    """DSPs that run faster than their array.

    Attributes:
        dsp_cycles: cycles of a DSP in one cycle of the array.
        clock_share: share of the board's clock at which such arrays run on a full card.
    """

    dsp_cycles: int
    clock_share: ThreePoint


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Content of configs/replicas.yaml; ``pumped`` is by number format."""

    pumped: Mapping[str, Pumping]
    most_frames: int


def read_replicas(file: Section) -> ReplicaSettings:
    """Read configs/replicas.yaml.

    Raises:
        ConfigurationError: a key is missing or unknown, or a number is unusable or has no source.
    """
    pumped = file.section("pumped")
    settings = ReplicaSettings(
        {precision: _pumping(pumped.section(precision)) for precision in pumped}, file.count("most_frames")
    )
    file.close()
    return settings


def _pumping(section: Section) -> Pumping:
    return Pumping(section.count("dsp_cycles"), section.constant("clock_fraction").as_rate())
