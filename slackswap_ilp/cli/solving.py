"""The commands that solve: ``solve``, ``compare`` and ``reproduce``."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from slackswap_ilp import pipeline
from slackswap_ilp import reproduce as reproduction
from slackswap_ilp.analysis import make_graph
from slackswap_ilp.cli.interrupts import Interruption, catch_interrupts
from slackswap_ilp.cli.options import (
    BUDGET_HELP,
    BUDGET_METAVAR,
    SOLVER_HELP,
    Backend,
    Gap,
    InstanceFile,
    Json,
    TimeLimit,
    parse_gap,
)
from slackswap_ilp.cli.streams import (
    STANDARD,
    check_sources,
    check_target,
    load_instance,
    print_csv,
    print_json,
    print_report,
)
from slackswap_ilp.errors import InputError, OptionError
from slackswap_ilp.files import write_plan
from slackswap_ilp.instance import Instance
from slackswap_ilp.pipeline import DEFAULT_GAP, DEFAULT_SOLVER, DEFAULT_TIME_LIMIT_SECONDS
from slackswap_ilp.progress import ProgressLine, Task, is_drawable
from slackswap_ilp.report.results import summarize_result, tabulate_reproduction, tabulate_results
from slackswap_ilp.report.tables import show_name
from slackswap_ilp.result import Result

NO_PLAN_CODE = 1


def solve(
    *,
    instance: InstanceFile,
    solver: Annotated[str, typer.Option(metavar="NAME", help=f"{SOLVER_HELP}.")] = DEFAULT_SOLVER,
    budget: Annotated[
        str | None,
        typer.Option(metavar=BUDGET_METAVAR, show_default=False, help=f"{BUDGET_HELP}; default: the instance's own."),
    ] = None,
    gap: Gap = str(DEFAULT_GAP),
    time_limit: TimeLimit = DEFAULT_TIME_LIMIT_SECONDS,
    backend: Backend = "highs",
    output: Annotated[
        Path | None, typer.Option(metavar="PLAN", show_default=False, help="File to write the plan to.")
    ] = None,
    json: Json = False,
) -> None:
    """Find the plan that takes least time, with a proven bound.

    Ctrl-C ends the solve with the best plan so far. Exit code 1: there is no plan, or none was found.
    """
    if output is not None and str(output) == STANDARD:
        raise OptionError("output: must be a file, got '-'; stdout carries the result")
    check_target(output, source=instance)
    read = load_instance(instance)
    with _watch([read], [budget], [solver]) as watch:
        result = pipeline.solve(
            read,
            solver=solver,
            budget=budget,
            gap=parse_gap(gap),
            time_limit_seconds=time_limit,
            backend=backend,
            on_progress=watch.line.show_progress,
            is_cancelled=watch.interruption.is_requested,
        )
    failure: InputError | None = None
    if output is not None and result.plan is not None:
        try:
            write_plan(output, result.plan)
        except InputError as error:  # the result is still worth seeing
            failure = error
    if json:
        print_json(result)
    else:
        written = output if failure is None else None
        print_report(lambda _width: summarize_result(result, plan_path=written))
    if failure is not None:
        raise failure
    raise typer.Exit(watch.interruption.choose_code(_choose_code([result])))


def compare(
    *,
    instances: Annotated[
        list[str],
        typer.Argument(metavar="INSTANCE...", show_default=False, help="Files of instances, '-' for stdin."),
    ],
    budget: Annotated[
        list[str] | None,
        typer.Option(metavar=BUDGET_METAVAR, show_default=False, help=f"{BUDGET_HELP}; may be given several times."),
    ] = None,
    solver: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            show_default=False,
            help=f"{SOLVER_HELP}; may be given several times; default: greedy and {DEFAULT_SOLVER}.",
        ),
    ] = None,
    gap: Gap = str(DEFAULT_GAP),
    time_limit: TimeLimit = DEFAULT_TIME_LIMIT_SECONDS,
    backend: Backend = "highs",
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Solve instances at several budgets with several solvers.

    Prints a table with a row for every instance, budget and solver; every row's gap is against the best bound
    proven for its instance and budget. Exit code 1: no row has a plan.
    """
    if json and csv:
        raise OptionError("--json and --csv: must be given one at a time, got both")
    check_sources(instances)
    read = [load_instance(name) for name in instances]
    budgets: Sequence[str | None] = budget if budget else [None]
    solvers = solver if solver else ["greedy", DEFAULT_SOLVER]
    with _watch(read, budgets, solvers) as watch:
        rows = pipeline.compare(
            read,
            budgets=budgets,
            solvers=solvers,
            gap=parse_gap(gap),
            time_limit_seconds=time_limit,
            backend=backend,
            on_result=watch.line.finish_task,
            on_progress=watch.line.show_progress,
            is_cancelled=watch.interruption.is_requested,
        )
    if json:
        print_json({"rows": [row.model_dump(mode="json") for row in rows]})
    elif csv:
        print_csv(rows, Result)
    else:
        print_report(lambda width: tabulate_results(rows, width=width))
    raise typer.Exit(watch.interruption.choose_code(_choose_code(rows)))


def reproduce(*, time_limit: TimeLimit = DEFAULT_TIME_LIMIT_SECONDS, json: Json = False) -> None:
    """Solve the SlackSwap paper's workloads, beside its figures.

    Three workloads at half their keep-all peak, by heuristic and integer program; takes a few minutes. Exit code 1:
    no row has a plan.
    """
    instances = [workload.make_instance() for workload in reproduction.WORKLOADS]
    with _watch(instances, [reproduction.BUDGET], reproduction.SOLVERS) as watch:
        rows = reproduction.reproduce(
            instances,
            time_limit_seconds=time_limit,
            on_result=watch.line.finish_task,
            on_progress=watch.line.show_progress,
            is_cancelled=watch.interruption.is_requested,
        )
    if json:
        print_json({"rows": [row.model_dump(mode="json") for row in rows]})
    else:
        print_report(lambda width: tabulate_reproduction(rows, width=width))
    raise typer.Exit(watch.interruption.choose_code(_choose_code(rows)))


@dataclass(frozen=True, slots=True)
class _Watch:
    """The user on the other side of a solve: the signals they send, the line they see."""

    interruption: Interruption
    line: ProgressLine


@contextmanager
def _watch(instances: Sequence[Instance], budgets: Sequence[str | None], solvers: Sequence[str]) -> Iterator[_Watch]:
    """Catch signals and show progress while solves run."""
    tasks = []
    if is_drawable(sys.stderr):
        ideals = [make_graph(instance).ideal_seconds for instance in instances]
        tasks = [
            Task(" ".join(filter(None, (show_name(instance.name), budget, solver))), ideal)
            for (instance, ideal), budget, solver in itertools.product(
                zip(instances, ideals, strict=True), budgets, solvers
            )
        ]
    with catch_interrupts() as interruption:
        line = ProgressLine(sys.stderr, tasks, interruption.is_requested)
        with line:
            yield _Watch(interruption, line)


def _choose_code(rows: Sequence[Result]) -> int:
    """Return 0 if there is a plan."""
    return 0 if any(row.plan is not None for row in rows) else NO_PLAN_CODE
