"""The three workloads of the SlackSwap paper, solved as its evaluation does, beside the figures it reports.

Source: SlackSwap, arXiv 2610.13003: share of the ideal throughput in a discrete-event simulation of an A100 with PCIe
4.0, at an activation budget of half the unlimited peak. Its profiles are not public; ours come from the cost model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from slackswap_ilp.instance import Instance
from slackswap_ilp.models.presets import generate
from slackswap_ilp.pipeline import DEFAULT_GAP, DEFAULT_TIME_LIMIT_SECONDS, OnProgress, compare
from slackswap_ilp.result import Result

SOURCE: Final = "arXiv 2610.13003"
BUDGET: Final = "50%"
SOLVERS: Final = ("greedy", "ilp")


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload of the paper.

    Attributes
    ----------
    model
        The preset that stands for it.
    paper_throughput_ratio
        The share of the ideal throughput that the paper reports for its heuristic.
    """

    model: str
    paper_throughput_ratio: float

    def make_instance(self) -> Instance:
        """Generate the workload at operator level, on the paper's device."""
        return generate(self.model)


WORKLOADS: Final = (Workload("bert-large", 0.963), Workload("gpt2-xl", 0.976), Workload("llama-7b", 0.996))


class ReproducedResult(Result):
    """A result beside the paper's figure for the same workload.

    Attributes
    ----------
    paper_throughput_ratio
        The share of the ideal throughput that the paper reports for its heuristic.
    """

    paper_throughput_ratio: float


def reproduce(
    instances: Sequence[Instance],
    *,
    gap: float = DEFAULT_GAP,
    time_limit_seconds: float | None = DEFAULT_TIME_LIMIT_SECONDS,
    backend: str = "highs",
    on_result: Callable[[Result], None] | None = None,
    on_progress: OnProgress | None = None,
    is_cancelled: Callable[[], bool] | None = None,
) -> tuple[ReproducedResult, ...]:
    """Solve the paper's workloads at half their keep-all peak with the heuristic and the integer program.

    Parameters
    ----------
    instances
        `Workload.make_instance` of each of `WORKLOADS`, in their order.

    Raises
    ------
    OptionError, SolverError
        As `slackswap_ilp.pipeline.compare` does; its other options are those of `compare`, too.
    """
    rows = compare(
        instances,
        budgets=(BUDGET,),
        solvers=SOLVERS,
        gap=gap,
        time_limit_seconds=time_limit_seconds,
        backend=backend,
        on_result=on_result,
        on_progress=on_progress,
        is_cancelled=is_cancelled,
    )
    reported = {
        instance.name: workload.paper_throughput_ratio for instance, workload in zip(instances, WORKLOADS, strict=True)
    }
    return tuple(
        ReproducedResult(**row.model_dump(), plan=row.plan, paper_throughput_ratio=reported[row.instance])
        for row in rows
    )
