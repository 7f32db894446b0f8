"""What the configuration says of choosing and of kernels' efficiency (configs/fpga.yaml)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from common.errors import CommandLineError
from common.fpga.figures import Outlook, Section
from common.fpga.plan import LAUNCH_PER, LaunchPer


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Thresholds by name, efficiency bands by name, and how often the host calls."""

    path: Path
    thresholds: Mapping[str, float]
    efficiency_bands: Mapping[str, Outlook]
    launch_per: LaunchPer

    @property
    def defaults(self) -> dict[str, Any]:
        """What holds where nothing else is asked for."""
        return {**self.thresholds, "launch_per": self.launch_per}

    def require_band(self, name: str) -> str:
        """The name, if there is an efficiency band of that name.

        Raises:
            CommandLineError: there is none.
        """
        if name not in self.efficiency_bands:
            raise CommandLineError(
                self.path, f"has no efficiency {name!r}", f"it has {', '.join(self.efficiency_bands)}"
            )
        return name


def read_assumptions(path: Path, content: Mapping[str, Any]) -> Assumptions:
    """Make the assumptions of the content of their YAML file.

    Raises:
        CommandLineError: a key is missing or unknown, or a number is unusable or has no source.
    """
    file = Section(path, content)
    limits = file.section("thresholds")
    names = ("min_share", "min_intensity_flop_per_byte", "min_fused_share")
    thresholds = {name: limits.figure(name, positive=False).likely for name in names}
    limits.close()
    bands = file.figures("efficiency_bands")
    if above := [name for name, figure in bands.items() if figure.high > 1]:
        raise CommandLineError(path, f"efficiency_bands.{above[0]} is above 1", "it is a share of the array's peak")
    launch_per = cast("LaunchPer", file.choice("launch_per", LAUNCH_PER))
    file.close()
    return Assumptions(path, thresholds, {name: figure.as_rate() for name, figure in bands.items()}, launch_per)
