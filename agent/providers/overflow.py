"""Recognises a refusal because of the model's window, and reads the window's size from it.

Each server words it differently: OpenAI, Anthropic, Gemini, llama.cpp, vLLM, SGLang, LM Studio,
TGI, Ollama. A test has a refusal of each.
"""

from __future__ import annotations

import re

_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size)|(model|sequence) length"
    r"|maximum context|\bn_ctx\b|max_model_len"
    r"|(prompt|input) (is )?too (long|large)|too many (input )?tokens"
    r"|exceeds? the (maximum|limit).{0,40}tokens|token (count|limit).{0,40}exceed"
    r"|exceed\w* .{0,40}token limit|reduce the length"
    r"|max_new_tokens. must be <=|inputs. must have less than \d+ tokens"
    r"|range of input length",
    re.IGNORECASE,
)
_NUMBER = r"(\d[\d,]*)"
_WINDOWS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # "n_ctx":4096 and n_ctx: 4096 of llama.cpp and LM Studio
        rf"\bn_ctx\b[\"']?\W{{0,3}}{_NUMBER}",
        # maximum context length is 4096, context size (4096 tokens), context length of only 4096;
        # but not: exceeded context length by 100 tokens
        rf"(?:context|model|sequence)[ _-]?(?:length|window|size)(?! by)[^\d.;]{{0,25}}?{_NUMBER}",
        rf"with {_NUMBER} maximum context length",
        # TGI
        rf"must be <= {_NUMBER}",
        rf"must have less than {_NUMBER} tokens",
        # Anthropic, Gemini, older vLLM
        rf"> {_NUMBER} maximum",
        rf"maximum number of tokens allowed \(?{_NUMBER}",
        rf"exceeds (?:the )?limit of {_NUMBER}",
    )
)
#: tokens; a number outside of these limits is not the size of a window
_LEAST, _MOST = 256, 100_000_000


def is_overflow(text: str) -> bool:
    """Returns True if a provider's words say that the input doesn't fit the model's window."""
    return _OVERFLOW.search(text) is not None


def window_in(text: str) -> int | None:
    """Returns the size of the window in tokens that a provider's words name; None if they don't."""
    for pattern in _WINDOWS:
        if found := pattern.search(text):
            window = int(found[1].replace(",", ""))
            if _LEAST <= window <= _MOST:
                return window
    return None
