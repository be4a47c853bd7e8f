"""Tells a session's client what becomes known of its model: thought levels, window, images.

What a model can do is known only once a library is imported, or a server on the user's machine has
answered; that may be long after the session was opened.
"""

from __future__ import annotations

from typing import Any

import anyio

from acp_bridge.core.records import replace
from agent.client import Client
from agent.content.blocks import images_of, unreadable_images
from agent.content.images import IMAGES_TAKEN
from agent.conversation.history import History
from agent.conversation.replay import notice, thought
from agent.conversation.token_estimate import TokenEstimate
from agent.session.asides import Asides
from agent.session.config_options import ConfigOptions
from agent.tools import Toolbox
from agent.turn.loop import usage_update

#: seconds for which the response that opens a session again waits for this
_PROMPTLY = 0.2
#: seconds for which a prompt waits for the model's library before the user is told why
_QUIET_SECONDS = 1.0
_UNKNOWN = (
    "The model of this session, `{}`, is not known any more. Nothing takes its place by itself:"
    " choose another model."
)
_REPLACED = "From here on `{}` answers, in place of `{}`, which is not known any more."
_LOADING = "Loading the library of models, as the first prompt after a start has to."


class ModelNews:
    def __init__(
        self,
        options: ConfigOptions,
        history: History,
        tools: Toolbox,
        client: Client,
        asides: Asides,
    ) -> None:
        self._options = options
        self._history = history
        self._tools = tools
        self._client = client
        self._asides = asides
        self._told = False

    async def tell_promptly(self) -> None:
        """Sends the model's usage before the response that opens a session again, if that is quick.

        The options are left out, because the response has them.
        """
        with anyio.move_on_after(_PROMPTLY):
            await self._options.learn()
            await self.tell_usage()
            self._told = True

    async def tell(self) -> None:
        """Sends options and usage as soon as they are known, unless `tell_promptly` did."""
        if not self._told:
            await self.tell_options()
            await self.tell_usage()
        if (unknown := self._options.unknown) is not None:
            await self._asides.tell(notice(_UNKNOWN.format(unknown)))

    async def tell_replaced(self) -> None:
        """Tells the user which model answers now in place of one that is no longer known."""
        if (replaced := self._options.take_replaced()) is not None:
            text = _REPLACED.format(self._options.model_id, replaced)
            await self._asides.tell(notice(text))

    async def tell_options(self) -> None:
        """Looks the model up, and sends the client the options if that has changed them."""
        if await self._options.learn():
            await self.show_options()

    async def show_options(self) -> None:
        await self._asides.tell(self._options.update())

    async def tell_usage(self) -> None:
        """Sends the client the use of the window after a load or a summary, when no answer does."""
        history, info = self._history, self._options.known
        if info is None or not history.entries:
            return
        spent = history.spent
        if history.measured is None:  # unknown since the conversation was changed: estimate
            estimate = TokenEstimate(history, self._tools.specs, images=info.takes_images)
            spent = replace(spent, context=estimate.tokens())
        if (update := usage_update(spent, info)) is not None:
            await self._asides.tell(update)

    async def wait(self) -> None:
        """Waits, for a prompt, until the model is known.

        After `_QUIET_SECONDS` tells the user why.
        """
        with anyio.move_on_after(_QUIET_SECONDS) as quiet:
            await self.tell_options()
        if quiet.cancelled_caught:
            await self._client.update(thought(_LOADING))
            await self.tell_options()

    async def tell_unseen(self, blocks: list[dict[str, Any]]) -> None:
        """Tells the user which images of a prompt the model will not see. Raises ModelError."""
        if images_of(blocks) == 0:
            return
        if not (await self._options.info()).takes_images:
            name = self._options.model_id
            told = f"`{name}` can't see images: it is told only that there is one."
        elif unreadable_images(blocks):
            told = f"An image was left out: models take {IMAGES_TAKEN}."
        else:
            return
        await self._client.update(notice(told))
