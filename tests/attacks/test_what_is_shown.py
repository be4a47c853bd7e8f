"""What an agent can do with its words: to a terminal, to a question, and to whoever answers it."""

import json
import re
import sys

import pytest

from tests.attacks.field import SECONDS, Field
from tests.support.client import RecordingClient
from tests.support.client_side import NoAnswer
from tests.support.person import person
from tests.support.recording import Message
from tests.support.rights import without_rights
from tests.whole.tiny_agent import tiny_agent

pytestmark = [pytest.mark.process, pytest.mark.slow]

#: clears the screen, renames the window, takes the clipboard, and hides words.
SEQUENCES = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x9b2J\x90q\x9c\r\x08\u202e\u200b"
#: what acp-bridge writes to a terminal of its own accord begins otherwise.
HARMFUL = re.compile("\x1b\\[2J\x1b\\]|\x1b\\]52|owned\x07|[\x80-\x9f\u202e\u200b]")

WORDS = r"""
import json, sys
print(json.loads(sys.argv[1]))
"""


def asks(title: str, command: str) -> str:
    """A prompt that has the agent ask for a command, and doesn't show it by itself."""
    return f"asks {json.dumps([title, command]).encode().hex()}"


def unanswered(params: Message) -> Message:
    """Leaves a permission open, for others to answer."""
    raise NoAnswer


@pytest.mark.hazard("S14")
async def test_no_escape_sequence_of_an_agent_reaches_a_terminal(field: Field) -> None:
    prompt = field.tool(WORDS, json.dumps(SEQUENCES))
    code, said = await field.command("run", prompt, "--", *field.agent)
    assert (code, HARMFUL.search(said)) == (0, None)
    assert "\\x1b]52;c;" in said
    async with field.bridge() as client:
        await field.listening(client)
        await client.prompt(prompt, within=SECONDS)
        client.side.handlers["session/request_permission"] = unanswered
        client.send_prompt(asks(SEQUENCES, SEQUENCES))
        await client.until_request("session/request_permission", within=SECONDS)
        for words in (["ps"], ["sessions"], ["show", client.session_id]):
            code, said = await field.command(*words)
            assert (code, HARMFUL.search(said)) == (0, None), words
        for words in (["attach"], ["approve"]):
            command = [*words, client.session_id]
            async with person(command, field.folder, field.env, without_rights()) as there:
                await there.sees("\\x1b]52;c;")
                assert HARMFUL.search(there.seen) is None


@pytest.mark.hazard("S12", "V9.3")
async def test_a_harmless_title_hides_no_command_wherever_the_question_is_shown(
    field: Field,
) -> None:
    """The card has named the command, and the question names only the card."""
    async with field.bridge() as client:
        await field.listening(client)
        client.side.handlers["session/request_permission"] = unanswered
        client.send_prompt(asks("List", "rm -rf ~/src"))
        await client.until_request("session/request_permission", within=SECONDS)
        code, said = await field.command("ps")
        assert (code, "rm -rf ~/src" in said) == (0, True)
        for words in (["attach"], ["approve"]):
            command = [*words, client.session_id]
            async with person(command, field.folder, field.env, without_rights()) as there:
                await there.sees("rm -rf ~/src")


@pytest.mark.hazard("S13", "V9.8")
async def test_a_yes_is_none_for_a_command_that_the_agent_exchanges_while_it_is_shown(
    field: Field,
) -> None:
    async with field.bridge() as client:
        await field.listening(client)
        client.side.handlers["session/request_permission"] = unanswered
        running = client.send_prompt(asks("List", "ls -l"))
        await client.until_request("session/request_permission", within=SECONDS)
        command = ["approve", client.session_id]
        async with person(command, field.folder, field.env, without_rights()) as there:
            await there.sees("ls -l")
            (field.folder / "exchange").write_text("rm -rf ~/src")
            await client.until(lambda each: "rm -rf" in json.dumps(each), within=SECONDS)
            there.type("yes\r")
            await there.sees("settled elsewhere")
        assert client.recording.answers(running) == []


#: ends at once, behind words that look like the names of secrets without any.
WORDY = r"""
def initialize(id, params):
    for _ in range(200):
        print("token" + " " * 8000 + "token" + "\\" * 100, file=sys.stderr)
    sys.stderr.flush()
    os._exit(3)
"""


@pytest.mark.hazard("P6", "K5")
async def test_no_words_of_an_agent_hold_up_the_bridge_that_looks_for_secrets_in_them(
    field: Field,
) -> None:
    field.project.mkdir()
    agent = tiny_agent(field.project, WORDY)
    code, said = await field.command("run", "hello", "--", *agent)
    assert (code, "exit code 3" in said) == (6, True), said


#: asks about thousands of texts that might stand in thousands of diffs, or hundreds of questions.
MANY = r"""
def session_new(id, params):
    return {"sessionId": str(id)}

def session_prompt(id, params):
    words = params["prompt"][0]["text"]
    if words == "texts":
        texts = {"text" + f"{n:b}".replace("0", "-").replace("1", "_"): "q" for n in range(5000)}
        diffs = [{"type": "diff", "path": "/x", "newText": str(n)} for n in range(20_000)]
        ask(params["sessionId"], 7, rawInput=texts, content=diffs)
    elif words == "questions":
        for n in range(400):
            ask(params["sessionId"], n, rawInput={"command": f"echo {n}"})
    else:
        return {"stopReason": "end_turn"}

def ask(session, id, **call):
    options = [{"optionId": "reject_once", "name": "No", "kind": "reject_once"}]
    send(id=id, method="session/request_permission", params={
        "sessionId": session, "options": options, "toolCall": {"toolCallId": f"t{id}", **call}})
"""


@pytest.mark.hazard("P6", "V9")
@pytest.mark.parametrize(("what", "count"), [("texts", 1), ("questions", 400)])
async def test_no_mass_of_questions_or_of_what_is_in_one_holds_up_another_session(
    field: Field, what: str, count: int
) -> None:
    field.project.mkdir()
    agent = tiny_agent(field.project, MANY)
    command = [*without_rights(), sys.executable, "-m", "acp_bridge", "--", *agent]
    async with RecordingClient.start(command, env=field.env, exit_within=5) as client:
        await client.initialize({})
        other, asking = [await client.new_session(field.folder) for _ in range(2)]
        client.side.handlers["session/request_permission"] = unanswered
        client.send_prompt(what, asking)
        await client.until_request("session/request_permission", count, within=SECONDS)
        await client.prompt("hello", other, within=SECONDS)
