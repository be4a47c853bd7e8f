"""Tells a user without a key that the session is the demo, and how to leave it.

Invariants
- The first answer of a session of the demo begins with this notice. It names the full path of the
  file of keys, whose folder exists by then.
- Once a key is there the session goes on with a real model at its next prompt, and says so. A demo
  that was asked for by name stays.
- A prompt with `noDemo`, whose sender would not notice the demo, is refused instead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio

from agent.conversation.history import History
from agent.key_help import key_help
from agent.model import DEMO, ModelError
from agent.session.config_options import ConfigOptions
from agent.settings import Settings

logger = logging.getLogger(__name__)


class DemoNotice:
    """The notice of one session.

    `say` shows the user a text; `tell_options` sends the client the session's options.
    """

    def __init__(
        self,
        options: ConfigOptions,
        history: History,
        settings: Settings,
        say: Callable[[str], Awaitable[None]],
        tell_options: Callable[[], Awaitable[None]],
    ) -> None:
        self._options = options
        self._history = history
        self._settings = settings
        self._say = say
        self._tell_options = tell_options

    async def before_answer(self, *, no_demo: bool) -> None:
        """Shows what a user of the demo should know before an answer; may change the model.

        `no_demo`: raises ModelError if the demo would answer because there is no key.
        """
        if (model_id := self._options.leave_demo()) is not None:
            await self._tell_options()
            await self._say(f"A key was found: from here on `{model_id}` answers, not the demo.")
        elif no_demo and self._options.stands_in and self._settings.model != DEMO:
            raise ModelError(_refusal(str(self._settings.keys_file)), "missing_key")
        elif self._is_new_demo():
            await self._make_folder()
            await self._say(_notice(str(self._settings.keys_file)))

    def _is_new_demo(self) -> bool:
        named = self._settings.model == DEMO
        return self._options.model_id == DEMO and not named and DEMO not in self._history.models

    async def _make_folder(self) -> None:
        folder = self._settings.keys_file.parent
        try:
            await anyio.Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:  # the session's transcript will report the problem with the disk
            logger.exception("the folder of keys can't be made")


def _refusal(keys_file: str) -> str:
    return (
        "There is no key of any provider, so no model can answer; the demo only does so if"
        f" `--model demo` was said. {key_help(keys_file=keys_file)}"
    )


def _notice(keys_file: str) -> str:
    return (
        "This is the demo: it has a few prepared answers, and no model reads what you write."
        " For a real one you need a key: write a line such as `ANTHROPIC_API_KEY=...`,"
        " `OPENAI_API_KEY=...` or `GEMINI_API_KEY=...` into this file:\n\n"
        f"- `{keys_file}`\n\n"
        f"{key_help(keys_file=keys_file)}"
        " Your next prompt here then goes to a model; no `--model` and no restart is needed."
    )
