"""Secrets: which they are; masked wherever they stand, also in pieces; kept from tools."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.secrets import MASK, Secrets, child_environment, emptied_keys, is_model_key

KEY = "sk-abcdefgh12345"

#: few letters, so that secrets begin, overlap and contain each other all the time
letters = st.sampled_from("ab")
secret_values = st.lists(st.text(letters, min_size=8, max_size=12), min_size=1, max_size=4)
texts = st.lists(st.text(st.sampled_from("abc"), max_size=9), max_size=12)


def found(**env: str) -> bool:
    """Whether the value of the one variable is masked."""
    ((_, value),) = env.items()
    return value not in Secrets.from_environment(env).mask(f"x {value} y")


# which they are


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "API_KEY_2",
        "GITHUB_TOKEN",
        "npm_config__authToken",
        "SECRET_KEY_BASE",
        "PGPASSWORD",
        "MYSQL_PWD",
        "DB_PASS",
        "SSH_PASSPHRASE",
        "AZURE_CREDENTIALS",
        "AWS_SECRET_ACCESS_KEY",
        "WATSONX_APIKEY",
        "GITLAB_PAT",
        "BASIC_AUTH",
    ],
)
def test_what_a_variable_s_name_calls_secret_is_masked(name: str) -> None:
    assert found(**{name: "8sJ-q2+w/x"})
    assert found(**{name: "/8sJq2wxx"})  # begins like a path that is not there


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_AUTHOR_NAME", "Jane Doe-Miller"),
        ("KEYBOARD_LAYOUT", "us-international"),
        ("EDITOR", "/usr/bin/vi"),
        ("MAX_THINKING_TOKENS", "10000000"),
        ("API_KEY", "short"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("POSTGRES_PASSWORD", "postgres"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-agent/sock"),
        ("TOKEN_URL", "https://login.example.org/token"),
        ("OAUTH_TOKEN_TYPE", "BearerToken"),
    ],
)
def test_what_is_no_secret_is_left_readable(name: str, value: str) -> None:
    assert not found(**{name: value})


def test_a_file_that_holds_a_secret_is_no_secret_itself(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").touch()
    assert not found(GOOGLE_APPLICATION_CREDENTIALS=str(tmp_path / "credentials.json"))


def test_the_password_in_a_url_is_a_secret_whatever_the_name() -> None:
    env = {"DATABASE_URL": "postgres://me:p%40ssw0rd99@db.example.org/x"}
    secrets = Secrets.from_environment(env)
    assert secrets.mask(env["DATABASE_URL"]) == "postgres://me:***@db.example.org/x"
    assert secrets.mask("PASS: p@ssw0rd99") == "PASS: ***"


PEM = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASC
BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
-----END PRIVATE KEY-----
"""
LINES = PEM.splitlines()[1:3]


@pytest.mark.hazard("K7.1")
@pytest.mark.parametrize(
    "text",
    [
        PEM,
        PEM.replace("\n", "\r\n"),
        "".join(f"    {number}\t{line}\n" for number, line in enumerate(PEM.splitlines(), 1)),
        "".join(f"+  {line}\n" for line in PEM.splitlines()),
        "key.pem:2:" + LINES[0],
        json.dumps({"key": PEM}),
        json.dumps(json.dumps({"key": PEM})),
        PEM.replace("\n", "\\n"),
        LINES[1],
    ],
)
@pytest.mark.parametrize("value", [PEM, PEM.replace("\n", "\\n"), PEM.replace("\n", "\r\n")])
def test_a_secret_of_several_lines_is_masked_line_by_line_too(value: str, text: str) -> None:
    masked = Secrets.from_environment({"DEPLOY_KEY": value}).mask(text)
    assert MASK in masked
    assert not any(line in masked for line in LINES)


@pytest.mark.hazard("K7.1")
@pytest.mark.parametrize(
    "escape",
    [
        lambda text: json.dumps(text),
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: json.dumps(json.dumps(text)),
        lambda text: json.dumps(text).replace("/", "\\/"),
        lambda text: json.dumps(text).replace("&", "\\u0026").replace("<", "\\u003c"),
        lambda text: quote(text),
        lambda text: quote(text, safe=""),
        repr,
    ],
)
@pytest.mark.parametrize("value", ['pa"ss\\wo/rd&1', "pässwörd<17&", "tab\tand/slash"])
def test_a_secret_is_masked_in_the_forms_in_which_others_write_it(
    escape: Callable[[str], str], value: str
) -> None:
    written = escape(value)
    masked = Secrets([value]).mask(f"x {written} y")
    assert masked.replace("'", "").replace('"', "").replace("\\", "") == "x *** y"


