"""Whole schedules on several memories: executed element by element, and against every schedule of small models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations, product
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from common.design_space.accelerator.hardware import NothingFitsError
from common.design_space.accelerator.hardware_files import load_hardware
from common.design_space.groups.convex_groups import convex_groups
from common.design_space.hierarchy import best_schedule as resident
from common.design_space.hierarchy import schedule_edges as schedule_edges_module
from common.design_space.hierarchy.best_schedule import best_schedule
from common.design_space.hierarchy.execution_options import LayerPlaces
from common.design_space.hierarchy.physical_floor import physical_floor
from common.design_space.hierarchy.schedule import LayerStep, MappedSchedule
from common.design_space.hierarchy.schedule_edges import _Steps, schedule_edges
from common.design_space.hierarchy.schedule_rows import group_rows, mapping_rows
from common.design_space.mapping.cost import cost, stream_cost
from common.design_space.mapping.placement import Placement
from common.design_space.mapping.space.nest_fronts import nest_fronts
from common.design_space.mapping.traffic import Nests
from tests.support.designs.every_chain import divisions_of, every_chain
from tests.support.designs.layer_graphs import graph_of
from tests.support.designs.mapped_models import copy_layer, small_models
from tests.support.designs.mapped_simulator import run_schedule
from tests.support.paths import CONFIGS

GEMMINI = load_hardware("gemmini", CONFIGS / "hardware")
FEW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
FEWER = settings(FEW, max_examples=10)  # each goes through every mapping of several layers
MOST_DIVISIONS = 2_000  # of the loops of a layer: all of its mappings are tried in each place of its operands
MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def tiny(scratchpad_words, accumulator_words, side=2):
    """Gemmini with a small array and few words in each memory."""
    kib = {"scratchpad": scratchpad_words / 1024, "accumulator": side * accumulator_words * 4 / 1024}
    return GEMMINI.resized(rows=side, columns=side, capacity_kib=kib)


tiny_hardware = st.builds(tiny, st.integers(8, 300), st.sampled_from([1, 2, 4, 16]), st.sampled_from([2, 4]))


def drawn_schedule(graph, layers, hardware, generator):
    """Any schedule of the space: a way back from its end, often through row tiles; any fitting mapping."""
    edges = schedule_edges(LayerPlaces(graph, layers, hardware, keeps=True), hardware, convex_groups(graph, 3))
    settings = {}
    for option in (option for plan in edges.plans for option in plan):
        for name, nest in option.nests.items():
            settings.setdefault(nest, set()).add(option.setting_of(name))
    fronts = {nest: nest_fronts(nest, hardware, wanted) for nest, wanted in settings.items()}
    fits = [
        all(fronts[nest].fronts[option.setting] for option in plan for nest in option.nests.values())
        for plan in edges.plans
    ]
    reached = {0}
    for source, target, plan in zip(edges.source, edges.target, edges.plan, strict=True):
        if source in reached and fits[plan]:
            reached.add(target)
    state, plans = edges.states - 1, []
    while state:
        into = [
            at for at in np.flatnonzero(edges.target == state) if fits[edges.plan[at]] and edges.source[at] in reached
        ]
        row_tiled = [at for at in into if len(edges.plans[edges.plan[at]]) > 1]
        at = generator.choice(row_tiled if row_tiled and generator.random() < 0.8 else into)
        plans.insert(0, edges.plan_of(at))
        state = edges.source[at]
    steps = []
    for option in (option for plan in plans for option in plan):
        chosen = {}
        for name, nest in option.nests.items():
            points = fronts[nest].fronts[option.setting]
            chosen[name] = points[generator.integers(len(points))]
        steps.append(LayerStep(layers[option.layer], option, chosen))
    return MappedSchedule(steps, 0)


def check_execution(model, hardware, seed):
    graph, layers = model
    try:
        best = best_schedule(graph, layers, hardware)
    except NothingFitsError:
        return
    check_schedule(graph, layers, hardware, best)
    for number in range(3):
        drawn = drawn_schedule(graph, layers, hardware, np.random.default_rng((seed, number)))
        check_schedule(graph, layers, hardware, drawn)
        assert best.edp <= drawn.edp * (1 + 1e-9)


def check_schedule(graph, layers, hardware, schedule):
    counted = run_schedule(graph, schedule)
    assert counted.peak <= hardware.levels[1].capacity_words
    rows = iter(mapping_rows("d", schedule, hardware))
    moved = sum(counted.beside.values())
    for at, step in enumerate(schedule.steps):
        for nest in counted.nests[at].values():
            row = next(rows)
            assert {operand: row[f"dram_{operand}_bytes"] for operand in nest.dram} == pytest.approx(nest.dram)
            assert row["execution_count"] == counted.runs[at]
            assert nest.accumulator_peak <= hardware.levels[2].capacity_words
            moved += counted.runs[at] * sum(nest.dram.values())
        assert sum(step.option.side_words[0]) == counted.beside[at]
    assert next(rows, None) is None
    groups = [*group_rows("d", schedule, hardware)]
    assert sum(row["dram_bytes"] for row in groups) == pytest.approx(moved)
    assert counted.peak <= max(row["buffer_peak_bytes"] for row in groups)
    assert sum(row["layer_count"] for row in groups) == len(layers)


@pytest.mark.slow
@FEW
@given(small_models(), tiny_hardware, st.integers(0, 999))
def test_a_schedule_moves_what_its_tables_say(model, hardware, seed):
    check_execution(model, hardware, seed)


@pytest.mark.exhaustive
@MANY
@given(small_models(6), tiny_hardware, st.integers(0, 999))
def test_two_hundred_schedules_move_what_their_tables_say(model, hardware, seed):
    check_execution(model, hardware, seed)


# --- against every schedule -------------------------------------------------------------------------------------------


def least_product(graph, layers, hardware, orders=None, most=np.inf):
    """The least product over all orders of the layers, and all ways in which each tensor may be resident between them.

    ``orders`` are the only ones that count, and ``most`` is how many tensors may be resident at once.
    """
    least = None
    for order in orders or permutations(range(len(layers))):
        place = {layer: at for at, layer in enumerate(order)}
        if any(
            place[graph.producer[name]] > place[at] for name in graph.producer for at in graph.consumers.get(name, ())
        ):
            continue
        plans = [[*tensor_plans(graph, layers, tensor, order, place)] for tensor in sizes_of(layers)]
        for chosen in product(*plans):
            points = points_of(layers, order, dict(zip(sizes_of(layers), chosen, strict=True)), hardware, most)
            if points is not None and (least is None or (points[:, 0] * points[:, 1]).min() < least):
                least = (points[:, 0] * points[:, 1]).min()
    return least


def sizes_of(layers):
    found = {}
    for layer in layers:
        for name, words in (*layer.layer.reads.items(), *layer.layer.writes.items()):
            found[name] = max(found.get(name, 0), words)
    return found


def may_be_resident(layer):
    return bool(layer.source) or not layer.nests


def tensor_plans(graph, layers, tensor, order, place):
    """Yield the pauses in which a tensor is resident, the layers that copy it, and whether it is in DRAM."""
    writer = place[graph.producer[tensor]] if tensor in graph.producer else None
    readers = sorted(place[at] for at in graph.consumers.get(tensor, ()))
    pauses = range(len(order) - 1)
    for pattern in product((False, True), repeat=len(pauses)):
        is_resident = {pause for pause in pauses if pattern[pause]}
        open_readers = [at for at in readers if may_be_resident(layers[order[at]]) and at - 1 not in is_resident]
        for copying in product((False, True), repeat=len(open_readers)):
            copies = {at for at, is_copied in zip(open_readers, copying, strict=True) if is_copied}
            origins = copies | ({writer} if writer is not None and may_be_resident(layers[order[writer]]) else set())
            if any(pause - 1 not in is_resident and pause not in origins for pause in is_resident):
                continue
            from_chip = {at for at in readers if may_be_resident(layers[order[at]]) and at - 1 in is_resident}
            in_memory = tensor in graph.returned or writer is None or set(readers) != from_chip or not readers
            if in_memory or writer in is_resident:
                yield is_resident, copies, in_memory


def points_of(layers, order, plans, hardware, most):
    """The cycles and energies of all mappings of an order of layers; None where something does not fit."""
    sizes, total = sizes_of(layers), np.zeros((1, 2))
    for at, index in enumerate(order):
        layer = layers[index]
        before = {name for name, (is_resident, _, _) in plans.items() if at - 1 in is_resident}
        copied = {name for name, (_, copies, _) in plans.items() if at in copies}
        left = {name for name in layer.layer.writes if at in plans[name][0]}
        resident = sum(sizes[name] for name in before | copied | left)
        after = {name for name, (is_resident, _, _) in plans.items() if at in is_resident}
        if resident > hardware.levels[1].capacity_words or max(len(before | copied), len(after)) > most:
            return None
        found = points_of_layer(layer, before | copied, copied, left, plans, resident, hardware)
        if found is None:
            return None
        total = pareto((total[:, None] + found[None]).reshape(-1, 2))
    return total


def points_of_layer(layer, here, copied, left, plans, resident, hardware):
    if not may_be_resident(layer):
        here = left = set()
    sizes, dram, chip, twice = sizes_of([layer]), [], [], []
    if layer.constants:
        dram.append(layer.constants), twice.append(layer.constants)
    moved = {name: name in here for name in layer.reads}
    moved |= {} if layer.nests else {name: name in left for name in layer.layer.writes}
    for name, is_on_chip in moved.items():
        words = sizes[name]
        (chip if is_on_chip else dram).append(words), twice.append(words)
    for name in {*copied, *(name for name in left if plans[name][2])}:
        dram.append(sizes[name]), chip.append(sizes[name])
    words = (tuple(dram), tuple(chip), (*twice, *twice), ())
    if not layer.nests or not layer.source:
        stream = stream_cost(words, 0, hardware) if any(words) else None
    if not layer.nests:
        return np.array([[stream.cycles, stream.energy_pj]])
    ((_, nest),) = layer.nests.items()
    operands = ({"input"} if layer.source in here else set()) | ({"output"} if left else set())
    placement = Placement(frozenset(operands), words)
    return points_of_nest(nest, placement, resident, hardware)


@cache
def points_of_nest(nest, placement, resident, hardware):
    found = []
    for mappings in every_chain(nest, hardware):
        result = cost(mappings, Nests.of([nest]), hardware, placement=placement)
        fits = result.fits & (result.needed_words[1] + resident <= hardware.levels[1].capacity_words)
        if "output" in placement.on_chip:
            fits &= result.reads[1]["output"] == 0
        points = np.stack([result.cycles, result.energy_pj], axis=-1)[fits]
        found += [pareto(points)] if len(points) else []
    return pareto(np.concatenate(found)) if found else None


def pareto(points):
    points = points[np.lexsort((points[:, 1], points[:, 0]))]
    falls = np.minimum.accumulate(points[:, 1])
    return points[np.concatenate([[True], falls[1:] < falls[:-1]])]


def assume_few_mappings(layers, hardware):
    for nest in (nest for layer in layers for nest in layer.nests.values()):
        assume(prod(map(len, divisions_of(nest, hardware))) <= MOST_DIVISIONS)


def check_optimum(model, hardware):
    graph, layers = model
    assume_few_mappings(layers, hardware)
    least = least_product(graph, layers, hardware)
    if least is None:
        with pytest.raises(NothingFitsError):
            best_schedule(graph, layers, hardware, most_layers=1)
    else:
        assert best_schedule(graph, layers, hardware, most_layers=1).edp == pytest.approx(least)
        found, floor = best_schedule(graph, layers, hardware), physical_floor(graph, layers, hardware)
        assert found.edp <= least * (1 + 1e-9)
        assert 0 <= floor.cycles <= found.cycles
        assert 0 <= floor.energy_pj <= found.energy_pj


tiny_models = small_models(3, tiny=True)


@pytest.mark.slow
@FEWER
@given(tiny_models, tiny_hardware)
def test_no_schedule_of_a_small_model_is_better(model, hardware):
    check_optimum(model, hardware)


@pytest.mark.exhaustive
@settings(MANY, max_examples=12)  # ten seconds each
@given(tiny_models, tiny_hardware)
def test_no_schedule_of_a_dozen_small_models_is_better(model, hardware):
    check_optimum(model, hardware)


# --- models of too many states ----------------------------------------------------------------------------------------


def in_order_with(most):
    """All steps in the order of the model, with so many tensors resident at once."""

    def edges(places, hardware, groups):
        return _Steps(places.limited_to(most), hardware, replace(groups, keeps_order=True)).edges()

    return edges


@pytest.mark.slow
@FEWER
@given(tiny_models, tiny_hardware, st.integers(0, 2))
def test_no_schedule_in_order_with_so_few_tensors_at_rest_is_better(model, hardware, most):
    graph, layers = model
    assume_few_mappings(layers, hardware)
    least = least_product(graph, layers, hardware, [range(len(layers))], most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resident, "schedule_edges", in_order_with(most))
        if least is None:
            with pytest.raises(NothingFitsError):
                best_schedule(graph, layers, hardware, most_layers=1)
        else:
            assert best_schedule(graph, layers, hardware, most_layers=1).edp == pytest.approx(least)


def dense_block(count):
    """Each layer reads all that earlier ones have written, as in a DenseNet."""
    layers = [copy_layer({"in": 4}, "t0", 3)]
    for number in range(1, count):
        layers.append(copy_layer({f"t{before}": 3 for before in range(number)}, f"t{number}", 3))
    return graph_of([layer.layer for layer in layers], {f"t{count - 1}"}), layers


def test_a_model_of_too_many_states_keeps_few_tensors_on_the_chip(monkeypatch):
    monkeypatch.setattr(schedule_edges_module, "MOST_STATES", 100)
    monkeypatch.setattr(schedule_edges_module, "MOST_STEPS", 1_000)
    hardware = tiny(300, 16)
    graph, layers = dense_block(9)
    edges = schedule_edges(LayerPlaces(graph, layers, hardware, keeps=True), hardware, convex_groups(graph, 3))
    assert edges.states <= 100
    assert len(edges.source) <= 1_000
    at_once = max(len(option.places.inherited | option.places.copied) for plan in edges.plans for option in plan)
    assert at_once in schedule_edges_module.MOST_RESIDENT
    assert edges.limit.endswith(f"at most {at_once} tensors are resident at once")
    found = best_schedule(graph, layers, hardware)
    assert found.edp < best_schedule(graph, layers, hardware, keeps=False).edp
    assert best_schedule(*dense_block(3), hardware).limit == ""


def test_where_even_one_tensor_at_rest_is_too_much_nothing_rests(monkeypatch):
    monkeypatch.setattr(schedule_edges_module, "MOST_STATES", 0)
    graph, layers = dense_block(9)
    hardware = tiny(300, 16)
    without = best_schedule(graph, layers, hardware, keeps=False)
    found = best_schedule(graph, layers, hardware)
    assert found.edp == pytest.approx(without.edp)
    assert found.limit.endswith("at most 0 tensors are resident at once")
