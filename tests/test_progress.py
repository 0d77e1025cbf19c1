"""The live line of a solve."""

import io

import pytest
from rich.cells import cell_len

from slackswap_ilp.progress import ProgressLine, Task
from slackswap_ilp.result import Result, Status

TASKS = (Task("first [bold] greedy", 2.0), Task("second ilp", 3.0))


def finish(line: ProgressLine) -> None:
    """Hand a result to the line."""
    line.finish_task(
        Result(
            instance="x",
            solver="greedy",
            status=Status.UNKNOWN,
            budget_bytes=1,
            ideal_seconds=1.0,
            runtime_seconds=0.0,
        )
    )


def test_line_shows_incumbent_bound_and_gap() -> None:
    """Incumbent and bound are shares of the ideal: 2 s over 2.5 s is 80 %, over 2.4 s 83.33 %; the gap 0.1 / 2.4."""
    line = ProgressLine(io.StringIO(), TASKS[:1])
    assert line.render(80).plain == "0 s  no plan yet  first [bold] greedy"
    line.show_progress(2.5, None)
    assert line.render(80).plain == "0 s  80.00%  first [bold] greedy"
    line.show_progress(2.5, 2.4)
    assert line.render(80).plain == "0 s  80.00%  at most 83.33%  gap 4.17%  first [bold] greedy"


def test_line_turns_to_the_next_task() -> None:
    """With several tasks the line says which of how many, and forgets the figures of the last one."""
    line = ProgressLine(io.StringIO(), TASKS)
    line.show_progress(2.5, 2.4)
    assert line.render(80).plain.startswith("1/2  0 s  80.00%")
    finish(line)
    assert line.render(80).plain == "2/2  0 s  no plan yet  second ilp"
    finish(line)
    assert line.render(80).plain.startswith("2/2")


@pytest.mark.parametrize("width", [20, 40, 41, 60, 200])
def test_line_is_one_line(width: int) -> None:
    """What does not fit is left out: the line never reaches the edge of the terminal."""
    line = ProgressLine(io.StringIO(), TASKS, is_stopping=lambda: True)
    line.show_progress(2.5, 2.4)
    text = line.render(width).plain
    assert cell_len(text) < width
    assert text.startswith("1/2  0 s  stopping")


def test_nothing_is_drawn_without_a_terminal() -> None:
    """On a stream that is no terminal the line stays unseen, with or without tasks."""
    stream = io.StringIO()
    with ProgressLine(stream, ()) as line:
        line.show_progress(2.5, 2.4)
        finish(line)
    assert stream.getvalue() == ""
