"""The command ``simulate``."""

from typing import Annotated

import typer

from slackswap_ilp.analysis import make_graph
from slackswap_ilp.cli.options import BUDGET_HELP, BUDGET_METAVAR, InstanceFile, Json, PlanFile
from slackswap_ilp.cli.streams import (
    check_sources,
    load_instance,
    load_plan,
    name_source,
    print_json,
    print_report,
)
from slackswap_ilp.errors import PlanError
from slackswap_ilp.pipeline import resolve_budget
from slackswap_ilp.report.simulation import Replay
from slackswap_ilp.simulator import simulate as replay_plan

DOES_NOT_FIT_CODE = 1


def simulate(
    *,
    instance: InstanceFile,
    plan: PlanFile,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar=BUDGET_METAVAR,
            show_default=False,
            help=f"{BUDGET_HELP}; default: the plan's, else the instance's own.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Replay a plan: what it costs and whether it fits.

    Exit code 1: the plan does not fit.
    """
    check_sources((instance, plan))
    read_instance, read_plan = load_instance(instance), load_plan(plan)
    budget_bytes = resolve_budget(
        read_instance, make_graph(read_instance), budget if budget is not None else read_plan.budget_bytes
    )
    try:
        simulation = replay_plan(read_instance, read_plan)
    except PlanError as error:
        lines = (f"{name_source(plan)}: {line}" for line in str(error).splitlines())
        raise PlanError("\n".join(lines)) from error
    replay = Replay(read_instance, read_plan, simulation, budget_bytes)
    if json:
        print_json(replay.summarize())
    else:
        print_report(lambda _width: replay.describe())
    raise typer.Exit(0 if simulation.fits(budget_bytes) else DOES_NOT_FIT_CODE)
