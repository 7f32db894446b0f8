"""The newest figures as the text that Prometheus reads (exposition format 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from common.monitor.figure_names import FIGURES, metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(figures: Mapping[str, float | None], active_alarms: Iterable[str], alarms: Iterable[str]) -> str:
    """Return a sample per known figure, and one per alarm that is 1 while it is active; unknown figures are left out.

    Everything is a gauge: counts start again when the dashboard does, and a percentile is no counter at all.
    """
    families: dict[str, list[str]] = {}
    for key, value in figures.items():
        if value is not None:
            name, labels, factor = metric(key)
            head = f"# HELP {name} {_meaning(key, labels)}\n# TYPE {name} gauge"
            families.setdefault(name, [head]).append(f"{name}{_labelled(labels)} {value * factor!r}")
    active = set(active_alarms)
    lines = [f"onnx_alarm_active{_labelled({'alarm': name})} {int(name in active)}" for name in alarms]
    if lines:
        head = "# HELP onnx_alarm_active whether a threshold is exceeded\n# TYPE onnx_alarm_active gauge"
        families["onnx_alarm_active"] = [head, *lines]
    return "".join(f"{line}\n" for family in families.values() for line in family)


def _meaning(key: str, labels: Mapping[str, str]) -> str:
    """Return one meaning for all percentiles of a family."""
    return "latency by quantile" if "quantile" in labels else FIGURES[key.partition(":")[0]]


def _labelled(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
