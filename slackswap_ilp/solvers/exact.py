"""The exact program: its optimum is the least step time of all plans, for small graphs.

The other `exact_*` modules add one family of variables or constraints per function; docs/formulation.md has the same
names.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slackswap_ilp.analysis import (
    Graph,
    Schedule,
    derive_closure,
    make_plan,
    normalise_actions,
)
from slackswap_ilp.errors import SolverError
from slackswap_ilp.plan import Action, Plan, Swap
from slackswap_ilp.slots import parse_slot
from slackswap_ilp.solvers.backend import BOUND_MARGIN, BOUND_TOLERANCE, Limits, Outcome, Progress, solve_program
from slackswap_ilp.solvers.exact_actions import add_actions, add_availability, add_causes, add_needs, add_reruns
from slackswap_ilp.solvers.exact_memory import add_host_memory, add_memory
from slackswap_ilp.solvers.exact_model import ExactProgram, Staircase, open_program
from slackswap_ilp.solvers.exact_transfers import add_clock, add_link, add_transfer_stairs
from slackswap_ilp.solvers.program import INTEGRALITY_TOLERANCE, Variable
from slackswap_ilp.solvers.transfers import scheduled_ledger, time_schedule
from slackswap_ilp.solvers.triggers import find_triggers

_MOST_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """What the exact program says of a graph and a budget.

    Attributes
    ----------
    outcome
        How the solver's run ended.
    plan
        The best plan found, within budget to the byte; None if none was.
    bound_seconds
        A step time that no plan is below, None if none is proven.
    objective_seconds
        What the plan's step is expected to take.
    """

    outcome: Outcome
    plan: Plan | None
    bound_seconds: float | None
    objective_seconds: float | None

    @property
    def is_infeasible(self) -> bool:
        """Whether it is proven that no plan fits."""
        return self.outcome is Outcome.INFEASIBLE


def make_exact_program(graph: Graph, *, budget_bytes: int, host_margin_bytes: int = 0) -> ExactProgram:
    """Build the exact program; `host_margin_bytes` of host memory are left free."""
    exact = open_program(graph, budget_bytes)
    add_actions(exact)
    add_reruns(exact)
    add_causes(exact)
    add_needs(exact)
    add_availability(exact)
    add_transfer_stairs(exact)
    add_clock(exact)
    add_link(exact)
    add_memory(exact)
    add_host_memory(exact, margin_bytes=host_margin_bytes)
    return exact


def read_decisions(exact: ExactProgram, values: Mapping[Variable, float]) -> tuple[list[Action], Schedule]:
    """Return the actions and the transfer schedule that a solution of the program stands for.

    Raises
    ------
    SolverError
        If an integer variable is not a whole number.
    """
    for variable in exact.program.integers:
        if abs(values[variable] - round(values[variable])) > INTEGRALITY_TOLERANCE:
            raise SolverError(f"exact program: {variable.name} must be a whole number, got {values[variable]}")
    graph = exact.graph
    actions = [Action.KEEP] * graph.num_activations
    releases: dict[int, int] = {}
    fetches: dict[int, int] = {}
    for activation, keep in exact.keep.items():
        if round(values[keep]):
            continue
        swap = exact.swap.get(activation)
        if swap is None or not round(values[swap]):
            actions[activation] = Action.RECOMPUTE
            continue
        actions[activation] = Action.SWAP
        complete = _find_rise(exact.complete[activation], values)
        releases[activation] = max(graph.last_forward_read[activation] + 1, complete)
        fetches[activation] = _find_rise(exact.issued[activation], values)
    return normalise_actions(graph, actions), Schedule(releases, fetches)


def _find_rise(stairs: Staircase, values: Mapping[Variable, float]) -> int:
    """Return the first slot by which a staircase has risen."""
    columns = zip(stairs.slots, stairs.variables, strict=True)
    return next(slot for slot, variable in columns if round(values[variable]))


def solve_exact(
    graph: Graph,
    *,
    budget_bytes: int,
    backend: str,
    limits: Limits,
    start_plan: Plan | None = None,
    on_progress: Progress | None = None,
) -> ExactAnswer:
    """Find a fastest plan that fits.

    Parameters
    ----------
    limits
        Its gap is in seconds.
    start_plan
        A plan that fits, to start from.
    on_progress
        Called with the step time of the best plan and the bound so far, in seconds.

    Raises
    ------
    SolverError
        If the solver is missing or fails.
    """
    if max(graph.fixed_bytes) > budget_bytes:
        return ExactAnswer(Outcome.INFEASIBLE, None, None, None)
    if not any(find_triggers(graph, window=None).of_activation):
        plan = make_plan(graph, [Action.KEEP] * graph.num_activations, Schedule({}, {}), budget_bytes=budget_bytes)
        return ExactAnswer(Outcome.SOLVED, plan, graph.ideal_seconds, graph.ideal_seconds)
    bound: float | None = None
    target, host_margin = budget_bytes, 0
    for attempt in range(_MOST_TRIES):
        exact = make_exact_program(graph, budget_bytes=target, host_margin_bytes=host_margin)
        answer = solve_program(
            exact.program,
            backend=backend,
            limits=replace(limits, gap=limits.gap / exact.unit_seconds),
            start=_find_start(exact, start_plan) if start_plan is not None else None,
            on_progress=_translate(exact, on_progress) if on_progress is not None else None,
            presolve=False,
        )
        if attempt == 0:
            # No bound on the optimum is above the objective, however a solver rounds what it prints.
            known = [value for value in (answer.bound, answer.objective) if value is not None]
            bound = None if answer.bound is None else _lower_bound(exact, min(known))
        if answer.objective is None:
            is_proof = answer.outcome is Outcome.INFEASIBLE and attempt == 0
            if is_proof and start_plan is not None:
                raise SolverError(
                    f"{backend} found no plan within {budget_bytes} bytes, but the plan to start from is one"
                )
            return ExactAnswer(Outcome.INFEASIBLE if is_proof else Outcome.STOPPED, None, bound, None)
        actions, schedule = read_decisions(exact, answer.values)
        closure = derive_closure(graph, actions)
        excess = max(scheduled_ledger(graph, actions, closure, schedule)) - budget_bytes
        host_excess = _find_host_excess(graph, actions)
        if excess <= 0 and host_excess <= 0:
            plan = make_plan(graph, actions, schedule, budget_bytes=budget_bytes)
            return ExactAnswer(answer.outcome, plan, bound, time_schedule(graph, closure, schedule))
        # Within the solver's tolerance, not to the byte: ask for a little more room.
        more_bytes = math.ceil(2 * INTEGRALITY_TOLERANCE * exact.unit_bytes)
        target -= excess + more_bytes if excess > 0 else 0
        host_margin += host_excess + more_bytes if host_excess > 0 else 0
    return ExactAnswer(Outcome.STOPPED, None, bound, None)


def _step_seconds(exact: ExactProgram, objective: float) -> float:
    """Return the step time that an objective value stands for."""
    return exact.graph.ideal_seconds + objective * exact.unit_seconds


def _lower_bound(exact: ExactProgram, bound: float | None) -> float | None:
    """Return a solver's bound in seconds, less the margin for its tolerances."""
    if bound is None:
        return None
    return max(exact.graph.ideal_seconds, _step_seconds(exact, bound - BOUND_TOLERANCE) * (1 - BOUND_MARGIN))


