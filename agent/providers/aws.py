"""Hands LiteLLM the credentials of AWS that stand in the file of keys.

Those in the environment it finds itself, as those of a profile or a role.
"""

from __future__ import annotations

from collections.abc import Mapping

#: LiteLLM's names of the providers that are reached with credentials of AWS
PROVIDERS = frozenset(["bedrock", "bedrock_converse", "sagemaker", "sagemaker_chat"])
#: LiteLLM's parameters by the variables that hold them; these belong together
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
    """Returns LiteLLM's parameters with their values for what only the file has.

    `lines`: those of the file. Credentials are taken from one place: if the environment has any,
    none comes from the file.
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
