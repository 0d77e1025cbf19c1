"""What the solvers expect of a vector of actions: whether it fits, and what it costs with scheduled transfers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slackswap_ilp.analysis import (
    Closure,
    Graph,
    Schedule,
    derive_closure,
    is_runnable,
    make_plan,
    normalise_actions,
    unswapped_ledger,
)
from slackswap_ilp.plan import Action, Plan
from slackswap_ilp.solvers.transfers import occupy, schedule_transfers, time_schedule


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a vector of actions comes to.

    Attributes
    ----------
    overflow_bytes
        How far it is from fitting, at best: 0 if it fits.
    step_seconds
        Expected step time; None if it does not fit.
    """

    actions: tuple[Action, ...]
    overflow_bytes: int
    step_seconds: float | None
    closure: Closure
    schedule: Schedule | None

    def is_better_than(self, other: "Evaluation | None") -> bool:
        """Whether it overflows less, or fits and takes less time."""
        if other is None:
            return True
        if self.step_seconds is None or other.step_seconds is None:
            return self.overflow_bytes < other.overflow_bytes
        return self.step_seconds < other.step_seconds


def evaluate(
    graph: Graph, actions: Sequence[Action], *, budget_bytes: int, cutoff_seconds: float = math.inf
) -> Evaluation | None:
    """Schedule and time a vector of actions; None if it runs or swaps what may not be.

    Actions of what backward needs in no way are turned into "keep", which costs nothing.

    Parameters
    ----------
    cutoff_seconds
        A step time of no interest: None also if running layers again alone takes the step there.
    """
    closure = derive_closure(graph, actions)
    if any(
        need is None and action is not Action.KEEP for need, action in zip(closure.need_slots, actions, strict=True)
    ):
        actions = normalise_actions(graph, actions)
        closure = derive_closure(graph, actions)
    if not is_runnable(graph, closure) or not _is_swappable(graph, actions, closure):
        return None
    if graph.ideal_seconds + closure.recompute_seconds(graph) >= cutoff_seconds:
        return None
    overflow = max(0, tight_peak(graph, actions, closure) - budget_bytes)
    if overflow:
        return Evaluation(tuple(actions), overflow, None, closure, None)
    schedule = schedule_transfers(graph, actions, closure, budget_bytes=budget_bytes)
    assert schedule is not None, "the tightest schedule fits"
    seconds = time_schedule(graph, closure, schedule)
    return Evaluation(tuple(actions), 0, seconds, closure, schedule)


def _is_swappable(graph: Graph, actions: Sequence[Action], closure: Closure) -> bool:
    """Whether every swapped activation may be, has time to be away, and all fit into host memory."""
    swapped_bytes = 0
    for activation, action in enumerate(actions):
        if action is Action.SWAP:
            need = closure.need_slots[activation]
            if not graph.swappable[activation] or need is None or need <= graph.last_forward_read[activation] + 1:
                return False
            swapped_bytes += graph.sizes[activation]
    host_memory_bytes = graph.instance.device.host_memory_bytes
    return host_memory_bytes is None or swapped_bytes <= host_memory_bytes


def tight_ledger(graph: Graph, actions: Sequence[Action], closure: Closure) -> list[int]:
    """Return the bytes by slot when swapped activations are held as short as possible."""
    ledger = unswapped_ledger(graph, actions, closure)
    needs = ((number, closure.need_slots[number]) for number, action in enumerate(actions) if action is Action.SWAP)
    occupy(ledger, ((graph.sizes[number], need - 1, closure.last_uses[number]) for number, need in needs if need))
    return ledger


def tight_peak(graph: Graph, actions: Sequence[Action], closure: Closure) -> int:
    """Return the least peak these actions can have, with as much waiting as it takes."""
    return max(tight_ledger(graph, actions, closure))


def plan_of(graph: Graph, evaluation: Evaluation, *, budget_bytes: int) -> Plan:
    """Write an evaluation that fits down as a plan."""
    assert evaluation.schedule is not None
    return make_plan(graph, evaluation.actions, evaluation.schedule, budget_bytes=budget_bytes)
