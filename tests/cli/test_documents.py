"""The commands ``validate``, ``generate``, ``schema``, ``models`` and ``devices``."""

import json
from pathlib import Path

import pytest

from slackswap_ilp.devices import GPUS
from slackswap_ilp.files import format_instance, read_instance
from slackswap_ilp.models.presets import PRESETS, generate
from slackswap_ilp.result import Result
from slackswap_ilp.solvers.registry import SOLVERS
from tests.cli.conftest import RunCli

COMMANDS = ("solve", "compare", "simulate", "validate", "generate", "models", "devices", "schema", "reproduce")


def test_validate_describes_instances_and_plans(run_cli: RunCli, chain: Path, swap_plan: Path) -> None:
    """A file is an instance or a plan by its format, and its size is told."""
    done = run_cli("validate", chain, swap_plan)
    assert done.code == 0
    assert done.err == ""
    assert done.out.splitlines() == [
        f"{chain}: valid instance, 2 layers, 2 activations, keep-all peak 16 B, ideal step 6 s",
        f"{swap_plan}: valid plan, 2 activations, to be simulated with instance chain",
    ]


def test_validate_lists_all_findings_of_all_files(run_cli: RunCli, chain: Path, tmp_path: Path) -> None:
    """Findings of several files stand on lines of their own, valid files are still told, and the exit code is 2."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(chain.read_text().replace('"size_bytes": 8', '"size_bytes": -8'))
    second.write_text("{")
    done = run_cli("validate", first, chain, second, tmp_path / "missing.json")
    assert done.code == 2
    assert done.out.startswith(f"{chain}: valid instance")
    assert done.err.splitlines() == [
        f"error: {first}: layers[0] ('layer 0').outputs[0].size_bytes: must be positive, got -8",
        f"error: {first}: layers[1] ('layer 1').outputs[0].size_bytes: must be positive, got -8",
        f"error: {second}: must be JSON: Expecting property name enclosed in double quotes at line 1, column 2",
        f"error: {tmp_path / 'missing.json'}: cannot be read: No such file or directory",
    ]


@pytest.mark.parametrize(("text", "found"), [('{"format": "x"}', "got 'x'"), ("{}", "it is missing")])
def test_validate_refuses_other_formats(run_cli: RunCli, text: str, found: str) -> None:
    """A JSON object of another format, or of none, gets one line that names the formats there are."""
    done = run_cli("validate", "-", stdin=text.encode())
    assert done.code == 2
    assert done.err == f"error: stdin: format: must be 'slackswap-instance' or 'slackswap-plan', {found}\n"


def test_validate_prints_json(run_cli: RunCli, chain: Path) -> None:
    """With --json findings are part of the object on stdout, and stderr is empty."""
    done = run_cli("validate", chain, "-", "--json", stdin=b"[]")
    assert done.code == 2
    assert done.err == ""
    good, bad = json.loads(done.out)["files"]
    assert (good["file"], good["is_valid"], good["kind"], good["errors"]) == (str(chain), True, "instance", [])
    assert (bad["file"], bad["is_valid"], bad["kind"]) == ("stdin", False, None)
    assert bad["errors"]


def test_validate_reads_stdin_once(run_cli: RunCli) -> None:
    """Stdin named twice is refused."""
    done = run_cli("validate", "-", "-")
    assert done.code == 2
    assert "stdin ('-') can be read once" in done.err


def test_generate_prints_the_instance(run_cli: RunCli) -> None:
    """Without --output, and with ``-``, stdout is the instance file itself."""
    expected = format_instance(generate("gpt2-xl", layers=1, batch=2, attention="eager", device="h200"))
    options = ("generate", "gpt2-xl", "--layers", 1, "--batch", 2, "--attention", "eager", "--device", "h200")
    for more in ((), ("--output", "-")):
        done = run_cli(*options, *more)
        assert (done.code, done.out, done.err) == (0, expected, "")


def test_generate_passes_every_option_on(run_cli: RunCli) -> None:
    """Each option of `generate` is an option of the command."""
    options = {
        "layers": 1,
        "hidden_size": 64,
        "heads": 4,
        "key_value_heads": 2,
        "feed_forward_size": 96,
        "vocabulary_size": 100,
        "batch": 2,
        "sequence": 16,
        "dropout": 0.25,
    }
    arguments = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    done = run_cli("generate", "llama-7b", *arguments, "--granularity", "block", "--attention", "fused")
    expected = generate("llama-7b", **options, granularity="block", attention="fused")  # type: ignore[arg-type]
    assert done.out == format_instance(expected)


def test_generate_writes_a_file(run_cli: RunCli, tmp_path: Path) -> None:
    """With --output the file is the instance, and stdout says what was written."""
    path = tmp_path / "bert.json"
    done = run_cli("generate", "bert-large", "--layers", 1, "--output", path)
    assert done.code == 0
    assert done.out.startswith(f"{path}: wrote instance ")
    assert read_instance(path) == generate("bert-large", layers=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bert",), "model: must be one of bert-large, gpt2-xl, llama-7b, llama-70b, got 'bert'"),
        (("bert-large", "--device", "tpu"), "device: must be one of a100-40gb, "),
        (("bert-large", "--heads", "7"), "heads: must divide hidden_size (1024), got 7"),
        (("bert-large", "--layers", "x"), "Invalid value for '--layers'"),
        (("bert-large", "--attention", "sparse"), "Invalid value for '--attention'"),
        (("bert-large", "--depth", "3"), "No such option: --depth"),
        ((), "Missing argument 'MODEL'"),
    ],
)
def test_generate_refuses(run_cli: RunCli, arguments: tuple[str, ...], message: str) -> None:
    """Unknown names and options and values that are not allowed exit with 2 and say so."""
    done = run_cli("generate", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith(f"error: {message}")


def test_generate_refuses_a_missing_folder(run_cli: RunCli, tmp_path: Path) -> None:
    """A target that cannot be written is refused by name."""
    path = tmp_path / "missing" / "bert.json"
    done = run_cli("generate", "bert-large", "--output", path)
    assert done.code == 2
    assert done.err == f"error: {path}: cannot be written: there is no folder {path.parent}\n"
    done = run_cli("generate", "bert-large", "--output", tmp_path)
    assert done.code == 2
    assert done.err == f"error: {tmp_path}: cannot be written: it is a folder\n"


@pytest.mark.parametrize("kind", ["instance", "plan"])
def test_schema_describes_files(run_cli: RunCli, kind: str) -> None:
    """The schema of a file format is a JSON object that pins the format's name."""
    done = run_cli("schema", kind)
    assert done.code == 0
    assert json.loads(done.out)["properties"]["format"]["const"] == f"slackswap-{kind}"


