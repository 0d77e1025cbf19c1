"""Local search on actions: closes most of what rounding a relaxation leaves open."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.base import Monitor
from slackswap_ilp.solvers.evaluate import Evaluation, evaluate, tight_ledger
from slackswap_ilp.units import SECONDS_TOLERANCE

_NEGLIGIBLE: Final = 1e-6
"""Share of the budget below which an activation is not worth a move."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a local search works on.

    Attributes
    ----------
    good_enough_seconds
        A step time at which it stops.
    max_evaluations
        How many neighbours it looks at, at most, so that the outcome does not depend on the machine's speed.
    """

    graph: Graph
    budget_bytes: int
    monitor: Monitor
    good_enough_seconds: float
    max_evaluations: int

    def is_done(self, best: Evaluation, evaluations: int) -> bool:
        """Whether to stop."""
        is_good = best.step_seconds is not None and best.step_seconds <= self.good_enough_seconds
        return is_good or evaluations >= self.max_evaluations or self.monitor.is_over()


def improve(search: Search, start: Evaluation) -> Evaluation:
    """Change one activation's action at a time, as long as that helps; returns the best found."""
    best = start
    evaluations = 0
    has_improved = True
    while has_improved:
        has_improved = False
        for activation, action in _find_moves(search, best):
            if search.is_done(best, evaluations):
                return best
            if best.actions[activation] is action:
                continue
            evaluations += 1
            actions = list(best.actions)
            actions[activation] = action
            cutoff = math.inf if best.step_seconds is None else best.step_seconds
            found = evaluate(search.graph, actions, budget_bytes=search.budget_bytes, cutoff_seconds=cutoff)
            if found is not None and found.is_better_than(best):
                best, has_improved = found, True
                if found.step_seconds is not None:
                    search.monitor.report(step_seconds=found.step_seconds)
    return best


def repair(search: Search, start: Evaluation) -> Evaluation:
    """Change the actions of what fills the fullest slot, one at a time, until all fits or nothing helps.

    Each step takes, of the changes that lower the overflow, the one that adds the least recompute time per byte.
    """
    best = start
    evaluations = 0
    while best.step_seconds is None and not search.is_done(best, evaluations):
        chosen: Evaluation | None = None
        lowest = math.inf
        for activation, action in _find_moves(search, best):
            if search.is_done(best, evaluations):
                break
            evaluations += 1
            actions = list(best.actions)
            actions[activation] = action
            found = evaluate(search.graph, actions, budget_bytes=search.budget_bytes)
            if found is None or found.overflow_bytes >= best.overflow_bytes:
                continue
            price = _find_price(search.graph, best, found)
            if price < lowest:
                chosen, lowest = found, price
        if chosen is None:
            return best
        best = chosen
    return best


def _find_price(graph: Graph, before: Evaluation, after: Evaluation) -> float:
    """Return the seconds of recompute and link time that a change adds per byte of overflow that it takes away."""
    seconds = after.closure.recompute_seconds(graph) - before.closure.recompute_seconds(graph)
    for number, (old, new) in enumerate(zip(before.actions, after.actions, strict=True)):
        if old is not new:
            seconds += graph.swap_out_seconds(number) * ((new is Action.SWAP) - (old is Action.SWAP))
    return seconds / (before.overflow_bytes - after.overflow_bytes)


def _find_moves(search: Search, best: Evaluation) -> Iterator[tuple[int, Action]]:
    """Yield changes of one action, most promising first.

    In models of repeated blocks most decisions come in runs over the blocks: first where such runs meet, then anywhere.
    """
    graph = search.graph
    smallest = search.budget_bytes * _NEGLIGIBLE
    numbers = [number for number, size in enumerate(graph.sizes) if graph.savers[number] and size >= smallest]
    if best.step_seconds is None:
        numbers = _find_present(graph, best)
    else:
        yield from _find_borders(graph, best)
    busy_seconds = graph.ideal_seconds + best.closure.recompute_seconds(graph)
    is_stalled = best.step_seconds is None or best.step_seconds > busy_seconds * (1 + SECONDS_TOLERANCE)
    for number in numbers:
        for action in (Action.KEEP, Action.SWAP, Action.RECOMPUTE):
            # Without waiting, only running less again makes the step shorter.
            if best.actions[number] is not action and (is_stalled or best.actions[number] is Action.RECOMPUTE):
                yield number, action


def _find_borders(graph: Graph, best: Evaluation) -> Iterator[tuple[int, Action]]:
    """Yield changes to the action of the next activation of the same kind, before or after."""
    roles: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for layer, outputs in enumerate(graph.outputs):
        for position, number in enumerate(outputs):
            roles[graph.instance.layers[layer].kind, position, graph.sizes[number]].append(number)
    for numbers in roles.values():
        for earlier, later in pairwise(numbers):
            if best.actions[earlier] is not best.actions[later]:
                yield earlier, best.actions[later]
                yield later, best.actions[earlier]


def _find_present(graph: Graph, best: Evaluation) -> list[int]:
    """Return what can be moved out of the fullest slot, largest first."""
    ledger = tight_ledger(graph, best.actions, best.closure)
    slot = ledger.index(max(ledger))
    present = []
    for number, action in enumerate(best.actions):
        first = graph.last_forward_read[number] + 1
        if action is Action.RECOMPUTE:
            first = best.closure.rerun_slots.get(graph.producers[number], graph.num_slots)
        if action is Action.SWAP:
            first = (best.closure.need_slots[number] or 1) - 1
        if first <= slot <= best.closure.last_uses[number]:
            present.append(number)
    return sorted(present, key=lambda number: (-graph.sizes[number], number))


def best_of(evaluations: Sequence[Evaluation | None]) -> Evaluation | None:
    """Return the best of some evaluations; the first of equals."""
    best: Evaluation | None = None
    for evaluation in evaluations:
        if evaluation is not None and evaluation.is_better_than(best):
            best = evaluation
    return best
