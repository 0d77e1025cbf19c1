"""How little memory: what no plan can do without, proven, and the least that a plan was found for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.backend import BOUND_MARGIN, BOUND_TOLERANCE, Limits, solve_program
from slackswap_ilp.solvers.base import Monitor
from slackswap_ilp.solvers.baselines import recompute_all_actions, swap_all_actions
from slackswap_ilp.solvers.evaluate import evaluate
from slackswap_ilp.solvers.fluid import make_fluid_program, read_actions
from slackswap_ilp.solvers.polish import Search, best_of, improve
from slackswap_ilp.solvers.program import Variable

_WINDOW: Final = 1
_MAX_EVALUATIONS: Final = 2000


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Between which budgets the least one lies.

    Attributes
    ----------
    necessary_bytes
        No plan fits into less, proven.
    sufficient_bytes
        The smallest budget for which a plan was found.
    """

    necessary_bytes: int
    sufficient_bytes: int


def find_budget_limits(graph: Graph, *, backend: str, monitor: Monitor) -> BudgetLimits:
    """Bound the least budget from both sides; with what is known by then if cancelled or out of time."""
    necessary = max(graph.fixed_bytes)
    values: Mapping[Variable, float] = {}
    fluid = make_fluid_program(graph, budget_bytes=None, window=_WINDOW)
    if not monitor.is_over():
        limits = Limits(deadline=monitor.deadline, is_cancelled=monitor.is_cancelled)
        answer = solve_program(fluid.program, backend=backend, limits=limits, relax=True)
        beyond = (answer.bound or 0.0) * (1 - BOUND_MARGIN) - BOUND_TOLERANCE
        necessary += max(0, math.ceil(beyond * fluid.scale.bytes_per_unit))
        values = answer.values
    start = best_of(
        [
            evaluate(graph, actions, budget_bytes=necessary)
            for actions in (
                *(read_actions(fluid, values, threshold) for threshold in (0.5, 0.1, 0.01)),
                recompute_all_actions(graph),
                swap_all_actions(graph),
                [Action.KEEP] * graph.num_activations,
            )
        ]
    )
    assert start is not None, "keeping all can always be evaluated"
    search = Search(graph, necessary, monitor, math.inf, _MAX_EVALUATIONS)
    found = improve(search, start)
    return BudgetLimits(necessary, necessary + found.overflow_bytes)
