"""The baselines do what their names say."""

import pytest

from slackswap_ilp.analysis import derive_closure, is_runnable, keep_all_peak, make_graph
from slackswap_ilp.instance import Instance
from slackswap_ilp.models.presets import generate
from slackswap_ilp.plan import Action, Plan
from slackswap_ilp.simulator import simulate
from slackswap_ilp.solvers.base import Monitor, Problem, SolveOptions, Solver
from slackswap_ilp.solvers.baselines import (
    recompute_all_actions,
    solve_keep_all,
    solve_recompute_all,
    solve_swap_all,
    swap_all_actions,
)
from tests.solvers.test_fluid import long_instance
from tests.strategies import random_instance

BASELINES = (solve_keep_all, solve_swap_all, solve_recompute_all)


def solve(solver: Solver, instance: Instance, budget_bytes: int) -> Plan | None:
    """Return a baseline's plan after checking its claim."""
    graph = make_graph(instance)
    claim = solver(Problem(graph, budget_bytes), SolveOptions(), Monitor())
    assert not claim.is_infeasible
    assert claim.bound_seconds is None
    if claim.plan is not None:
        assert simulate(instance, claim.plan).fits(budget_bytes)
    return claim.plan


@pytest.mark.parametrize("solver", BASELINES)
def test_baseline_claims_a_plan_that_fits_or_nothing(solver: Solver) -> None:
    """Whatever the graph and the budget, a claimed plan is legal and fits, and nothing is called infeasible."""
    num_plans = 0
    for seed in range(60):
        instance = random_instance(seed) if seed % 2 else long_instance(seed)
        peak_bytes = keep_all_peak(make_graph(instance))
        for budget_bytes in (1, peak_bytes * 2 // 3, 2 * peak_bytes):
            num_plans += solve(solver, instance, budget_bytes) is not None
    assert num_plans >= 50


def test_keep_all_keeps_everything() -> None:
    """At the keep-all peak everything is kept, for the ideal step time; one byte below there is no plan."""
    for seed in range(20):
        instance = random_instance(seed)
        peak_bytes = keep_all_peak(make_graph(instance))
        plan = solve(solve_keep_all, instance, peak_bytes)
        assert plan is not None
        assert {decision.action for decision in plan.activations.values()} <= {"keep"}
        simulation = simulate(instance, plan)
        assert simulation.peak_bytes == peak_bytes
        assert simulation.step_seconds == pytest.approx(simulation.ideal_seconds)
        if peak_bytes > 1:
            assert solve(solve_keep_all, instance, peak_bytes - 1) is None


def test_swap_all_swaps_all_that_is_saved_and_swappable() -> None:
    """It swaps exactly what backward reads and may be swapped, and never runs a layer again."""
    graph = make_graph(generate("bert-large", layers=2))
    plan = solve(solve_swap_all, graph.instance, keep_all_peak(graph))
    assert plan is not None
    assert not simulate(graph.instance, plan).reruns
    for activation, name in enumerate(graph.names):
        is_swapped = plan.activations[name].action == "swap"
        assert is_swapped == (bool(graph.savers[activation]) and graph.swappable[activation])
    assert swap_all_actions(graph).count(Action.SWAP) > 10


def test_recompute_all_recomputes_and_ends_its_chains() -> None:
    """It swaps nothing, recomputes only what backward reads and may run again, and fits into less than keep-all."""
    for seed in range(60):
        graph = make_graph(long_instance(seed))
        actions = recompute_all_actions(graph)
        assert Action.SWAP not in actions
        for activation, action in enumerate(actions):
            if action is Action.RECOMPUTE:
                assert graph.savers[activation]
                assert graph.recomputable[graph.producers[activation]]
    graph = make_graph(generate("gpt2-xl", layers=4))
    actions = recompute_all_actions(graph)
    closure = derive_closure(graph, actions)
    assert is_runnable(graph, closure)
    plan = solve(solve_recompute_all, graph.instance, keep_all_peak(graph) * 8 // 10)
    assert plan is not None
    simulation = simulate(graph.instance, plan)
    assert simulation.swapped_bytes == 0
    assert simulation.step_seconds == pytest.approx(simulation.ideal_seconds + simulation.recompute_seconds)
