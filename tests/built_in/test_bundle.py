"""The built-in agent goes on with a session that was exported elsewhere, by its own memory."""

import os
import sys

import anyio
import pytest

from tests.built_in.support import FIRST, ROOT, Stack, choose, conversation
from tests.support.model_replies import Text
from tests.support.processes import run

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECRET = "q7Zr4fTa9Lk2Xw"
#: the words of the secret are tokens of their own
SAID = f"""
turn
text: I look.
call: read_file {{"path": "a.txt"}}
---
token: "It says password="
token: "{SECRET[:6]}"
token: "{SECRET[6:]}"
"""
ASKED = ["user: What is in a.txt?", "assistant: I look.", 'call: read_file {"path": "a.txt"}']


async def command(stack: Stack, *words: str) -> tuple[int, str, str]:
    env = {**os.environ, "ACP_BRIDGE_HOME": str(stack.home), "PYTHONPATH": str(ROOT)}
    with anyio.fail_after(60):
        done = await run([sys.executable, "-m", "acp_bridge", *words], env, stack.cwd)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.hazard("R13.6")
async def test_the_model_is_given_what_was_said_in_the_exported_session_and_no_right_comes_along(
    stack: Stack,
) -> None:
    (stack.cwd / "a.txt").write_text("seven\n")
    dialogue = stack.folder / "dialogue.txt"
    dialogue.write_text(SAID)
    async with stack.start(model=f"scripted:{dialogue}") as client:
        session_id = await client.new_session(stack.cwd)
        await choose(client, "mode", "auto")
        await client.prompt("What is in a.txt?", within=FIRST)
    files = {said: stack.folder / said for said in (SECRET, "***")}
    for said, file in files.items():
        given = ["export", session_id, str(file), *["--redact"] * (said != SECRET)]
        assert await command(stack, *given) == (0, "", "")
        data = file.read_bytes()
        assert (SECRET.encode() in data) is (said == SECRET)
        assert b"chosen" not in data
    stack.home = stack.folder / "other"
    imported = {said: await command(stack, "import", str(file)) for said, file in files.items()}
    async with stack.start() as client:
        for said, (code, new, err) in imported.items():
            assert (code, err) == (0, "")
            since = client.mark()
            await client.load_session(new.strip(), stack.cwd)
            stack.provider.say(Text("Yes."))
            await client.prompt("Really?", within=FIRST)
            told = [each for each in client.updates(since=since) if "configOptions" in each]
            modes = [o["currentValue"] for o in told[-1]["configOptions"] if o["id"] == "mode"]
            assert modes == ["ask"]
            assert conversation(stack.provider.requests[-1].body) == [
                *ASKED,
                "result:      1\tseven",
                f"assistant: It says password={said}",
                "user: Really?",
            ]
