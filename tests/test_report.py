"""Tables and summaries for people."""

import io

import pytest
from rich.console import Console, RenderableType

from slackswap_ilp.report.results import summarize_result, tabulate_reproduction, tabulate_results
from slackswap_ilp.report.tables import Column, fit_table
from slackswap_ilp.reproduce import ReproducedResult
from slackswap_ilp.result import Status

GIB = 2**30


def make_row(
    *, instance: str = "gpt2-xl-8x1024", solver: str = "ilp", status: Status = Status.OPTIMAL, has_plan: bool = True
) -> ReproducedResult:
    """Return a row of a size as real ones have it; without a plan its figures are null."""
    figures: dict[str, object] = {
        "peak_bytes": 11 * GIB,
        "step_seconds": 0.5435,
        "throughput_ratio": 0.9788,
        "recompute_seconds": 0.0111,
        "stall_seconds": 0.0004,
        "swapped_bytes": 9 * GIB,
        "recomputed_bytes": 3 * GIB,
        "num_kept": 200,
        "num_swapped": 300,
        "num_recomputed": 128,
        "bound_seconds": 0.5432,
        "gap_ratio": 0.0006,
    }
    return ReproducedResult(
        instance=instance,
        solver=solver,
        status=status,
        message=None if has_plan else "nothing fits",
        budget_bytes=11 * GIB,
        ideal_seconds=0.532,
        runtime_seconds=59.94,
        paper_throughput_ratio=0.976,
        **(figures if has_plan else {}),
    )


def draw(report: RenderableType, width: int) -> list[str]:
    """Return the lines of a report, drawn on a console of this width."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(report)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_reproduction_is_one_whole_table_at_100_columns() -> None:
    """At 100 columns every figure of the demo stands in the row of its workload and solver."""
    lines = draw(tabulate_reproduction([make_row(solver="greedy"), make_row()], width=100), 100)
    (row,) = (line for line in lines if " ilp " in line)
    assert row.split("  ")[0] == "gpt2-xl-8x1024"
    figures = ("11.00", "532 ms", "97.88 %", "97.94 %", "0.06 %", "9.00", "3.00", "59.9 s", "97.6 %")
    positions = [row.index(figure) for figure in figures]
    assert positions == sorted(positions)


@pytest.mark.parametrize("width", [60, 80])
def test_reproduction_keeps_what_counts_on_narrow_terminals(width: int) -> None:
    """At 60 columns the table has fewer columns and still says share, gap and the paper's figure, on one line."""
    lines = draw(tabulate_reproduction([make_row()], width=width), width)
    assert max(map(len, lines)) <= width
    (row,) = (line for line in lines if line.startswith("gpt2-xl"))
    assert all(figure in row for figure in ("97.88 %", "0.06 %", "97.6 %"))
    assert "Columns that do not fit are left out; --json has everything." in lines


def test_reproduction_is_stacked_on_very_narrow_terminals() -> None:
    """Where no table fits, a row is a list with a line per figure."""
    lines = draw(tabulate_reproduction([make_row()], width=40), 40)
    assert max(map(len, lines)) <= 40
    assert any(line.split() == ["share", "97.88", "%"] for line in lines)
    assert any(line.split() == ["recomputed", "GiB", "3.00"] for line in lines)


def test_rows_without_a_plan_have_dashes_and_a_message() -> None:
    """A row without a plan has a dash for every figure, and its message stands below the table."""
    lines = draw(tabulate_results([make_row(status=Status.INFEASIBLE, has_plan=False)], width=160), 160)
    (row,) = (line for line in lines if " infeasible " in line)
    assert row.split().count("-") == 9
    assert lines[-1] == "gpt2-xl-8x1024: nothing fits"


@pytest.mark.parametrize("name", ["[bold]x[/bold]", ":smile:", "[/]", "a[0]"])
def test_names_are_no_markup(name: str) -> None:
    """Names that look like rich's markup or emoji appear as they are, in summaries and tables."""
    row = make_row(instance=name)
    assert draw(summarize_result(row, plan_path=None), 100)[0].split(maxsplit=1) == ["instance", name]
    assert any(line.startswith(f"{name} ") for line in draw(tabulate_results([row], width=160), 160))


def test_names_cannot_control_the_terminal() -> None:
    """An escape sequence or a line break in a name is shown, not sent."""
    lines = draw(summarize_result(make_row(instance="a\x1b[31m\nb"), plan_path=None), 100)
    assert lines[0].split() == ["instance", r"a\x1b[31m\nb"]


def test_fit_table_leaves_out_the_highest_rank_first() -> None:
    """Columns go in the order of their rank, only as far as needed."""
    columns: tuple[Column[int], ...] = (
        Column("aaaa", str),
        Column("bbbb", str, rank=1),
        Column("cccc", str, rank=2),
    )
    assert draw(fit_table(columns, [1], 16), 16)[0].split() == ["aaaa", "bbbb", "cccc"]
    assert draw(fit_table(columns, [1], 15), 70)[0].split() == ["aaaa", "bbbb"]
    assert draw(fit_table(columns, [1], 9), 70)[0].split() == ["aaaa"]
    assert [line.split() for line in draw(fit_table(columns, [1], 3), 70)] == [
        ["aaaa", "1"],
        ["bbbb", "1"],
        ["cccc", "1"],
    ]
