"""The referee: replays a plan and says what it costs and whether it fits. See docs/semantics.md.

Nothing here is shared with the solvers but the instance and the plan.
"""

from slackswap_ilp.simulator.replay import simulate
from slackswap_ilp.simulator.result import Simulation, Stall, Transfer

__all__ = ["Simulation", "Stall", "Transfer", "simulate"]
