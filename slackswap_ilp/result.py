"""What comes out of a solve, refereed: one row of a table, one JSON object."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from slackswap_ilp.plan import Plan


class Status(StrEnum):
    """What is known at the end of a solve."""

    OPTIMAL = "optimal"
    """There is a plan, and no plan is better by more than the gap asked for."""
    FEASIBLE = "feasible"
    """There is a plan; how far it is from the best is known only as far as the bound tells."""
    INFEASIBLE = "infeasible"
    """It is proven that no plan fits."""
    UNKNOWN = "unknown"
    """No plan was found, and it is not proven that there is none."""


class Result(BaseModel):
    """One solver's answer for one instance and budget, as the simulator sees it; null where there is none.

    Attributes
    ----------
    method
        How the solver came to its claim, in a few words.
    message
        What to know or do beside the numbers, None if nothing.
    ideal_seconds
        Step time with everything kept and no memory limit.
    throughput_ratio
        Ideal step time / step time.
    bound_seconds
        A step time that no plan is below, proven.
    gap_ratio
        (Step time - bound) / bound; None above a bound of zero.
    necessary_budget_bytes
        If there is no plan: none fits into less than this, proven.
    sufficient_budget_bytes
        If there is no plan: the smallest budget for which one was found, by whatever solver.
    is_interrupted
        Whether the caller stopped the solve.
    plan
        The plan itself; not part of the JSON.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    instance: str
    solver: str
    method: str = ""
    status: Status
    message: str | None = None
    budget_bytes: int
    peak_bytes: int | None = None
    ideal_seconds: float
    step_seconds: float | None = None
    throughput_ratio: float | None = None
    recompute_seconds: float | None = None
    stall_seconds: float | None = None
    swapped_bytes: int | None = None
    recomputed_bytes: int | None = None
    num_kept: int | None = None
    num_swapped: int | None = None
    num_recomputed: int | None = None
    bound_seconds: float | None = None
    gap_ratio: float | None = None
    runtime_seconds: float
    is_interrupted: bool = False
    necessary_budget_bytes: int | None = None
    sufficient_budget_bytes: int | None = None
    plan: Plan | None = Field(default=None, exclude=True, repr=False)
