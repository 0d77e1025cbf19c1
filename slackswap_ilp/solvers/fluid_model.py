"""The fluid program's variables, and the terms that its families share."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slackswap_ilp.analysis import Graph
from slackswap_ilp.slots import slot_name
from slackswap_ilp.solvers.program import Program, Variable
from slackswap_ilp.solvers.scale import Scale
from slackswap_ilp.solvers.triggers import Triggers

Term = tuple[Variable, float]


@dataclass(slots=True)
class FluidProgram:
    """The fluid program of a graph and a budget, and the variables that decide a plan.

    Attributes
    ----------
    keep, swap
        By activation, whether it is kept or swapped; activations that backward needs in no way have neither.
    rerun
        By layer, a staircase: whether it ran again by Ri, for its triggers i in order of time.
    rebuilt
        By activation, a staircase over its triggers: whether it was rebuilt by Ri. The producer's `rerun` itself
        where that has one output that matters.
    needed
        By activation, a staircase over its triggers: whether it is swapped and needed by then.
    stall, copied_out, freed, copied_in
        By slot: waiting before it; bytes copied out, freed and copied in by its start.
    change
        By slot, the terms by which memory in use differs from the slot before, transfers apart.
    """

    graph: Graph
    budget_bytes: int | None
    triggers: Triggers
    program: Program
    scale: Scale
    keep: dict[int, Variable] = field(default_factory=dict)
    swap: dict[int, Variable] = field(default_factory=dict)
    rerun: dict[int, dict[int, Variable]] = field(default_factory=dict)
    rebuilt: dict[int, dict[int, Variable]] = field(default_factory=dict)
    needed: dict[int, dict[int, Variable]] = field(default_factory=dict)
    stall: list[Variable] = field(default_factory=list)
    copied_out: dict[int, Variable] = field(default_factory=dict)
    freed: dict[int, Variable] = field(default_factory=dict)
    copied_in: dict[int, Variable] = field(default_factory=dict)
    change: dict[int, list[Term]] = field(default_factory=lambda: defaultdict(list))


def name_slot(fluid: FluidProgram, slot: int) -> str:
    """Return the name of a slot."""
    return slot_name(slot, fluid.graph.num_layers)


def list_steps(stairs: Mapping[int, Variable], factor: float) -> Iterator[tuple[int, list[Term]]]:
    """Yield, by trigger, the terms for what a staircase rises there."""
    previous: list[Term] = []
    for trigger, variable in stairs.items():
        yield trigger, [(variable, factor), *previous]
        previous = [(variable, -factor)]


def negate(terms: Sequence[Term]) -> list[Term]:
    """Return the terms with the opposite signs, for the other side of a row."""
    return [(variable, -coefficient) for variable, coefficient in terms]


def accumulate_terms(program: Program, name: str, total: Sequence[Term], terms: Sequence[Term]) -> list[Term]:
    """Return terms for a running total, through a variable of its own so that rows stay short."""
    if not terms:
        return list(total)
    variable = program.variable(name)
    program.equal(f"sum_{name}", [(variable, 1.0), *negate(total), *negate(terms)])
    return [(variable, 1.0)]
