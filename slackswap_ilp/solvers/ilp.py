"""The integer-programming solver: a plan, and a proven bound on every plan.

The fluid relaxation proves a bound; a restriction of it, in which chains of layers that run again are short, says
which actions to take; rounding, repair and local search, judged by scheduled transfers, make a plan of them. If that
leaves a gap, small graphs get the exact program, and on others the time that is left goes into raising the bound.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from slackswap_ilp.analysis import Graph
from slackswap_ilp.errors import SolverError
from slackswap_ilp.plan import Action, Plan
from slackswap_ilp.solvers.backend import BOUND_MARGIN, BOUND_TOLERANCE, Answer, Limits, Outcome, solve_program
from slackswap_ilp.solvers.base import Claim, Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.evaluate import Evaluation, evaluate, plan_of
from slackswap_ilp.solvers.exact import make_exact_program, solve_exact
from slackswap_ilp.solvers.fluid import make_fluid_program, read_actions
from slackswap_ilp.solvers.fluid_model import FluidProgram
from slackswap_ilp.solvers.greedy import find_greedy
from slackswap_ilp.solvers.polish import Search, improve, repair

_BOUND_WINDOW: Final = 1
_ROUND_WINDOW: Final = 3
_WIDE_WINDOW: Final = 12
_ROUND_SHARES: Final = (1.0, 0.998)
_THRESHOLDS: Final = (0.5, 0.9, 0.25, 0.05)
_MOST_EXACT_LAYERS: Final = 60
_MOST_EXACT_INTEGERS: Final = 3000
_MAX_EVALUATIONS: Final = 3000
_MAX_REPAIRS: Final = 400
_DIVE_SHARES: Final = (0.998, 1.0, 0.995, 0.99)
_DIVE_WINDOW: Final = 6
_DIVE_GAP: Final = 1e-4
_DIVE_NODES: Final = 1
_MAX_ROUND_EVALUATIONS: Final = 800
_WORTH_IMPROVING: Final = 1.02


def solve_ilp(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
    """Find a plan and prove how far from the best it can be."""
    return _Run(problem, options, monitor).solve()


@dataclass(slots=True)
class _Run:
    """One run of the solver: what it has found and proven so far."""

    problem: Problem
    options: SolveOptions
    monitor: Monitor
    best: Evaluation | None = None
    exact_plan: Plan | None = None
    step_seconds: float | None = None
    bound_seconds: float = field(init=False)
    is_infeasible: bool = False

    def __post_init__(self) -> None:
        """Begin with the bound that needs no proof."""
        self.bound_seconds = self.graph.ideal_seconds

    @property
    def graph(self) -> Graph:
        """The graph to plan."""
        return self.problem.graph

    @property
    def is_good_enough(self) -> bool:
        """Whether the gap asked for is reached."""
        return self.step_seconds is not None and self.step_seconds <= self.bound_seconds * (1 + self.options.gap)

    @property
    def is_over(self) -> bool:
        """Whether to stop, for success or for lack of time."""
        return self.is_good_enough or self.monitor.is_over()

    def solve(self) -> Claim:
        """Go from what is cheap to what is dear, and stop as soon as the gap asked for is reached."""
        graph, budget_bytes = self.problem.graph, self.problem.budget_bytes
        if max(graph.fixed_bytes) > budget_bytes:
            return Claim(plan=None, is_infeasible=True, method="ledger")
        keep_all = evaluate(graph, [Action.KEEP] * graph.num_activations, budget_bytes=budget_bytes)
        self._offer(keep_all)
        if self.step_seconds is not None:
            return self._claim("keeping all fits")
        self.monitor.report(bound_seconds=self.bound_seconds)
        self._offer(find_greedy(graph, budget_bytes=budget_bytes, monitor=self.monitor))
        if self.is_good_enough:
            return self._claim("greedy within the gap of the ideal step")
        if self.monitor.is_over():
            return self._claim("greedy")
        relaxed = make_fluid_program(graph, budget_bytes=budget_bytes, window=_BOUND_WINDOW)
        if not self._prove_by_relaxation(relaxed):
            return Claim(plan=None, is_infeasible=True, method="fluid relaxation")
        self._search()
        if not self.is_over and self._is_small():
            return self._solve_exactly()
        if not self.is_over:
            self._prove_by_branching(relaxed)
        if self.is_infeasible:
            return Claim(plan=None, is_infeasible=True, method="fluid")
        return self._claim("fluid")

    def _claim(self, method: str) -> Claim:
        plan = self.exact_plan
        if plan is None and self.best is not None:
            plan = plan_of(self.graph, self.best, budget_bytes=self.problem.budget_bytes)
        return Claim(plan=plan, bound_seconds=self.bound_seconds, method=method)

    def _offer(self, found: Evaluation | None) -> None:
        """Take a better plan."""
        if found is None or found.step_seconds is None:
            return
        if self.step_seconds is None or found.step_seconds < self.step_seconds:
            self.best, self.exact_plan, self.step_seconds = found, None, found.step_seconds
            self.monitor.report(step_seconds=found.step_seconds)

    def _raise_bound(self, bound_seconds: float | None) -> None:
        """Take a better bound."""
        if bound_seconds is not None and bound_seconds > self.bound_seconds:
            self.bound_seconds = bound_seconds
            self.monitor.report(bound_seconds=bound_seconds)

    def _limits(self, gap: float = 0.0) -> Limits:
        return Limits(gap=gap, deadline=self.monitor.deadline, is_cancelled=self.monitor.is_cancelled)

    def _prove_by_relaxation(self, relaxed: FluidProgram) -> bool:
        """Prove a bound by linear programming; returns False if that proves that nothing fits."""
        answer = self._relax(relaxed)
        if answer.outcome is Outcome.INFEASIBLE:
            # A proof of infeasibility counts only if it does not hang on the solver's simplifications.
            answer = solve_program(
                relaxed.program,
                backend=self.options.backend,
                limits=self._limits(),
                relax=True,
                presolve=False,
            )
        if answer.outcome is Outcome.INFEASIBLE:
            if self.step_seconds is not None:
                raise SolverError(f"{self.options.backend} calls a relaxation infeasible that a plan satisfies")
            return False
        self._raise_bound(self._to_bound(relaxed, answer.bound))
        return True

    def _to_bound(self, relaxed: FluidProgram, overhead: float | None) -> float | None:
        """Return the step time that a bound on a program's objective proves."""
        if overhead is None:
            return None
        proven = max(0.0, overhead - BOUND_TOLERANCE) * relaxed.scale.seconds_per_unit
        return (self.graph.ideal_seconds + proven) * (1 - BOUND_MARGIN)

    def _relax(self, fluid: FluidProgram) -> Answer:
        return solve_program(fluid.program, backend=self.options.backend, limits=self._limits(), relax=True)

    def _is_small(self) -> bool:
        """Whether the exact program can be expected to finish."""
        if self.graph.num_layers > _MOST_EXACT_LAYERS:
            return False
        exact = make_exact_program(self.graph, budget_bytes=self.problem.budget_bytes)
        return len(exact.program.integers) <= _MOST_EXACT_INTEGERS

    def _solve_exactly(self) -> Claim:
        """Solve the exact program, starting from the best plan so far."""
        budget_bytes = self.problem.budget_bytes
        answer = solve_exact(
            self.graph,
            budget_bytes=budget_bytes,
            backend=self.options.backend,
            limits=self._limits(self.options.gap * self.bound_seconds),
            start_plan=None if self.best is None else plan_of(self.graph, self.best, budget_bytes=budget_bytes),
            on_progress=lambda step, bound: self.monitor.report(step_seconds=step, bound_seconds=bound),
        )
        if answer.is_infeasible and self.step_seconds is None:
            return Claim(plan=None, is_infeasible=True, method="exact")
        self._raise_bound(answer.bound_seconds)
        seconds = answer.objective_seconds
        if answer.plan is not None and seconds is not None and seconds < (self.step_seconds or math.inf):
            self.exact_plan, self.step_seconds = answer.plan, seconds
        return self._claim("exact")

    def _search(self) -> None:
        """Round and dive, for the budget and for a little less, then search around the best."""
        for share in _ROUND_SHARES:
            self._round(_ROUND_WINDOW, share)
        for share in _DIVE_SHARES:
            self._dive(share)
        if self.step_seconds is None:
            self._round(_WIDE_WINDOW, 1.0)
        if self.best is not None and not self.is_over:
            self._offer(improve(self._make_search(_MAX_EVALUATIONS), self.best))

    def _search_around(self, found: Evaluation, max_evaluations: int) -> Evaluation:
        """Make an evaluation fit, and improve it if it is worth it."""
        if found.step_seconds is None:
            found = repair(self._make_search(_MAX_REPAIRS), found)
        if found.step_seconds is None or found.step_seconds > (self.step_seconds or math.inf) * _WORTH_IMPROVING:
            return found
        return improve(self._make_search(max_evaluations), found)

    def _make_search(self, max_evaluations: int) -> Search:
        return Search(
            graph=self.graph,
            budget_bytes=self.problem.budget_bytes,
            monitor=self.monitor,
            good_enough_seconds=self.bound_seconds * (1 + self.options.gap),
            max_evaluations=max_evaluations,
        )

    def _restrict(self, window: int, share: float) -> tuple[FluidProgram, Answer] | None:
        """Relax the restriction for a share of the budget; None if it is time to stop or it has no solution."""
        if self.is_over:
            return None
        budget_bytes = int(share * self.problem.budget_bytes)
        closed = make_fluid_program(self.graph, budget_bytes=budget_bytes, window=window, is_closed=True)
        answer = self._relax(closed)
        return None if answer.objective is None else (closed, answer)

    def _round(self, window: int, share: float) -> None:
        """Round the restriction for a share of the budget, and search around what that gives."""
        restricted = self._restrict(window, share)
        if restricted is None:
            return
        closed, answer = restricted
        seen: set[tuple[Action, ...]] = set()
        for threshold in _THRESHOLDS:
            actions = tuple(read_actions(closed, answer.values, threshold))
            if actions in seen or self.is_over:
                continue
            seen.add(actions)
            found = evaluate(self.graph, actions, budget_bytes=self.problem.budget_bytes)
            if found is not None:
                self._offer(self._search_around(found, _MAX_ROUND_EVALUATIONS))

    def _dive(self, share: float) -> None:
        """Fix what the restriction's relaxation decides in whole, solve for the rest, and search around that."""
        restricted = self._restrict(_DIVE_WINDOW, share)
        if restricted is None:
            return
        closed, answer = restricted
        for variable in (*closed.keep.values(), *closed.swap.values()):
            closed.program.fix_if_whole(variable, answer.values[variable])
        answer = solve_program(
            closed.program,
            backend=self.options.backend,
            limits=self._limits(_DIVE_GAP * self.bound_seconds / closed.scale.seconds_per_unit),
            presolve=False,
            max_nodes=_DIVE_NODES,
        )
        if answer.objective is None:
            return
        found = evaluate(self.graph, read_actions(closed, answer.values), budget_bytes=self.problem.budget_bytes)
        if found is not None and not self.is_over:
            self._offer(self._search_around(found, _MAX_EVALUATIONS))

    def _prove_by_branching(self, relaxed: FluidProgram) -> None:
        """Raise the bound by solving the relaxation in whole decisions for as long as there is time."""
        unit = relaxed.scale.seconds_per_unit

        def report(_objective: float | None, bound: float | None) -> None:
            self.monitor.report(bound_seconds=self._to_bound(relaxed, bound))

        answer = solve_program(
            relaxed.program,
            backend=self.options.backend,
            limits=self._limits(self.options.gap * self.bound_seconds / unit / 4),
            on_progress=report,
            presolve=False,
        )
        if answer.outcome is not Outcome.INFEASIBLE:
            self._raise_bound(self._to_bound(relaxed, answer.bound))
        elif self.step_seconds is not None:
            raise SolverError(f"{self.options.backend} calls a program infeasible that a plan satisfies")
        else:
            self.is_infeasible = True
