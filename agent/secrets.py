"""Secrets of the user's environment, kept out of texts, logs and the processes of tools.

Invariants
- A secret is masked wherever it stands whole in a text.
- When a text is shown piece by piece, what is shown so far is the beginning of the masked whole,
  wherever it was cut. Only an end that may still become a secret is held back.
- A tool's process gets the user's environment without the keys of models.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"

#: characters; a shorter value would mask text that is no secret
_SHORTEST = 8

_SECRET_NAME = re.compile(
    r"(KEY(S|\d+)?|_PAT|_PASS|_PWD|AUTH)(_|$)"
    r"|APIKEY|TOKEN|SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|AUTHORIZATION",
    re.IGNORECASE,
)
#: names of variables that say where a secret is, not what it is
_PLACE_NAME = re.compile(r"_(FILE|PATH|DIR|SOCK|HOME|HOST|URL|NAME|USER|TYPE)$", re.IGNORECASE)
#: finds a password in a URL, whatever the variable is named: `postgres://user:password@host`
_URL_PASSWORD = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@:]*:([^/@]+)@", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[\d.,_]+")
#: values that are no secrets even where one is expected, and too common to be masked
_ORDINARY = frozenset({"password", "postgres", "changeme", "disabled", "required", "optional"})

#: Model providers that read `<NAME>_API_KEY`. Keys that the user's commands may need are left
#: out: STRIPE_API_KEY, and also WANDB_API_KEY, though there are models behind it.
_PROVIDERS = frozenset(
    """AI21 AIML ALEPH_ALPHA ALEPHALPHA AMAZON_NOVA ANTHROPIC ANTHROPIC_AWS ANYSCALE ARK AZURE
    AZURE_AI AZURE_OPENAI BASETEN BEDROCK_MANTLE BYTEZ CEREBRAS CHUTES CLARIFAI CO CODESTRAL COHERE
    COMETAPI COMPACTIFAI DASHSCOPE DATAROBOT DEEPINFRA DEEPSEEK EMPOWER FEATHERLESS
    FEATHERLESS_AI FIREWORKS FIREWORKSAI FIREWORKS_AI FRIENDLIAI GALADRIEL GEMINI GIGACHAT
    GOOGLE GRADIENT_AI GROQ HOSTED_VLLM HUGGINGFACE HYPERBOLIC INCEPTION INFINITY LAMBDA
    LEMONADE LITELLM LITELLM_PROXY LLAMA LLAMAFILE LM_STUDIO MARITALK META MINIMAX MISTRAL
    MISTRAL_AZURE MODELSCOPE MOONSHOT MORPH NANOGPT NEBIUS NLP_CLOUD NOVITA NSCALE NVIDIA
    NVIDIA_NIM OLLAMA OPENAI OPENAI_LIKE OPENROUTER OR OVHCLOUD PALM PERPLEXITY PERPLEXITYAI POE
    PREDIBASE PUBLICAI REPLICATE SAMBANOVA SYNTHETIC TENCENT TOGETHER TOGETHERAI TOGETHER_AI V0
    VERCEL_AI_GATEWAY VOLCENGINE VOYAGE WATSONX WX XAI XINFERENCE ZAI ZHIPUAI""".split()  # noqa: SIM905
)
#: model providers' keys that have other names
_MODEL_KEYS = frozenset(
    """AIMLAPI_KEY ANTHROPIC_AUTH_TOKEN AWS_BEARER_TOKEN_BEDROCK COMETAPI_KEY DATAROBOT_API_TOKEN
    FIREWORKS_AI_TOKEN FRIENDLI_TOKEN GIGACHAT_ACCESS_TOKEN GIGACHAT_CREDENTIALS LITELLM_MASTER_KEY
    REPLICATE_API_TOKEN TOGETHER_AI_TOKEN WATSONX_APIKEY WATSONX_TOKEN WATSONX_ZENAPIKEY""".split()  # noqa: SIM905
)
_API_KEY = re.compile(r"(.+)_API_KEYS?(_\d+)?")


def is_model_key(name: str) -> bool:
    """Tells if an environment variable of that name holds the key of a model's provider."""
    found = _API_KEY.fullmatch(name)
    return name in _MODEL_KEYS or (found is not None and found[1] in _PROVIDERS)


