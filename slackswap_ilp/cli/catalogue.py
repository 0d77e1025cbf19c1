"""The commands that list what is known: ``models`` and ``devices``."""

from dataclasses import asdict

from slackswap_ilp.cli.options import Json
from slackswap_ilp.cli.streams import print_json, print_report
from slackswap_ilp.devices import GPUS
from slackswap_ilp.models.presets import PRESETS
from slackswap_ilp.report.catalogue import tabulate_devices, tabulate_models


def models(*, json: Json = False) -> None:
    """List the known models and their defaults."""
    if json:
        rows = [
            {"name": name, "description": preset.description, **asdict(preset.options)}
            for name, preset in PRESETS.items()
        ]
        print_json({"models": rows})
    else:
        print_report(lambda width: tabulate_models(PRESETS, width=width))


def devices(*, json: Json = False) -> None:
    """List the known devices, their rates, and the sources."""
    if json:
        print_json({"devices": [asdict(gpu) for gpu in GPUS.values()]})
    else:
        print_report(lambda width: tabulate_devices(GPUS, width=width))