def _translate(exact: ExactProgram, on_progress: Progress) -> Progress:
    """Return a listener for the program's objective values that passes on step times."""

    def report(objective: float | None, bound: float | None) -> None:
        step_seconds = None if objective is None else _step_seconds(exact, objective)
        on_progress(step_seconds, _lower_bound(exact, bound))

    return report


def _find_host_excess(graph: Graph, actions: Sequence[Action]) -> int:
    """Return the bytes by which swaps exceed the host's memory."""
    host_bytes = graph.instance.device.host_memory_bytes
    swapped = (size for size, action in zip(graph.sizes, actions, strict=True) if action is Action.SWAP)
    return 0 if host_bytes is None else sum(swapped) - host_bytes


def _find_start(exact: ExactProgram, plan: Plan) -> dict[Variable, float] | None:
    """Return the integer variables' values for a plan, None if the program leaves such plans out.

    The solver works out the rest.
    """
    graph = exact.graph
    decisions = [plan.activations[name] for name in graph.names]
    actions = normalise_actions(graph, [Action(decision.action) for decision in decisions])
    closure = derive_closure(graph, actions)
    values: dict[Variable, float] = {}
    for layer, stairs in exact.rerun.items():
        _raise_from(stairs, closure.rerun_slots.get(layer, math.inf), values)
    latest_release = math.inf
    for activation in range(graph.num_activations - 1, -1, -1):
        decision = decisions[activation]
        if activation in exact.keep:
            values[exact.keep[activation]] = float(actions[activation] is Action.KEEP)
        if activation in exact.swap:
            values[exact.swap[activation]] = 0.0
        if not isinstance(decision, Swap) or actions[activation] is not Action.SWAP:
            continue
        if activation not in exact.swap:
            return None
        fetch = parse_slot(decision.fetch_slot, graph.num_layers) or 0
        at = max((slot for slot in exact.issued[activation].slots if slot <= fetch), default=None)
        if at is None:
            return None
        latest_release = min(latest_release, parse_slot(decision.release_slot, graph.num_layers) or 0)
        _raise_from(exact.complete[activation], latest_release, values)
        _raise_from(exact.issued[activation], at, values)
        values[exact.swap[activation]] = 1.0
    return values


def _raise_from(stairs: Staircase, slot: float, values: dict[Variable, float]) -> None:
    """Set the variables of a staircase that rises at `slot`."""
    for at, variable in zip(stairs.slots, stairs.variables, strict=True):
        values[variable] = float(at >= slot)
