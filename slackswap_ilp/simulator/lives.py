"""What a plan means for every activation: recompute closure, need slots, lifetimes, and the memory ledger."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from slackswap_ilp.errors import PlanError
from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import Plan, Swap
from slackswap_ilp.slots import backward_slot, num_slots, parse_slot, recompute_slot, slot_name

_MAX_SHOWN_ERRORS: Final = 20


def refuse(violations: Iterator[str]) -> None:
    """Raise one error for all violations, if there are any."""
    lines = list(violations)
    if lines:
        shown = lines[:_MAX_SHOWN_ERRORS]
        if len(lines) > len(shown):
            shown.append(f"... and {len(lines) - len(shown)} more")
        raise PlanError("\n".join(shown))


def _find_mismatches(instance: Instance, plan: Plan) -> Iterator[str]:
    """Yield what shows that the plan is not one for this instance."""
    if plan.instance_digest is not None and plan.instance_digest != instance.digest:
        yield (
            f"instance_digest: must be {instance.digest}, got {plan.instance_digest}: the plan is for another"
            f" instance ({plan.instance!r}), or the instance has changed since; solve it again"
        )
        return
    if plan.instance_digest is None and plan.instance != instance.name:
        yield f"instance: must be {instance.name!r}, got {plan.instance!r}: the plan is for another instance"
    known = {activation.name for activation in instance.activations}
    for name in plan.activations:
        if name not in known:
            yield f"activations[{name!r}]: must be an activation of instance {instance.name!r}, got an unknown name"
    for activation in instance.activations:
        if activation.name not in plan.activations:
            yield f"activations[{activation.name!r}]: is missing; a plan names every activation"


@dataclass(slots=True)
class Life:
    """What the replay knows of one activation; slots are numbers, None where there is none."""

    order: int
    name: str
    size_bytes: int
    gradient_bytes: int
    producer: int
    action: str
    last_forward_read: int
    release: int | None = None
    fetch: int | None = None
    need: int | None = None
    last_use: int = -1
    rebuilt: int | None = None


@dataclass(slots=True)
class Lives:
    """The lives of all activations under a plan: first `derive_closure`, then the violations, then the ledger."""

    instance: Instance
    plan: Plan
    all: list[Life] = field(default_factory=list)
    inputs: list[list[Life]] = field(default_factory=list)
    outputs: list[list[Life]] = field(default_factory=list)
    saved: list[list[Life]] = field(default_factory=list)
    reruns: dict[int, int] = field(default_factory=dict)
    blocked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Look up every name once, and refuse a plan that is not one for this instance."""
        refuse(_find_mismatches(self.instance, self.plan))
        by_name: dict[str, Life] = {}
        for index, layer in enumerate(self.instance.layers):
            self.inputs.append([by_name[name] for name in layer.inputs])
            for life in self.inputs[-1]:
                life.last_forward_read = index
            self.outputs.append(
                [
                    Life(
                        order=len(by_name) + position,
                        name=output.name,
                        size_bytes=output.size_bytes,
                        gradient_bytes=output.gradient_bytes,
                        producer=index,
                        action=self.plan.activations[output.name].action,
                        last_forward_read=index,
                    )
                    for position, output in enumerate(layer.outputs)
                ]
            )
            by_name.update((life.name, life) for life in self.outputs[-1])
            self.saved.append([by_name[name] for name in layer.saved])
        self.all = list(by_name.values())
        for life in self.all:
            life.last_use = life.last_forward_read

    def derive_closure(self) -> None:
        """Find which layers run again and when, and the need slot and last use of every activation."""
        n = len(self.instance.layers)
        for index in reversed(range(n)):
            rerun_slot, slot = recompute_slot(index, n), backward_slot(index, n)
            pending = [(life, slot) for life in self.saved[index]]
            while pending:
                life, use = pending.pop()
                life.last_use = max(life.last_use, use)
                if life.action == "swap":
                    life.need = use if life.need is None else min(life.need, use)
                elif life.action == "recompute" and life.producer not in self.reruns:
                    self.reruns[life.producer] = rerun_slot
                    pending.extend((source, rerun_slot) for source in self.inputs[life.producer])
                    self._rebuild_outputs(life, rerun_slot)

    def _rebuild_outputs(self, cause: Life, rerun_slot: int) -> None:
        """Record that the producer of `cause` runs again."""
        layer = self.instance.layers[cause.producer]
        if not layer.recomputable:
            self.blocked.append(
                f"activations[{cause.name!r}].action: must be 'keep' or 'swap', backward needs it and"
                f" layers[{cause.producer}] ({layer.name!r}) is not recomputable, got 'recompute'"
            )
        for life in self.outputs[cause.producer]:
            if life.action == "recompute":
                life.rebuilt = rerun_slot
                life.last_use = max(life.last_use, rerun_slot)

    def find_violations(self) -> Iterator[str]:
        """Yield every rule that the plan breaks, after parsing release and fetch slots."""
        yield from self.blocked
        n = len(self.instance.layers)
        swappable = {activation.name: activation.swappable for activation in self.instance.activations}
        for life in self.all:
            decision = self.plan.activations[life.name]
            if not isinstance(decision, Swap):
                continue
            where = f"activations[{life.name!r}]"
            if not swappable[life.name]:
                yield f"{where}.action: must be 'keep' or 'recompute', the activation is not swappable, got 'swap'"
            if life.need is None:
                yield f"{where}.action: must be 'keep' or 'recompute', nothing needs it in backward, got 'swap'"
                continue
            life.release = parse_slot(decision.release_slot, n)
            life.fetch = parse_slot(decision.fetch_slot, n)
            for name, slot, text in (
                ("release_slot", life.release, decision.release_slot),
                ("fetch_slot", life.fetch, decision.fetch_slot),
            ):
                if slot is None:
                    yield f"{where}.{name}: must be a slot of layers 0 to {n - 1}, got {text!r}"
            if life.release is not None and life.release <= life.last_forward_read:
                yield (
                    f"{where}.release_slot: must be after its last forward read"
                    f" ({slot_name(life.last_forward_read, n)}), got {decision.release_slot}"
                )
            if life.fetch is not None and life.release is not None and life.fetch < life.release:
                yield (
                    f"{where}.fetch_slot: must not be before its release slot ({decision.release_slot}),"
                    f" got {decision.fetch_slot}"
                )
            if life.fetch is not None and life.fetch >= life.need:
                yield (
                    f"{where}.fetch_slot: must be before the slot that needs it ({slot_name(life.need, n)}),"
                    f" got {decision.fetch_slot}"
                )
        for earlier, later in self._find_disorder():
            yield (
                f"activations[{later.name!r}].fetch_slot: must not be before the fetch slot of {earlier.name!r}"
                f" ({slot_name(earlier.fetch or 0, n)}), which is needed first, got {slot_name(later.fetch or 0, n)}"
            )

    def swap_in_order(self) -> list[Life]:
        """Return the swapped activations in order of need."""
        swapped = [life for life in self.all if life.need is not None and life.fetch is not None]
        return sorted(swapped, key=lambda life: (life.need, life.fetch, life.order))

    def _find_disorder(self) -> Iterator[tuple[Life, Life]]:
        """Yield neighbours in order of need whose fetch slots decrease."""
        order = self.swap_in_order()
        for earlier, later in pairwise(order):
            if (earlier.fetch or 0) > (later.fetch or 0):
                yield earlier, later

    def make_ledger(self) -> list[int]:
        """Return the bytes in memory, slot by slot."""
        layers = self.instance.layers
        n = len(layers)
        change = [0] * (num_slots(n) + 1)

        def occupy(size_bytes: int, first: int, last: int) -> None:
            change[first] += size_bytes
            change[last + 1] -= size_bytes

        for life in self.all:
            if life.release is not None and life.fetch is not None:
                occupy(life.size_bytes, life.producer, life.release - 1)
                occupy(life.size_bytes, life.fetch, life.last_use)
            elif life.action == "recompute":
                occupy(life.size_bytes, life.producer, life.last_forward_read)
                if life.rebuilt is not None:
                    occupy(life.size_bytes, life.rebuilt, life.last_use)
            else:
                occupy(life.size_bytes, life.producer, life.last_use)
            last_reader = backward_slot(life.last_forward_read, n)
            occupy(life.gradient_bytes, last_reader, backward_slot(life.producer, n))
        rerun_workspace: dict[int, int] = {}
        for layer, slot in self.reruns.items():
            workspace = layers[layer].forward_workspace_bytes
            rerun_workspace[slot] = max(rerun_workspace.get(slot, 0), workspace)
        ledger = list(accumulate(change[:-1]))
        for index, layer_record in enumerate(layers):
            ledger[index] += layer_record.forward_workspace_bytes
            ledger[backward_slot(index, n)] += layer_record.backward_workspace_bytes
        for slot, workspace in rerun_workspace.items():
            ledger[slot] += workspace
        return ledger
