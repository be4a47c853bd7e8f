"""A turn with a feed before it: `play.live(...)`, `play.sent()`, and what it asks for then."""

from agent.openhands.events import Json, Part, Status
from agent.openhands.feed import Feed
from agent.openhands.problems import Kind, ServerProblem
from agent.openhands.turn import Turn
from agent.openhands.turn_words import Effect, End, Fail, Say
from tests.agent.openhands import events as told

PROMPT = told.user("do it", "u1")


def problem(kind: Kind) -> ServerProblem:
    return ServerProblem(kind, f"it is {kind.name}")


class Play:
    """`effects`: what the last input made the turn ask for; `all`: everything since the start."""

    def __init__(self, *, stops: bool = False) -> None:
        self.feed = Feed()
        self.feed.expect((Part("do it"),))
        self.turn = Turn("u0")
        self.effects: list[Effect] = []
        self.all: list[Effect] = []
        self._note(self.turn.begin_stop() if stops else self.turn.begin())

    @property
    def end(self) -> End | Fail | None:
        ends = [effect for effect in self.all if isinstance(effect, End | Fail)]
        assert len(ends) <= 1, "a turn has one end"
        return ends[0] if ends else None

    @property
    def said(self) -> list[str]:
        return [effect.text for effect in self.all if isinstance(effect, Say)]

    def live(self, *raws: Json) -> list[Effect]:
        return self._feed(raws, live=True)

    def stored(self, *raws: Json) -> list[Effect]:
        return self._feed(raws, live=False)

    def sent(self, kind: Kind | None = None) -> list[Effect]:
        return self._note(self.turn.sent(_of(kind), self.feed.waiting))

    def started(self, kind: Kind | None = None) -> list[Effect]:
        return self._note(self.turn.started(_of(kind), self.feed.waiting))

    def confirmed(self, kind: Kind | None = None) -> list[Effect]:
        return self._note(self.turn.confirmed(_of(kind), self.feed.waiting))

    def interrupted(self, kind: Kind | None = None) -> list[Effect]:
        return self._note(self.turn.interrupted(_of(kind)))

    def synced(self, status: str | None = None, kind: Kind | None = None) -> list[Effect]:
        seen = Status(status) if status else None
        return self._note(self.turn.synced(seen, _of(kind), self.feed.waiting))

    def answered(self, accept: bool | None) -> list[Effect]:
        return self._note(self.turn.answered(accept, self.feed.waiting))

    def cancel(self, *, under_way: bool = False) -> list[Effect]:
        return self._note(self.turn.cancel(self.feed.waiting, under_way=under_way))

    def pause(self) -> list[Effect]:
        return self._note(self.turn.pause())

    def paused(self, kind: Kind | None = None) -> list[Effect]:
        return self._note(self.turn.paused(_of(kind), self.feed.waiting))

    def go(self) -> list[Effect]:
        return self._note(self.turn.go(self.feed.waiting))

    def gone(self, kind: Kind) -> list[Effect]:
        return self._note(self.turn.gone(problem(kind)))

    # how far a turn has come

    def running(self) -> "Play":
        """The message is taken and its run goes."""
        self.live(PROMPT, told.field("last_user_message_id", "u1"), told.status("running"))
        self.sent()
        return self

    def asking(self, *ids: str) -> "Play":
        """These actions wait, and the user is asked."""
        self.live(*(told.action(each, command=each) for each in ids or ("a1",)))
        self.live(told.status("waiting_for_confirmation"))
        self.live(told.snapshot("waiting_for_confirmation", "u1"))
        return self

    def finish(self, status: str = "finished") -> list[Effect]:
        self.live(told.status(status))
        return self.live(told.snapshot(status, "u1"))

    def _feed(self, raws: tuple[Json, ...], *, live: bool) -> list[Effect]:
        effects: list[Effect] = []
        for raw in raws:
            event = told.event(raw)
            taken = self.feed.live(event) if live else self.feed.stored(event)
            if taken.event is not None:
                effects += self.turn.saw(taken.event, self.feed.waiting, ours=taken.ours)
        return self._note(effects)

    def _note(self, effects: list[Effect]) -> list[Effect]:
        self.effects = effects
        self.all += effects
        return effects


def _of(kind: Kind | None) -> ServerProblem | None:
    return None if kind is None else problem(kind)
