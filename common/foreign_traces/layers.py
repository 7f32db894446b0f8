"""A profile as any program writes it: layers with their times, and the names by which the model knows their work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from common.files.json_stream import CutShortError, list_items
from common.messages.errors import PipelineError

Names = str | tuple[str, ...]  # a name, or several readings of it: the first that the model knows counts


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that ran; a figure that the profile does not give is empty or None."""

    name: str
    layer_type: str
    # Names that the model may know: of nodes that the layer computes, or of tensors that it writes
    sources: tuple[Names, ...] = ()
    # Nodes that the layer is taken to compute because they are between others; nothing names them
    fills: tuple[str, ...] = ()
    # Likewise of the nodes that it ends with, where it names no others: it computes all that comes before them and that
    # no other layer names
    ends_with: tuple[Names, ...] = ()
    # What it was inserted for, as a change of layout is: a layer, or what the model knows of one; empty where it has
    # work of its own
    serves: tuple[str, ...] = ()
    is_folded: bool = False  # whether it computes what an exporter folds into a layer that the model has
    run_us: tuple[float, ...] = ()
    median_us: float | None = None  # its time in one run, where the profile gives only that
    mean_us: float | None = None
    dtype: str = ""  # element type that it computes in, as ONNX names it


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The layers that took part in a run, in the order in which they ran."""

    program: str
    domain: str
    layers: tuple[Layer, ...]
    run_count: int | None  # runs behind the times; None where the profile does not have it
    # Nodes of the model that have no layer of their own, because the one that reads them computes them
    merged: frozenset[Names] = frozenset()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of tensors, by names that the model may know
    run_start_us: tuple[float, ...] = ()
    run_us: tuple[float, ...] = ()
    # Share of the calls and nodes that order alone aligns; None if names or sizes align them
    operation_share: float | None = None
    names_contractions: bool = False  # whether a contraction that no layer names did not run, as each call is a layer
    is_of_device: bool = False  # whether the times are those of an accelerator, which the host's threads do not affect
    notes: tuple[str, ...] = ()


def uniquely_named(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Tell apart layers of one name by a number at the end of the later ones."""
    layers = [*layers]
    taken, seen = {layer.name for layer in layers}, Counter[str]()
    named = []
    for layer in layers:
        seen[layer.name] += 1
        name, number = layer.name, seen[layer.name]
        while number > 1 and name in taken:
            name, number = f"{layer.name} #{number}", number + 1
        taken.add(name)
        named.append(replace(layer, name=name))
    return tuple(named)


def total_us(layer: Layer, warmup: int, run_count: int | None) -> float:
    """Return the time of a layer in all runs after the warm-up; where their number is unknown, in one run."""
    if layer.run_us:
        return sum(layer.run_us[warmup:])
    one_us = layer.median_us if layer.mean_us is None else layer.mean_us
    return (one_us or 0.0) * (run_count or 1)


def usual_us(layer: Layer) -> float:
    """Return the median time of a layer in one run, which a single run that waited for a processor does not move."""
    if layer.run_us:
        return median(layer.run_us)
    return layer.median_us if layer.median_us is not None else layer.mean_us or 0.0


def exported_items(path: Path, key: str, what: str) -> Iterator[object]:
    """Yield the items of the list under a key of a JSON file, which is refused where it is cut short."""
    try:
        yield from list_items(path, key, what)
    except CutShortError as error:
        raise PipelineError(path, f"is cut short ({error})", "export it again") from error
    except OSError as error:
        raise PipelineError(path, f"cannot be read ({error.strerror})", f"give {what}") from error
