"""Runs of the command, in this process and in one of its own, and small files to run it on."""

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from slackswap_ilp import cli
from slackswap_ilp.files import write_instance, write_plan
from slackswap_ilp.instance import Activation, Device, Instance, Layer
from slackswap_ilp.models.presets import generate
from slackswap_ilp.plan import KEEP, Plan, Swap

COMMAND = (sys.executable, "-m", "slackswap_ilp")


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run of the command ended."""

    code: int
    out: str
    err: str


class RunCli(Protocol):
    """Runs the command in this process."""

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Finished:
        """Run the command with these arguments and this stdin."""
        ...


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """The command, run in this process."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object, stdin: bytes = b"") -> Finished:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


def run_process(*arguments: object, stdin: bytes = b"", **environment: str) -> Finished:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=120,
        env={**make_environment(), **environment},
    )
    return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())


def make_environment() -> dict[str, str]:
    """Return this process's environment without what changes how the command draws."""
    return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a small instance with enough slack for plans at 75 % of its peak."""
    path = tmp_path_factory.mktemp("small") / "small.json"
    write_instance(path, generate("bert-large", layers=4))
    return path


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of an instance that no solver finishes to a gap of zero soon."""
    path = tmp_path_factory.mktemp("large") / "large.json"
    write_instance(path, generate("bert-large", layers=16))
    return path


def make_chain() -> Instance:
    """Return a chain of two layers, 1 s forward and 2 s backward each, with 8 bytes per activation at 4 bytes/s."""
    device = Device(
        name="toy",
        memory_bytes=100,
        host_memory_bytes=16,
        swap_out_bytes_per_second=4.0,
        swap_in_bytes_per_second=4.0,
    )
    layers = tuple(
        Layer(
            name=f"layer {index}",
            forward_seconds=1.0,
            backward_seconds=2.0,
            inputs=inputs,
            outputs=(Activation(name=name, size_bytes=8),),
            saved=(name,),
        )
        for index, (inputs, name) in enumerate((((), "x"), (("x",), "y")))
    )
    return Instance(name="chain", device=device, layers=layers)


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """A file of the chain."""
    path = tmp_path / "chain.json"
    write_instance(path, make_chain())
    return path


@pytest.fixture
def swap_plan(tmp_path: Path) -> Path:
    """A plan for the chain that swaps x out until B1 and back before B0."""
    path = tmp_path / "swap.json"
    plan = Plan(instance="chain", activations={"x": Swap(release_slot="B1", fetch_slot="R0"), "y": KEEP})
    write_plan(path, plan)
    return path
