"""Coefficients of all kernel models, of the card's energy and of replicas, read from the files of configs/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.files.configuration import Section
from common.fpga.kernels.dataflow.operators import DataflowCosts, read_dataflow
from common.fpga.kernels.dataflow.streaming import StreamingModel, read_streaming
from common.fpga.kernels.systolic.array_models import ResourceModels, read_systolic
from common.fpga.speedup.energy import CardEnergy, read_card_energy
from common.intervals import ThreePoint


@dataclass(frozen=True, slots=True)
class Pumping:
    """DSPs that run faster than their array."""

    dsp_cycles: int  # cycles of a DSP in one cycle of the array
    clock_share: ThreePoint  # share of the board's clock at which such arrays run on a full card


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Content of configs/replicas.yaml; ``pumped`` is by number format."""

    pumped: Mapping[str, Pumping]
    most_frames: int


@dataclass(frozen=True, slots=True)
class Models:
    systolic: ResourceModels
    streaming: StreamingModel
    dataflow: DataflowCosts
    energy: CardEnergy
    replicas: ReplicaSettings


def load_models(folder: Path) -> Models:
    """Read the coefficient files of a folder.

    Raises:
        ConfigurationError: a file or a key is missing, a key is unknown, or a number is unusable or has no source.
    """
    return Models(
        read_systolic(Section.of_file(folder / "systolic_rtl.yaml")),
        read_streaming(Section.of_file(folder / "streaming.yaml")),
        read_dataflow(Section.of_file(folder / "dataflow.yaml")),
        read_card_energy(Section.of_file(folder / "card_energy.yaml")),
        read_replicas(Section.of_file(folder / "replicas.yaml")),
    )


def read_replicas(file: Section) -> ReplicaSettings:
    """Read configs/replicas.yaml; errors are those of :class:`Section`."""
    formats = file.section("pumped")
    pumped = {
        precision: Pumping(section.count("dsp_cycles"), section.constant("clock_fraction").as_rate())
        for precision in formats
        for section in [formats.section(precision)]
    }
    settings = ReplicaSettings(pumped, file.count("most_frames"))
    file.close()
    return settings
