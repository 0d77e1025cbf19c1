"""The commands by name, and what they share: the version."""

from importlib.metadata import version
from typing import Annotated

import typer

from slackswap_ilp.cli import catalogue, documents, replaying, solving
from slackswap_ilp.cli.streams import write_stdout


def _show_version(value: object) -> None:
    """Print the version and stop, if asked to."""
    if value:
        write_stdout(f"slackswap {version('slackswap-ilp')}\n")
        raise typer.Exit


def _describe_program(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Plan GPU activation memory: keep, swap over PCIe or recompute, with a proven gap to the optimum."""


app = typer.Typer(
    callback=_describe_program,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("solve")(solving.solve)
app.command("compare")(solving.compare)
app.command("reproduce")(solving.reproduce)
app.command("simulate")(replaying.simulate)
app.command("validate")(documents.validate)
app.command("generate")(documents.generate)
app.command("schema")(documents.schema)
app.command("models")(catalogue.models)
app.command("devices")(catalogue.devices)
