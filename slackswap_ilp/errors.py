"""The exception tree of the package.

::

    SlackSwapError
    ├── InputError (ValueError)         what the caller handed over is off: exit code 2
    │   ├── InstanceError               an instance, or a file that should hold one
    │   ├── PlanError                   a plan, a file that should hold one, or a plan for another instance
    │   └── OptionError                 an option's value: budget, solver name, gap, model parameter
    └── SolverError (RuntimeError)      a solver is missing, failed, or contradicts the simulator: exit code 3

Outcomes such as "infeasible" or "time limit reached" are a `Status`, never an exception.
"""


class SlackSwapError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SlackSwapError, ValueError):
    """What the caller handed over is off; the message says where, the value, and what is allowed."""


class InstanceError(InputError):
    """An instance is malformed or inconsistent."""


class PlanError(InputError):
    """A plan is malformed, breaks the execution semantics, or belongs to another instance."""


class OptionError(InputError):
    """An option's value is not allowed."""


class SolverError(SlackSwapError, RuntimeError):
    """A solver is missing, failed, or contradicts the simulator."""
