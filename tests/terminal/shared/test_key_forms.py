"""How keys look, without a part of one being told."""

import pytest

from acp_bridge.terminal.shared.key_forms import (
    KNOWN,
    NotAKey,
    cleaned,
    oddities,
    variable_of,
    without_key,
)
from agent.providers.known_providers import PROVIDERS

ANTHROPIC = "sk-ant-" + "0123456789abcdef"


def test_the_providers_are_those_of_the_built_in_agent() -> None:
    of_the_agent = [(p.id, p.name, p.keys) for p in PROVIDERS.values() if p.keys]
    assert [(known.id, known.name, known.variables) for known in KNOWN] == of_the_agent
    for provider in PROVIDERS.values():
        without = None if provider.keys else provider.name
        assert without_key(provider.id) == without_key(provider.name.upper()) == without


@pytest.mark.parametrize(
    ("word", "variable"),
    [
        ("ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("Google Gemini", "GEMINI_API_KEY"),
        ("COHERE_API_KEY", "COHERE_API_KEY"),
        ("nobody", None),
        ("", None),
        ("gsk_abcdef0123456789", None),
        ("AKIAIOSFODNN7EXAMPLE", None),
        ("sk-ant-1", None),
        ("A_KEY\n", None),
    ],
)
def test_a_variable_or_a_provider_is_meant_and_never_a_key(word: str, variable: str | None) -> None:
    assert variable_of(word) == variable


def test_white_space_around_a_key_is_dropped() -> None:
    assert cleaned("  sk-1 \r\n") == "sk-1"


@pytest.mark.parametrize("text", ["", "  \n", "sk-\x001", "a\nb", "sk\x1b[A"])
def test_what_can_be_no_key_is_refused(text: str) -> None:
    with pytest.raises(NotAKey):
        cleaned(text)


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("ANTHROPIC_API_KEY", ANTHROPIC),
        ("ANTHROPIC_AUTH_TOKEN", "an-opaque-token-01234"),
        ("OPENAI_API_KEY", "sk-proj-0123456789abcdef"),
        ("MISTRAL_API_KEY", "0123456789abcdef0123456789abcdef"),
        ("COHERE_API_KEY", "0123456789abcdef0123456789abcdef"),
        ("AWS_REGION", "us-east-1"),
        ("OPENAI_BASE_URL", "http://h:1"),
    ],
)
def test_a_key_that_looks_right_is_not_talked_about(variable: str, key: str) -> None:
    assert oddities(variable, key) == []


@pytest.mark.parametrize(
    ("variable", "key", "told"),
    [
        ("ANTHROPIC_API_KEY", "sk-proj-0123456789abcdef", "begin with sk-ant-"),
        ("OPENAI_API_KEY", ANTHROPIC, "of Anthropic, which goes into ANTHROPIC_API_KEY"),
        ("MISTRAL_API_KEY", "gsk_0123456789abcdef", "of Groq"),
        ("OPENAI_API_KEY", "sk-0123456789 abcdef", "white space"),
        ("MISTRAL_API_KEY", "short", "fewer than 16"),
        ("MISTRAL_API_KEY", "0123456789abcdef\u200b", "not ASCII"),
        ("MISTRAL_API_KEY", "MISTRAL_API_KEY=0123456789", "only the key itself"),
        ("MISTRAL_API_KEY", '"0123456789abcdef"', "only the key itself"),
    ],
)
def test_what_is_odd_is_told_without_any_of_the_key(variable: str, key: str, told: str) -> None:
    found = " ".join(oddities(variable, key))
    assert told in found
    assert key not in found
    assert "0123456789" not in found
