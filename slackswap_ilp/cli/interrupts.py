"""Stopping a solve: the first SIGINT or SIGTERM asks for the best plan so far, the second aborts at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CODE_OFFSET: Final = 128
INTERRUPTED_CODE: Final = _CODE_OFFSET + signal.SIGINT


@dataclass(slots=True)
class Interruption:
    """Whether, and by which signal, the user asked to stop."""

    signal_number: int | None = None

    def is_requested(self) -> bool:
        """Whether the user asked to stop."""
        return self.signal_number is not None

    def choose_code(self, code: int) -> int:
        """Return the exit code: `code`, unless the user asked to stop."""
        return code if self.signal_number is None else _CODE_OFFSET + self.signal_number

    def handle(self, signal_number: int, _frame: FrameType | None) -> None:
        """Take note of the first signal; leave at the second."""
        if self.is_requested():
            raise SystemExit(_CODE_OFFSET + signal_number)
        self.signal_number = signal_number


@contextmanager
def catch_interrupts() -> Iterator[Interruption]:
    """Catch signals for the length of a context; a signal that the process was told to ignore stays ignored."""
    interruption = Interruption()
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    caught = [number for number, handler in previous.items() if handler is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, interruption.handle)
    try:
        yield interruption
    finally:
        for number in caught:
            signal.signal(number, previous[number])
