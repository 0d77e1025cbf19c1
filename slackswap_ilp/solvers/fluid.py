"""The fluid program: transfers as cumulative bytes, any number of layers, a proven lower bound of every plan.

The functions of `fluid_actions`, `fluid_transfers` and `fluid_memory` add one family of variables or constraints each;
docs/formulation.md has the same names.
"""

from collections.abc import Mapping

from slackswap_ilp.analysis import Graph
from slackswap_ilp.plan import Action
from slackswap_ilp.solvers.fluid_actions import add_actions, add_availability, add_reruns, close_window
from slackswap_ilp.solvers.fluid_memory import add_memory, add_presence
from slackswap_ilp.solvers.fluid_model import FluidProgram
from slackswap_ilp.solvers.fluid_transfers import add_swap_in, add_swap_out, add_time
from slackswap_ilp.solvers.program import Program, Variable
from slackswap_ilp.solvers.scale import find_scale
from slackswap_ilp.solvers.triggers import find_triggers


def make_fluid_program(
    graph: Graph,
    *,
    budget_bytes: int | None,
    window: int | None,
    is_closed: bool = False,
) -> FluidProgram:
    """Build the fluid program; a budget of None minimises the memory needed instead of the step time.

    Parameters
    ----------
    window
        How far chains of layers that run again are followed, see `find_triggers`; None for as far as they go.
    is_closed
        What holds beyond the window. If false, anything: a relaxation, whose optimum no plan is below. If true, chains
        must end within it: a restriction, whose solutions stand for plans.
    """
    fluid = FluidProgram(
        graph, budget_bytes, find_triggers(graph, window=window, is_cut=is_closed), Program("fluid"), find_scale(graph)
    )
    add_actions(fluid)
    add_reruns(fluid)
    add_availability(fluid)
    if is_closed:
        close_window(fluid)
    add_presence(fluid)
    add_time(fluid)
    add_swap_out(fluid)
    add_swap_in(fluid)
    add_memory(fluid)
    return fluid


def read_actions(fluid: FluidProgram, values: Mapping[Variable, float], threshold: float = 0.5) -> list[Action]:
    """Return the actions that a solution of the program stands for.

    An activation is recomputed if keeping and swapping together have less than `threshold`, else the larger of these
    two decides. The lower the threshold, the fewer chains rounding breaks.
    """
    actions = []
    for activation in range(fluid.graph.num_activations):
        if activation not in fluid.keep:
            actions.append(Action.KEEP)
            continue
        keep = values.get(fluid.keep[activation], 0.0)
        swap = values.get(fluid.swap[activation], 0.0) if activation in fluid.swap else 0.0
        if keep + swap < threshold:
            actions.append(Action.RECOMPUTE)
        else:
            actions.append(Action.KEEP if keep >= swap else Action.SWAP)
    return actions
