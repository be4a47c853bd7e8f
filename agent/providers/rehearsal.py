"""Goes through what a first model call would load, so that what is forked later shares it.

No request is sent, no key of the user's is used, and no thread or event loop is started. Measured
is the memory that a forked agent has for itself after its first prompt: 26 MB without this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from agent.model import ToolSpec
from agent.providers import http_connection, library
from agent.providers.keys import Access
from agent.providers.provider_model import ProviderModel


def rehearse(model_ids: Iterable[str], tools: Sequence[ToolSpec]) -> None:
    """Prepares a call of one model of each provider, and the HTTP client; blocks the thread."""
    rehearsed = set()
    for model_id in model_ids:
        with suppress(Exception):  # a prompt will tell the user
            provider = library.split(model_id)[1]
            if provider not in rehearsed:
                ProviderModel(model_id, _stand_in).rehearse(tools)
                rehearsed.add(provider)
    with suppress(Exception):  # such as certificates that can't be read
        http_connection.rehearse()


def _stand_in(provider: str) -> Access:
    return Access(provider, "", "none", "", None)
