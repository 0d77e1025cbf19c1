"""JSON in and out: reading instances and plans with precise messages, writing them in one canonical form."""

import contextlib
import gc
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from slackswap_ilp.errors import InputError, InstanceError, PlanError
from slackswap_ilp.instance import VIOLATIONS, Activation, Device, Instance, Layer
from slackswap_ilp.plan import Keep, Plan, Recompute, Swap

_MAX_SHOWN_ERRORS: Final = 20
_MAX_SHOWN_VALUE: Final = 60
_CLOSING: Final = "\n}"
_RECORDS: Final[Mapping[str, type[BaseModel]]] = {"device": Device, "layers": Layer, "outputs": Activation}
_DECISIONS: Final[Mapping[str, type[BaseModel]]] = {"keep": Keep, "recompute": Recompute, "swap": Swap}
_EXPECTED: Final[Mapping[str, str]] = {
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing_size": "must be an integer of at most 2**60",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "too_short": "must not be empty",
}

Record = TypeVar("Record", bound=BaseModel)


class _DuplicateKeyError(Exception):
    pass


def read_instance(path: str | os.PathLike[str]) -> Instance:
    """Read an instance from a JSON file.

    Raises
    ------
    InstanceError
        If the file cannot be read, is not JSON, or is not a consistent instance; the message lists every finding.
    """
    return parse_instance(_read_text(path, InstanceError), source=os.fspath(path))


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a JSON file.

    Raises
    ------
    PlanError
        If the file cannot be read, is not JSON, or is not a plan; the message lists every finding.
    """
    return parse_plan(_read_text(path, PlanError), source=os.fspath(path))


def parse_instance(text: str | bytes, *, source: str = "instance") -> Instance:
    """Parse an instance from JSON text; `source` opens every error message."""
    return _parse(Instance, text, source, InstanceError)


def parse_plan(text: str | bytes, *, source: str = "plan") -> Plan:
    """Parse a plan from JSON text; `source` opens every error message."""
    return _parse(Plan, text, source, PlanError)


def format_instance(instance: Instance) -> str:
    """Return the canonical JSON text of an instance: one line per layer."""
    content = instance.model_dump(mode="json")
    layers = content.pop("layers")
    head = json.dumps(content, indent=2, ensure_ascii=False)
    body = ",\n".join(f"    {json.dumps(layer, ensure_ascii=False)}" for layer in layers)
    return f'{head.removesuffix(_CLOSING)},\n  "layers": [\n{body}\n  ]\n}}\n'


def format_plan(plan: Plan) -> str:
    """Return the canonical JSON text of a plan: one line per activation, in order of production."""
    content = plan.model_dump(mode="json")
    decisions = content.pop("activations")
    head = json.dumps(content, indent=2, ensure_ascii=False)
    body = ",\n".join(
        f"    {json.dumps(name, ensure_ascii=False)}: {json.dumps(decision, ensure_ascii=False)}"
        for name, decision in decisions.items()
    )
    return f'{head.removesuffix(_CLOSING)},\n  "activations": {{\n{body}\n  }}\n}}\n'


def write_instance(path: str | os.PathLike[str], instance: Instance) -> None:
    """Write an instance as JSON, as a whole or not at all; raises `InputError` if that is not possible."""
    write_text(path, format_instance(instance))


def write_plan(path: str | os.PathLike[str], plan: Plan) -> None:
    """Write a plan as JSON, as a whole or not at all; raises `InputError` if that is not possible."""
    write_text(path, format_plan(plan))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file as a whole or not at all; a link is followed, an existing file keeps its permissions.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")  # a pipe, a terminal, /dev/stdout
        else:
            _replace_file(Path(os.path.realpath(target)), text)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error


def _replace_file(target: Path, text: str) -> None:
    """Write a file beside the target, and move it there once it is complete."""
    temporary = target.with_name(f".slackswap-{uuid.uuid4().hex}")
    try:
        with temporary.open("x", encoding="utf-8") as stream:
            stream.write(text)
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _read_text(path: str | os.PathLike[str], error_type: type[InputError]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise error_type(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error


def _parse(record: type[Record], text: str | bytes, source: str, error_type: type[InputError]) -> Record:
    """Validate JSON text as a record, translating every finding into one line."""
    text = _decode(text, source, error_type)
    lines = list(_find_header_problems(_check_json(text, source, error_type), record))
    if not any("must be" in line for line in lines):  # what is said of another format's fields would mislead
        try:
            with _paused_collector():
                parsed = record.model_validate_json(text)
            if not lines:
                return parsed
        except ValidationError as error:
            raw = json.loads(text)
            lines += [line for detail in error.errors(include_url=False) for line in _describe(detail, raw, record)]
    shown = lines[:_MAX_SHOWN_ERRORS]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more")
    raise error_type("\n".join(f"{source}: {line}" for line in shown))


def _decode(text: str | bytes, source: str, error_type: type[InputError]) -> str:
    """Return text without the byte order mark that some editors put first."""
    try:
        return (text if isinstance(text, str) else text.decode("utf-8")).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise error_type(f"{source}: must be UTF-8 text: {error.reason} at byte {error.start}") from error


def _check_json(text: str, source: str, error_type: type[InputError]) -> dict[str, Any] | None:
    """Refuse what is not JSON, and names that stand twice in one object, which parsers pass over in silence.

    Returns the outermost object with None for the objects in it, or None if the text is something else.
    """
    outermost: list[tuple[str, Any]] | None = None

    def check_pairs(pairs: list[tuple[str, Any]]) -> None:
        nonlocal outermost
        outermost = pairs
        if len(dict(pairs)) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            raise _DuplicateKeyError(next(name for name, count in counts.items() if count > 1))

    try:
        value = json.loads(text, object_pairs_hook=check_pairs)
    except _DuplicateKeyError as error:
        raise error_type(f"{source}: {error.args[0]!r} must stand once in an object, found it twice") from error
    except json.JSONDecodeError as error:
        reason = "is empty" if not text.strip() else f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise error_type(f"{source}: must be JSON: {reason}") from error
    except RecursionError as error:
        raise error_type(f"{source}: must be JSON: it is nested too deeply") from error
    except ValueError as error:
        raise error_type(f"{source}: must be JSON: it has a number of too many digits") from error
    return None if outermost is None or value is not None else dict(outermost)


def _find_header_problems(content: Mapping[str, Any] | None, record: type[BaseModel]) -> Iterator[str]:
    """Yield what is wrong with the two fields that say what a file is."""
    if content is None:
        return
    for name in ("format", "version"):
        expected = record.model_fields[name].default
        if name not in content:
            yield f"{name}: is missing"
        elif type(content[name]) is not type(expected) or content[name] != expected:
            yield f"{name}: must be {expected!r}, got {_show(content[name])}"


@contextlib.contextmanager
def _paused_collector() -> Iterator[None]:
    """Pause the collector of cyclic garbage: a large file makes many objects, none of them garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _show(value: Any) -> str:
    """Return a value as the file spells it, texts in single quotes, shortened."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_VALUE else f"{text[:_MAX_SHOWN_VALUE]}..."


def _describe(detail: ErrorDetails, raw: Any, record: type[BaseModel]) -> Iterable[str]:
    """Return the lines that say where a finding is, what is allowed, and what was found."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    where = _format_location(detail["loc"], raw)
    match kind:
        case _ if kind == VIOLATIONS:
            return context["items"]  # type: ignore[no-any-return]
        case "too_short" if value:
            return ()  # its items are what is wrong, and they are reported
        case "missing":
            return (f"{where}: is missing",)
        case "extra_forbidden":
            known = ", ".join(_find_record(detail["loc"], record).model_fields)
            return (f"{where}: is not a known field (known: {known})",)
        case "json_invalid":  # what Python's parser takes and pydantic's does not, such as half a surrogate pair
            return (f"must be JSON: {context['error']}",)
        case "union_tag_not_found":
            return (f"{where}.action: is missing",)
        case "union_tag_invalid":
            return (f"{where}.action: must be 'keep', 'swap' or 'recompute', got {_show(value['action'])}",)
    return (f"{where}: {_describe_expectation(kind, context, detail['msg'])}, got {_show(value)}",)