def test_schema_of_results_has_the_keys_of_results(run_cli: RunCli) -> None:
    """The schema of a result names exactly the keys that a result's JSON has."""
    schema = json.loads(run_cli("schema", "result").out)
    result = Result(
        instance="x", solver="greedy", status="unknown", budget_bytes=1, ideal_seconds=1.0, runtime_seconds=0.0
    )
    assert set(schema["properties"]) == set(result.model_dump(mode="json"))


def test_schema_refuses_other_kinds(run_cli: RunCli) -> None:
    """What has no schema is refused."""
    done = run_cli("schema", "layer")
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert "'layer'" in done.err


def test_models_and_devices_list_all(run_cli: RunCli) -> None:
    """Every model and every device is in the table and in the JSON."""
    models, devices = run_cli("models"), run_cli("devices")
    assert (models.code, devices.code) == (0, 0)
    assert all(name in models.out and preset.description in models.out for name, preset in PRESETS.items())
    assert all(name in devices.out and gpu.source in devices.out for name, gpu in GPUS.items())
    assert [row["name"] for row in json.loads(run_cli("models", "--json").out)["models"]] == list(PRESETS)
    listed = json.loads(run_cli("devices", "--json").out)["devices"]
    assert [row["name"] for row in listed] == list(GPUS)
    assert listed[0]["swap_out_bytes_per_second"] == 25e9


def test_help_names_every_command(run_cli: RunCli) -> None:
    """The help lists all commands, and each has a help of its own."""
    done = run_cli("--help")
    assert done.code == 0
    assert all(f"\n  {command} " in done.out for command in COMMANDS)
    for command in COMMANDS:
        assert run_cli(command, "--help").code == 0
    assert all(name in run_cli("solve", "--help").out for name in SOLVERS)


def test_version(run_cli: RunCli) -> None:
    """The version is printed on stdout."""
    done = run_cli("--version")
    assert done.code == 0
    assert done.out.startswith("slackswap 0.")


def test_unknown_command(run_cli: RunCli) -> None:
    """An unknown command, or none, exits with 2 and names the help."""
    for arguments in (("frobnicate",), ()):
        done = run_cli(*arguments)
        assert done.code == 2
        assert done.err.startswith("error: ")
        assert done.err.endswith("run 'slackswap --help' for what is allowed\n")


@pytest.mark.parametrize("kind", ["instance", "plan"])
def test_schema_requires_what_files_must_say(run_cli: RunCli, kind: str) -> None:
    """A file must have its format and version, though records made in Python have them by default."""
    schema = json.loads(run_cli("schema", kind).out)
    assert schema["required"][:2] == ["format", "version"]


def test_schema_of_a_result_requires_every_key(run_cli: RunCli) -> None:
    """All keys of a result are always there."""
    schema = json.loads(run_cli("schema", "result").out)
    assert set(schema["required"]) == set(schema["properties"])
