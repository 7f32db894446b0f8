"""Times of the layers inside the one node that a compiling provider shows in the trace, from its own counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from common.graphs.graph import Graph
from common.messages.errors import PipelineError
from common.profiling.fused_graph import write_static
from common.runtime.inputs.values import Feeds, operands
from common.runtime.providers.openvino_layers import LayerCounters, ProviderLayer, count_layers, find_openvino
from common.runtime.providers.provider_table import OPENVINO, compiles, find_provider
from common.runtime.sessions.session import GIVEN_GRAPH, SessionSettings, create_session, run
from common.table_rows import ProviderLayersRow

RUNS, WARMUP = 30, 5
AGREEMENT = 0.10  # a larger difference means that the counters do not describe the session's own runs
WITHOUT_BIASES = "/WithoutBiases"  # OpenVINO appends this to a convolution whose bias it split off


@dataclass(frozen=True, slots=True)
class ProviderLayers:
    rows: Sequence[ProviderLayersRow] = ()
    notes: tuple[str, ...] = ()


def provider_layers(folder: Path, feeds: Feeds, settings: SessionSettings, source: Graph) -> ProviderLayers:
    """Measure the layers that a provider ran; only a note where the counters of a compiling provider cannot be read.

    The folder has the graph that the provider was given. ``source`` is the model, which names the source node of a
    layer.
    """
    if not compiles(settings.provider):
        return ProviderLayers()
    openvino = find_openvino() if settings.provider == OPENVINO else None
    if openvino is None:
        row = find_provider(settings.provider)
        where = f"; its trace has {row.trace}" if row else ""
        return ProviderLayers(notes=(f"times of {settings.provider}'s layers are unavailable here{where}",))
    try:
        write_static(folder / GIVEN_GRAPH, folder / "static.onnx", feeds)
        session = create_session(folder / GIVEN_GRAPH, settings)
        beside = partial(run, session, operands(session, feeds))
        counters = count_layers(openvino, folder / "static.onnx", feeds, settings.threads, RUNS, WARMUP, beside)
    except PipelineError as error:
        return ProviderLayers(notes=(f"times of the provider's layers are unavailable ({error})",))
    return ProviderLayers(layer_rows(counters, source), (agreement(counters),))


def layer_rows(counters: LayerCounters, source: Graph) -> list[ProviderLayersRow]:
    """Return the rows of provider_layers; a row without a node is a layer that OpenVINO made or named itself."""
    total_us = counters.total_us
    return [
        {
            "layer_index": index,
            "layer": layer.name,
            "layer_type": layer.layer_type,
            "executed_type": layer.executed_type,
            "layer_node": layer_node(layer, source),
            "layer_mean_us": layer.mean_us,
            "layer_share": layer.mean_us / total_us,
            "counter_source": f"OpenVINO {counters.version} PERF_COUNT",
        }
        for index, layer in enumerate(counters.layers)
    ]


def layer_node(layer: ProviderLayer, source: Graph) -> str:
    """Return the node of the model whose name or output gave the layer its name; empty if there is none."""
    for name in (layer.name, layer.name.removesuffix(WITHOUT_BIASES)):
        if name in source.by_name:
            return name
        if name in source.producer:
            return str(source.producer[name])
    return ""


def agreement(counters: LayerCounters) -> str:
    """Return a note: what the layers' times are, and whether they add up to the latency of the session's own runs."""
    counted_us, session_us = float(np.median(counters.run_us)), float(np.median(counters.beside_us))
    closure = counters.total_us / counters.latency_us
    text = (
        f"provider_layers: OpenVINO's counters over {len(counters.run_us)} runs of the same graph and settings, in "
        f"turn with the session's; the {len(counters.layers)} layers sum to {100 * closure:.1f} % of the counted runs, "
        f"whose median is {counted_us / 1e3:.2f} ms against the session's {session_us / 1e3:.2f} ms"
    )
    if abs(closure - 1) > AGREEMENT:
        return f"{text}; read them as shares only: counters of whole microseconds are too coarse for this model"
    if abs(counted_us / session_us - 1) > AGREEMENT:
        return f"{text}; read them as shares only: the session's runs hold more than the layers, or the host was busy"
    return text
