"""What a user may change or ask beside a prompt."""

import pytest

from tests.openhands_not_ours.server import SECOND
from tests.openhands_not_ours.stand import PATIENCE, Stand, error_of, numbers

pytestmark = pytest.mark.process


async def test_compact_condenses_the_conversation(stand: Stand) -> None:
    async with stand.client() as client:
        for tag in ("A", "B", "C", "D"):
            await client.prompt(f"SAY {tag} 2", within=PATIENCE)
        answer = await client.prompt("/compact", within=PATIENCE)
        assert answer["stopReason"] == "end_turn"
        kinds = [e["kind"] for e in await stand.api.events(await stand.conversation())]
        assert "Condensation" in kinds
        assert "/compact" not in await stand.api.messages(await stand.conversation())
        assert (await client.prompt("SAY E 2", within=PATIENCE))["stopReason"] == "end_turn"
        assert numbers(client.text(), "E") == [0, 1]


async def test_the_commands_are_announced(stand: Stand) -> None:
    async with stand.client() as client:
        kind = "available_commands_update"
        found = await client.until_recorded(
            lambda: [u for u in client.updates() if u["sessionUpdate"] == kind], PATIENCE
        )
        names = [command["name"] for command in found[-1]["availableCommands"]]
        assert "compact" in names


async def test_another_model_is_chosen_by_its_profile(stand: Stand) -> None:
    async with stand.client() as client:
        opened = client.recording.answers(1)[0]["result"]
        (option,) = (o for o in opened["configOptions"] if SECOND in str(o["options"]))
        params = {"sessionId": client.session_id, "configId": option["id"], "value": SECOND}
        told = await client.request("session/set_config_option", params, PATIENCE)
        (changed,) = (o for o in told["configOptions"] if o["id"] == option["id"])
        assert changed["currentValue"] == SECOND
        await client.prompt("SAY SWITCHED 2", within=PATIENCE)
        (body,) = stand.model.asked("SAY SWITCHED 2")
        assert body["model"] == "other"
        wrong = {**params, "value": "no-such-profile"}
        assert (await error_of(client, "session/set_config_option", wrong)).code == -32602


async def test_a_mode_that_is_not_offered_is_refused(stand: Stand) -> None:
    async with stand.client() as client:
        params = {"sessionId": client.session_id, "modeId": "no-such-mode"}
        assert (await error_of(client, "session/set_mode", params)).code == -32602


async def test_the_mode_that_was_chosen_holds_after_a_load(stand: Stand) -> None:
    path = stand.cwd / "after-the-load"
    async with stand.client() as client:
        session = client.session_id
        opened = client.recording.answers(1)[0]["result"]
        first = opened["modes"]["currentModeId"]
        for mode in opened["modes"]["availableModes"]:
            if mode["id"] != first:
                chosen = mode["id"]
        params = {"sessionId": session, "modeId": chosen}
        await client.request("session/set_mode", params, PATIENCE)
        policy = (await stand.api.conversation(await stand.conversation()))["confirmation_policy"]
        await client.prompt("SAY A 1", within=PATIENCE)
    async with stand.client(loads=session) as client:
        await client.prompt("SAY B 1", within=PATIENCE)
        found = await stand.api.conversation(await stand.conversation())
        assert found["confirmation_policy"] == policy
    assert not path.exists()
