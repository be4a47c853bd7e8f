"""What a session announces: commands, modes, models, usage, title. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from acp_bridge.core import protocol as acp
from acp_bridge.core.protocol import Json, as_object, objects
from acp_bridge.features.spending.usage_figures import is_amount
from acp_bridge.terminal.view.block_text import one_line

#: the settings that a command of the chat can set, by their ACP names.
KINDS: Final = ("mode", "model")
_MOST_COMMANDS: Final = 500
#: the words at the begin of a choice that are typed as they stand.
_LITERAL: Final = re.compile(r"[a-z0-9_-]+(?: [a-z0-9_-]+)*(?![^\s])")


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command of the agent or of the chat."""

    name: str
    description: str
    #: the arguments that it takes, if the hint of its input lists them.
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of the mode or the model."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Choices:
    """The values of the mode or the model, the current one, and how it is set."""

    current: str
    values: tuple[Choice, ...]
    #: the id of the config option; None if the session has `modes` and `models` of the older kind.
    option: str | None

    @property
    def name(self) -> str:
        """The name of the current value."""
        names = (value.name for value in self.values if value.id == self.current)
        return next(names, one_line(self.current, 60))

    def after(self) -> Choice | None:
        """Return the value after the current one, the first after the last.

        None if there is only one.
        """
        if len(self.values) < 2:
            return None
        ids = [value.id for value in self.values]
        at = ids.index(self.current) if self.current in ids else -1
        return self.values[(at + 1) % len(ids)]

    def named(self, word: str) -> Choice | None:
        """Return the value whose id or name is `word`, or else the only one that begins with it.

        None if there is none, or several begin with it.
        """
        sought = word.strip().casefold()
        exact = [value for value in self.values if sought in _names(value)]
        found = exact or self.begun_by(word)
        return found[0] if len(found) == 1 or exact else None

    def begun_by(self, word: str) -> list[Choice]:
        """Return the values whose id or name begins with `word`."""
        sought = word.strip().casefold()
        return [
            value for value in self.values if any(name.startswith(sought) for name in _names(value))
        ]


class SettingsShown:
    """The commands, settings and usage that the session announced last."""

    def __init__(self) -> None:
        self.commands: tuple[Command, ...] = ()
        self.title = ""
        self.used: tuple[int, int] | None = None
        self.cost = ""
        self._modes: Json = {}
        self._models: Json = {}
        self._options: list[Json] = []

    def opened(self, result: Json) -> None:
        """Note the settings in the result of session/new, load, resume or attach."""
        self._modes = dict(as_object(result.get("modes"))) or self._modes
        self._models = dict(as_object(result.get("models"))) or self._models
        self._options = objects(result.get("configOptions")) or self._options

    def note_update(self, update: Json) -> str | None:
        """Note an update; returns a sentence for a person if the mode or model has changed."""
        before = {kind: self.choices(kind) for kind in KINDS}
        match update.get("sessionUpdate"):
            case acp.COMMANDS_UPDATE:
                self.commands = tuple(_commands(update))
            case acp.MODE_UPDATE:
                self._modes = {**self._modes, "currentModeId": update.get("currentModeId")}
            case acp.OPTIONS_UPDATE:
                self._options = objects(update.get("configOptions"))
            case acp.USAGE_UPDATE:
                self._usage(update)
            case acp.INFO_UPDATE:
                self.title = one_line(update.get("title"), 80) or self.title
        changes = [
            f"{kind}: {now.name}"
            for kind in KINDS
            if (now := self.choices(kind)) and (old := before[kind]) and old.current != now.current
        ]
        return ", ".join(changes) or None

    def choices(self, kind: str) -> Choices | None:
        """Return the values of `mode` or `model`; None if the session has none."""
        for option in self._options:
            if kind in (option.get("category"), option.get("id")) and option.get("options"):
                values = tuple(_choices(_flat(option.get("options")), "value"))
                return Choices(str(option.get("currentValue")), values, str(option.get("id")))
        old = self._modes if kind == "mode" else self._models
        values = tuple(_choices(objects(old.get(f"available{kind.title()}s")), f"{kind}Id", "id"))
        current = str(old.get(f"current{kind.title()}Id"))
        return Choices(current, values, None) if values else None

    def chosen(self, kind: str, value: str) -> tuple[str, Json]:
        """Return the method and the params, without `sessionId`, that set the mode or the model."""
        choices = self.choices(kind)
        if choices is not None and choices.option is not None:
            return acp.SET_CONFIG_OPTION, {"configId": choices.option, "value": value}
        return (acp.SET_MODE if kind == "mode" else acp.SET_MODEL), {f"{kind}Id": value}

    def was_set(self, kind: str, value: str, result: Json) -> None:
        """Note that a value was set; `result`: the answer, which may list all config options."""
        choices = self.choices(kind)
        if options := objects(result.get("configOptions")):
            self._options = options
        elif choices is not None and choices.option is None:
            old = self._modes if kind == "mode" else self._models
            old[f"current{kind.title()}Id"] = value

    def _usage(self, update: Json) -> None:
        used, size = update.get("used"), update.get("size")
        if is_amount(used) and is_amount(size) and size >= 1:
            self.used = int(used), int(size)
        cost = as_object(update.get("cost"))
        if is_amount(amount := cost.get("amount")):
            self.cost = f"{amount:.2f} {one_line(cost.get('currency'), 8)}".strip()


def _commands(update: Json) -> Iterable[Command]:
    for command in objects(update.get("availableCommands"))[:_MOST_COMMANDS]:
        name = one_line(command.get("name"), 60)
        if name and " " not in name:
            about = one_line(command.get("description"), 120)
            hint = one_line(as_object(command.get("input")).get("hint"))
            yield Command(name.removeprefix("/"), about, tuple(dict.fromkeys(_words(hint))))


def _words(hint: str) -> Iterable[str]:
    """Give the words that a hint such as `hold | drop [number] | title WORDS` offers."""
    choices = hint.split("|")
    for choice in choices if len(choices) > 1 else []:
        if found := _LITERAL.match(choice.strip(" []<>()")):
            yield found[0]


def _choices(values: Iterable[Json], *keys: str) -> Iterable[Choice]:
    for value in values:
        found = next((value[key] for key in keys if isinstance(value.get(key), str)), None)
        if found is not None:
            yield Choice(found, one_line(value.get("name"), 60) or one_line(found, 60))


def _flat(options: Any) -> list[Json]:
    """Return the values of a config option, those in groups included."""
    found: list[Json] = []
    for each in objects(options):
        found += objects(each["options"]) if isinstance(each.get("options"), list) else [each]
    return found


def _names(value: Choice) -> tuple[str, str]:
    return value.id.casefold(), value.name.casefold()
