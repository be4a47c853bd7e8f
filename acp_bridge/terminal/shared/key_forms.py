"""The keys of known providers: the variables that hold them, and how they begin. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class KnownKey:
    """What is known of a provider's key."""

    #: the beginning of the names of the provider's models.
    id: str
    #: the provider's own name.
    name: str
    #: the variables that may hold the key; the first is the one to use.
    variables: tuple[str, ...]
    #: how the provider's keys begin; empty if that is not known.
    begins: tuple[str, ...] = ()


#: The providers of the built-in agent that need a key; a test compares them with the agent's.
KNOWN: Final = (
    KnownKey("anthropic", "Anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), ("sk-ant-",)),
    KnownKey("openai", "OpenAI", ("OPENAI_API_KEY",), ("sk-",)),
    KnownKey("gemini", "Google Gemini", ("GEMINI_API_KEY", "GOOGLE_API_KEY"), ("AIza", "AQ.")),
    KnownKey("mistral", "Mistral", ("MISTRAL_API_KEY",)),
    KnownKey("deepseek", "DeepSeek", ("DEEPSEEK_API_KEY",), ("sk-",)),
    KnownKey("xai", "xAI", ("XAI_API_KEY",), ("xai-",)),
    KnownKey("moonshot", "Moonshot", ("MOONSHOT_API_KEY",), ("sk-",)),
    KnownKey("zai", "Z.AI", ("ZAI_API_KEY",)),
    KnownKey("groq", "Groq", ("GROQ_API_KEY",), ("gsk_",)),
    KnownKey("cerebras", "Cerebras", ("CEREBRAS_API_KEY",), ("csk-",)),
    KnownKey("openrouter", "OpenRouter", ("OPENROUTER_API_KEY",), ("sk-or-",)),
    KnownKey(
        "fireworks_ai",
        "Fireworks",
        ("FIREWORKS_API_KEY", "FIREWORKS_AI_API_KEY", "FIREWORKSAI_API_KEY", "FIREWORKS_AI_TOKEN"),
        ("fw_",),
    ),
    KnownKey(
        "together_ai",
        "Together",
        ("TOGETHER_API_KEY", "TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHER_AI_TOKEN"),
    ),
    KnownKey("nvidia_nim", "NVIDIA", ("NVIDIA_NIM_API_KEY",), ("nvapi-",)),
)
#: The names of providers that need no key, by what a person may call them; the test compares them.
_WITHOUT: Final = {
    "ollama_chat": "Ollama",
    "ollama": "Ollama",
    "lm_studio": "LM Studio",
    "hosted_vllm": "vLLM",
    "llamafile": "llamafile",
}
#: Other words by which a person may look for a provider: its maker, or its models.
_CALLED: Final = {
    "claude": "anthropic",
    "chatgpt": "openai",
    "gpt": "openai",
    "google": "gemini",
    "grok": "xai",
    "kimi": "moonshot",
    "glm": "zai",
}
#: the beginnings that only one provider's keys have.
_OWN: Final = {
    begin: known
    for known in KNOWN
    for begin in known.begins
    if sum(begin in other.begins for other in KNOWN) == 1 and begin != "sk-"
}
#: The name of a variable: several words in capitals, as no provider writes a key.
_NAME: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
#: a part of the name of each variable that holds a secret, and no address, region or profile.
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASS")
#: the number of characters below which a key looks too short.
_SHORT: Final = 16


class NotAKey(Exception):
    """The given text can be no key; the message says why, without any part of the text."""


def variable_of(word: str) -> str | None:
    """Return the variable that a word means: itself, or that of the provider it names; or None."""
    if _NAME.fullmatch(word):
        return word
    wanted = word.casefold()
    for known in KNOWN:
        if wanted in (known.id, known.name.casefold()):
            return known.variables[0]
    return None


def nearest(word: str) -> str | None:
    """Return the known provider or variable that a word nearly is, or means; None for none.

    No part of the word itself is returned, since it may be a key.
    """
    from difflib import get_close_matches

    names = dict(_CALLED)
    names |= {each.casefold(): known.id for known in KNOWN for each in (known.id, known.name)}
    names |= {each.casefold(): each for known in KNOWN for each in known.variables}
    found = get_close_matches(word.casefold(), names, 1, 0.75)
    return names[found[0]] if found else None


def without_key(word: str) -> str | None:
    """Return the name of the provider that a word means if it needs no key, else None."""
    wanted = word.casefold()
    for own, name in _WITHOUT.items():
        if wanted in (own, name.casefold()):
            return name
    return None


def same_provider(variable: str) -> tuple[str, ...]:
    """Return the variables that may hold the key of the provider of `variable`, it among them."""
    return next((known.variables for known in KNOWN if variable in known.variables), (variable,))


def cleaned(text: str) -> str:
    """Return the key in a text that was typed or pasted, without white space around it.

    Raises NotAKey if it is empty or has control characters.
    """
    key = text.strip()
    if not key:
        raise NotAKey("no key was given")
    if any(ord(char) < 32 or ord(char) == 127 for char in key):
        raise NotAKey("it has control characters: paste it as one plain line")
    return key


def oddities(variable: str, key: str) -> list[str]:
    """Return what looks wrong with a key for this variable, in sentences that hide the key."""
    found = []
    if any(char.isspace() for char in key):
        found.append("it has white space inside")
    if not key.isascii():
        found.append("it has characters that are not ASCII, which no provider takes")
    if key[0] in "\"'`" or key.startswith(("export ", f"{variable}=")):
        found.append("it begins like a line of a file: only the key itself is wanted")
    elif len(key) < _SHORT and _SECRET.search(variable):
        found.append(f"it has fewer than {_SHORT} characters")
    return [*found, *_of_another(variable, key)]


def _of_another(variable: str, key: str) -> list[str]:
    meant = next((known for known in KNOWN if variable in known.variables), None)
    owner = next((known for begin, known in _OWN.items() if key.startswith(begin)), None)
    if owner is not None and owner is not meant:
        return [f"it looks like a key of {owner.name}, which goes into {owner.variables[0]}"]
    # Tokens that are no API keys, such as ANTHROPIC_AUTH_TOKEN, have other forms.
    if meant and meant.begins and "TOKEN" not in variable and not key.startswith(meant.begins):
        return [f"keys of {meant.name} begin with {' or '.join(meant.begins)}"]
    return []
