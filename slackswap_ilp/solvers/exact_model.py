"""What the exact program is made of: its variables, and the slots at which anything can happen."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from slackswap_ilp.analysis import Graph, Ledger
from slackswap_ilp.slots import backward_slot, recompute_slot, slot_name
from slackswap_ilp.solvers.program import Program, Variable
from slackswap_ilp.solvers.triggers import Triggers, find_triggers

Term = tuple[Variable, float]

_LARGEST: Final = 1000.0
"""In the program's own units, the largest activation and the longest of step and copies."""


@dataclass(frozen=True, slots=True)
class Staircase:
    """Whether something has happened by a slot: a variable for every slot at which it can, in order of time."""

    slots: tuple[int, ...]
    variables: tuple[Variable, ...]

    def by(self, slot: int, factor: float = 1.0) -> list[Term]:
        """Return the term, if any, for having happened by `slot`."""
        index = bisect_right(self.slots, slot)
        return [(self.variables[index - 1], factor)] if index else []

    def since(self, slot: int, factor: float = 1.0) -> list[Term]:
        """Return the terms for happening at `slot` or later."""
        before = self.by(slot - 1, -factor)
        if before and before[0][0] is self.variables[-1]:
            return []
        return [(self.variables[-1], factor), *before]


@dataclass(frozen=True, slots=True)
class Horizon:
    """What can happen when, whatever the plan.

    Attributes
    ----------
    need_slots
        By activation, the slots that can be the first to require it in backward, in order of time.
    last_uses
        By activation, the last slot that can use it.
    is_hot
        By slot, whether memory can exceed the budget there.
    release_slots, fetch_slots
        By activation, where a swap-out may have to be complete, and where it may be fetched. Empty where swapping
        helps nobody.

    Notes
    -----
    A release before a slot that is not hot may wait one slot longer; with full duplex a fetch after a slot that is
    not hot may come one slot earlier; neither is slower. So other slots are left out.
    """

    need_slots: tuple[tuple[int, ...], ...]
    last_uses: tuple[int, ...]
    is_hot: tuple[bool, ...]
    release_slots: tuple[tuple[int, ...], ...]
    fetch_slots: tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class ExactProgram:
    """The exact program of a graph and a budget, and its variables.

    Attributes
    ----------
    unit_bytes, unit_seconds
        What the program counts in, so that its numbers suit the solver's tolerances whatever the graph's sizes.
    keep, swap
        By activation, whether it is kept or swapped; what backward can never require has neither.
    rerun
        By layer, whether it ran again by a recompute slot.
    rebuilt
        By activation, whether it is recomputed and its producer ran again.
    needed
        By activation, whether it is swapped and something in backward required it.
    complete
        By activation, whether it is swapped and compute waited until its swap-out was complete.
    issued
        By activation, whether it is swapped and its fetch slot has come.
    delay
        By slot, how much later than in the ideal step it starts.
    """

    graph: Graph
    budget_bytes: int
    triggers: Triggers
    horizon: Horizon
    program: Program
    unit_bytes: float
    unit_seconds: float
    keep: dict[int, Variable] = field(default_factory=dict)
    swap: dict[int, Variable] = field(default_factory=dict)
    rerun: dict[int, Staircase] = field(default_factory=dict)
    rebuilt: dict[int, Staircase] = field(default_factory=dict)
    needed: dict[int, Staircase] = field(default_factory=dict)
    complete: dict[int, Staircase] = field(default_factory=dict)
    issued: dict[int, Staircase] = field(default_factory=dict)
    delay: list[Variable] = field(default_factory=list)
    ideal_starts: tuple[float, ...] = ()

    def name(self, slot: int) -> str:
        """Return the name of a slot."""
        return slot_name(slot, self.graph.num_layers)

    def reader_stairs(self, activation: int) -> dict[int, Staircase]:
        """Return, by layer, when the readers of an activation ran again, of those that can."""
        return {layer: self.rerun[layer] for layer in self.graph.readers[activation] if layer in self.rerun}

    def add_staircase(self, name: str, slots: Sequence[int], last: Variable | None = None) -> Staircase:
        """Add a staircase of binaries; `last` is the variable of its last slot where that exists already."""
        names = [f"{name},{self.name(slot)}]" for slot in slots]
        variables = [self.program.binary(name) for name in (names if last is None else names[:-1])]
        stairs = Staircase(tuple(slots), (*variables, last) if last is not None else tuple(variables))
        self.ascend(name, stairs)
        return stairs

    def ascend(self, name: str, stairs: Staircase) -> None:
        """Let what has happened by one slot have happened by the next."""
        for (_, earlier), (slot, later) in pairwise(zip(stairs.slots, stairs.variables, strict=True)):
            self.program.at_most(f"stays_{name},{self.name(slot)}]", ((earlier, 1), (later, -1)))


