"""Config options and commands of version 2 as version 1 has them. SANS-IO.

The option of the category `mode` is also told as the modes of version 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from acp_bridge.core.protocol import Json, as_object, objects, renamed, without
from acp_bridge.versions import v2


def options_to_v1(options: object, *, booleans: bool) -> list[Json]:
    """Return config options in version 1; `booleans`: with those that are on or off.

    Those of an unknown type are among them: the bridge decides which clients get them.
    """
    told = [each for each in objects(options) if isinstance(each.get("type"), str)]
    return [_option(each) for each in told if booleans or each["type"] != "boolean"]


def _option(option: Json) -> Json:
    told = renamed(option, "configId", "id")
    if option.get("type") == "select":
        values = objects(option.get("options"))
        told["options"] = [renamed(each, "groupId", "group") for each in values]
    return told


def mode_option(options: object) -> Json | None:
    """Return the config option that version 1 knows as modes; None if there is none."""
    return next(
        (
            each
            for each in objects(options)
            if each.get("category") == v2.MODE
            and each.get("type") == "select"
            and isinstance(each.get("currentValue"), str)
        ),
        None,
    )


def modes_to_v1(option: Json) -> Json:
    """Return the `modes` of version 1 that an option of the category `mode` stands for."""
    modes = [
        {"id": each.get("value"), **{n: each[n] for n in ("name", "description") if n in each}}
        for each in _values(option)
    ]
    return {"currentModeId": option["currentValue"], "availableModes": modes}


def _values(option: Json) -> Iterator[Json]:
    """Yield the values of an option, those in groups too."""
    for each in objects(option.get("options")):
        yield from objects(each["options"]) if "groupId" in each else [each]


def setting_to_v2(params: Json) -> Json:
    """Return the parameters of `session/set_config_option` with the type of its value."""
    kind = "boolean" if isinstance(params.get("value"), bool) else "id"
    return {"type": kind, **params}


def commands_to_v1(commands: object) -> list[Json]:
    """Return those commands of a list that version 1 can show, in its form."""
    told = []
    for each in objects(commands):
        if each.get("type") == "command":
            command = without(each, "type")
            if "input" in command:
                command["input"] = _input(command["input"])
            told.append(command)
    return told


def _input(value: object) -> Json | None:
    """Return the input that a command takes; None unless it is text, all that version 1 has."""
    given = as_object(value)
    if given.get("type") != "text":
        return None
    return without(given, "type")
