"""All solvers, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from slackswap_ilp.errors import OptionError
from slackswap_ilp.solvers.base import Solver
from slackswap_ilp.solvers.baselines import solve_keep_all, solve_recompute_all, solve_swap_all
from slackswap_ilp.solvers.greedy import solve_greedy
from slackswap_ilp.solvers.ilp import solve_ilp


@dataclass(frozen=True, slots=True)
class Entry:
    """A solver and what it does, in one sentence."""

    solve: Solver
    description: str


SOLVERS: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "keep-all": Entry(solve_keep_all, "keeps everything"),
        "swap-all": Entry(solve_swap_all, "swaps all that backward reads, keeps what cannot be swapped"),
        "recompute-all": Entry(solve_recompute_all, "recomputes all that backward reads, keeps what bounds the chains"),
        "greedy": Entry(solve_greedy, "SlackSwap: swaps what is dear to rebuild within the slack, recomputes the rest"),
        "ilp": Entry(solve_ilp, "integer program: the best plan, with a proven bound"),
    }
)


def find_solver(name: str) -> Solver:
    """Return the solver called `name`.

    Raises
    ------
    OptionError
        If there is none; the message names those there are.
    """
    entry = SOLVERS.get(name)
    if entry is None:
        raise OptionError(f"solver: must be one of {', '.join(SOLVERS)}, got {name!r}")
    return entry.solve
