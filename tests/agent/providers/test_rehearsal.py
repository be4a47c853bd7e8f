"""What the parent of the agents goes through before it forks."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import certifi
import pytest

from agent.providers import http_connection, library

pytestmark = pytest.mark.process

CODE = """
import json, os, sys
from agent import fork_parent
fork_parent.load(None, sys.argv[1])
from agent import __main__ as agent_process
from agent import tools
from agent.providers import library
files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")[:-1]]
print(json.dumps({
    "loaded": library.is_loaded(),
    "anthropic": "litellm.llms.anthropic.chat.transformation" in sys.modules,
    "prepared": agent_process.prepare.cache_info().currsize,
    "models": library.model_info.cache_info().currsize,
    "schemas": tools.schema.cache_info().currsize,
    "another tokenizer": hasattr(library.load().utils, "json_data"),
    "threads": len(os.listdir("/proc/self/task")),
    "sockets": [name for name in files if name.startswith("socket")],
}), file=sys.__stdout__)
"""


@pytest.mark.hazard("F1")
def test_requests_are_built_and_none_is_sent_and_no_thread_or_connection_is_left(
    tmp_path: object,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as provider:
        url = f"http://127.0.0.1:{provider.getsockname()[1]}"
        keys = {
            name: value
            for maker in ("OPENAI", "ANTHROPIC", "GEMINI")
            for name, value in ((f"{maker}_API_KEY", "sk-made-up-0123"), (f"{maker}_BASE_URL", url))
        }
        done = subprocess.run(
            [sys.executable, "-I", "-c", CODE, str(tmp_path)],
            env={**os.environ, **keys},
            capture_output=True,
            timeout=100,
            check=True,
        )
        provider.setblocking(False)
        with pytest.raises(BlockingIOError):
            provider.accept()
    told = json.loads(done.stdout)
    assert told.pop("models") >= 3
    assert told == {
        "loaded": True,
        "anthropic": True,
        "prepared": 1,
        "schemas": 7,
        "another tokenizer": False,
        "threads": 1,
        "sockets": [],
    }


@pytest.mark.hazard("F1")
def test_certificates_of_the_users_that_changed_since_a_parent_read_them_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Path(certifi.where()).read_text().split("-----END CERTIFICATE-----\n")
    one, two, *_ = (f"{each}-----END CERTIFICATE-----\n" for each in certificates)
    file = tmp_path / "company.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    trusted = []
    for held in (one, one + two):
        file.write_text(held)
        http_connection.new_client()
        context = library.part("llms.custom_httpx.http_handler").get_ssl_configuration()
        trusted.append(context.cert_store_stats()["x509_ca"])
    assert trusted == [1, 2]
