"""When a layer can run again: the recompute slots at which something that depends on it is first required."""

from dataclasses import dataclass

from slackswap_ilp.analysis import Graph


@dataclass(frozen=True, slots=True)
class Triggers:
    """The recompute slots, named by their layers, at which things can first be required in backward.

    All tuples descend: backward runs from high layers to low ones, so they are in order of time.

    Attributes
    ----------
    of_layer
        By layer, the i at whose Ri it can run again.
    of_activation
        By activation, the i at whose Ri or Bi it can first be required.
    is_cut
        Whether some were left out because they lie before the window.
    """

    of_layer: tuple[tuple[int, ...], ...]
    of_activation: tuple[tuple[int, ...], ...]
    is_cut: bool


def find_triggers(graph: Graph, *, window: int | None) -> Triggers:
    """Find the triggers of every layer and activation.

    An activation is first required where it is saved last, or earlier (at a higher i) by a reader that runs again.

    Parameters
    ----------
    window
        How many layers triggers may lie before the first backward that saves something of the layer; None for all.
        Leaving triggers out drops constraints, so what is minimised with them is still a lower bound.
    """
    n = graph.num_layers
    of_layer: list[tuple[int, ...]] = [()] * n
    of_activation: list[tuple[int, ...]] = [()] * graph.num_activations
    is_cut = False
    for layer in range(n - 1, -1, -1):
        mine: set[int] = set()
        for activation in graph.outputs[layer]:
            savers = graph.savers[activation]
            first_save = savers[-1] if savers else -1
            required = {trigger for reader in graph.readers[activation] for trigger in of_layer[reader]}
            required = {trigger for trigger in required if trigger > first_save}
            if window is not None:
                edge = (first_save if savers else min(required, default=0)) + window
                is_cut = is_cut or any(trigger > edge for trigger in required)
                required = {trigger for trigger in required if trigger <= edge}
            if savers:
                required.add(first_save)
            of_activation[activation] = tuple(sorted(required, reverse=True))
            mine |= required
        if graph.recomputable[layer]:
            of_layer[layer] = tuple(sorted(mine, reverse=True))
    return Triggers(tuple(of_layer), tuple(of_activation), is_cut)