def child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns `env` without the keys of models, for the processes of tools."""
    return {name: value for name, value in env.items() if not is_model_key(name)}


def emptied_keys(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the keys of models in `env`, each with an empty value.

    They are for a client's terminals: variables can be added to their environment, but not taken
    out of it.
    """
    return {name: "" for name in env if is_model_key(name)}


class Secrets:
    """Masks the values that nobody is to read. More may be added at any time."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        #: longest first, because one may contain another
        self._values: list[str] = []
        self._first_letters: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        for value in values:
            self.add(value)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Secrets:
        return cls(secret for name, value in env.items() for secret in _secrets_of(name, value))

    def add(self, value: str) -> None:
        """Ignores values of less than 8 characters."""
        value = value.strip()
        if len(value) < _SHORTEST or value in self._values:
            return
        self._values = sorted([*self._values, value], key=len, reverse=True)
        self._first_letters = frozenset(value[0] for value in self._values)
        self._pattern = re.compile("|".join(map(re.escape, self._values)))

    def add_named(self, name: str, value: str) -> None:
        """Adds what is secret in the value of an environment variable, a header or a parameter."""
        for secret in _secrets_of(name.replace("-", "_"), value):
            self.add(secret)
            self.add(secret.rpartition(" ")[2])  # the token in `Bearer TOKEN`

    def mask(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def mask_json(self, value: Any) -> Any:
        """Returns a copy of a JSON value with its strings masked; keys stay as they are."""
        match value:
            case str():
                return self.mask(value)
            case list() | tuple():
                return [self.mask_json(item) for item in value]
            case dict():
                return {key: self.mask_json(item) for key, item in value.items()}
        return value

    def lost(self, old: str, new: str) -> bool:
        """Tells if `new` has the mask where `old` has a secret.

        A model that saw only the mask would write such a text and destroy the secret.
        """
        return new.count(MASK) > old.count(MASK) and self._count(new) < self._count(old)

    def _count(self, text: str) -> int:
        return 0 if self._pattern is None else sum(1 for _ in self._pattern.finditer(text))

    def guard_logs(self) -> None:
        """Masks every log record of this process from now on.

        It does so when the record is made, because libraries have handlers of their own.
        """
        make = logging.getLogRecordFactory()

        def make_masked(*args: Any, **kwargs: Any) -> logging.LogRecord:
            return self._masked(make(*args, **kwargs))

        logging.setLogRecordFactory(make_masked)

    def so_far(self, text: str) -> str:
        """Returns the masked beginning of an unfinished text, without an end that may become a
        secret."""
        certain: list[str] = []
        at = 0
        while True:
            held = self._held(text, at)
            found = self._pattern.search(text, at) if self._pattern else None
            # A secret that begins where a longer one may begin too is not certain yet.
            if found is None or found.start() >= held:
                return "".join([*certain, text[at:held]])
            certain += (text[at : found.start()], MASK)
            at = found.end()

    def _held(self, text: str, start: int) -> int:
        """Returns the first position from `start` on where an unfinished secret may begin."""
        longest = len(self._values[0]) if self._values else 0
        for at in range(max(start, len(text) - longest + 1), len(text)):
            if text[at] not in self._first_letters:
                continue
            rest = text[at:]
            if any(v.startswith(rest) and len(v) > len(rest) for v in self._values):
                return at
        return len(text)

    def _masked(self, record: logging.LogRecord) -> logging.LogRecord:
        try:
            message = record.getMessage()
        except Exception:  # the arguments do not fit the message; logging reports that itself
            message = f"{record.msg} {record.args}"
        record.msg, record.args = self.mask(message), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = self.mask(logging.Formatter().formatException(record.exc_info))
            record.exc_info = None
        if record.stack_info:
            record.stack_info = self.mask(record.stack_info)
        return record


def _secrets_of(name: str, value: str) -> Iterable[str]:
    """Yields the secrets in one environment variable."""
    if found := _URL_PASSWORD.match(value):
        yield from {found[1], unquote(found[1])}
    if not _SECRET_NAME.search(name) or _PLACE_NAME.search(name):
        return
    ordinary = value.lower() in _ORDINARY or _NUMBER.fullmatch(value)
    if not ordinary and not _is_path(value):
        yield value


def _is_path(value: str) -> bool:
    # A key may begin with a slash too, so the path has to exist.
    return value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value))
