"""Baselines: one action for all that backward reads."""

import math

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.base import Claim, Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.evaluate import evaluate, plan_of


def solve_keep_all(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
    """Keep everything."""
    del options, monitor
    return _claim(problem, [Action.KEEP] * problem.graph.num_activations)


def solve_swap_all(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
    """Swap all that backward reads; keep what is not swappable."""
    del options, monitor
    return _claim(problem, swap_all_actions(problem.graph))


def solve_recompute_all(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
    """Recompute all that backward reads, but keep what bounds the chains."""
    del options, monitor
    return _claim(problem, recompute_all_actions(problem.graph))


def swap_all_actions(graph: Graph) -> list[Action]:
    """Return "swap" for all that backward reads and that may be swapped."""
    return [
        Action.SWAP if savers and swappable else Action.KEEP
        for savers, swappable in zip(graph.savers, graph.swappable, strict=True)
    ]


def recompute_all_actions(graph: Graph) -> list[Action]:
    """Return "recompute" for all that backward reads, but "keep" for what bounds the chains.

    Without such ends the first backward would rebuild the whole of forward and hold it all. Kept are activations that
    several layers read (the residual stream, where a model has one), and the last of every sqrt(m) in a row that has
    none, of m saved ones.
    """
    saved = [number for number, savers in enumerate(graph.savers) if savers]
    longest = math.isqrt(max(0, len(saved) - 1)) + 1
    actions = [Action.KEEP] * graph.num_activations
    run = 0
    for number in saved:
        run += 1
        is_bound = len(graph.readers[number]) > 1 or run >= longest
        if is_bound or not graph.recomputable[graph.producers[number]]:
            run = 0
        else:
            actions[number] = Action.RECOMPUTE
    return actions


def _claim(problem: Problem, actions: list[Action]) -> Claim:
    """Claim the plan for these actions if it fits."""
    found = evaluate(problem.graph, actions, budget_bytes=problem.budget_bytes)
    if found is None or found.schedule is None:
        return Claim(plan=None)
    return Claim(plan=plan_of(problem.graph, found, budget_bytes=problem.budget_bytes))
