"""Greedy SlackSwap (arXiv 2610.13003): swap what is dearest to rebuild while the link's slack lasts, rebuild the rest.

The slack is counted over time and in both directions: what is swapped must leave before forward ends and be back
before backward needs it, at full speed, without waiting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.base import Claim, Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.evaluate import Evaluation, evaluate, plan_of

_MAX_ROUNDS: Final = 40


def solve_greedy(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
    """Find a plan by SlackSwap; it proves nothing, so what it does not find may exist."""
    del options
    best = find_greedy(problem.graph, budget_bytes=problem.budget_bytes, monitor=monitor)
    if best is None:
        return Claim(plan=None, method="slackswap")
    return Claim(plan=plan_of(problem.graph, best, budget_bytes=problem.budget_bytes), method="slackswap")


def find_greedy(graph: Graph, *, budget_bytes: int, monitor: Monitor) -> Evaluation | None:
    """Return the best vector of actions that fits, over a bounded number of rounds; None if none fits.

    Each round aims to free some bytes at the peak. What a round frees on paper is not what it frees in the ledger, so
    the aim is first raised until the budget is met, then bisected down to the least that meets it.
    """
    keep_all = evaluate(graph, [Action.KEEP] * graph.num_activations, budget_bytes=budget_bytes)
    assert keep_all is not None
    if keep_all.overflow_bytes == 0:
        return keep_all
    candidates = rank_candidates(graph)
    best: Evaluation | None = None
    low, high = 0, keep_all.overflow_bytes
    top = sum(candidate.size_bytes for candidate in candidates)
    for _ in range(_MAX_ROUNDS):
        if monitor.is_over():
            break
        found = evaluate(graph, choose_actions(graph, candidates, bytes_to_free=high), budget_bytes=budget_bytes)
        if found is not None and found.step_seconds is not None:
            best = found
            break
        if high >= top:
            return None
        low, high = high, min(top, high + max(1, high // 8, 0 if found is None else found.overflow_bytes))
    rounds = 0
    while best is not None and high - low > keep_all.overflow_bytes // 1000 and rounds < _MAX_ROUNDS:
        if monitor.is_over():
            break
        rounds += 1
        middle = (low + high) // 2
        found = evaluate(graph, choose_actions(graph, candidates, bytes_to_free=middle), budget_bytes=budget_bytes)
        fits = found is not None and found.step_seconds is not None
        low, high = (low, middle) if fits else (middle, high)
        if found is not None and fits and found.is_better_than(best):
            best = found
    return best


@dataclass(frozen=True, slots=True)
class Candidate:
    """A saved activation and what rebuilding it takes per byte."""

    activation: int
    size_bytes: int
    seconds_per_byte: float
    is_rebuildable: bool


def rank_candidates(graph: Graph) -> list[Candidate]:
    """Return the saved activations, dearest to rebuild first, ties in order of production.

    Rebuilding takes the producer, and before it the producers of inputs that are not saved either, so a residual sum
    that hides a matrix product is dear and an activation function is cheap.
    """
    candidates = []
    for activation, savers in enumerate(graph.savers):
        if not savers:
            continue
        chain = _find_chain(graph, activation)
        seconds = sum(graph.forward_seconds[layer] for layer in chain)
        size = graph.sizes[activation]
        is_rebuildable = all(graph.recomputable[layer] for layer in chain)
        candidates.append(Candidate(activation, size, seconds / size, is_rebuildable))
    return sorted(candidates, key=lambda candidate: (-candidate.seconds_per_byte, candidate.activation))


def _find_chain(graph: Graph, activation: int) -> set[int]:
    """Return the layers that run again to rebuild one activation while all other saved ones are there."""
    chain: set[int] = set()
    pending = [graph.producers[activation]]
    while pending:
        layer = pending.pop()
        if layer not in chain:
            chain.add(layer)
            pending.extend(graph.producers[source] for source in graph.inputs[layer] if not graph.savers[source])
    return chain


def choose_actions(graph: Graph, candidates: Sequence[Candidate], *, bytes_to_free: int) -> list[Action]:
    """Swap from the dear end while the slack lasts, recompute from the cheap end, until enough is freed."""
    actions = [Action.KEEP] * graph.num_activations
    slack = LinkSlack(graph)
    freed = 0
    for candidate in candidates:
        if freed >= bytes_to_free:
            return actions
        if graph.swappable[candidate.activation] and slack.take(candidate.activation):
            actions[candidate.activation] = Action.SWAP
            freed += candidate.size_bytes
    for candidate in reversed(candidates):
        if freed >= bytes_to_free:
            break
        if candidate.is_rebuildable and actions[candidate.activation] is Action.KEEP:
            actions[candidate.activation] = Action.RECOMPUTE
            freed += candidate.size_bytes
    return actions


class LinkSlack:
    """Transfer time that hides under compute, over time and in both directions.

    A first in first out link meets its deadlines exactly if every window can hold its work: what is produced from
    layer j on must be copied between the end of Fj and the end of forward; what is needed by Bi must be copied
    between the start of backward and the start of Bi.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        forward_ends = list(accumulate(graph.forward_seconds))
        self._out_left = [forward_ends[-1] - end for end in forward_ends]
        backward_ends = list(accumulate(reversed(graph.backward_seconds), initial=0.0))
        self._in_left = backward_ends[:-1][::-1]

    def take(self, activation: int) -> bool:
        """Take the time to swap an activation, or return False and take nothing if it does not hide."""
        graph = self._graph
        producer, first_save = graph.producers[activation], graph.savers[activation][-1]
        swap_out, swap_in = graph.swap_out_seconds(activation), graph.swap_in_seconds(activation)
        outs = range(producer + 1)
        ins = range(first_save + 1)
        if any(self._out_left[layer] < swap_out for layer in outs) or any(
            self._in_left[layer] < swap_in for layer in ins
        ):
            return False
        for layer in outs:
            self._out_left[layer] -= swap_out
        for layer in ins:
            self._in_left[layer] -= swap_in
        return True