@pytest.mark.hazard("K7")
@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("SLACK_WEBHOOK_URL", "https://hooks.example.org/x/abcdefgh", "abcdefgh"),
        ("NOTIFY", "https://hooks.slack.com/services/T0/B0/abcdefgh", "abcdefgh"),
        ("NOTIFY", "https://discord.com/api/webhooks/1/abcdefgh", "abcdefgh"),
        ("STORE", "DefaultEndpointsProtocol=https;AccountKey=abcdefgh==;X=y", "abcdefgh=="),
        ("BUS", "Endpoint=sb://x/;SharedAccessKey=abcdefgh=", "abcdefgh="),
        ("DB", "Server=x;User Id=me;Password=abcdefgh;", "abcdefgh"),
        ("EXTRA_HEADER", "Authorization: Basic YWJjOmRlZmdo", "YWJjOmRlZmdo"),
        ("HEADERS", '{"Authorization": "Bearer abcdefgh"}', "abcdefgh"),
        ("PROXY_LOGIN", "Basic YWJjOmRlZmdo", "YWJjOmRlZmdo"),
        ("BLOB", "https://x.blob.core.windows.net/c?sv=1&sig=abcd%2Befgh", "abcd%2Befgh"),
        ("MIRROR", "see http://me:abcdefgh@mirror.example.org/x", "abcdefgh"),
        ("REMOTE", "https://ghp0123456789012345678901@github.com/x", "ghp0123456789012345678901"),
    ],
)
def test_a_secret_inside_of_a_longer_value_is_found(name: str, value: str, secret: str) -> None:
    secrets = Secrets.from_environment({name: value})
    for text in (f"curl {value}", f"it is {secret}.", json.dumps({"x": value})):
        assert secret not in secrets.mask(text), text


