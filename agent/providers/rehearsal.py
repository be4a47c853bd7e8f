"""Does what a first model call does, so that agents forked later share what it loads.

No request is sent, no key of the user's is used, and no thread or event loop is started. It saves
memory: without it a forked agent has 26 MB more of its own after its first prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from agent.model import ToolSpec
from agent.providers import http_connection, library
from agent.providers.keys import Access
from agent.providers.provider_model import ProviderModel


def rehearse(model_ids: Iterable[str], tools: Sequence[ToolSpec]) -> None:
    """Prepares a call of one model of each provider, and an HTTP client; blocks the thread."""
    rehearsed = set()
    for model_id in model_ids:
        with suppress(Exception):  # a prompt will report it
            provider = library.split(model_id)[1]
            if provider not in rehearsed:
                ProviderModel(model_id, _stand_in).rehearse(tools)
                rehearsed.add(provider)
    with suppress(Exception):  # for example, certificates that can't be read
        http_connection.rehearse()


def _stand_in(provider: str) -> Access:
    return Access(provider, "", "none", "", None)