def open_program(graph: Graph, budget_bytes: int) -> ExactProgram:
    """Return the exact program before anything is in it."""
    triggers = find_triggers(graph, window=None)
    copies = (max(graph.swap_out_seconds(a), graph.swap_in_seconds(a)) for a in range(graph.num_activations))
    longest = max([graph.ideal_seconds, *copies])
    n = graph.num_layers
    unit_seconds = longest / _LARGEST if longest else 1.0
    durations = [0.0] * graph.num_slots
    for layer in range(n):
        durations[layer] = graph.forward_seconds[layer] / unit_seconds
        durations[backward_slot(layer, n)] = graph.backward_seconds[layer] / unit_seconds
    return ExactProgram(
        graph,
        budget_bytes,
        triggers,
        find_horizon(graph, triggers, budget_bytes),
        Program("exact"),
        unit_bytes=max([*graph.sizes, *graph.forward_workspace, _LARGEST]) / _LARGEST,
        unit_seconds=unit_seconds,
        ideal_starts=tuple(accumulate(durations[:-1], initial=0.0)),
    )


def find_horizon(graph: Graph, triggers: Triggers, budget_bytes: int) -> Horizon:
    """Find the slots at which anything can happen."""
    n = graph.num_layers
    need_slots, last_uses = [], []
    for activation, own in enumerate(triggers.of_activation):
        savers = graph.savers[activation]
        reruns = {recompute_slot(i, n) for layer in graph.readers[activation] for i in triggers.of_layer[layer]}
        saves = [backward_slot(layer, n) for layer in reversed(savers)]
        need_slots.append(tuple(sorted({slot for slot in reruns if not saves or slot < saves[0]} | {*saves[:1]})))
        rebuilds = [recompute_slot(i, n) for i in triggers.of_layer[graph.producers[activation]]] if own else []
        last_uses.append(max([graph.last_forward_read[activation], *reruns, *saves, *rebuilds]))
    is_hot = _find_hot_slots(graph, triggers, last_uses, budget_bytes)
    release_slots, fetch_slots = [], []
    all_needs = {slot for needs in need_slots for slot in needs}
    is_half = graph.instance.device.duplex == "half"
    for activation, needs in enumerate(need_slots):
        first, end = graph.last_forward_read[activation] + 1, max(needs, default=0)
        releases: tuple[int, ...] = ()
        fetches: tuple[int, ...] = ()
        if graph.swappable[activation] and any(is_hot[first : max(first, end - 1)]):
            fetches = tuple(slot for slot in range(first + 1, end) if is_half or is_hot[slot - 1])
            stops = range(graph.producers[activation] + 1, end)
            releases = tuple(slot for slot in stops if is_hot[slot] or (is_half and slot in all_needs))
        release_slots.append(releases)
        fetch_slots.append(fetches)
    return Horizon(tuple(need_slots), tuple(last_uses), is_hot, tuple(release_slots), tuple(fetch_slots))


def _find_hot_slots(graph: Graph, triggers: Triggers, last_uses: Sequence[int], budget_bytes: int) -> tuple[bool, ...]:
    """Return, by slot, whether the most memory that any plan can use there is above the budget."""
    n = graph.num_layers
    ledger = Ledger(graph.num_slots)
    for activation, last in enumerate(last_uses):
        ledger.occupy(graph.sizes[activation], graph.last_forward_read[activation] + 1, last)
    workspaces = [0] * graph.num_slots
    for layer, own in enumerate(triggers.of_layer):
        for trigger in own:
            slot = recompute_slot(trigger, n)
            workspaces[slot] = max(workspaces[slot], graph.forward_workspace[layer])
    columns = zip(graph.fixed_bytes, ledger.values(), workspaces, strict=True)
    return tuple(sum(column) > budget_bytes for column in columns)
