"""Greedy SlackSwap (arXiv 2610.13003): swap what is dearest to rebuild while the link's slack lasts, rebuild the rest.

The slack is counted over time and in both directions: what is swapped must leave before forward ends and be back
before backward needs it, at full speed, without waiting.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.base import Claim, Monitor, Problem, SolveOptions
from slackswap_ilp.solvers.evaluate import Evaluation, evaluate, plan_of
from slackswap_ilp.solvers.polish import Search, repair

_MAX_LINES: Final = 12
_MIN_ROUNDS: Final = 30
_ROUND_LAYERS: Final = 100_000
_RESOLUTION: Final = 0.001
_PATIENCE: Final = 3
_REPAIRS: Final = 1000


def solve_greedy(problem: Problem, options: SolveOptions, monitor: Monitor) -> Claim:
    """Find a plan by SlackSwap; it proves nothing, so what it does not find may exist."""
    del options
    best = find_greedy(problem.graph, budget_bytes=problem.budget_bytes, monitor=monitor)
    if best is None:
        return Claim(plan=None, method="slackswap")
    return Claim(plan=plan_of(problem.graph, best, budget_bytes=problem.budget_bytes), method="slackswap")


def find_greedy(graph: Graph, *, budget_bytes: int, monitor: Monitor) -> Evaluation | None:
    """Return the best vector of actions that fits, over a bounded number of rounds; None if none fits.

    SlackSwap's order decides what is dear and what is cheap; where the line between them lies is tried out.
    """
    keep_all = evaluate(graph, [Action.KEEP] * graph.num_activations, budget_bytes=budget_bytes)
    assert keep_all is not None
    if keep_all.overflow_bytes == 0:
        return keep_all
    best: Evaluation | None = None
    closest = keep_all
    plain = rank_candidates(graph)
    exchanges = find_exchanges(graph)
    for candidates in (plain, _sort([*plain, *exchanges])) if exchanges else (plain,):
        search = _LineSearch(graph, budget_bytes, monitor, candidates, keep_all)
        num_worse = 0
        for line in (None, *_find_lines(candidates)):
            found = search.find_least(line)
            is_better = found is not None and found.is_better_than(best)
            if found is not None and is_better:
                best = found
                monitor.report(step_seconds=best.step_seconds)
            num_worse = 0 if is_better or best is None else num_worse + 1
            if num_worse >= _PATIENCE or monitor.is_over():
                break
        closest = search.closest if search.closest.is_better_than(closest) else closest
        if monitor.is_over():
            break
    if best is not None:
        return best
    # Where the slack is not enough, the price of waiting: move out of the fullest slot whatever is cheapest there.
    repaired = repair(Search(graph, budget_bytes, monitor, good_enough_seconds=0.0, max_evaluations=_REPAIRS), closest)
    return repaired if repaired.step_seconds is not None else None


def _find_lines(candidates: Sequence["Candidate"]) -> list[float]:
    """Return prices to draw the line at, below which all is recomputed: those at which many bytes change sides."""
    bytes_at: dict[float, int] = defaultdict(int)
    for candidate in candidates:
        if candidate.is_rebuildable:
            bytes_at[candidate.seconds_per_byte] += candidate.freed_bytes
    largest = sorted(bytes_at, key=lambda price: (-bytes_at[price], price))[:_MAX_LINES]
    return sorted(largest)


@dataclass(slots=True)
class _LineSearch:
    """Finds, for a line, the fewest bytes to free on paper that meet the budget in the ledger.

    Attributes
    ----------
    closest
        The best evaluation so far, whether it fits or not; keep-all to begin with.
    """

    graph: Graph
    budget_bytes: int
    monitor: Monitor
    candidates: Sequence["Candidate"]
    closest: Evaluation
    overflow_bytes: int = field(init=False)
    evaluations_left: int = field(init=False)

    def __post_init__(self) -> None:
        """Allow fewer rounds on larger graphs; the count does not depend on the machine's speed."""
        self.overflow_bytes = self.closest.overflow_bytes
        self.evaluations_left = max(_MIN_ROUNDS, _ROUND_LAYERS // self.graph.num_layers)

    def find_least(self, line: float | None) -> Evaluation | None:
        """Return the best evaluation that fits.

        What a round frees on paper is not what it frees in the ledger, so the aim is first raised until the budget is
        met, then bisected down to the least that meets it.
        """
        low, high = 0, self.overflow_bytes
        top = sum(candidate.freed_bytes for candidate in self.candidates)
        best: Evaluation | None = None
        while best is None:
            found = self._evaluate(line, high)
            if found is not None and found.step_seconds is not None:
                best = found
            elif high >= top or not self._may_go_on():
                return None
            else:
                low, high = high, min(top, high + max(1, high // 8, 0 if found is None else found.overflow_bytes))
        while high - low > max(1, self.overflow_bytes * _RESOLUTION) and self._may_go_on():
            middle = (low + high) // 2
            found = self._evaluate(line, middle)
            if found is None or found.step_seconds is None:
                low = middle
                continue
            high = middle
            if found.is_better_than(best):
                best = found
        return best

    def _may_go_on(self) -> bool:
        return self.evaluations_left > 0 and not self.monitor.is_over()

    def _evaluate(self, line: float | None, bytes_to_free: int) -> Evaluation | None:
        self.evaluations_left -= 1
        actions = choose_actions(self.graph, self.candidates, bytes_to_free=bytes_to_free, line=line)
        found = evaluate(self.graph, actions, budget_bytes=self.budget_bytes)
        if found is not None and found.is_better_than(self.closest):
            self.closest = found
        return found


@dataclass(frozen=True, slots=True)
class Candidate:
    """What can be recomputed together, what that frees, and what it takes per byte.

    Attributes
    ----------
    activations
        The saved activations; one, or all of a layer in an exchange.
    sources
        Activations that no backward saves and that are rebuilt on the way.
    """

    activations: tuple[int, ...]
    sources: tuple[int, ...]
    freed_bytes: int
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
        sources = {source for layer in chain for source in graph.inputs[layer] if not graph.savers[source]}
        is_rebuildable = all(graph.recomputable[layer] for layer in chain)
        candidates.append(Candidate((activation,), tuple(sorted(sources)), size, seconds / size, is_rebuildable))
    return _sort(candidates)


def find_exchanges(graph: Graph) -> list[Candidate]:
    """Return the layers whose saved outputs are larger than their inputs that no backward saves.

    Holding such inputs and running the layer again frees the difference, at the price of that layer alone.
    """
    exchanges = []
    for layer in range(graph.num_layers):
        outputs = tuple(number for number in graph.outputs[layer] if graph.savers[number])
        sources = [number for number in graph.inputs[layer] if not graph.savers[number]]
        freed = sum(graph.sizes[number] for number in outputs) - sum(graph.sizes[number] for number in sources)
        if sources and freed > 0 and graph.recomputable[layer]:
            exchanges.append(Candidate(outputs, (), freed, graph.forward_seconds[layer] / freed, is_rebuildable=True))
    return exchanges


def _sort(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: (-candidate.seconds_per_byte, candidate.activations))


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


def choose_actions(
    graph: Graph, candidates: Sequence[Candidate], *, bytes_to_free: int, line: float | None = None
) -> list[Action]:
    """Swap from the dear end while the slack lasts, recompute from the cheap end, until enough is freed.

    Parameters
    ----------
    line
        Seconds per byte at or below which an activation is cheap: these are recomputed first, and of the dear ones
        those are swapped that are produced first, which have the most time to leave. None for the plain order.
    """
    actions = [Action.KEEP] * graph.num_activations
    slack = LinkSlack(graph)
    freed = 0
    dear = list(candidates)
    if line is not None:
        for candidate in reversed(candidates):
            if candidate.seconds_per_byte <= line:
                freed += _recompute(actions, candidate)
        dear = sorted(candidates, key=lambda candidate: candidate.activations)
    for candidate in dear:
        if freed >= bytes_to_free:
            return actions
        activation, *others = candidate.activations
        is_kept = not others and actions[activation] is Action.KEEP
        if is_kept and graph.swappable[activation] and slack.take(activation):
            actions[activation] = Action.SWAP
            freed += graph.sizes[activation]
    for candidate in reversed(candidates):
        if freed >= bytes_to_free:
            break
        freed += _recompute(actions, candidate)
    return actions


def _recompute(actions: list[Action], candidate: Candidate) -> int:
    """Recompute a candidate if all of it is kept so far; return the bytes that frees."""
    if not candidate.is_rebuildable or any(actions[number] is not Action.KEEP for number in candidate.activations):
        return 0
    for number in (*candidate.activations, *candidate.sources):
        actions[number] = Action.RECOMPUTE
    return candidate.freed_bytes


class LinkSlack:
    """Transfer time that hides under compute, over time and in both directions.

    A first in first out link meets its deadlines exactly if every window can hold its work: what is produced from
    layer j on must be copied between the end of Fj and the end of forward; what is needed by Bi must be copied
    between the start of backward and the start of Bi.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        forward_ends = np.cumsum(graph.forward_seconds)
        self._out_left = forward_ends[-1] - forward_ends
        backward_ends = np.cumsum((0.0, *reversed(graph.backward_seconds)))
        self._in_left = backward_ends[:-1][::-1].copy()

    def take(self, activation: int) -> bool:
        """Take the time to swap an activation, or return False and take nothing if it does not hide."""
        graph = self._graph
        outs = self._out_left[: graph.producers[activation] + 1]
        ins = self._in_left[: graph.savers[activation][-1] + 1]
        swap_out, swap_in = graph.swap_out_seconds(activation), graph.swap_in_seconds(activation)
        if outs.min() < swap_out or ins.min() < swap_in:
            return False
        outs -= swap_out
        ins -= swap_in
        return True
