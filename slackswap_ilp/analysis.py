"""What follows from an instance alone, and from an instance and actions: pure functions that all solvers share.

Activations are numbered in order of production, slots in order of time (see `slots`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import KEEP, RECOMPUTE, Action, Decision, Plan, Swap
from slackswap_ilp.slots import backward_slot, num_slots, slot_name


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """The layer graph of an instance with numbers for names.

    Attributes
    ----------
    sizes, gradients
        Bytes by activation.
    producers
        Layer by activation.
    readers
        Layers that read an activation in forward, ascending.
    savers
        Layers whose backward reads an activation, ascending.
    last_forward_read
        Forward slot by activation: its last reader, or its producer if there is none.
    inputs, outputs
        Activations by layer.
    """

    instance: Instance
    num_layers: int
    num_activations: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    gradients: tuple[int, ...]
    swappable: tuple[bool, ...]
    producers: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    savers: tuple[tuple[int, ...], ...]
    last_forward_read: tuple[int, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    saved: tuple[tuple[int, ...], ...]
    forward_seconds: tuple[float, ...]
    backward_seconds: tuple[float, ...]
    forward_workspace: tuple[int, ...]
    recomputable: tuple[bool, ...]
    fixed_bytes: tuple[int, ...]
    """Bytes by slot that no plan changes: workspaces, gradients, activations through their last forward read."""

    @property
    def num_slots(self) -> int:
        """Number of slots of a step."""
        return num_slots(self.num_layers)

    @property
    def ideal_seconds(self) -> float:
        """Step time with everything kept and no memory limit."""
        return math.fsum((*self.forward_seconds, *self.backward_seconds))

    def swap_out_seconds(self, activation: int) -> float:
        """Return what copying an activation to host memory takes."""
        device = self.instance.device
        return device.transfer_latency_seconds + self.sizes[activation] / device.swap_out_bytes_per_second

    def swap_in_seconds(self, activation: int) -> float:
        """Return what copying an activation back takes."""
        device = self.instance.device
        return device.transfer_latency_seconds + self.sizes[activation] / device.swap_in_bytes_per_second


@dataclass(frozen=True, slots=True)
class Closure:
    """What follows from a vector of actions.

    Attributes
    ----------
    rerun_slots
        Recompute slot by layer that runs again.
    need_slots
        By activation, the first slot that requires it in backward; None if nothing does.
    last_uses
        By activation, the last slot that uses it.
    """

    rerun_slots: dict[int, int]
    need_slots: tuple[int | None, ...]
    last_uses: tuple[int, ...]

    def recompute_seconds(self, graph: Graph) -> float:
        """Return the time that running layers again takes."""
        return sum(graph.forward_seconds[layer] for layer in self.rerun_slots)


def make_graph(instance: Instance) -> Graph:
    """Number the layers and activations of an instance."""
    layers = instance.layers
    activations = instance.activations
    index = {activation.name: number for number, activation in enumerate(activations)}
    readers: list[list[int]] = [[] for _ in activations]
    savers: list[list[int]] = [[] for _ in activations]
    producers: list[int] = []
    for number, layer in enumerate(layers):
        producers.extend(number for _ in layer.outputs)
        for name in layer.inputs:
            readers[index[name]].append(number)
        for name in layer.saved:
            savers[index[name]].append(number)
    last_forward_read = tuple(read[-1] if read else producer for read, producer in zip(readers, producers, strict=True))
    return Graph(
        instance=instance,
        num_layers=len(layers),
        num_activations=len(activations),
        names=tuple(activation.name for activation in activations),
        sizes=tuple(activation.size_bytes for activation in activations),
        gradients=tuple(activation.gradient_bytes for activation in activations),
        swappable=tuple(activation.swappable for activation in activations),
        producers=tuple(producers),
        readers=tuple(map(tuple, readers)),
        savers=tuple(map(tuple, savers)),
        last_forward_read=last_forward_read,
        inputs=tuple(tuple(index[name] for name in layer.inputs) for layer in layers),
        outputs=tuple(tuple(index[output.name] for output in layer.outputs) for layer in layers),
        saved=tuple(tuple(index[name] for name in layer.saved) for layer in layers),
        forward_seconds=tuple(layer.forward_seconds for layer in layers),
        backward_seconds=tuple(layer.backward_seconds for layer in layers),
        forward_workspace=tuple(layer.forward_workspace_bytes for layer in layers),
        recomputable=tuple(layer.recomputable for layer in layers),
        fixed_bytes=_find_fixed_bytes(instance, producers, last_forward_read),
    )


def _find_fixed_bytes(
    instance: Instance, producers: Sequence[int], last_forward_read: Sequence[int]
) -> tuple[int, ...]:
    """Return, by slot, the bytes that no plan changes."""
    n = len(instance.layers)
    ledger = Ledger(num_slots(n))
    for activation, producer, last_read in zip(instance.activations, producers, last_forward_read, strict=True):
        ledger.occupy(activation.size_bytes, producer, last_read)
        ledger.occupy(activation.gradient_bytes, backward_slot(last_read, n), backward_slot(producer, n))
    for number, layer in enumerate(instance.layers):
        ledger.occupy(layer.forward_workspace_bytes, number, number)
        slot = backward_slot(number, n)
        ledger.occupy(layer.backward_workspace_bytes, slot, slot)
    return tuple(ledger.values())


class Ledger:
    """Bytes by slot, gathered from what occupies memory from one slot through another."""

    __slots__ = ("_change",)

    def __init__(self, slots: int) -> None:
        self._change = [0] * (slots + 1)

    def occupy(self, size_bytes: int, first: int, last: int) -> None:
        """Add `size_bytes` from slot `first` through slot `last`; nothing if `last` is before `first`."""
        if first <= last:
            self._change[first] += size_bytes
            self._change[last + 1] -= size_bytes

    def values(self) -> list[int]:
        """Return the bytes by slot."""
        return list(accumulate(self._change[:-1]))


def derive_closure(graph: Graph, actions: Sequence[Action]) -> Closure:
    """Find which layers run again, and when each activation is needed and used last."""
    n = graph.num_layers
    rerun_slots: dict[int, int] = {}
    need_slots: list[int | None] = [None] * graph.num_activations
    last_uses = list(graph.last_forward_read)
    recompute = Action.RECOMPUTE
    producers, inputs = graph.producers, graph.inputs
    for layer in range(n - 1, -1, -1):
        slot = backward_slot(layer, n)
        pending = list(graph.saved[layer])
        for activation in pending:
            if need_slots[activation] is None:
                need_slots[activation] = slot
            last_uses[activation] = slot
        while pending:
            activation = pending.pop()
            producer = producers[activation]
            if actions[activation] is not recompute or producer in rerun_slots:
                continue
            rerun_slots[producer] = slot - 1
            for source in inputs[producer]:
                need = need_slots[source]
                if need is None or need > slot - 1:
                    need_slots[source] = slot - 1
                if last_uses[source] < slot - 1:
                    last_uses[source] = slot - 1
                pending.append(source)
    for layer, slot in rerun_slots.items():
        for output in graph.outputs[layer]:
            if last_uses[output] < slot and actions[output] is recompute:
                last_uses[output] = slot
    return Closure(rerun_slots, tuple(need_slots), tuple(last_uses))


def is_runnable(graph: Graph, closure: Closure) -> bool:
    """Whether every layer that runs again may."""
    return all(graph.recomputable[layer] for layer in closure.rerun_slots)


def unswapped_ledger(graph: Graph, actions: Sequence[Action], closure: Closure) -> list[int]:
    """Return the bytes by slot, leaving out what swapped activations occupy after their last forward read."""
    ledger = Ledger(graph.num_slots)
    for activation, action in enumerate(actions):
        size, last = graph.sizes[activation], closure.last_uses[activation]
        if action is Action.KEEP:
            ledger.occupy(size, graph.last_forward_read[activation] + 1, last)
        elif action is Action.RECOMPUTE:
            rerun = closure.rerun_slots.get(graph.producers[activation])
            if rerun is not None:
                ledger.occupy(size, rerun, last)
    workspace: dict[int, int] = {}
    for layer, slot in closure.rerun_slots.items():
        workspace[slot] = max(workspace.get(slot, 0), graph.forward_workspace[layer])
    for slot, size in workspace.items():
        ledger.occupy(size, slot, slot)
    return [fixed + value for fixed, value in zip(graph.fixed_bytes, ledger.values(), strict=True)]


def keep_all_peak(graph: Graph) -> int:
    """Return the peak when everything is kept: the memory that an unlimited device would use."""
    actions = [Action.KEEP] * graph.num_activations
    return max(unswapped_ledger(graph, actions, derive_closure(graph, actions)))


def slot_seconds(graph: Graph, closure: Closure) -> list[float]:
    """Return the compute time by slot."""
    n = graph.num_layers
    seconds = [0.0] * graph.num_slots
    for layer in range(n):
        seconds[layer] = graph.forward_seconds[layer]
        seconds[backward_slot(layer, n)] = graph.backward_seconds[layer]
    for layer, slot in sorted(closure.rerun_slots.items()):
        seconds[slot] += graph.forward_seconds[layer]
    return seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """When swapped memory is released and fetched: slots by swapped activation."""

    release_slots: dict[int, int]
    fetch_slots: dict[int, int]


def make_plan(graph: Graph, actions: Sequence[Action], schedule: Schedule, *, budget_bytes: int | None = None) -> Plan:
    """Write actions and a transfer schedule down as a plan, with names for numbers."""
    n = graph.num_layers
    decisions: dict[str, Decision] = {}
    for number, (name, action) in enumerate(zip(graph.names, actions, strict=True)):
        if action is Action.SWAP:
            decisions[name] = Swap(
                release_slot=slot_name(schedule.release_slots[number], n),
                fetch_slot=slot_name(schedule.fetch_slots[number], n),
            )
        else:
            decisions[name] = KEEP if action is Action.KEEP else RECOMPUTE
    return Plan(
        instance=graph.instance.name,
        instance_digest=graph.instance.digest,
        budget_bytes=budget_bytes,
        activations=decisions,
    )


def normalise_actions(graph: Graph, actions: Sequence[Action]) -> list[Action]:
    """Keep, on paper, what backward needs in no way: it is dropped after its last forward read all the same."""
    closure = derive_closure(graph, actions)
    return [Action.KEEP if need is None else action for action, need in zip(actions, closure.need_slots, strict=True)]
