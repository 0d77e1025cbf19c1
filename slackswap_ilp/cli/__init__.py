"""The command ``slackswap``: parses, calls, prints; every error turns into a message and an exit code here.

Exit codes: 0 a plan (or all is valid, or it fits); 1 no plan (or it does not fit); 2 bad input; 3 a solver is missing
or failed; 130 and 143 interrupted by SIGINT and SIGTERM; 141 stdout was closed by its reader.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Final, NoReturn

import typer

from slackswap_ilp.cli.app import app
from slackswap_ilp.cli.interrupts import INTERRUPTED_CODE
from slackswap_ilp.cli.streams import open_missing_streams, write_stderr, write_stdout
from slackswap_ilp.errors import InputError, SolverError

PROGRAM: Final = "slackswap"
BAD_INPUT_CODE: Final = 2
SOLVER_FAILED_CODE: Final = 3


def main() -> NoReturn:
    """Run the command with the arguments of this process, and exit."""
    open_missing_streams()
    code = run(sys.argv[1:])
    sys.stderr.flush()
    if threading.active_count() > 1:
        os._exit(code)  # a solver that was aborted still runs in native code; Python cannot end such a thread
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command with `arguments`, and return its exit code."""
    try:
        code = _run(arguments)
        write_stdout("")
    except typer.Exit as stop:
        return stop.exit_code
    except InputError as error:
        return _fail(str(error), BAD_INPUT_CODE)
    return code


def _run(arguments: Sequence[str]) -> int:
    """Run the command, and translate all that it raises but what writing to stdout raises."""
    try:
        code = app(list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except InputError as error:
        return _fail(str(error), BAD_INPUT_CODE)
    except SolverError as error:
        return _fail(str(error), SOLVER_FAILED_CODE)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = PROGRAM if context is None else context.command_path
        return _fail(f"{error.format_message()}\nrun '{command} --help' for what is allowed", BAD_INPUT_CODE)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED_CODE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    """Say on stderr what is wrong, one line per finding."""
    first, *others = message.splitlines() or [""]
    write_stderr("".join(f"{line}\n" for line in (f"error: {first}", *(f"       {line}" for line in others))))
    return code
