"""How quantities of a result read; a dash where there is none."""

from typing import Final

from rich.text import Text

from slackswap_ilp.report.tables import NOTHING
from slackswap_ilp.result import Result, Status
from slackswap_ilp.units import format_bytes, format_seconds

_STYLES: Final = {
    Status.OPTIMAL: "green",
    Status.FEASIBLE: "cyan",
    Status.INFEASIBLE: "red",
    Status.UNKNOWN: "yellow",
}


def show_bytes(num_bytes: int | None) -> str:
    """Return a size in its best unit."""
    return NOTHING if num_bytes is None else format_bytes(num_bytes)


def show_seconds(seconds: float | None) -> str:
    """Return a duration in its best unit."""
    return NOTHING if seconds is None else format_seconds(seconds)


def show_percent(ratio: float | None, *, decimals: int = 2) -> str:
    """Return a share in percent.

    Examples
    --------
    >>> show_percent(0.95534), show_percent(None)
    ('95.53 %', '-')
    """
    return NOTHING if ratio is None else f"{ratio * 100:.{decimals}f} %"


def show_status(result: Result) -> Text:
    """Return the status in its colour."""
    text = Text(result.status.value, style=_STYLES[result.status])
    if result.is_interrupted:
        text.append(", interrupted", style="yellow")
    return text


def find_bound_ratio(result: Result) -> float | None:
    """Return the share of the ideal throughput that no plan exceeds, None if there is no bound."""
    if result.bound_seconds is None:
        return None
    return result.ideal_seconds / result.bound_seconds if result.bound_seconds > 0 else 1.0
