"""One NVIDIA GPU behind pynvml: each call may fail on its own, as a :class:`PipelineError`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from common.messages.errors import PipelineError
from common.sensors.sensor import Clock, Found, GaugeSensor, Sensor


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: ``pynvml`` is the initialised module, ``handle`` is NVML's handle of the device."""

    pynvml: ModuleType
    handle: Any
    index: int
    clock: Clock

    @property
    def domain(self) -> str:
        return f"gpu-{self.index}"

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML; PipelineError: device, driver or pynvml does not support it, or the GPU is lost."""
        try:
            return getattr(self.pynvml, function)(self.handle, *arguments)
        except self.pynvml.NVMLError as error:
            raise self.error(str(error)) from error
        except AttributeError as error:
            raise self.error(f"this nvidia-ml-py has no {function}") from error

    def error(self, problem: str) -> PipelineError:
        return PipelineError(f"nvml {self.domain}", f"cannot be read ({problem})")

    def gauge(
        self, quantities: tuple[str, ...], read: Callable[[], Sequence[float]], period_s: float, name: str = "nvml"
    ) -> GaugeSensor:
        return GaugeSensor(name, self.domain, quantities, read, clock=self.clock, period_s=period_s)

    def supported(self, sensors: Sequence[Sensor]) -> Found:
        """Return the sensors that can be read, and one note that names the quantities of the others."""
        kept, left_out, reason = list[Sensor](), list[str](), ""
        for sensor in sensors:
            try:
                sensor.sample()
                kept.append(sensor)
            except PipelineError as error:
                left_out += sensor.quantities
                reason = reason or str(error)
        return kept, [f"{reason}: left out {', '.join(left_out)}"] if left_out else []
