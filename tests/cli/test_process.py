"""The command as a process: pure stdout, closed pipes, signals, terminals."""

import fcntl
import importlib.metadata
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slackswap_ilp.cli import main
from slackswap_ilp.cli.interrupts import catch_interrupts
from slackswap_ilp.files import read_instance, read_plan
from slackswap_ilp.simulator import simulate
from tests.cli.conftest import COMMAND, make_environment, run_process

PATIENCE_SECONDS = 120.0
ENDLESS = ("--budget", "50%", "--gap", "0", "--time-limit", "600", "--json")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def reset_signals() -> None:
    """Let a process react to Ctrl-C even if the tests run in the background, where shells turn that off."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(slots=True)
class Terminal:
    """A run of the command whose stderr is a terminal and whose stdout is a pipe."""

    process: subprocess.Popen[bytes]
    master: int
    screen: str = ""

    def read_until(self, pattern: str) -> None:
        """Read what is drawn until it matches."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not re.search(pattern, self.screen):
            assert self.read_more(limit - time.monotonic()), f"ended, or took too long, with {self.screen!r}"

    def read_more(self, timeout_seconds: float) -> bool:
        """Read what is drawn next; False at the end, or when nothing came."""
        if timeout_seconds <= 0 or not select.select([self.master], [], [], timeout_seconds)[0]:
            return False
        try:
            chunk = os.read(self.master, 65536)
        except OSError:  # what Linux says when the other end is closed
            return False
        self.screen += chunk.decode()
        return bool(chunk)

    def finish(self) -> str:
        """Read to the end, and return stdout."""
        while self.read_more(PATIENCE_SECONDS):
            pass
        out, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        os.close(self.master)
        return out.decode()


def start_on_terminal(*arguments: object, columns: int = 100, **environment: str) -> Terminal:
    """Start the command with a terminal of this width as its stderr."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**make_environment(), "TERM": "xterm", **environment},
        preexec_fn=reset_signals,
    )
    os.close(slave)
    return Terminal(process, master)


@pytest.mark.parametrize("backend", ["highs", "cbc"])
def test_stdout_is_pure_json(small: Path, backend: str) -> None:
    """Neither a solver's banner nor progress gets into stdout, and nothing into a stderr that is no terminal."""
    done = run_process("solve", small, "--budget", "75%", "--backend", backend, "--json", "--gap", "1%")
    assert (done.code, done.err) == (0, "")
    row = json.loads(done.out)
    assert done.out == f"{json.dumps(row, indent=2)}\n"
    assert (row["solver"], row["status"]) == ("ilp", "optimal")


def test_plans_do_not_depend_on_the_hash_seed(small: Path, tmp_path: Path) -> None:
    """Two processes with different hash seeds write the same plan, byte for byte."""
    paths = (tmp_path / "first.json", tmp_path / "second.json")
    for seed, path in zip("12", paths, strict=True):
        done = run_process("solve", small, "--budget", "75%", "--output", path, PYTHONHASHSEED=seed)
        assert done.code == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_stdin_pipes_from_generate_to_solve() -> None:
    """What generate prints is what solve and validate read from stdin."""
    instance = run_process("generate", "bert-large", "--layers", 2).out.encode()
    assert run_process("validate", "-", stdin=instance).out.startswith("stdin: valid instance, 28 layers")
    done = run_process("solve", "-", "--solver", "greedy", "--budget", "90%", "--json", stdin=instance)
    assert json.loads(done.out)["solver"] == "greedy"


def test_bad_input_has_no_traceback(tmp_path: Path) -> None:
    """A bad file ends the process with 2 and one line on stderr."""
    path = tmp_path / "bad.json"
    path.write_text("{")
    done = run_process("solve", path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {path}: must be JSON: ")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("generate", "gpt2-xl"), ("models",), ("schema", "instance")])
def test_closed_pipe_is_quiet(arguments: tuple[str, ...]) -> None:
    """A reader that leaves, as ``head`` does, ends the command without a word."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=make_environment()
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert err == b""
    assert process.returncode == 141


def test_full_disk_is_an_error() -> None:
    """Output that cannot be written is told, and is no success."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "models"], stdout=full, stderr=subprocess.PIPE, check=False, env=make_environment()
        )
    assert done.returncode == 2
    assert done.stderr == b"error: stdout: cannot be written: No space left on device\n"


def test_missing_streams_are_no_failure(chain: Path) -> None:
    """A process that was started without stdout and stderr still runs, and exits as it should."""
    for arguments, code in ((("validate", chain), 0), (("validate", "missing.json"), 2)):
        command = " ".join([*COMMAND, *map(str, arguments)])
        done = subprocess.run(["/bin/sh", "-c", f"{command} >&- 2>&- <&-"], check=False, env=make_environment())
        assert done.returncode == code


