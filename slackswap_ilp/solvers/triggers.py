"""When a layer can run again: the recompute slots at which something that depends on it is first required."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slackswap_ilp.analysis import Graph


@dataclass(frozen=True, slots=True)
class Triggers:
    """The recompute slots, named by their layers, at which things can first be required in backward.

    All tuples descend: backward runs from high layers to low ones, so they are in order of time. A trigger i may stand
    for a stretch of them, from `starts` i' through i: what happens by Ri may have happened at any Rj of that stretch.

    Attributes
    ----------
    of_layer
        By layer, the i at whose Ri it can run again.
    starts_of_layer
        By layer and trigger, where the stretch that it stands for starts; the trigger itself if it stands for one slot.
    of_activation
        By activation, the i at whose Ri or Bi it can first be required.
    starts_of_activation
        By activation and trigger, where the stretch that it stands for starts.
    """

    of_layer: tuple[tuple[int, ...], ...]
    starts_of_layer: tuple[Mapping[int, int], ...]
    of_activation: tuple[tuple[int, ...], ...]
    starts_of_activation: tuple[Mapping[int, int], ...]


def find_triggers(graph: Graph, *, window: int | None, is_cut: bool = False) -> Triggers:
    """Find the triggers of every layer and activation.

    An activation is first required where it is saved last, or earlier (at a higher i) by a reader that runs again.

    Parameters
    ----------
    window
        How many layers before the first backward that saves something of the layer every single trigger is told apart;
        None for all.
    is_cut
        Whether triggers beyond the window are left out; else they are merged into ever longer stretches.
    """
    of_layer: list[dict[int, int]] = [{} for _ in range(graph.num_layers)]
    of_activation: list[dict[int, int]] = [{} for _ in range(graph.num_activations)]
    for layer in reversed(range(graph.num_layers)):
        for activation in graph.outputs[layer]:
            readers = (of_layer[reader] for reader in graph.readers[activation])
            savers = graph.savers[activation]
            of_activation[activation] = _require(readers, savers[-1] if savers else None, window=window, is_cut=is_cut)
        if graph.recomputable[layer]:
            of_layer[layer] = _merge(of_activation[activation] for activation in graph.outputs[layer])
    return Triggers(
        tuple(map(tuple, of_layer)), tuple(of_layer), tuple(map(tuple, of_activation)), tuple(of_activation)
    )


def _merge(stretches: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the triggers of several, in order of time."""
    spans = [(start, trigger) for starts in stretches for trigger, start in starts.items()]
    return _cover({trigger for _, trigger in spans}, spans)


def _cover(triggers: Iterable[int], spans: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return, in order of time, each trigger and the earliest slot of `spans` since the trigger before it.

    What happens in a slot counts at the first trigger from there on, whichever stretch the slot is from.
    """
    covered: dict[int, int] = {}
    ceiling = math.inf
    for trigger in sorted(triggers, reverse=True):
        starts = [min(start, ceiling) for start, end in spans if start >= trigger and end <= ceiling]
        covered[trigger] = int(max(starts, default=trigger))
        ceiling = trigger - 1
    return covered


def _require(
    readers: Iterable[Mapping[int, int]], first_save: int | None, *, window: int | None, is_cut: bool
) -> dict[int, int]:
    """Return the triggers of an activation from those of its readers and the first backward that saves it.

    Beyond the window the triggers that remain are multiples of growing powers of two, so that the stretches of
    different activations end at the same places.
    """
    earliest = -1 if first_save is None else first_save + 1
    merged = _merge(readers)
    spans = [(start, max(trigger, earliest)) for trigger, start in merged.items() if start >= earliest]
    if first_save is not None:
        spans.append((first_save, first_save))
    if not spans:
        return {}
    last = min(end for _, end in spans)
    kept = {last}
    for _, trigger in spans:
        distance = trigger - last
        is_near = window is None or distance <= window
        if is_near or (window is not None and not is_cut and trigger % _find_step(distance, window) == 0):
            kept.add(trigger)
    if is_cut:
        return {trigger: trigger for trigger in sorted(kept, reverse=True)}
    return _cover(kept, spans)


def _find_step(distance: int, window: int) -> int:
    """Return the power of two whose multiples remain at a distance beyond the window."""
    return 1 << ((distance - 1) // window).bit_length()
