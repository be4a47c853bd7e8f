"""Passes credentials of AWS that are in the file of keys to LiteLLM.

LiteLLM finds those in the environment, of a profile or of a role itself.
"""

from __future__ import annotations

from collections.abc import Mapping

#: LiteLLM's names of the providers that use credentials of AWS
PROVIDERS = frozenset(["bedrock", "bedrock_converse", "sagemaker", "sagemaker_chat"])
#: LiteLLM's parameter by the variable that holds it; a set of credentials
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "aws_access_key_id",
    "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key",
    "AWS_SESSION_TOKEN": "aws_session_token",
    "AWS_BEARER_TOKEN_BEDROCK": "api_key",
    "AWS_PROFILE": "aws_profile_name",
    "AWS_PROFILE_NAME": "aws_profile_name",
    "AWS_ROLE_NAME": "aws_role_name",
    "AWS_SESSION_NAME": "aws_session_name",
}
_REGIONS = ("AWS_REGION_NAME", "AWS_REGION", "AWS_DEFAULT_REGION")


def parameters(
    provider: str, env: Mapping[str, str], lines: Mapping[str, str | None]
) -> tuple[tuple[str, str], ...]:
    """Returns LiteLLM's parameters and their values that only the file of keys has.

    `lines`: of the file. Credentials come from one place: if the environment has any, none come
    from the file.
    """
    if provider not in PROVIDERS:
        return ()
    found: dict[str, str] = {}
    if not any(env.get(name) for name in CREDENTIALS):
        found |= {p: value for name, p in CREDENTIALS.items() if (value := _value(lines, name))}
    region = next(filter(None, (_value(lines, name) for name in _REGIONS)), "")
    if region and not any(env.get(name) for name in _REGIONS):
        found["aws_region_name"] = region
    return tuple(found.items())


def _value(lines: Mapping[str, str | None], name: str) -> str:
    return (lines.get(name) or "").strip()
