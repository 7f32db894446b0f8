"""The gradient engine on mapped layers: real mappings, true derivatives, and never below the optimum."""

import numpy as np
import pytest

from common.design_space.mapping.arrays import torch_namespace
from common.design_space.mapping.space.layer_by_layer import exact
from common.design_space.mapping.space.mapping_problem import MappingProblem
from common.design_space.search.engines import gradient_engine
from common.design_space.search.search import ModelPart, search
from common.workload.loop_nests import LoopNest
from tests.support.designs.small_layers import GEMMINI, SMALL, TINY

torch = pytest.importorskip("torch", reason="comes with requirements-torch.txt")
LAYERS = SMALL | {"point": LoopNest()}
LARGE = {"a": LoopNest(k=512, c=128, p=14, q=14, r=3, s=3), "b": LoopNest(k=21, c=77, p=55, q=35, r=5)}


def random_choices(problem, count, seed):
    return np.random.default_rng(seed).integers(0, problem.choice_sizes, (count, len(problem.choice_sizes)))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# --- moves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nest", [*LAYERS.values(), *LARGE.values()], ids=[*LAYERS, *LARGE])
def test_a_move_changes_one_choice_to_its_neighbour_or_by_about_two_or_turns_the_order(nest):
    problem = MappingProblem(nest, GEMMINI)
    values = [*(tile.sizes for tile in problem.tiles), *(np.arange(1, copies.most + 1) for copies in problem.copies)]

    for choices in random_choices(problem, 23, 1):
        moves = problem.moves(choices)
        assert len({move.tobytes() for move in moves}) == len(moves)
        assert ((moves >= 0) & (moves < problem.choice_sizes)).all()
        for move in moves:
            (at,) = np.flatnonzero(move != choices)
            if at < len(values) and abs(move[at] - choices[at]) > 1:
                before, after = values[at][choices[at]], values[at][move[at]]
                aim = 2 * before if after > before else before / 2
                assert max(after / aim, aim / after) == np.maximum(values[at] / aim, aim / values[at]).min()


@pytest.mark.parametrize("nest", [LoopNest(k=3, p=2), LoopNest(p=4, r=2, stride_p=2), LoopNest()])
def test_moves_reach_every_mapping(nest):
    problem = MappingProblem(nest, TINY)
    start = np.zeros(len(problem.choice_sizes), dtype=np.int64)
    seen, waiting = {start.tobytes()}, [start]
    while waiting:
        for move in problem.moves(waiting.pop()):
            if move.tobytes() not in seen:
                seen.add(move.tobytes())
                waiting.append(move)
    reached = {problem.schedule(np.frombuffer(one, dtype=np.int64)) for one in seen}
    every = {problem.schedule(np.array(one)) for one in np.ndindex(problem.choice_sizes)}
    assert reached == every


# --- the relaxed cost -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("nest", LARGE.values(), ids=[*LARGE])
def test_a_step_costs_what_its_rounded_mappings_do(nest, temperature):
    """One restart and one loop that steps: the loss is then the logarithm of the mapping's own product."""
    problem = MappingProblem(nest, GEMMINI)
    for seed in range(40):
        descent = problem.descent(1, generator(seed))
        choices, restarts, loss = descent.step(temperature)
        cycles, energy = problem.evaluate(choices)
        assert set(restarts) == {0}
        if np.isfinite(cycles).all():
            low, high = np.log(cycles.min() * energy.min()), np.log(cycles.max() * energy.max())
            assert low - 1e-9 <= loss.item() <= high + 1e-9
            return
    pytest.fail("no restart fitted")


def test_shares_are_whole_extents_and_their_derivatives_are_finite():
    problem = MappingProblem(LARGE["a"], GEMMINI)
    descent = problem.descent(5, generator(3))
    logs = descent._logs(0.7).detach().numpy()
    assert np.exp(logs.sum(axis=-1)) == pytest.approx(np.tile([*LARGE["a"].bounds.values()], (5, 1)))
    descent.step(0.7)[2].backward()
    for parameter in descent.parameters:
        assert torch.isfinite(parameter.grad).all()
        assert (parameter.grad != 0).any()


def test_a_step_against_the_gradient_lowers_the_loss():
    """Of many restarts, most are better after ten steps: their rounded mappings move less energy, or take less time."""
    problem = MappingProblem(LARGE["a"], GEMMINI.resized(capacity_kib={"scratchpad": 1e6, "accumulator": 1e6}))
    descent = problem.descent(20, generator(11))
    optimizer = torch.optim.Adam(descent.parameters, lr=0.3)
    history = []
    for _ in range(10):
        choices, restarts, loss = descent.step(1.0)
        cycles, energy = problem.evaluate(choices)
        best = np.full(20, np.inf)
        np.minimum.at(best, restarts, cycles * energy)
        history.append(best)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (history[-1] < history[0]).sum() >= 15
    assert np.median(history[-1] / history[0]) < 0.1


# --- the engine -----------------------------------------------------------------------------------------------------


def test_the_engine_finds_the_optimum_of_small_layers_and_nothing_below():
    parts = {name: ModelPart(MappingProblem(nest, TINY)) for name, nest in LAYERS.items()}
    found, best = search(parts, gradient_engine.propose, 1500, 0), exact(LAYERS, TINY)
    assert found.edp == pytest.approx(best.edp, rel=1e-12)


def test_no_search_is_below_the_optimum_and_a_longer_one_is_no_worse():
    parts = {name: ModelPart(MappingProblem(nest, GEMMINI), 3) for name, nest in LARGE.items()}
    best = exact(LARGE, GEMMINI, runs=dict.fromkeys(LARGE, 3)).edp
    few, many = (search(parts, gradient_engine.propose, count, 7).edp for count in (200, 2000))
    assert best * (1 - 1e-12) <= many <= few
    assert many < 1.2 * best


def test_the_seed_decides():
    parts = {"a": ModelPart(MappingProblem(LARGE["a"], GEMMINI))}
    curves = [search(parts, gradient_engine.propose, 300, seed).curve for seed in (5, 5, 6)]
    assert curves[0] == curves[1] != curves[2]


def test_a_layer_of_one_mapping_ends_at_once():
    problem = MappingProblem(LAYERS["point"], TINY)
    found = search({"point": ModelPart(problem)}, gradient_engine.propose, 1000, 0)
    assert found.evaluation_count < 100
    assert torch_namespace().module is torch
