"""What the agent says of keys and of the model: what it would find itself, and never a key."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent import model_report
from agent.model import Completion, Message, ModelError, OnToken, ToolSpec
from agent.providers.all_models import AllModels
from agent.secrets import Secrets
from agent.settings import Settings

KEY = "k" + "-of-the-file-0123456789"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.env"


def report(file: Path, env: dict[str, str] | None = None, **settings: Any) -> Any:
    given = Settings(file.parent, file, **settings)
    found = model_report.report(given, env or {}, AllModels(given, env or {}))
    assert KEY not in json.dumps(found)
    return found


def names(found: Any) -> list[tuple[str, str, bool]]:
    return [(key["name"], key["from"], key["alsoInFile"]) for key in found["keys"]]


def write(file: Path, text: str, mode: int = 0o600) -> None:
    file.write_text(text)
    file.chmod(mode)


def test_without_any_key_it_is_the_demo(file: Path) -> None:
    found = report(file)
    assert (found["model"], found["named"], found["problem"]) == ("demo", False, None)
    assert (found["fileUse"], found["keys"], found["unreadLines"]) == ("missing", [], [])


def test_keys_are_named_with_their_place_and_the_environment_wins(file: Path) -> None:
    write(file, f"XAI_API_KEY={KEY}\nOPENAI_API_KEY={KEY}\nEMPTY_API_KEY=\n")
    found = report(file, {"OPENAI_API_KEY": "k", "HOME": "/h", "GROQ_API_KEY": " "})
    assert names(found) == [
        ("OPENAI_API_KEY", "environment", True),
        ("XAI_API_KEY", "keys.env", False),
    ]
    assert found["model"].startswith("openai/")
    assert found["model"] in found["models"]


def test_addresses_are_told_apart_from_keys(file: Path) -> None:
    (found,) = report(file, {"OPENAI_BASE_URL": "http://h"})["keys"]
    assert (found["address"], found["provider"]) == (True, "OpenAI")


@pytest.mark.parametrize(("mode", "use"), [(0o600, "used"), (0o644, "exposed"), (0o666, "refused")])
def test_a_file_counts_as_it_does_for_the_agent(file: Path, mode: int, use: str) -> None:
    write(file, f"OPENAI_API_KEY={KEY}\n", mode)
    found = report(file)
    assert found["fileUse"] == use
    assert bool(found["keys"]) == (use != "refused")
    assert (found["model"] == "demo") == (use == "refused")


def test_a_file_that_is_no_text_is_said_to_be_unreadable(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\n")
    assert report(file)["fileUse"] == "unreadable"


def test_lines_that_give_nothing_a_value_are_numbered_and_not_told(file: Path) -> None:
    write(file, f"{KEY}\n\n# a comment\nOPENAI_API_KEY={KEY}\nopenai_api_key={KEY}\n'{KEY}\n")
    found = report(file)
    assert found["unreadLines"] == [1, 5, 6]
    assert names(found) == [("OPENAI_API_KEY", "keys.env", False)]


def test_a_named_model_that_has_no_key_is_a_problem_that_says_how_to_give_it_one(
    file: Path,
) -> None:
    found = report(file, model="openai/gpt-5.2")
    assert (found["model"], found["named"]) == ("openai/gpt-5.2", True)
    assert "`acp-bridge key OPENAI_API_KEY --home " in found["problem"]


class Asked:
    """All models, of which the one that is opened answers as it is told to."""

    def __init__(self, answer: Completion | Exception) -> None:
        self._answer = answer
        self.asked: Sequence[Message] = ()

    def open(self, model_id: str, thought_level: str | None = None) -> Any:
        return self

    async def complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], on_token: OnToken
    ) -> Completion:
        self.asked = messages
        await on_token("o")
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def test_a_model_that_answers_is_timed() -> None:
    models = Asked(Completion("ok"))
    found = await model_report.asked(models, "m", Secrets())
    assert found.keys() == {"ms"}
    assert len(models.asked) == 1


async def test_a_model_that_fails_says_why_without_a_secret() -> None:
    models = Asked(ModelError(f"{KEY} is not accepted", "auth"))
    found = await model_report.asked(models, "m", Secrets([KEY]))
    assert found == {"problem": "*** is not accepted"}
    models = Asked(ZeroDivisionError(KEY))
    assert KEY not in str(await model_report.asked(models, "m", Secrets()))


@pytest.mark.process
def test_it_is_one_line_that_loads_no_model_library_and_makes_nothing(tmp_path: Path) -> None:
    code = "import sys, agent.model_report as m; m.main(); print('litellm' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, "--home", str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    line, loaded = run.stdout.splitlines()
    assert json.loads(line)["file"] == str(tmp_path / "home" / "keys.env")
    assert loaded == "False"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_setting_that_makes_no_sense_is_told_instead(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "agent.model_report", "--home", str(tmp_path)],
        capture_output=True,
        env={"ACP_BRIDGE_MAX_CALLS": "none", "PATH": ""},
        timeout=30,
        check=True,
    )
    assert json.loads(run.stdout) == {"error": "ACP_BRIDGE_MAX_CALLS: a whole number from 1"}
