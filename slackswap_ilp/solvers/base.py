"""What every solver takes and returns."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Plan


@dataclass(frozen=True, slots=True)
class Problem:
    """What to solve: the graph of an instance, and the bytes it may use."""

    graph: Graph
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """How to solve; solvers that have no use for an option pass over it.

    Attributes
    ----------
    gap
        Relative gap between step time and bound that is good enough.
    backend
        Which solver of integer programs: ``"highs"`` or ``"cbc"``.
    """

    gap: float = 0.001
    backend: str = "highs"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a solver claims; the simulator decides what its plan costs.

    Attributes
    ----------
    plan
        The best plan found, None if none was.
    bound_seconds
        A step time that no plan is below, None if the solver proves nothing.
    is_infeasible
        Whether it is proven that no plan fits.
    method
        How the claim came about, in a few words.
    """

    plan: Plan | None
    bound_seconds: float | None = None
    is_infeasible: bool = False
    method: str = ""


@dataclass(slots=True)
class Monitor:
    """The line between a solver at work and whoever waits for it.

    Attributes
    ----------
    on_progress
        Called with the best step time and the best bound so far, in seconds, whenever one improves.
    is_cancelled
        Asked again and again; True makes the solver return what it has.
    deadline
        Reading of `time.monotonic` at which the solver is to return, None for no limit.
    step_seconds, bound_seconds
        The best that was reported so far.
    """

    on_progress: Callable[[float | None, float | None], None] = field(default=lambda _step, _bound: None)
    is_cancelled: Callable[[], bool] = bool
    deadline: float | None = None
    step_seconds: float | None = None
    bound_seconds: float | None = None

    def report(self, *, step_seconds: float | None = None, bound_seconds: float | None = None) -> None:
        """Take note of a step time or bound, and pass it on if it is better than what was known."""
        is_better = False
        if step_seconds is not None and (self.step_seconds is None or step_seconds < self.step_seconds):
            self.step_seconds, is_better = step_seconds, True
        if bound_seconds is not None and (self.bound_seconds is None or bound_seconds > self.bound_seconds):
            self.bound_seconds, is_better = bound_seconds, True
        if is_better:
            self.on_progress(self.step_seconds, self.bound_seconds)

    def is_over(self) -> bool:
        """Whether the time is up or the caller has had enough."""
        return self.is_cancelled() or (self.deadline is not None and time.monotonic() >= self.deadline)


class Solver(Protocol):
    """Finds a plan, a bound, or both."""

    def __call__(self, problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
        """Solve a problem; outcomes such as "found nothing" are claims, only failures raise."""
        ...
