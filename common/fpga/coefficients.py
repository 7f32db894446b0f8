"""The coefficients of every kernel model and of the card's energy, from the files of configs/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.fpga.kernels.operators import DataflowCosts, read_dataflow
from common.fpga.kernels.streaming import StreamingModel, read_streaming
from common.fpga.kernels.systolic_resources import ResourceModels
from common.fpga.kernels.systolic_resources import read_models as read_systolic
from common.fpga.speedup.card_energy import CardEnergy, read_card_energy

MODEL_FILES = ("systolic_rtl.yaml", "streaming.yaml", "dataflow.yaml", "card_energy.yaml")


@dataclass(frozen=True, slots=True)
class Models:
    """One entry for each file of :data:`MODEL_FILES`."""

    systolic: ResourceModels
    streaming: StreamingModel
    dataflow: DataflowCosts
    energy: CardEnergy


def read_models(files: Mapping[str, tuple[Path, Mapping[str, Any]]]) -> Models:
    """Make them of paths and contents, by file name.

    Raises:
        CommandLineError: a key is missing or unknown, or a number is unusable or has no source.
    """
    return Models(
        read_systolic(*files["systolic_rtl.yaml"]),
        read_streaming(*files["streaming.yaml"]),
        read_dataflow(*files["dataflow.yaml"]),
        read_card_energy(*files["card_energy.yaml"]),
    )
