"""Makes instances/paper: the three workloads of the SlackSwap paper at half their keep-all peak, and their best plans.

A best file is written anew only if its plan or its bound got better, or its instance changed.
"""

import importlib.metadata
import sys
from pathlib import Path
from typing import Final

from benchmarks.best_known import BestKnown, format_best, read_best
from slackswap_ilp import Instance, InstanceError, Result, read_instance, solve, write_instance
from slackswap_ilp.analysis import keep_all_peak, make_graph
from slackswap_ilp.files import write_text
from slackswap_ilp.reproduce import WORKLOADS

FOLDER: Final = Path(__file__).parents[1] / "instances" / "paper"
GAP: Final = 0.0005
TIME_LIMIT_SECONDS: Final = 300.0


def main() -> None:
    """Make every instance and solve it."""
    FOLDER.mkdir(exist_ok=True)
    for workload in WORKLOADS:
        generated = workload.make_instance()
        budget_bytes = keep_all_peak(make_graph(generated)) // 2
        instance = generated.replace(budget_bytes=budget_bytes)
        result = solve(instance, gap=GAP, time_limit_seconds=TIME_LIMIT_SECONDS)
        write_best(instance, result)
        sys.stderr.write(f"{instance.name}: gap {result.gap_ratio:.4%} in {result.runtime_seconds:.0f} s\n")


def write_best(instance: Instance, result: Result) -> None:
    """Write an instance, and beside it what is best of a result and of what stands there already."""
    path = FOLDER / f"{instance.name}.json"
    best_path = path.with_suffix(".best.json")
    best = make_best(instance, result)
    if best_path.exists() and is_same(path, instance):
        best = join(read_best(best_path), best)
    write_instance(path, instance)
    write_text(best_path, format_best(best))


def is_same(path: Path, instance: Instance) -> bool:
    """Whether a file holds this very instance."""
    try:
        return read_instance(path).digest == instance.digest
    except InstanceError:
        return False


def make_best(instance: Instance, result: Result) -> BestKnown:
    """Return what a result says as a best-known plan."""
    assert result.plan is not None
    assert result.step_seconds is not None
    assert result.bound_seconds is not None
    version = importlib.metadata.version("slackswap-ilp")
    found = {"by": f"slackswap-ilp {version}, solver {result.solver}", "gap": GAP, "time_limit": TIME_LIMIT_SECONDS}
    return BestKnown(
        format="slackswap-best",
        version=1,
        instance=instance.name,
        budget_bytes=result.budget_bytes,
        step_seconds=result.step_seconds,
        bound_seconds=result.bound_seconds,
        provenance={"plan": found, "bound": found},
        plan=result.plan,
    )


def join(old: BestKnown, new: BestKnown) -> BestKnown:
    """Return the better plan with the better bound of two."""
    plan = new if new.step_seconds < old.step_seconds else old
    bound = new if new.bound_seconds > old.bound_seconds else old
    return BestKnown(
        **{
            **dict(plan),
            "bound_seconds": bound.bound_seconds,
            "provenance": {"plan": plan.provenance.get("plan"), "bound": bound.provenance.get("bound")},
        }
    )


if __name__ == "__main__":
    main()
