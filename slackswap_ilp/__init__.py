"""Plans GPU activation memory: keep, swap or recompute, with a proven gap to the optimum.

>>> from slackswap_ilp import generate, simulate, solve
>>> instance = generate("bert-large", layers=2)
>>> result = solve(instance, budget="80%")
>>> str(result.status)
'optimal'
>>> simulate(instance, result.plan).step_seconds == result.step_seconds
True
"""

from slackswap_ilp.errors import InputError, InstanceError, OptionError, PlanError, SlackSwapError, SolverError
from slackswap_ilp.files import read_instance, read_plan, write_instance, write_plan
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.models.presets import generate
from slackswap_ilp.pipeline import compare, solve
from slackswap_ilp.plan import Keep, Plan, Recompute, Swap
from slackswap_ilp.result import Result, Status
from slackswap_ilp.simulator import Simulation, simulate
from slackswap_ilp.units import Budget

__all__ = [
    "Activation",
    "Budget",
    "Device",
    "InputError",
    "Instance",
    "InstanceError",
    "Keep",
    "Layer",
    "OptionError",
    "Plan",
    "PlanError",
    "Recompute",
    "Result",
    "Simulation",
    "SlackSwapError",
    "SolverError",
    "Status",
    "Swap",
    "compare",
    "generate",
    "read_instance",
    "read_plan",
    "simulate",
    "solve",
    "write_instance",
    "write_plan",
]
