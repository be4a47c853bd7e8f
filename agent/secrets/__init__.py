"""Keeps the user's secrets out of texts, logs and the processes of tools.

Invariants
- A secret is masked wherever it is in a text: whole, line by line if it has several, escaped as in
  JSON or in a URL, and also where a limit has cut it in two.
- When a text is shown piece by piece, what is shown so far is the beginning of the masked whole,
  wherever it was cut. Only an end that may still become a secret is delayed.
- A tool's process gets the user's environment without the keys of models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from agent.secrets.masking import MASK, Secrets

__all__ = ["MASK", "Secrets", "child_environment", "emptied_keys", "is_model_key"]

#: Model providers that read `<NAME>_API_KEY`. Keys that the user's commands may need are left out:
#: STRIPE_API_KEY, and also WANDB_API_KEY, though W&B offers models too.
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
#: keys of model providers that have other names
_MODEL_KEYS = frozenset(
    """AIMLAPI_KEY ANTHROPIC_AUTH_TOKEN AWS_BEARER_TOKEN_BEDROCK COMETAPI_KEY DATAROBOT_API_TOKEN
    FIREWORKS_AI_TOKEN FRIENDLI_TOKEN GIGACHAT_ACCESS_TOKEN GIGACHAT_CREDENTIALS LITELLM_MASTER_KEY
    REPLICATE_API_TOKEN TOGETHER_AI_TOKEN WATSONX_APIKEY WATSONX_TOKEN WATSONX_ZENAPIKEY""".split()  # noqa: SIM905
)
_API_KEY = re.compile(r"(.+)_API_KEYS?(_\d+)?")


def is_model_key(name: str) -> bool:
    """Returns True if a variable of this name holds the key of a model provider."""
    found = _API_KEY.fullmatch(name)
    return name in _MODEL_KEYS or (found is not None and found[1] in _PROVIDERS)


def child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns `env` without the keys of models, for the processes of tools."""
    return {name: value for name, value in env.items() if not is_model_key(name)}


def emptied_keys(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the model keys in `env`, each with an empty value.

    They are for a client's terminals, whose environment can be added to but not reduced.
    """
    return {name: "" for name in env if is_model_key(name)}
