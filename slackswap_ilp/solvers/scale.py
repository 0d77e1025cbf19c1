"""The units of programs: tolerances of solvers are absolute, so numbers must be neither huge nor tiny."""

from dataclasses import dataclass
from typing import Final

from slackswap_ilp.analysis import Graph

_SIZE_UNITS: Final = 32
_STEP_UNITS: Final = 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """What one unit of memory and of time is in a program; about a GiB and a millisecond for models on today's GPUs."""

    bytes_per_unit: float
    seconds_per_unit: float


def find_scale(graph: Graph) -> Scale:
    """Choose units in which the activations, the ideal step and the longest copy are of a size that solvers like.

    Workspaces and gradients may dwarf the activations, but no plan changes them. On a link so slow that one copy
    outlasts the step, the copy counts: else its rate would be too small to be seen.
    """
    copies = (max(graph.swap_out_seconds(a), graph.swap_in_seconds(a)) for a in range(graph.num_activations))
    seconds = max([graph.ideal_seconds, *copies])
    return Scale(max(1, sum(graph.sizes)) / _SIZE_UNITS, seconds / _STEP_UNITS if seconds > 0 else 1.0)
