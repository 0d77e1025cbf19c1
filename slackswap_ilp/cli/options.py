"""Options that several commands share."""

from typing import Annotated

import typer

from slackswap_ilp.errors import OptionError
from slackswap_ilp.pipeline import BACKENDS
from slackswap_ilp.solvers.registry import SOLVERS

_FILE_HELP = "'-' for stdin"

InstanceFile = Annotated[
    str, typer.Argument(metavar="INSTANCE", show_default=False, help=f"File of an instance, {_FILE_HELP}.")
]
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", show_default=False, help=f"File of a plan, {_FILE_HELP}.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Gap = Annotated[
    str, typer.Option(metavar="RATIO", help="Gap between step and bound that is good enough: 0.001 or 0.1%.")
]
TimeLimit = Annotated[float, typer.Option(metavar="SECONDS", help="Time that one solve may take.")]
Backend = Annotated[str, typer.Option(metavar="NAME", help=f"Solver of integer programs: {' or '.join(BACKENDS)}.")]

BUDGET_METAVAR = "50%|12GiB|BYTES"
BUDGET_HELP = "Share of the keep-all peak, or a size"
SOLVER_HELP = f"One of {', '.join(SOLVERS)}"


def parse_gap(text: str) -> float:
    """Parse a gap: a ratio (``"0.001"``) or a percentage (``"0.1%"``).

    Raises
    ------
    OptionError
        If it is neither.

    Examples
    --------
    >>> parse_gap("0.001"), parse_gap("50 %")
    (0.001, 0.5)
    """
    number = text.strip()
    try:
        return float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError as error:
        raise OptionError(f"gap: must be a ratio ('0.001') or a percentage ('0.1%'), got {text!r}") from error
