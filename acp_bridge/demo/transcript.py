"""Makes one text of a conversation, so that a replay can be compared with what was shown.

How a message was cut into updates makes no difference to the text; everything else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from acp_bridge.demo.recording import Recording, Unexpected

#: The text before each of the user's prompts.
USER = "\n[user] "


def as_shown(recording: Recording) -> str:
    """Return what the user of this client saw: each prompt, and what came in its turn.

    The prompts must have run in the order of asking. One whose turn had not begun is left out.
    """
    return _joined(_pieces(recording))


def as_replayed(recording: Recording, start: int, end: int) -> str:
    """Return what came between two places of a recording, the end excluded."""
    return _joined((chunk.speaker, chunk.text) for chunk in recording.chunks(start, end))


def difference(shown: str, replay: str) -> Unexpected:
    """Return an Unexpected with both, from shortly before the first character that differs."""
    pairs = zip(shown, replay, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(shown), len(replay)))
    start = max(0, at - 20)
    return Unexpected(f"{shown[start : at + 60]!r}", f"{replay[start : at + 60]!r}")


def _pieces(recording: Recording) -> Iterator[tuple[str, str]]:
    begin = 0
    for at in recording.places("session/prompt", "out"):
        prompt = recording[at].message["id"]
        ends = recording.answers(prompt)
        yield "user", recording.text_of(prompt)
        for chunk in recording.chunks(max(begin, at), ends[0] if ends else None):
            yield chunk.speaker, chunk.text
        if not ends:
            return
        begin = ends[0]


def _joined(pieces: Iterable[tuple[str, str]]) -> str:
    text, last = "", ""
    for speaker, piece in pieces:
        if speaker != last or speaker == "user":
            text += f"\n[{speaker}] "
        text, last = text + piece, speaker
    return text
