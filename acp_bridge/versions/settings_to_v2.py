"""Config options, modes, models and commands in version 2; MCP servers in version 1."""

from __future__ import annotations

from typing import Final

from acp_bridge.core.protocol import (
    SET_CONFIG_OPTION,
    SET_MODE,
    SET_MODEL,
    Json,
    as_object,
    objects,
    renamed,
    without,
)
from acp_bridge.versions import v2

#: the ids of the options that are made of an agent's modes and models, if it has no such option.
_MODE: Final = v2.MODE
_MODEL: Final = "model"


class Settings:
    """The config options of one session in version 2, modes and models among them."""

    def __init__(self) -> None:
        """No option is known yet."""
        self._options: list[Json] = []
        self._modes: Json = {}
        self._models: Json = {}

    def take(self, result: Json) -> None:
        """Note the options, modes and models in a result or an update; those absent stay."""
        if isinstance(options := result.get("configOptions"), list):
            self._options = [_option(each) for each in objects(options)]
        self._modes = as_object(result.get("modes")) or self._modes
        self._models = as_object(result.get("models")) or self._models

    def set_mode(self, mode: object) -> None:
        """Note the id of the current mode."""
        self._modes = {**self._modes, "currentModeId": mode}

    @property
    def has_modes(self) -> bool:
        """True if the available modes are known, and there are some."""
        return bool(objects(self._modes.get("availableModes")))

    @property
    def shown(self) -> list[Json]:
        """All config options in version 2, with those made of modes and models."""
        found = list(self._options)
        categories = [each.get("category") for each in found]
        modes = objects(self._modes.get("availableModes"))
        if modes and _MODE not in categories:
            values = [_value(each, each.get("id")) for each in modes]
            found.append(_select(_MODE, "Mode", self._modes.get("currentModeId"), values))
        models = objects(self._models.get("availableModels"))
        if models and _MODEL not in categories:
            values = [_value(each, each.get("modelId")) for each in models]
            found.append(_select(_MODEL, "Model", self._models.get("currentModelId"), values))
        return found

    def setting(self, params: Json) -> tuple[str, Json]:
        """Return method and parameters of version 1 for `session/set_config_option`."""
        chosen, value = params.get("configId"), params.get("value")
        rest = without(params, "configId", "value", "type")
        known = [each.get("configId") for each in self._options]
        if chosen == _MODE and chosen not in known and self._modes:
            return SET_MODE, {**rest, "modeId": value}
        if chosen == _MODEL and chosen not in known and self._models:
            return SET_MODEL, {**rest, "modelId": value}
        typed = {"type": kind} if (kind := params.get("type")) not in (None, "id") else {}
        return SET_CONFIG_OPTION, {**rest, "configId": chosen, "value": value, **typed}

    def note_set(self, method: str, params: Json, result: Json) -> None:
        """Note the result of a request that was sent with what `setting` returned."""
        if method == SET_MODE:
            self.set_mode(params.get("modeId"))
        elif method == SET_MODEL:
            self._models = {**self._models, "currentModelId": params.get("modelId")}
        self.take(result)


def _value(each: Json, value: object) -> Json:
    told = {"value": value, "name": each.get("name") or value}
    return {**told, **({"description": each["description"]} if each.get("description") else {})}


def _select(name: str, title: str, current: object, values: list[Json]) -> Json:
    return {
        "configId": name,
        "name": title,
        "category": name,
        "type": "select",
        "currentValue": current,
        "options": values,
    }


def _option(option: Json) -> Json:
    told = renamed(option, "id", "configId")
    told.setdefault("type", "boolean" if isinstance(told.get("currentValue"), bool) else "select")
    if isinstance(values := told.get("options"), list):
        told["options"] = [
            renamed(each, "group", "groupId") if isinstance(each, dict) else each for each in values
        ]
    return told


def commands(listed: object) -> list[Json]:
    """Return a list of available commands in version 2's form."""
    return [_command(each) for each in objects(listed)]


def _command(command: Json) -> Json:
    told = {**command, "type": "command"}
    if isinstance(given := told.get("input"), dict):
        told["input"] = {**given, "type": "text"}
    return told


def servers(listed: object) -> object:
    """Return the MCP servers of a request in version 1's form."""
    if not isinstance(listed, list):
        return listed or []
    return [_server(each) if isinstance(each, dict) else each for each in listed]


def _server(server: Json) -> Json:
    if server.get("type") == "stdio":
        told = without(server, "type")
        return {**told, "args": told.get("args") or [], "env": told.get("env") or []}
    if server.get("type") == "http":
        return {**server, "headers": server.get("headers") or []}
    return server
