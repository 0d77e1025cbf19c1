"""The families of the fluid program that say what happens to activations, and which layers run again."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from slackswap_ilp.solvers.fluid_model import FluidProgram
from slackswap_ilp.solvers.program import Program, Variable


def add_actions(fluid: FluidProgram) -> None:
    """Decide each activation: kept, swapped, or neither (docs: actions)."""
    graph, program = fluid.graph, fluid.program
    for activation, triggers in enumerate(fluid.triggers.of_activation):
        if not triggers:
            continue
        fluid.keep[activation] = program.binary(f"keep[{activation}]")
        if graph.swappable[activation]:
            fluid.swap[activation] = program.binary(f"swap[{activation}]")
            program.at_most(f"one_action[{activation}]", ((fluid.keep[activation], 1), (fluid.swap[activation], 1)), 1)


def add_reruns(fluid: FluidProgram) -> None:
    """Let layers run again, and their results be rebuilt by then (docs: reruns)."""
    graph, program = fluid.graph, fluid.program
    for layer, triggers in enumerate(fluid.triggers.of_layer):
        if not triggers:
            continue
        stairs = {trigger: program.binary(f"rerun[{layer},R{trigger}]") for trigger in triggers}
        fluid.rerun[layer] = stairs
        _add_staircase(program, f"rerun_stays[{layer}", stairs, triggers)
        outputs = [activation for activation in graph.outputs[layer] if activation in fluid.keep]
        for activation in outputs:
            own = fluid.triggers.of_activation[activation]
            if len(outputs) == 1:
                fluid.rebuilt[activation] = stairs
                continue
            rebuilt = {trigger: program.variable(f"rebuilt[{activation},R{trigger}]", high=1) for trigger in own}
            fluid.rebuilt[activation] = rebuilt
            _add_staircase(program, f"rebuilt_stays[{activation}", rebuilt, own)
            for trigger in own:
                program.at_most(
                    f"rebuilt_by_rerun[{activation},R{trigger}]",
                    [(rebuilt[trigger], 1.0), (stairs[trigger], -1.0)],
                )


def _add_staircase(program: Program, name: str, stairs: Mapping[int, Variable], triggers: Sequence[int]) -> None:
    """Let what has happened by one trigger have happened by the next."""
    for earlier, later in pairwise(triggers):
        program.at_most(f"{name},R{later}]", ((stairs[earlier], 1), (stairs[later], -1)))


def add_availability(fluid: FluidProgram) -> None:
    """Have what backward saves, and what layers read that run again (docs: availability)."""
    graph, program = fluid.graph, fluid.program
    for activation, triggers in enumerate(fluid.triggers.of_activation):
        if not triggers:
            continue
        keep, swap = fluid.keep[activation], fluid.swap.get(activation)
        rebuilt = fluid.rebuilt.get(activation, {})
        savers = graph.savers[activation]
        needed: dict[int, Variable] = {}
        if swap is not None:
            # The last stair is the swap itself: a swapped activation that is never needed helps nobody.
            needed = {
                trigger: program.variable(f"needed[{activation},R{trigger}]", high=1) for trigger in triggers[:-1]
            }
            needed[triggers[-1]] = swap
            _add_staircase(program, f"needed_stays[{activation}", needed, triggers)
        fluid.needed[activation] = needed
        covered: dict[int, int] = {}
        for trigger in triggers:
            have = [(keep, 1.0)]
            have += [(stairs[trigger], 1.0) for stairs in (rebuilt, needed) if trigger in stairs]
            if savers and trigger == savers[-1]:
                program.at_least(f"saved[{activation}]", have, 1)
                continue
            for reader, at in _find_reruns_by(fluid, activation, trigger):
                if covered.get(reader) != at:
                    covered[reader] = at
                    row = [*have, (fluid.rerun[reader][at], -1.0)]
                    program.at_least(f"available[{activation},L{reader},R{trigger}]", row)


def _find_reruns_by(fluid: FluidProgram, activation: int, trigger: int) -> Iterator[tuple[int, int]]:
    """Yield, for every reader that may run again, its last trigger whose stretch ends by `trigger`, if it has one."""
    for reader in fluid.graph.readers[activation]:
        by = [at for at in fluid.rerun.get(reader, ()) if at >= trigger]
        if by:
            yield reader, by[-1]


def close_window(fluid: FluidProgram) -> None:
    """Let nothing be rebuilt before its window: a reader that runs again then finds it kept or swapped.

    (docs: closed window)
    """
    graph, program = fluid.graph, fluid.program
    for activation, keep in fluid.keep.items():
        own = set(fluid.triggers.of_activation[activation])
        savers = graph.savers[activation]
        first_save = savers[-1] if savers else -1
        there = [(keep, 1.0)]
        if activation in fluid.swap:
            there.append((fluid.swap[activation], 1.0))
        for reader in graph.readers[activation]:
            for trigger, rerun in fluid.rerun.get(reader, {}).items():
                if trigger > first_save and trigger not in own:
                    program.at_least(f"closed[{activation},L{reader},R{trigger}]", [*there, (rerun, -1.0)])
