"""What may run unasked in which mode, and what an answer allows."""

import itertools
from typing import Any

import anyio
import pytest

from acp_bridge.core.records import replace
from agent.client import ClientError
from agent.conversation.decisions import Key
from agent.tools import Access, Action, Grant, Show, ToolError, ToolResult
from agent.turn.permissions import MODES, Mode, Permissions, PromptCancelled, Rejected
from tests.agent.support import Choice, MemoryClient, Note

SRC = Grant(("edit", "/project/src"), "edits in src")


async def no_work(show: Show) -> ToolResult:
    raise AssertionError("a permission runs nothing")


ACTION = Action(no_work, SRC)


class Asking:
    """Permissions with their user."""

    def __init__(self, mode: Mode = "ask", choice: Choice = "allow_once") -> None:
        self.client = MemoryClient(choice)
        self.permissions = Permissions()
        self.permissions.mode = mode

    async def check(self, access: Access = "edit", action: Action = ACTION) -> str:
        """`free`, `asked`, or how it was refused: `rejected` by the user, `refused` unasked."""
        before = len(self.client.asked)
        card = {"toolCallId": "call-1", "title": "Edit a.py"}
        with anyio.fail_after(5):
            try:
                await self.permissions.check(Note(access), action, card, self.client)
            except Rejected:
                return "rejected"
            except ToolError:
                return "refused"
        return "asked" if len(self.client.asked) > before else "free"


# modes


ACCESSES: list[Access] = ["none", "read", "edit", "execute"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("ask", "free free asked asked"),
        ("plan", "free free refused refused"),
        ("edit", "free free free asked"),
        ("auto", "free free free free"),
    ],
)
async def test_each_mode_frees_what_it_says(mode: Mode, expected: str) -> None:
    assert [await Asking(mode).check(access) for access in ACCESSES] == expected.split()


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
@pytest.mark.parametrize("access", ["read", "edit", "execute"])
async def test_what_leads_outside_is_asked_in_every_mode(mode: Mode, access: Access) -> None:
    assert await Asking(mode).check(access, replace(ACTION, outside=True)) == "asked"


async def test_in_plan_mode_reading_outside_is_asked_and_a_change_is_refused() -> None:
    outside = replace(ACTION, outside=True)
    asking = Asking("plan")
    assert await asking.check("read", outside) == "asked"
    assert await asking.check("edit", outside) == "refused"
    assert await asking.check("execute", outside) == "refused"


@pytest.mark.parametrize(
    ("mode", "expected"), [("ask", "asked"), ("plan", "asked"), ("edit", "asked"), ("auto", "free")]
)
async def test_the_file_of_keys_is_asked_for_in_every_mode_but_auto(
    mode: Mode, expected: str
) -> None:
    assert await Asking(mode).check("read", replace(ACTION, shows_keys=True)) == expected


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
async def test_what_only_a_person_may_allow_is_asked_every_time(mode: Mode) -> None:
    """Also after an "always allow" of the same kind, and never with such an option itself."""
    asking = Asking("ask", "allow_always")
    await asking.check()
    asking.permissions.mode = mode
    only = replace(ACTION, only_person=True)
    assert await asking.check("edit", ACTION) == "free"
    assert await asking.check("edit", only) == "rejected"
    asking.client.choice = "allow_once"
    for _ in range(2):
        assert await asking.check("edit", only) == "asked"
    offered = [option["kind"] for option in asking.client.offered[-1]]
    assert offered == ["allow_once", "reject_once", "reject_always"]


async def test_plan_mode_tells_the_model_that_it_is_plan_mode() -> None:
    asking = Asking("plan")
    with pytest.raises(ToolError, match="plan mode"):
        await asking.permissions.check(Note("edit"), ACTION, {}, asking.client)


async def test_plan_mode_refuses_what_was_always_allowed_before() -> None:
    asking = Asking("ask", "allow_always")
    await asking.check()
    asking.permissions.mode = "plan"
    assert await asking.check() == "refused"


async def test_a_changed_mode_is_for_the_next_call() -> None:
    asking = Asking("ask")
    assert await asking.check() == "asked"
    asking.permissions.mode = "edit"
    assert await asking.check() == "free"


def test_each_mode_has_a_name_and_a_description() -> None:
    assert list(MODES) == ["ask", "plan", "edit", "auto"]
    assert all(name and description for name, description in MODES.values())


# answers


async def test_the_user_is_shown_the_call_and_four_options_of_which_two_name_the_grant() -> None:
    asking = Asking()
    await asking.check()
    assert asking.client.asked == [{"toolCallId": "call-1", "title": "Edit a.py"}]
    assert [(o["kind"], o["name"]) for o in asking.client.offered[0]] == [
        ("allow_once", "Allow once"),
        ("allow_always", "Always allow edits in src in this session"),
        ("reject_once", "Reject once"),
        ("reject_always", "Always reject edits in src in this session"),
    ]