def test_names_survive_a_terminal_without_unicode(chain: Path, tmp_path: Path) -> None:
    """Where stdout cannot encode a name, the name is escaped, and JSON stays JSON."""
    path = tmp_path / "named.json"
    path.write_text(chain.read_text(encoding="utf-8").replace('"chain"', '"Kette für 鎖"'), encoding="utf-8")
    for options in ((), ("--json",)):
        done = run_process("solve", path, "--solver", "keep-all", *options, PYTHONIOENCODING="ascii")
        assert (done.code, done.err) == (0, "")
        assert "\\u9396" in done.out
    assert json.loads(done.out)["instance"] == "Kette für 鎖"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_a_solve_with_the_best_plan(large: Path, tmp_path: Path, number: int, code: int) -> None:
    """Once there is an incumbent, a signal ends the solve; its plan is reported, written and worth its figures."""
    path = tmp_path / "plan.json"
    terminal = start_on_terminal("solve", large, *ENDLESS, "--output", path)
    terminal.read_until(r"\d%")
    terminal.process.send_signal(number)
    row: dict[str, Any] = json.loads(terminal.finish())
    assert terminal.process.returncode == code
    assert row["is_interrupted"] is True
    assert row["status"] == "feasible"
    assert simulate(read_instance(large), read_plan(path)).step_seconds == row["step_seconds"]


def test_signal_ends_a_comparison_with_its_rows(large: Path) -> None:
    """A comparison that is interrupted in its second row prints both rows."""
    terminal = start_on_terminal("compare", large, *ENDLESS)
    terminal.read_until(r"2/2 .*\d%")
    terminal.process.send_signal(signal.SIGINT)
    rows = json.loads(terminal.finish())["rows"]
    assert terminal.process.returncode == 130
    assert [(row["solver"], row["is_interrupted"]) for row in rows] == [("greedy", False), ("ilp", True)]


def test_second_signal_aborts(large: Path) -> None:
    """Signals one after the other end the process with 130 at once; stdout is empty or whole."""
    terminal = start_on_terminal("solve", large, *ENDLESS)
    terminal.read_until(r"\d%")
    terminal.process.send_signal(signal.SIGINT)
    terminal.process.send_signal(signal.SIGINT)
    out = terminal.finish()
    assert terminal.process.returncode == 130
    assert out == "" or json.loads(out)
    assert "Traceback" not in terminal.screen


def test_second_signal_leaves_the_solve() -> None:
    """The first signal is noted, the second raises, and afterwards the old handlers are back."""
    before = signal.getsignal(signal.SIGINT)
    with catch_interrupts() as interruption:
        assert interruption.choose_code(0) == 0
        signal.raise_signal(signal.SIGINT)
        assert interruption.is_requested()
        assert interruption.choose_code(0) == 130
        with pytest.raises(SystemExit, match="143"):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_signals_stay_ignored() -> None:
    """A background job, for which shells ignore Ctrl-C, is not stopped by it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with catch_interrupts() as interruption:
            signal.raise_signal(signal.SIGINT)
            assert not interruption.is_requested()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("columns", [40, 100])
def test_progress_is_one_line_on_a_terminal(small: Path, columns: int) -> None:
    """On a terminal stderr shows one line within its width, wiped at the end; stdout is as pure as ever."""
    terminal = start_on_terminal(
        "solve", small, "--budget", "75%", "--gap", "1%", "--json", columns=columns, NO_COLOR="1"
    )
    out = terminal.finish()
    assert terminal.process.returncode == 0
    assert json.loads(out)["solver"] == "ilp"
    assert not re.search(r"\x1b\[[0-9;]*m", terminal.screen)
    drawn = [line for line in re.split(r"[\r\n]+", ESCAPES.sub("", terminal.screen)) if line]
    assert all(len(line) < columns and re.match(r"\d+ s  ", line) for line in drawn)
    assert drawn


def test_dumb_terminals_get_no_progress(small: Path) -> None:
    """A terminal that cannot move its cursor is left alone."""
    terminal = start_on_terminal("solve", small, "--budget", "75%", "--gap", "1%", "--json", TERM="dumb")
    assert json.loads(terminal.finish())["solver"] == "ilp"
    assert terminal.screen == ""


def test_the_entry_point_is_main() -> None:
    """The command that installation creates calls `slackswap_ilp.cli.main`."""
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="slackswap")
    assert entry.load() is main
