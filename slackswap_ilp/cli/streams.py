"""Reading files and stdin, writing stdout and stderr: the seam where their failures are translated."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType

from slackswap_ilp.errors import InputError, OptionError
from slackswap_ilp.files import parse_instance, parse_plan
from slackswap_ilp.instance import Instance
from slackswap_ilp.plan import Plan

STANDARD: Final = "-"
"""The file name that stands for stdin."""

_CLOSED_PIPE_CODE: Final = 141
_COLUMNS_WITHOUT_TERMINAL: Final = 160


def open_missing_streams() -> None:
    """Give output that the process was started without a place to go, and make every text printable."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def check_sources(names: Sequence[str]) -> None:
    """Refuse to read stdin twice."""
    if list(names).count(STANDARD) > 1:
        raise OptionError("files: stdin ('-') can be read once, got '-' more than once")


def read_source(name: str) -> bytes:
    """Return the content of a file, or of stdin for ``-``.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    if not name:
        raise InputError("file: must have a name, got ''")
    if name == STANDARD and sys.stdin is None:
        raise InputError("stdin: cannot be read: it is closed")
    try:
        return sys.stdin.buffer.read() if name == STANDARD else Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"{name_source(name)}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # a path with a NUL character
        raise InputError(f"{name!r}: cannot be read: {error}") from error


def name_source(name: str) -> str:
    """Return how messages call a source."""
    return "stdin" if name == STANDARD else name


def load_instance(name: str) -> Instance:
    """Return the instance in a file, or in stdin for ``-``."""
    return parse_instance(read_source(name), source=name_source(name))


def load_plan(name: str) -> Plan:
    """Return the plan in a file, or in stdin for ``-``."""
    return parse_plan(read_source(name), source=name_source(name))


def check_target(path: Path | None, *, source: str | None = None) -> None:
    """Refuse a file that cannot be written, before the work that it is to hold.

    Raises
    ------
    InputError
        If it is a folder, its folder is missing, or it is `source`, the file that the work begins with.
    """
    if path is None:
        return
    if source not in (None, STANDARD) and path.exists() and Path(source).exists() and path.samefile(source):
        raise InputError(f"{path}: cannot be written: it is what is read")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a folder")
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no folder {path.parent}")


def write_stdout(text: str) -> None:
    """Write text to stdout at once.

    Raises
    ------
    typer.Exit
        If whoever read stdout has closed it.
    InputError
        If it cannot be written.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        _drop_stdout()
        raise typer.Exit(_CLOSED_PIPE_CODE) from error
    except OSError as error:
        _drop_stdout()
        raise InputError(f"stdout: cannot be written: {error.strerror or error}") from error


def _drop_stdout() -> None:
    """Let what stdout still holds go nowhere, so that Python does not fail over it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def write_stderr(text: str) -> None:
    """Write text to stderr; nobody can be told if that fails."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return


def print_report(make_report: Callable[[int], RenderableType]) -> None:
    """Print what `make_report` makes for the width of stdout, which is wide if it is no terminal.

    The report is drawn in memory first, so that only `write_stdout` meets what can go wrong with stdout.
    """
    page = io.TextIOWrapper(io.BytesIO(), encoding=sys.stdout.encoding or "utf-8", errors="backslashreplace")
    is_terminal = sys.stdout.isatty()
    is_free = not is_terminal and "COLUMNS" not in os.environ
    console = Console(
        file=page,
        force_terminal=is_terminal or None,
        width=_COLUMNS_WITHOUT_TERMINAL if is_free else None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    console.print(make_report(console.width))
    page.seek(0)
    write_stdout("".join(f"{line.rstrip()}\n" for line in page.read().splitlines()))


def print_json(content: BaseModel | Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, in ASCII so that no encoding can spoil it."""
    value = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
    write_stdout(f"{json.dumps(value, indent=2)}\n")


def print_csv(rows: Sequence[BaseModel], record: type[BaseModel]) -> None:
    """Print rows on stdout as RFC 4180 has it; empty where there is no value."""
    text = io.StringIO(newline="")
    names = [name for name, field in record.model_fields.items() if not field.exclude]
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    for row in rows:
        values = row.model_dump(mode="json")
        writer.writerow(
            {name: str(value).lower() if isinstance(value, bool) else value for name, value in values.items()}
        )
    write_stdout(text.getvalue())