def _describe_expectation(kind: str, context: Mapping[str, Any], message: str) -> str:
    """Return what a field allows, in words."""
    match kind:
        case "greater_than" if context["gt"] == 0:
            return "must be positive"
        case "greater_than_equal" if context["ge"] == 0:
            return "must not be negative"
        case "greater_than":
            return f"must be greater than {context['gt']}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "literal_error":
            return f"must be {context['expected']}"
        case "string_pattern_mismatch" if "FRB" in context["pattern"]:
            return "must be a slot such as F12, R7 or B7"
        case "string_pattern_mismatch" if "sha256" in context["pattern"]:
            return "must be 'sha256:' and 64 hexadecimal digits"
        case "string_pattern_mismatch":
            return "must not have control characters"
    return _EXPECTED.get(kind, message)


def _format_location(location: tuple[int | str, ...], raw: Any) -> str:
    """Return a path such as ``layers[3] ('qkv').outputs[0].size_bytes``."""
    text = ""
    for step in location:
        if isinstance(raw, dict) and step not in raw and step in _DECISIONS and "action" in raw:
            continue  # pydantic puts the tag of a tagged union into the path
        if step == "[key]" and not (isinstance(raw, dict) and step in raw):
            continue  # pydantic puts this at the end of the path if it is the name that is wrong
        if isinstance(step, int):
            raw = raw[step] if isinstance(raw, list) and step < len(raw) else None
            name = raw.get("name") if isinstance(raw, dict) else None
            text += f"[{step}] ({name!r})" if isinstance(name, str) and text == "layers" else f"[{step}]"
        else:
            text += f"[{step!r}]" if text == "activations" else f"{'.' if text else ''}{step}"
            raw = raw.get(step) if isinstance(raw, dict) else None
    return text or "the file"


def _find_record(location: tuple[int | str, ...], record: type[BaseModel]) -> type[BaseModel]:
    """Return the record that holds the field at `location`."""
    for step in location[:-1]:
        record = {**_RECORDS, **_DECISIONS}.get(step, record) if isinstance(step, str) else record
    return record
