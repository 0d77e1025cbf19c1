"""Results of solves: the summary of one, the table of several, the table beside the paper's figures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from slackswap_ilp.devices import DEFAULT_DEVICE
from slackswap_ilp.report.quantities import (
    find_bound_ratio,
    show_bytes,
    show_percent,
    show_seconds,
    show_status,
)
from slackswap_ilp.report.tables import NOTHING, Column, Line, fit_table, list_lines, show_name
from slackswap_ilp.reproduce import BUDGET, SOURCE, ReproducedResult
from slackswap_ilp.result import Result
from slackswap_ilp.units import GIB, format_seconds


def summarize_result(result: Result, *, plan_path: Path | None) -> RenderableType:
    """Return the summary of one result; `plan_path` is where its plan was written, None if it was not."""
    return list_lines(_describe_result(result, plan_path))


def _describe_result(result: Result, plan_path: Path | None) -> Iterator[Line]:
    """Yield the lines of a summary."""
    yield Line("instance", show_name(result.instance))
    yield Line("status", show_status(result))
    if result.message is not None:
        yield Line("", show_name(result.message))
    if result.plan is not None:
        yield from _describe_plan(result)
    else:
        yield Line("budget", show_bytes(result.budget_bytes))
        yield Line("ideal step", show_seconds(result.ideal_seconds))
        yield Line("plan", "none to write")
    if result.bound_seconds is not None:
        share = show_percent(find_bound_ratio(result))
        gap = "" if result.gap_ratio is None else f"; gap {show_percent(result.gap_ratio)}"
        yield Line("bound", f"{show_seconds(result.bound_seconds)}: no plan exceeds {share} of ideal, proven{gap}")
    method = f": {result.method}" if result.method else ""
    yield Line("solver", f"{result.solver}, {show_seconds(result.runtime_seconds)}{method}")
    if result.plan is not None:
        written = "not written; --output FILE writes it" if plan_path is None else f"written to {plan_path}"
        yield Line("plan", show_name(written))


def _describe_plan(result: Result) -> Iterator[Line]:
    """Yield what a result's plan costs and does."""
    assert result.peak_bytes is not None
    peak_share = show_percent(result.peak_bytes / result.budget_bytes)
    yield Line(
        "memory",
        f"peak {show_bytes(result.peak_bytes)} of {show_bytes(result.budget_bytes)} budget ({peak_share})",
    )
    yield Line("step", f"{show_seconds(result.step_seconds)}, ideal {show_seconds(result.ideal_seconds)}")
    yield Line("throughput", f"{show_percent(result.throughput_ratio)} of ideal")
    yield Line(
        "overhead", f"recompute {show_seconds(result.recompute_seconds)}, stalls {show_seconds(result.stall_seconds)}"
    )
    yield Line(
        "activations",
        f"{result.num_kept} kept, {result.num_swapped} swapped ({show_bytes(result.swapped_bytes)}),"
        f" {result.num_recomputed} recomputed ({show_bytes(result.recomputed_bytes)})",
    )


_COMPARISON: Final[tuple[Column[Result], ...]] = (
    Column("instance", lambda row: show_name(row.instance), justify="left"),
    Column("budget", lambda row: show_bytes(row.budget_bytes), rank=1),
    Column("solver", lambda row: row.solver, justify="left"),
    Column("status", show_status, rank=2, justify="left"),
    Column("step", lambda row: show_seconds(row.step_seconds), rank=5),
    Column("share\nof ideal", lambda row: show_percent(row.throughput_ratio)),
    Column("at most", lambda row: show_percent(find_bound_ratio(row)), rank=3),
    Column("gap", lambda row: show_percent(row.gap_ratio)),
    Column("recompute", lambda row: show_seconds(row.recompute_seconds), rank=8),
    Column("stall", lambda row: show_seconds(row.stall_seconds), rank=9),
    Column("peak", lambda row: show_bytes(row.peak_bytes), rank=10),
    Column("swapped", lambda row: show_bytes(row.swapped_bytes), rank=6),
    Column("recom-\nputed", lambda row: show_bytes(row.recomputed_bytes), rank=7),
    Column("run time", lambda row: show_seconds(row.runtime_seconds), rank=4),
)


def tabulate_results(rows: Sequence[Result], *, width: int) -> RenderableType:
    """Return a table of results, and below it what is to be said where there is no plan."""
    table = fit_table(_COMPARISON, rows, width)
    messages = dict.fromkeys(
        show_name(f"{row.instance}: {row.message}") for row in rows if row.message is not None and row.plan is None
    )
    if not messages:
        return table
    return Group(table, Text(), *(Text(message) for message in messages))


def _show_gib(num_bytes: int | None) -> str:
    return NOTHING if num_bytes is None else f"{num_bytes / GIB:.2f}"


_REPRODUCTION: Final[tuple[Column[ReproducedResult], ...]] = (
    Column("workload", lambda row: row.instance, justify="left"),
    Column("budget\nGiB", lambda row: _show_gib(row.budget_bytes), rank=4),
    Column("ideal\nstep", lambda row: format_seconds(row.ideal_seconds), rank=5),
    Column("solver", lambda row: row.solver, justify="left"),
    Column("share", lambda row: show_percent(row.throughput_ratio)),
    Column("at most", lambda row: show_percent(find_bound_ratio(row)), rank=1),
    Column("gap", lambda row: show_percent(row.gap_ratio)),
    Column("swap-\nped\nGiB", lambda row: _show_gib(row.swapped_bytes), rank=6),
    Column("recom-\nputed\nGiB", lambda row: _show_gib(row.recomputed_bytes), rank=7),
    Column("run\ntime", lambda row: f"{row.runtime_seconds:.1f} s", rank=2),
    Column("paper", lambda row: show_percent(row.paper_throughput_ratio, decimals=1)),
)


def tabulate_reproduction(rows: Sequence[ReproducedResult], *, width: int) -> RenderableType:
    """Return the paper's workloads, solved, beside the paper's figures, and what the columns mean."""
    title = Text(f"SlackSwap's workloads on one {DEFAULT_DEVICE} at {BUDGET} of the keep-all peak", style="bold")
    legend = list_lines(
        (
            Line("share", "ideal step / step, as the simulator replays the plan"),
            Line("at most", "no plan reaches a larger share, proven"),
            Line("gap", "how far the step is above the proven bound"),
            Line("paper", f"what {SOURCE} reports for its heuristic, on its own profiles"),
        )
    )
    texts = dict.fromkeys(show_name(f"{row.instance}: {row.message}") for row in rows if row.message is not None)
    messages = [line for text in texts for line in (Text(text), Text())]
    return Group(title, Text(), fit_table(_REPRODUCTION, rows, width), Text(), *messages, legend)
