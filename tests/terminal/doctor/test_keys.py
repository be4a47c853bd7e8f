"""Keys and the model that follows, as the agent tells them."""

from pathlib import Path
from typing import Any

import pytest

from acp_bridge.core.records import replace
from acp_bridge.terminal.doctor import installation
from acp_bridge.terminal.doctor import keys as doctor
from acp_bridge.terminal.key.report import FoundKey, NoReport, Report, _read, troubles
from tests.terminal.doctor.subjects import levels, texts

KEY = FoundKey("XAI_API_KEY", "keys.env", also_in_file=False, is_address=False, provider="xAI")
SERVER = FoundKey("OPENHANDS_SESSION_API_KEY", "environment", False, False, None)
FOUND = Report(
    file="/h/keys.env",
    file_use="used",
    unread_lines=(),
    keys=(KEY,),
    model="xai/grok-4.7",
    named=False,
    problem=None,
    models=2,
    litellm="1.0",
    online=None,
)


def model(**changes: Any) -> tuple[list[str], str]:
    found = [doctor.model(replace(FOUND, **changes))]
    return levels(found), texts(found)


def test_keys_are_told_by_their_names_and_places() -> None:
    found = doctor.keys(FOUND, built_in=True)
    assert (found.level.value, found.text) == ("ok", "XAI_API_KEY (keys.env)")
    assert found.data["keys"] == [{"name": "XAI_API_KEY", "from": "keys.env"}]


def test_of_an_agent_server_only_its_own_key_counts() -> None:
    assert "no key of the agent-server" in doctor.keys(FOUND, built_in=False).text
    found = doctor.keys(replace(FOUND, keys=(KEY, SERVER)), built_in=False)
    assert found.text == "OPENHANDS_SESSION_API_KEY (environment)"


def test_an_address_is_told_apart() -> None:
    address = FoundKey("XAI_BASE_URL", "environment", False, True, "xAI")
    (found,) = doctor.addresses(replace(FOUND, keys=(KEY, address)))
    assert found.text == "requests to xAI go to the address in XAI_BASE_URL (environment)"


def test_the_model_that_follows_is_told() -> None:
    assert model() == (
        ["ok"],
        "xai/grok-4.7 (the first whose key is there), one of 2 to choose from -> ",
    )
    assert "as you named it" in model(named=True)[1]


def test_a_demo_that_nobody_asked_for_is_a_warning_that_names_the_command() -> None:
    found, told = model(model="demo", keys=())
    assert (found, "acp-bridge key asks" in told) == (["warning"], True)
    assert model(model="demo", named=True)[0] == ["ok"]


def test_a_model_that_can_not_be_used_and_a_library_that_is_missing_are_errors() -> None:
    assert model(problem="No key for xAI")[0] == ["error"]
    assert model(litellm=None)[0] == ["error"]
    assert model(litellm=None, problem="LiteLLM is missing")[0] == ["error"]
    assert model(litellm=None, model="scripted:x", named=True)[0] == ["ok"]


@pytest.mark.parametrize(
    ("changes", "level", "told"),
    [
        ({"online": {"ms": 830}}, "ok", "answered a request after 830 ms"),
        ({"online": {"problem": "xAI can't be reached"}}, "error", "xAI can't be reached"),
        ({"online": {"ms": 1}, "model": "demo"}, "ok", "nothing was sent"),
    ],
)
def test_how_the_request_went_is_told(changes: dict[str, Any], level: str, told: str) -> None:
    (found,) = doctor.answered(replace(FOUND, **changes))
    assert (found.level.value, told in found.text) == (level, True)
    assert doctor.answered(FOUND) == []
    unusable = replace(FOUND, problem="No key for xAI", online={"problem": "No key for xAI"})
    assert doctor.answered(unusable) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"file_use": "exposed"}, "run chmod 600"),
        ({"file_use": "refused"}, "is not used"),
        ({"file_use": "unreadable"}, "can't be read"),
        ({"unread_lines": (3, 5)}, "no variable a value: 3, 5"),
        ({"keys": (replace(KEY, also_in_file=True),)}, "the environment counts"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(changes: dict[str, Any], told: str) -> None:
    (found,) = troubles(replace(FOUND, **changes))
    assert told in found
    assert troubles(FOUND) == []


@pytest.mark.parametrize("output", [b"", b"x", b"[]", b"{}", b'{"error": "wrong"}'])
def test_what_is_no_report_is_said_to_be_none(output: bytes) -> None:
    with pytest.raises(NoReport):
        _read(output)


# The installation


def test_versions_of_python_that_were_tested_are_well() -> None:
    known = [installation.python(v, "x").level.value for v in [(3, 11), (3, 14)]]
    other = [installation.python(v, "x").level.value for v in [(3, 10), (3, 15), (4, 0)]]
    assert (known, other) == (["ok"] * 2, ["warning"] * 3)


def test_platforms_are_judged() -> None:
    found = [installation.system(name, "it") for name in ("linux", "darwin", "win32")]
    assert levels(found) == ["ok", "warning", "error"]


def test_another_command_of_that_name_in_the_path_is_a_warning() -> None:
    assert installation.command(None, None).level.value == "ok"
    assert installation.command("/a/acp-bridge", "/a/acp-bridge").level.value == "ok"
    assert "not in the PATH" in installation.command("/a/acp-bridge", None).text
    assert "another command" in installation.command("/a/acp-bridge", "/b/acp-bridge").text


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment in which the other package of our name is installed."""
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    info = site / "acp_bridge-1.4.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acp-bridge\nVersion: 1.4.0\n")
    (tmp_path / "env" / "bin").mkdir()
    (tmp_path / "env" / "bin" / "acp-bridge").touch(0o755)
    return site


def test_the_other_package_of_the_name_is_noticed_beside_this_one_and_in_the_path(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installation.other_package() == []
    found = packages.parents[2] / "bin" / "acp-bridge"
    told = installation.command("/a/acp-bridge", str(found))
    assert "of the other package acp-bridge, 1.4.0" in told.text
    monkeypatch.syspath_prepend(str(packages))
    (beside,) = installation.other_package()
    assert beside.level.value == "error"
    assert "the package acp-bridge 1.4.0 is installed beside this one" in beside.text
    assert "pipx install" in beside.next
