"""Completes slash commands, their arguments, and files that are mentioned with @."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from acp_bridge.terminal.chat.conversation import Conversation
from acp_bridge.terminal.chat.files import Files
from acp_bridge.terminal.chat.local_commands import commands, queue_values, values
from acp_bridge.terminal.chat.mentions import written
from acp_bridge.terminal.view.block_text import one_line
from acp_bridge.terminal.view.settings_shown import Command

_COMMAND: Final = re.compile(r"/(\S*)\Z")
_VALUE: Final = re.compile(r"/(\S+) +(\S*)\Z")
_QUEUE: Final = re.compile(r"/queue +(\S.*) +(\S*)\Z")
_FILE: Final = re.compile(r"(?:^|\s)@(\"?[^\s\"]*)\Z")
_MOST: Final = 50


class ChatCompleter(Completer):
    """Completes the input line; prompt_toolkit calls it in a thread, since it reads the disk."""

    def __init__(self, conversation: Conversation, files: Files) -> None:
        self._conversation, self._files = conversation, files

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions of the word before the cursor."""
        before = document.text_before_cursor
        if found := _FILE.search(before):
            yield from self._mentioned(found[1])
        elif found := _COMMAND.match(before):
            for command in commands(self._conversation):
                if command.name.startswith(found[1]):
                    yield Completion(command.name, -len(found[1]), display_meta=command.description)
        elif found := _VALUE.match(before):
            yield from _begun(found[2], values(self._conversation, found[1]))
        elif found := _QUEUE.match(before):
            yield from _begun(found[2], queue_values(self._conversation, found[1].split()))

    def _mentioned(self, word: str) -> Iterable[Completion]:
        for path in self._files.matching(word.removeprefix('"'), _MOST):
            yield Completion(written(path), -len(word) - 1, display=one_line(path, 120))


def _begun(word: str, found: Iterable[Command]) -> Iterable[Completion]:
    for each in found:
        if each.name.casefold().startswith(word.casefold()):
            yield Completion(each.name, -len(word), display_meta=each.description)
