"""The options of a session: the model, by its profile, and when the agent asks."""

from __future__ import annotations

from typing import Any

from acp.schema import (
    SessionConfigOptionSelect,
    SessionMode,
    SessionModeState,
)

from acp_bridge.core.protocol import MODE_UPDATE, OPTIONS_UPDATE
from agent.client import Update
from agent.errors import invalid_params
from agent.openhands.confirmation import MODES, mode_of
from agent.openhands.events import Json
from agent.session.config_options import select
from agent.wire_form import wire_form

_OF_PROFILE = "profile:"
#: the mode for a policy that none of the other modes has
_OWN_MODE = "own"


class Options:
    """The options of one session, as the server last told them.

    `profiles`: the server's list of model profiles.
    """

    def __init__(self, profiles: Json, agent_profiles: Json, info: Json) -> None:
        listed = profiles.get("profiles")
        self._models: dict[str, str] = {}
        for each in listed if isinstance(listed, list) else ():
            if isinstance(each, dict) and isinstance(name := each.get("name"), str):
                self._models[name] = str(each.get("model") or name)
        #: the current confirmation policy
        self.policy: Json = MODES["always"][2]
        self._take_policy(info.get("confirmation_policy"))
        self.model = self._model_of(info.get("agent"), _profile_of(info, agent_profiles))

    def mode_policy(self, mode: object) -> Json:
        """Returns the policy of a mode. Raises RequestError for an unknown mode."""
        if mode == self.mode:
            return self.policy
        if not isinstance(mode, str) or mode not in MODES:
            raise invalid_params("no such mode")
        return MODES[mode][2]

    @property
    def profile(self) -> str | None:
        """The profile of the model; None if the server lists no such profile."""
        return self.model if self.model in self._models else None

    def checked_model(self, name: object) -> str:
        """Returns `name`; raises RequestError if it is no model profile that the server lists."""
        if not isinstance(name, str) or name not in self._models:
            raise invalid_params("no such model")
        return name

    def changed(self, key: str, value: object) -> list[Update]:
        """Notes the new `value` of the state's field `key`; returns the updates for the client."""
        before = (self.mode, self.model)
        if key == "confirmation_policy":
            self._take_policy(value)
        elif key == "agent":
            self.model = self._model_of(value, self.model)
        if before == (self.mode, self.model):
            return []
        updates: list[Update] = []
        if before[0] != self.mode:
            updates.append({"sessionUpdate": MODE_UPDATE, "currentModeId": self.mode})
        return [*updates, self._update()]

    def _update(self) -> Update:
        listed = [wire_form(option) for option in self.listed()]
        return {"sessionUpdate": OPTIONS_UPDATE, "configOptions": listed}

    def chose_model(self, name: str) -> list[Update]:
        """Notes that the client chose the profile `name`; returns the updates for the client."""
        changed, self.model = self.model != name, name
        return [self._update()] if changed else []

    def choices(self) -> dict[str, Any]:
        """Returns the members that list the options in the response that opens a session."""
        return {"modes": self.modes(), "config_options": self.listed()}

    def modes(self) -> SessionModeState:
        modes = [
            SessionMode(id=mode, name=name, description=description)
            for mode, name, description in self._modes()
        ]
        return SessionModeState(current_mode_id=self.mode, available_modes=modes)

    def listed(self) -> list[SessionConfigOptionSelect]:
        models = [(name, name, model) for name, model in self._models.items()]
        if self.model not in self._models:
            models.append((self.model, self.model, "The conversation's own"))
        return [
            select("model", "Model", self.model, models),
            select("mode", "Mode", self.mode, self._modes()),
        ]

    @property
    def mode(self) -> str:
        return mode_of(self.policy) or _OWN_MODE

    def _modes(self) -> list[tuple[str, str, str]]:
        modes = [(mode, name, text) for mode, (name, text, _) in MODES.items()]
        if self.mode == _OWN_MODE:
            modes.append((_OWN_MODE, "The server's own", "A policy that the server was given"))
        return modes

    def _take_policy(self, policy: object) -> None:
        if isinstance(policy, dict) and policy:
            self.policy = policy

    def _model_of(self, agent: object, known: str | None) -> str:
        """Returns the profile of the agent's model, or the model's own name if that is not clear.

        `known`: the profile until now, kept if it has the same model.
        """
        model = agent.get("llm") if isinstance(agent, dict) else None
        if not isinstance(model, dict):
            return known or "default"
        usage, name = str(model.get("usage_id") or ""), str(model.get("model") or "default")
        if usage.startswith(_OF_PROFILE):
            return usage.removeprefix(_OF_PROFILE)
        if known is not None and self._models.get(known) == name:
            return known
        same = [profile for profile, its in self._models.items() if its == name]
        return same[0] if len(same) == 1 else name


def _profile_of(info: Json, agent_profiles: Json) -> str | None:
    """Returns the model profile with which the conversation began; None if it is not known."""
    launched = info.get("launched_agent_profile")
    if not isinstance(launched, dict):
        return None
    if isinstance(name := launched.get("llm_profile_ref"), str):
        return name
    listed = agent_profiles.get("profiles")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("id") == launched.get("agent_profile_id"):
            found = each.get("llm_profile_ref")
            return found if isinstance(found, str) else None
    return None
