"""How little memory: what no plan can do without, proven, and the least that a plan was found for."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.backend import Limits, solve_program
from slackswap_ilp.solvers.base import Monitor
from slackswap_ilp.solvers.baselines import recompute_all_actions, swap_all_actions
from slackswap_ilp.solvers.evaluate import evaluate
from slackswap_ilp.solvers.fluid import make_fluid_program, read_actions
from slackswap_ilp.solvers.polish import Search, best_of, improve

_BOUND_MARGIN: Final = 1e-6
"""Relative margin that a solver's tolerances are given before its bound counts as proven."""

_WINDOW: Final = 12
_MAX_EVALUATIONS: Final = 2000


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Between which budgets the least one lies.

    Attributes
    ----------
    necessary_bytes
        No plan fits into less, proven.
    sufficient_bytes
        The smallest budget for which a plan was found, None if none was.
    """

    necessary_bytes: int
    sufficient_bytes: int | None


def find_budget_limits(graph: Graph, *, backend: str, is_cancelled: Callable[[], bool] = bool) -> BudgetLimits:
    """Bound the least budget from both sides; when cancelled, with what is known by then."""
    fluid = make_fluid_program(graph, budget_bytes=None, window=_WINDOW)
    answer = solve_program(fluid.program, backend=backend, limits=Limits(is_cancelled=is_cancelled), relax=True)
    least = (answer.bound or 0.0) * fluid.scale.bytes_per_unit
    necessary = max(*graph.fixed_bytes, math.ceil(least * (1 - _BOUND_MARGIN)))
    start = best_of(
        [
            evaluate(graph, actions, budget_bytes=necessary)
            for actions in (
                *(read_actions(fluid, answer.values, threshold) for threshold in (0.5, 0.1, 0.01)),
                recompute_all_actions(graph),
                swap_all_actions(graph),
                [Action.KEEP] * graph.num_activations,
            )
        ]
    )
    if start is None:
        return BudgetLimits(necessary, None)
    search = Search(graph, necessary, Monitor(is_cancelled=is_cancelled), math.inf, _MAX_EVALUATIONS)
    found = improve(search, start)
    return BudgetLimits(necessary, necessary + found.overflow_bytes)
