"""The feed under cuts and reads of the log at any moment, drawn at random: each word once."""

from hypothesis import given
from hypothesis import strategies as st

from agent.openhands.events import Json
from agent.openhands.feed import Feed
from tests.agent.openhands import events as told


def timeline(turns: list[list[int]]) -> tuple[list[Json], str]:
    """Returns what the server tells of some runs, in its order, and the words of all messages.

    `turns`: for each run, the number of deltas of each of its messages.
    """
    frames: list[Json] = []
    words = ""
    for run, messages in enumerate(turns):
        frames += [told.user(f"q{run}", f"u{run}"), told.status("running")]
        for number, count in enumerate(messages):
            parts = [f"<{run}.{number}.{part}>" for part in range(count)]
            frames += [told.delta(part) for part in parts]
            whole = "".join(parts) + "."
            words += whole
            if number + 1 < len(messages):
                name = f"a{run}.{number}"
                frames += [told.action(name, command="ls", said=whole), told.result(name)]
            else:
                frames.append(told.agent(whole))
        frames.append(told.status("finished"))
    return frames, words


class Connection:
    """What a client gets of the timeline: live from where it connected, and the log as it is."""

    def __init__(self, frames: list[Json]) -> None:
        self.frames = frames
        self.feed = Feed()
        self.shown = ""
        self.at = 0
        self.read = 0

    def live(self, upto: int) -> None:
        while self.at < upto:
            taken = self.feed.live(told.event(self.frames[self.at]))
            self._show(taken.updates)
            self.at += 1

    def sync(self, upto: int) -> None:
        """Reads the log when the server has told this much, which is never less than came live."""
        for frame in self.frames[:upto]:
            if frame["kind"] != "StreamingDeltaEvent":
                self._show(self.feed.stored(told.event(frame)).updates)

    def reconnect(self, at: int) -> None:
        self.feed.cut()
        self.at = at

    def _show(self, updates: tuple[Json, ...]) -> None:
        kinds = [u for u in updates if u["sessionUpdate"] == "agent_message_chunk"]
        self.shown += "".join(update["content"]["text"] for update in kinds)


TURNS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3)


@given(TURNS, st.data())
def test_with_cuts_and_reads_of_the_log_at_any_moment_each_word_is_shown_once(
    turns: list[list[int]], data: st.DataObject
) -> None:
    frames, words = timeline(turns)
    it, end = Connection(frames), len(frames)
    for _ in range(data.draw(st.integers(0, 6))):
        it.live(data.draw(st.integers(it.at, end)))
        if data.draw(st.booleans()):
            it.sync(data.draw(st.integers(it.at, end)))
        else:
            back = data.draw(st.integers(it.at, end))
            it.reconnect(back)
            # The log is read once the feed is open; what comes live meanwhile is taken after it.
            it.sync(data.draw(st.integers(back, end)))
    it.live(end)
    assert it.shown == words
