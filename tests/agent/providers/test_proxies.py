"""A proxy on the way to a provider is named where the provider can't be reached."""

import pytest

from agent.providers.failure import Failure, Place, model_error
from agent.providers.proxies import proxy_variable

HERE = "http://user:secret@127.0.0.1:9"
URL = "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("url", "env", "name"),
    [
        (URL, {}, ""),
        (URL, {"HTTPS_PROXY": HERE}, "HTTPS_PROXY"),
        (URL, {"HTTPS_PROXY": HERE, "https_proxy": HERE}, "https_proxy"),
        (URL, {"HTTP_PROXY": HERE}, ""),
        (URL, {"ALL_PROXY": HERE, "HTTPS_PROXY": ""}, "ALL_PROXY"),
        (URL, {"HTTPS_PROXY": HERE, "NO_PROXY": "localhost, .openai.com"}, ""),
        (URL, {"HTTPS_PROXY": HERE, "no_proxy": "*"}, ""),
        (URL, {"HTTPS_PROXY": HERE, "no_proxy": "example.com"}, "HTTPS_PROXY"),
        ("http://127.0.0.1:8080", {"http_proxy": HERE, "HTTPS_PROXY": HERE}, "http_proxy"),
        ("http://127.0.0.1:8080", {"http_proxy": HERE, "NO_PROXY": "127.0.0.1"}, ""),
        ("", {"HTTPS_PROXY": HERE}, "HTTPS_PROXY"),
        ("http://[::1", {"HTTP_PROXY": HERE}, ""),
    ],
)
def test_the_variable_is_the_one_that_counts(url: str, env: dict[str, str], name: str) -> None:
    assert proxy_variable(url, env) == name


@pytest.mark.parametrize(
    ("base_url", "proxy", "check"),
    [
        ("", "", "check the network."),
        ("A_URL", "", "check the network, and A_URL."),
        ("", "A_PROXY", "check the network, and the proxy in A_PROXY."),
        ("A_URL", "A_PROXY", "check the network, A_URL, and the proxy in A_PROXY."),
    ],
)
def test_what_may_be_wrong_is_named(base_url: str, proxy: str, check: str) -> None:
    place = Place("openai/m", "OpenAI", "api.openai.com", base_url=base_url, proxy=proxy)
    error = model_error(Failure("unreachable"), place, 1, str)
    assert str(error) == f"OpenAI (api.openai.com) can't be reached: {check}"
