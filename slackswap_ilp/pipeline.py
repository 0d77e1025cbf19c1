"""The way of the data: instance -> solver -> plan -> simulator -> certificate."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from slackswap_ilp.analysis import Graph, keep_all_peak, make_graph
from slackswap_ilp.errors import OptionError, PlanError, SolverError
from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import Action, Plan
from slackswap_ilp.result import Result, Status
from slackswap_ilp.simulator import Simulation, simulate
from slackswap_ilp.solvers.base import Claim, Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.budgets import find_budget_limits
from slackswap_ilp.solvers.registry import find_solver
from slackswap_ilp.units import KIB, Budget, format_bytes, parse_budget

DEFAULT_SOLVER: Final = "ilp"
DEFAULT_GAP: Final = 0.001
DEFAULT_TIME_LIMIT_SECONDS: Final = 60.0
BACKENDS: Final = ("highs", "cbc")

SMALLEST_GAP: Final = 1e-6
"""A gap that counts as none: solvers of programs compute in floating point, and bounds leave them a margin."""

EXPLANATION_SECONDS: Final = 10.0
"""How long, after a solve without a plan, the search for the budgets between which the least one lies may take."""

_CONTRADICTION: Final = 1e-6
"""How far, relatively, a bound may lie above a simulated step time by rounding; more is an error of ours."""

BudgetLike = Budget | int | str | None
OnProgress = Callable[[float | None, float | None], None]


def solve(
    instance: Instance,
    *,
    solver: str = DEFAULT_SOLVER,
    budget: BudgetLike = None,
    gap: float = DEFAULT_GAP,
    time_limit_seconds: float | None = DEFAULT_TIME_LIMIT_SECONDS,
    backend: str = "highs",
    on_progress: OnProgress | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> Result:
    """Find a plan, let the simulator judge it, and say how far from the best it can be.

    Parameters
    ----------
    solver
        A name of `slackswap_ilp.solvers.registry.SOLVERS`.
    budget
        Bytes, or a text such as ``"50%"`` (of the keep-all peak) or ``"12GiB"``; None for the instance's own.
    gap
        Relative gap between step time and bound that is good enough to stop; below `SMALLEST_GAP` it counts as that.
    time_limit_seconds
        How long the solver may run; None for as long as it takes.
    backend
        Which solver of integer programs: ``"highs"`` or ``"cbc"``.
    on_progress
        Called with the best step time and the best bound so far, in seconds, whenever one improves.
    is_cancelled
        Asked again and again; True ends the solve with the best plan and bound so far.

    Raises
    ------
    OptionError
        If an option is off, or the budget is not positive because the static bytes fill the device.
    SolverError
        If a solver is missing, fails, or contradicts the simulator.

    Examples
    --------
    >>> from slackswap_ilp import generate, solve
    >>> result = solve(generate("bert-large", layers=2), budget="70%", solver="greedy")
    >>> str(result.status), result.num_kept + result.num_swapped + result.num_recomputed
    ('feasible', 35)
    """
    solve_problem = find_solver(solver)
    options = check_options(gap=gap, time_limit_seconds=time_limit_seconds, backend=backend)
    graph = make_graph(instance)
    budget_bytes = resolve_budget(instance, graph, budget)
    started = time.monotonic()
    deadline = None if time_limit_seconds is None else started + time_limit_seconds
    monitor = Monitor(deadline=deadline)
    if on_progress is not None:
        monitor.on_progress = on_progress
    if is_cancelled is not None:
        monitor.is_cancelled = is_cancelled
    claim = solve_problem(Problem(graph, budget_bytes), options, monitor)
    runtime_seconds = time.monotonic() - started
    case = _Case(instance, graph, solver, budget_bytes, options, monitor.is_cancelled, claim)
    return case.judge(runtime_seconds=runtime_seconds, is_interrupted=monitor.is_cancelled())


def compare(
    instances: Iterable[Instance],
    *,
    budgets: Sequence[BudgetLike] = (None,),
    solvers: Sequence[str] = ("greedy", DEFAULT_SOLVER),
    gap: float = DEFAULT_GAP,
    time_limit_seconds: float | None = DEFAULT_TIME_LIMIT_SECONDS,
    backend: str = "highs",
    on_result: Callable[[Result], None] | None = None,
    on_progress: OnProgress | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> tuple[Result, ...]:
    """Solve every instance at every budget with every solver.

    Every row's gap is against the best bound that any of the solvers proved for that instance and budget. Options are
    those of `solve`; `on_result` is called with each row as soon as it is there, before bounds are shared. When
    cancelled, the rows so far are returned.
    """
    rows: list[Result] = []
    for name in solvers:
        find_solver(name)
    checked = check_options(gap=gap, time_limit_seconds=time_limit_seconds, backend=backend)
    instances = tuple(instances)
    for instance in instances:
        for budget in budgets:
            resolve_budget(instance, make_graph(instance), budget)
    for instance in instances:
        for budget in budgets:
            group: list[Result] = []
            for name in solvers:
                if is_cancelled is not None and is_cancelled():
                    break
                group.append(
                    solve(
                        instance,
                        solver=name,
                        budget=budget,
                        gap=checked.gap,
                        time_limit_seconds=time_limit_seconds,
                        backend=backend,
                        on_progress=on_progress,
                        is_cancelled=is_cancelled,
                    )
                )
                if on_result is not None:
                    on_result(group[-1])
            rows.extend(_share_bound(group, checked.gap))
    return tuple(rows)


def check_options(*, gap: float, time_limit_seconds: float | None, backend: str) -> SolveOptions:
    """Refuse options that no solver can work with.

    Raises
    ------
    OptionError
        Naming the option, its value and what is allowed.
    """
    if not 0 <= gap < 1:
        raise OptionError(f"gap: must be at least 0 and below 1, got {gap}")
    if time_limit_seconds is not None and not 0 < time_limit_seconds <= 1e9:
        raise OptionError(f"time limit: must be a positive number of seconds, got {time_limit_seconds}")
    if backend not in BACKENDS:
        raise OptionError(f"backend: must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return SolveOptions(gap=max(gap, SMALLEST_GAP), backend=backend)


def resolve_budget(instance: Instance, graph: Graph, budget: BudgetLike) -> int:
    """Return the budget in bytes.

    Raises
    ------
    OptionError
        If it is malformed or not positive.
    """
    if budget is None:
        available = instance.available_bytes
        if available <= 0:
            raise OptionError(
                f"budget: {instance.name!r} leaves no memory: static_bytes ({format_bytes(instance.static_bytes)})"
                f" fill the device ({format_bytes(instance.device.memory_bytes)}); give a budget, or shard the weights"
            )
        return available
    if isinstance(budget, str):
        budget = parse_budget(budget)
    elif isinstance(budget, int) and not isinstance(budget, bool):
        budget = Budget(num_bytes=budget)
    elif not isinstance(budget, Budget):
        raise OptionError(f"budget: must be whole bytes, a text such as '50%' or '12GiB', or a Budget, got {budget!r}")
    resolved = budget.in_bytes(keep_all_peak(graph))
    if resolved <= 0:
        raise OptionError("budget: must be at least one byte, the share given rounds down to none")
    return resolved


@dataclass(frozen=True, slots=True)
class _Case:
    """A claim to judge."""

    instance: Instance
    graph: Graph
    solver: str
    budget_bytes: int
    options: SolveOptions
    is_cancelled: Callable[[], bool]
    claim: Claim

    def judge(self, *, runtime_seconds: float, is_interrupted: bool) -> Result:
        """Simulate the plan and say what is known."""
        simulation = self._simulate()
        ideal = self.graph.ideal_seconds
        bound = max(ideal, self.claim.bound_seconds or 0.0)
        if simulation is None or self.claim.plan is None:
            return self._explain_nothing(runtime_seconds=runtime_seconds, is_interrupted=is_interrupted)
        step = simulation.step_seconds
        if self.claim.is_infeasible or bound > step * (1 + _CONTRADICTION):
            raise SolverError(
                f"{self.solver} contradicts the simulator: it claims that no plan of {self.instance.name!r} takes less"
                f" than {bound} s at {self.budget_bytes} bytes, but its own takes {step} s; please report this"
            )
        bound = min(bound, step)
        gap_ratio = _find_gap(step, bound)
        return Result(
            instance=self.instance.name,
            solver=self.solver,
            method=self.claim.method,
            status=_judge_gap(gap_ratio, self.options.gap),
            message=_warn_of_device(self.instance, self.budget_bytes),
            budget_bytes=self.budget_bytes,
            peak_bytes=simulation.peak_bytes,
            ideal_seconds=ideal,
            step_seconds=step,
            throughput_ratio=simulation.throughput_ratio,
            recompute_seconds=simulation.recompute_seconds,
            stall_seconds=simulation.stall_seconds,
            bound_seconds=bound,
            gap_ratio=gap_ratio,
            runtime_seconds=runtime_seconds,
            is_interrupted=is_interrupted,
            plan=self.claim.plan,
            **count_actions(self.instance, self.claim.plan),
        )

    def _simulate(self) -> Simulation | None:
        """Replay the plan, and hold the solver to its word that it fits."""
        if self.claim.plan is None:
            return None
        try:
            simulation = simulate(self.instance, self.claim.plan)
        except PlanError as error:
            raise SolverError(f"{self.solver} made a plan that the simulator refuses: {error}") from error
        if not simulation.fits(self.budget_bytes):
            raise SolverError(
                f"{self.solver} made a plan that does not fit: its peak is {simulation.peak_bytes} bytes of"
                f" {self.budget_bytes}, and it swaps {simulation.swapped_bytes} bytes; please report this"
            )
        return simulation

    def _explain_nothing(self, *, runtime_seconds: float, is_interrupted: bool) -> Result:
        """Say why there is no plan, and at which budget there would be one."""
        limits = find_budget_limits(
            self.graph,
            backend=self.options.backend,
            monitor=Monitor(is_cancelled=self.is_cancelled, deadline=time.monotonic() + EXPLANATION_SECONDS),
        )
        if self.claim.is_infeasible and limits.sufficient_bytes <= self.budget_bytes:
            raise SolverError(
                f"{self.solver} contradicts a plan: it claims that none of {self.instance.name!r} fits into"
                f" {self.budget_bytes} bytes, but one fits into {limits.sufficient_bytes}; please report this"
            )
        necessary_bytes = max(limits.necessary_bytes, self.budget_bytes + 1 if self.claim.is_infeasible else 0)
        is_infeasible = necessary_bytes > self.budget_bytes
        given, necessary = _show_size(self.budget_bytes), _show_size(necessary_bytes)
        found = f"a plan was found for {_show_size(limits.sufficient_bytes)}"
        if is_infeasible:
            message = f"infeasible at {given}: no plan of this kind fits into less than {necessary}, proven; {found}"
        else:
            why = "before it was stopped" if is_interrupted else "which does not prove that there is none"
            message = f"{self.solver} found no plan at {given}, {why}: {necessary} is necessary, proven; {found}"
        return Result(
            instance=self.instance.name,
            solver=self.solver,
            method=self.claim.method,
            status=Status.INFEASIBLE if is_infeasible else Status.UNKNOWN,
            message=message,
            budget_bytes=self.budget_bytes,
            ideal_seconds=self.graph.ideal_seconds,
            bound_seconds=None if is_infeasible else self.claim.bound_seconds,
            runtime_seconds=runtime_seconds,
            is_interrupted=is_interrupted,
            necessary_budget_bytes=necessary_bytes,
            sufficient_budget_bytes=limits.sufficient_bytes,
        )


def _show_size(num_bytes: int) -> str:
    """Return a size to the byte, and for people where that is hard to read."""
    exact = f"{num_bytes} byte{'' if num_bytes == 1 else 's'}"
    return exact if num_bytes < KIB else f"{exact} ({format_bytes(num_bytes)})"


def _warn_of_device(instance: Instance, budget_bytes: int) -> str | None:
    """Return what to know if the device cannot hold what is always there and the budget together."""
    memory_bytes = instance.device.memory_bytes
    if instance.static_bytes + budget_bytes <= memory_bytes:
        return None
    return (
        f"static_bytes ({format_bytes(instance.static_bytes)}) and this budget ({format_bytes(budget_bytes)}) together"
        f" exceed the device's memory ({format_bytes(memory_bytes)}): shard the weights, or take another device"
    )


def count_actions(instance: Instance, plan: Plan) -> dict[str, int]:
    """Return how many activations a plan keeps, swaps and recomputes, and the bytes of the latter two."""
    counts = dict.fromkeys(Action, 0)
    sizes = dict.fromkeys(Action, 0)
    for activation in instance.activations:
        action = Action(plan.activations[activation.name].action)
        counts[action] += 1
        sizes[action] += activation.size_bytes
    return {
        "num_kept": counts[Action.KEEP],
        "num_swapped": counts[Action.SWAP],
        "num_recomputed": counts[Action.RECOMPUTE],
        "swapped_bytes": sizes[Action.SWAP],
        "recomputed_bytes": sizes[Action.RECOMPUTE],
    }


def _find_gap(step_seconds: float, bound_seconds: float) -> float | None:
    """Return (step - bound) / bound; 0 for a step that takes no time at all, None for another above a bound of 0."""
    if bound_seconds > 0:
        return (step_seconds - bound_seconds) / bound_seconds
    return 0.0 if step_seconds == 0 else None


def _judge_gap(gap_ratio: float | None, gap: float) -> Status:
    """Say whether a plan is as good as was asked for."""
    return Status.OPTIMAL if gap_ratio is not None and gap_ratio <= gap else Status.FEASIBLE


def _share_bound(group: Sequence[Result], gap: float) -> list[Result]:
    """Measure all results for one instance and budget against the best bound among them."""
    bounds = [result.bound_seconds for result in group if result.bound_seconds is not None]
    is_infeasible = any(result.status is Status.INFEASIBLE for result in group)
    for result in group:
        step = result.step_seconds
        if step is not None and (is_infeasible or max(bounds) > step * (1 + _CONTRADICTION)):
            claim = "that no plan fits" if is_infeasible else f"that no plan takes less than {max(bounds)} s"
            raise SolverError(
                f"solvers contradict each other on {result.instance!r} at {result.budget_bytes} bytes: one claims"
                f" {claim}, but a plan of {result.solver} takes {step} s; please report this"
            )
    shared = []
    for result in group:
        if result.step_seconds is None:
            if is_infeasible and result.status is not Status.INFEASIBLE:
                message = next(other.message for other in group if other.status is Status.INFEASIBLE)
                result = _change(result, status=Status.INFEASIBLE, message=message, bound_seconds=None)
            shared.append(result)
            continue
        bound = min(max(bounds), result.step_seconds)
        gap_ratio = _find_gap(result.step_seconds, bound)
        status = _judge_gap(gap_ratio, gap)
        shared.append(_change(result, status=status, bound_seconds=bound, gap_ratio=gap_ratio))
    return shared


def _change(result: Result, **changes: object) -> Result:
    """Return a validated copy with changed fields."""
    return Result(**{**result.model_dump(), "plan": result.plan, **changes})
