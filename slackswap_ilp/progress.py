"""The live line that shows on a terminal what a solve has reached so far."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from slackswap_ilp.result import Result

_REFRESHES_PER_SECOND = 4
_SEPARATOR = "  "


@dataclass(frozen=True, slots=True)
class Task:
    """One solve among those to come: what to call it, and the ideal step that its figures are a share of."""

    label: str
    ideal_seconds: float


@dataclass(slots=True)
class ProgressLine:
    """One line on a terminal: which task of how many, elapsed time, incumbent, bound and gap; use it as a context.

    Attributes
    ----------
    stream
        Where to draw; on anything but a terminal nothing is drawn.
    tasks
        The solves to come, in order.
    is_stopping
        Tells whether the user has asked to stop.
    """

    stream: TextIO
    tasks: Sequence[Task]
    is_stopping: Callable[[], bool] = bool
    _num_done: int = 0
    _step_seconds: float | None = None
    _bound_seconds: float | None = None
    _started: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __enter__(self) -> Self:
        """Start drawing, if there is a terminal to draw on."""
        console = Console(file=self.stream, markup=False, highlight=False, emoji=False)
        if is_drawable(self.stream) and not console.is_dumb_terminal:
            self._live = Live(
                get_renderable=lambda: self.render(console.width),
                console=console,
                transient=True,
                refresh_per_second=_REFRESHES_PER_SECOND,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wipe the line."""
        if self._live is not None:
            self._live.stop()

    def show_progress(self, step_seconds: float | None, bound_seconds: float | None) -> None:
        """Take note of the best step time and bound so far."""
        self._step_seconds, self._bound_seconds = step_seconds, bound_seconds

    def finish_task(self, _result: Result) -> None:
        """Turn to the next task."""
        self._num_done += 1
        self._step_seconds = self._bound_seconds = None
        self._started = time.monotonic()

    def render(self, width: int) -> Text:
        """Return the line, without the parts that do not fit into `width` columns."""
        index = min(self._num_done, len(self.tasks) - 1)
        task = self.tasks[index]
        parts = [f"{time.monotonic() - self._started:.0f} s", *self._describe_quality(task.ideal_seconds)]
        if self.is_stopping():
            parts.insert(1, "stopping")
        if len(self.tasks) > 1:
            parts.insert(0, f"{index + 1}/{len(self.tasks)}")
        text = parts[0]
        for part in (*parts[1:], task.label):
            if cell_len(text) + len(_SEPARATOR) + cell_len(part) < width:
                text += _SEPARATOR + part
        return Text(text, no_wrap=True, overflow="crop")

    def _describe_quality(self, ideal_seconds: float) -> list[str]:
        """Return incumbent and bound as shares of the ideal throughput, and the gap between them."""
        step, bound = self._step_seconds, self._bound_seconds
        parts = [f"{ideal_seconds / step:.2%}" if step else "no plan yet"]
        if bound:
            parts.append(f"at most {ideal_seconds / bound:.2%}")
        if step and bound:
            parts.append(f"gap {max(0.0, step / bound - 1):.2%}")
        return parts


def is_drawable(stream: TextIO) -> bool:
    """Whether a stream is a terminal, which a closed stream is not."""
    return not stream.closed and stream.isatty()