@pytest.mark.hazard("K7")
def test_what_stands_in_the_file_of_keys_is_masked_and_a_line_added_later_too(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.env"
    secrets = Secrets()
    secrets.watch(file)
    assert secrets.mask("any-old-value") == "any-old-value"
    file.write_text(
        "MY_THING='any-old-value'\nAWS_REGION_NAME=eu-central-1\n"
        "OPENAI_BASE_URL=http://localhost:8080\nMODEL_NAME=gpt-large-99\n"
    )
    assert secrets.mask("any-old-value") == "***"
    for setting in ("eu-central-1", "http://localhost:8080", "gpt-large-99"):
        assert secrets.mask(setting) == setting
    with file.open("a") as lines:
        lines.write("MORE=another-value\n")
    assert secrets.so_far("so: another-value.") == "so: ***."
    file.write_bytes(b"\xff\xfe")
    file.unlink()
    assert secrets.mask("any-old-value") == "***"


# texts


@given(secret_values, st.text(letters, max_size=60), st.integers(0, 60), st.integers(0, 60))
@pytest.mark.hazard("K7")
def test_a_part_of_a_text_shows_nothing_that_the_whole_does_not(
    values: list[str], text: str, start: int, end: int
) -> None:
    secrets = Secrets(values)
    shown = secrets.mask_part(text, start, end)
    for piece in shown.split(MASK):
        assert piece in secrets.mask(text)
    assert secrets.mask_part(text) == secrets.mask(text)


@pytest.mark.hazard("K7.1")
def test_half_a_secret_is_masked_where_a_text_is_cut() -> None:
    secrets = Secrets([KEY])
    text = f"the key {KEY} of it"
    assert secrets.mask_part(text, 0, 12) == "the key ***"
    assert secrets.mask_part(text, 12) == "*** of it"
    assert secrets.mask_part(text, 0, 8) == "the key "
    assert secrets.mask_part(text, 10, 12) == "***"


def test_the_longest_secret_is_masked_first() -> None:
    assert Secrets(["abcdefgh", "abcdefgh-ijkl"]).mask("abcdefgh-ijkl abcdefgh") == "*** ***"


def test_secrets_may_come_later_and_too_short_ones_never() -> None:
    secrets = Secrets(["", "short"])
    assert secrets.mask(f"short {KEY}") == f"short {KEY}"
    secrets.add(f" {KEY}\n")
    secrets.add(KEY)
    assert secrets.mask(f"short {KEY}") == "short ***"


def test_what_a_pattern_would_read_otherwise_is_taken_as_it_is() -> None:
    assert Secrets([".*(a|b)+?$"]).mask("abcdefgh .*(a|b)+?$") == "abcdefgh ***"


def test_json_is_masked_at_any_depth_and_its_keys_are_left() -> None:
    value: Any = {KEY: [f"a {KEY}", {"b": (KEY, 1, None, True, 1.5)}]}
    masked = Secrets([KEY]).mask_json(value)
    assert masked == {KEY: ["a ***", {"b": ["***", 1, None, True, 1.5]}]}
    assert value[KEY][0] == f"a {KEY}"


# streams


@pytest.mark.hazard("K5")
@given(secret_values, texts)
@example(["aaaaaaaa", "aaaaaaaabb"], ["aaaaaaaa", "b", "ba"])
@example(["abaabaab", "aabaabaa"], list("abaabaabaabaa"))
def test_what_is_shown_so_far_stays_as_more_comes(values: list[str], pieces: list[str]) -> None:
    secrets = Secrets(values)
    whole = secrets.mask("".join(pieces))
    for count in range(len(pieces) + 1):
        assert whole.startswith(secrets.so_far("".join(pieces[:count])))


@given(secret_values, texts)
def test_only_what_may_become_a_secret_is_held_back(values: list[str], pieces: list[str]) -> None:
    secrets, text = Secrets(values), "".join(pieces)
    shown = secrets.so_far(text)
    held = [text[n:] for n in range(len(text) + 1) if shown == secrets.mask(text[:n])]
    assert any(not rest or any(v.startswith(rest) and v != rest for v in values) for rest in held)


def test_a_word_is_shown_at_once_and_a_secret_as_soon_as_it_is_whole() -> None:
    secrets = Secrets([KEY])
    assert secrets.so_far("The key is ") == "The key is "
    assert secrets.so_far("The key is sk") == "The key is "
    assert secrets.so_far("The key is sk-abcdefgh") == "The key is "
    assert secrets.so_far("The key is sk-abcdefgh12345.") == "The key is ***."
    assert secrets.so_far("sk-oops!") == "sk-oops!"
    assert secrets.so_far("tasks") == "task"
    assert Secrets().so_far("anything") == "anything"


# tools


def test_tools_get_the_user_s_environment_without_the_keys_of_models() -> None:
    keys = {
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_AUTH_TOKEN": KEY,
        "OPENROUTER_API_KEY_2": KEY,
        "GEMINI_API_KEYS": KEY,
        "AWS_BEARER_TOKEN_BEDROCK": KEY,
    }
    user = {"PATH": "/bin", "GITHUB_TOKEN": KEY, "STRIPE_API_KEY": KEY, "MY_OPENAI_API_KEY": KEY}
    assert child_environment({**keys, **user}) == user
    assert all(map(is_model_key, keys))
    assert emptied_keys({**keys, **user}) == dict.fromkeys(keys, "")


# logs


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, list[str]]]:
    """A library's logger with a handler of its own, and what it wrote."""
    factory = logging.getLogRecordFactory()
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))
            if record.exc_info:  # some handlers make their own text of it
                lines.append(repr(record.exc_info[1]))

    logger = logging.getLogger("a_library")
    handler = Handler()
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, lines
    logger.removeHandler(handler)
    logger.propagate = True
    logging.setLogRecordFactory(factory)


@pytest.mark.hazard("K5.1")
def test_no_log_shows_a_secret_in_a_message_an_argument_or_a_traceback(
    log: tuple[logging.Logger, list[str]],
) -> None:
    logger, lines = log
    secrets = Secrets()
    secrets.guard_logs()
    secrets.add(KEY)
    logger.warning("the key %s of %d in %r", KEY, 3, {"key": KEY})
    logger.warning(f"it is {KEY}")
    try:
        raise ValueError(f"bad key {KEY}")
    except ValueError:
        logger.exception("failed", stack_info=True)
    assert lines[0] == "the key *** of 3 in {'key': '***'}"
    assert lines[1] == "it is ***"
    assert "ValueError: bad key ***" in lines[2]
    assert "Traceback" in lines[2]
    assert "Stack (most recent call last)" in lines[2]
    assert not any(KEY in line for line in lines)


def test_a_message_that_does_not_fit_its_arguments_is_logged_all_the_same(
    log: tuple[logging.Logger, list[str]],
) -> None:
    logger, lines = log
    Secrets([KEY]).guard_logs()
    logger.warning("%d of it", KEY)
    assert lines == [f"%d of it ('{MASK}',)"]


def test_this_process_s_own_environment_can_be_read() -> None:
    Secrets.from_environment(os.environ)
