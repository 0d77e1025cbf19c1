"""Tables that give up their least important columns, and then their shape, on narrow terminals."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Row = TypeVar("Row")

_GUTTER: Final = 2
NOTHING: Final = "-"
"""What stands where there is no value."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table.

    Attributes
    ----------
    header
        Its title; line breaks are allowed.
    cell
        Its text for a row.
    rank
        How soon it is left out when the terminal is narrow: the highest first, 0 never.
    """

    header: str
    cell: Callable[[Row], str | Text]
    rank: int = 0
    justify: Literal["left", "right"] = "right"


@dataclass(frozen=True, slots=True)
class Line:
    """A label and what it stands for."""

    label: str
    value: str | Text


def fit_table(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> RenderableType:
    """Return a table of at most `width` columns of text, or a list of stacked rows if there is no such table."""
    shown = list(columns)
    while _measure(shown, rows) > width:
        worst = max(shown, key=lambda column: column.rank)
        if worst.rank == 0:
            return _stack(columns, rows)
        shown.remove(worst)
    table = _make_table(shown, rows)
    if len(shown) == len(columns):
        return table
    return Group(table, Text("Columns that do not fit are left out; --json has everything.", style="dim"))


def list_lines(lines: Iterable[Line]) -> Table:
    """Return lines with their labels in a column of their own."""
    grid = Table.grid(padding=(0, _GUTTER, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(line.label, line.value)
    return grid


def show_name(name: str) -> str:
    r"""Return a name with what would upset a terminal escaped.

    Examples
    --------
    >>> show_name("qkv[0]"), show_name("a" + chr(27) + "[31m")
    ('qkv[0]', 'a\\x1b[31m')
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in name
    )


def _measure(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> int:
    """Return the width of a table."""
    widths = [
        max(
            cell_len(line)
            for text in (column.header, *(str(column.cell(row)) for row in rows))
            for line in _split(text)
        )
        for column in columns
    ]
    return sum(widths) + _GUTTER * (len(columns) - 1)


def _split(text: str) -> list[str]:
    return text.splitlines() or [""]


def _make_table(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    """Return a plain table with a rule under its header."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column.header, justify=column.justify, vertical="bottom", no_wrap=True)
    for row in rows:
        table.add_row(*(column.cell(row) for column in columns))
    return table


def _stack(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> RenderableType:
    """Return one list of lines per row."""
    blocks: list[RenderableType] = []
    for row in rows:
        cells = ((column.header.replace("-\n", "").replace("\n", " "), column.cell(row)) for column in columns)
        blocks += [list_lines(Line(header, cell) for header, cell in cells if str(cell)), Text()]
    return Group(*blocks[:-1])
