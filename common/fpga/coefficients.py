"""Coefficients of all kernel models and of the card's energy, read from the files of configs/."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.files.configuration import Section
from common.fpga.kernels.dataflow.operators import DataflowCosts, read_dataflow
from common.fpga.kernels.dataflow.streaming import StreamingModel, read_streaming
from common.fpga.kernels.systolic.array_resources import ResourceModels, read_systolic
from common.fpga.replica_settings import ReplicaSettings, read_replicas
from common.fpga.speedup.energy import CardEnergy, read_card_energy


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