@pytest.mark.hazard("C18.1")
@pytest.mark.parametrize("choice", ["reject_once", "reject_always", "unknown", "", "ALLOW_ONCE"])
async def test_only_a_chosen_allow_option_allows(choice: str) -> None:
    assert await Asking("ask", choice).check() == "rejected"


@pytest.mark.hazard("C18.2")
async def test_a_request_that_fails_is_no_consent() -> None:
    assert await Asking("ask", ClientError()).check() == "rejected"


@pytest.mark.hazard("C18.2")
async def test_a_cancelled_prompt_is_no_consent() -> None:
    with pytest.raises(PromptCancelled):
        await Asking("ask", None).check()


async def test_once_is_asked_again() -> None:
    for choice, found in (("allow_once", "asked"), ("reject_once", "rejected")):
        asking = Asking("ask", choice)
        assert [await asking.check(), await asking.check()] == [found, found]
        assert len(asking.client.asked) == 2


async def test_always_is_not_asked_again_in_this_session_and_in_no_other() -> None:
    asking = Asking("ask", "allow_always")
    assert [await asking.check(), await asking.check()] == ["asked", "free"]
    assert await Asking("ask", "allow_always").check() == "asked"


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
async def test_what_is_always_rejected_is_refused_unasked_in_every_mode(mode: Mode) -> None:
    asking = Asking("ask", "reject_always")
    assert await asking.check() == "rejected"
    asking.permissions.mode = mode
    asking.client.choice = "allow_once"
    assert await asking.check() == "refused"
    assert len(asking.client.asked) == 1


def variants() -> list[tuple[Access, Action]]:
    """Calls that differ in one thing each."""
    below = Grant(("edit", "/project/src/deep"), "edits in src/deep")
    above = Grant(("edit", "/project"), "edits here")
    longer = Grant(("edit", "/project/src", "more"), "more")
    elsewhere = replace(SRC, within="/other")
    return [
        ("edit", ACTION),
        ("execute", ACTION),
        ("edit", replace(ACTION, outside=True)),
        *(("edit", replace(ACTION, grant=grant)) for grant in (below, above, longer, elsewhere)),
    ]


@pytest.mark.hazard("C18")
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(range(7), 2)))
async def test_always_is_for_exactly_what_was_named(one: int, other: int) -> None:
    asking = Asking("ask", "allow_always")
    await asking.check(*variants()[one])
    assert await asking.check(*variants()[one]) == "free"
    assert await asking.check(*variants()[other]) == "asked"


@pytest.mark.hazard("R13")
async def test_what_is_always_rejected_is_so_wherever_it_is_called() -> None:
    def within(folder: str) -> Action:
        return replace(ACTION, grant=replace(SRC, within=folder))

    asking = Asking("ask", "reject_always")
    assert await asking.check("execute", within("/here")) == "rejected"
    asking.permissions.mode = "auto"
    for folder in ("/here", "/there", ""):
        assert await asking.check("execute", within(folder)) == "refused"


@pytest.mark.hazard("C18", "R13")
@pytest.mark.parametrize("choice", ["allow_once", "allow_always", "reject_once", "reject_always"])
async def test_what_was_always_answered_is_kept_and_nothing_else_is(choice: str) -> None:
    kept: dict[Key, bool] = {}
    before = Asking("ask", choice)
    before.permissions = Permissions(keep=kept.__setitem__)
    await before.check()
    assert list(kept.values()) == {"allow_always": [True], "reject_always": [False]}.get(choice, [])
    after = Asking(choice="allow_once")
    after.permissions = Permissions(kept)
    after.permissions.mode = "auto" if choice == "reject_always" else "ask"
    expected = {"allow_always": "free", "reject_always": "refused"}
    assert await after.check() == expected.get(choice, "asked")


@pytest.mark.hazard("P10.1")
async def test_requests_at_the_same_time_are_each_answered_by_their_own_answer() -> None:
    class Later(MemoryClient):
        """Answers the second request first."""

        def __init__(self) -> None:
            super().__init__()
            self.second = anyio.Event()

        async def ask(self, tool_call: dict[str, Any], options: list[dict[str, Any]]) -> str | None:
            if tool_call["title"] == "1":
                await self.second.wait()
                return "allow_once"
            self.second.set()
            return "reject_once"

    permissions, client, found = Permissions(), Later(), dict[str, bool]()

    async def check(title: str) -> None:
        outside = replace(ACTION, outside=True)
        try:
            await permissions.check(Note("read"), outside, {"title": title}, client)
            found[title] = True
        except Rejected:
            found[title] = False

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(check, "1")
            tasks.start_soon(check, "2")
    assert found == {"2": False, "1": True}
