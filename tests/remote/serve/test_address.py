"""Where a server listens, and the names under which it may be reached."""

import shutil
import socket
from pathlib import Path

import pytest

from acp_bridge.remote.serve import address
from acp_bridge.remote.serve.address import Address, Bad
from tests.remote.serve.certificate import certificate

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("127.0.0.1:8765", Address("127.0.0.1", 8765)),
        (":8765", Address("127.0.0.1", 8765)),
        ("[::1]:0", Address("::1", 0)),
        ("bridge.example.org:443", Address("bridge.example.org", 443)),
        ("unix:/run/x.sock", Address("", 0, Path("/run/x.sock"))),
    ],
)
def test_an_address_is_a_host_and_a_port_or_a_socket(text: str, read: Address) -> None:
    assert address.read(text) == read
    assert address.read(str(read)) == read


@pytest.mark.parametrize("text", ["", "8765", "127.0.0.1", "::1:8765", "a:b", "a:-1", "a:99999"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Bad, match="8765"):
        address.read(text)


@pytest.mark.hazard("N1")
def test_only_the_loopback_and_sockets_are_this_machine_s_alone() -> None:
    for own in ("127.0.0.1:1", "[::1]:1", "127.8.9.10:1", "localhost:1", "unix:/x"):
        assert address.is_loopback(address.read(own)), own
    for open_to_others in ("0.0.0.0:1", "[::]:1", "192.0.2.1:1"):
        assert not address.is_loopback(address.read(open_to_others)), open_to_others
    with pytest.raises(Bad, match=r"^nowhere\.invalid"):
        address.is_loopback(address.read("nowhere.invalid:1"))


@pytest.mark.hazard("N1")
def test_a_name_is_the_loopback_s_only_with_all_of_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [(0, 0, 0, "", (each, 1)) for each in ("127.0.0.1", "192.0.2.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert not address.is_loopback(address.read("both.example:1"))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("https://Bridge.example.org", "https://bridge.example.org"),
        ("https://bridge.example.org:443/", "https://bridge.example.org"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_an_origin_is_as_browsers_write_it(text: str, read: str) -> None:
    assert address.origin(text) == read


@pytest.mark.parametrize(
    "text",
    ["bridge.example.org", "ftp://x", "https://", "https://a@b", "https://a/b", "https://[x"],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(Bad, match="https://"):
        address.origin(text)


@pytest.mark.parametrize(
    ("at", "certified", "named", "told"),
    [
        ("0.0.0.0:8765", ["192.0.2.1", "home.example", "*.x"], None, "https://home.example:8765"),
        ("[::]:443", ["[2001:db8::1]", "127.0.0.1"], None, "https://[2001:db8::1]"),
        ("0.0.0.0:8765", ["localhost", "127.0.0.1", "[::1]", "*.x"], None, None),
        ("127.0.0.1:8765", ["home.example"], None, None),
        ("127.0.0.1:8765", [], None, None),
        ("127.0.0.1:8765", [], "https://home.example", "https://home.example"),
        ("unix:/x", [], "http://127.0.0.1:1", None),
    ],
)
def test_other_machines_are_told_an_https_origin_if_there_is_one(
    at: str, certified: list[str], named: str | None, told: str | None
) -> None:
    assert address.from_elsewhere(address.read(at), certified, named) == told


@needs_openssl
def test_a_certificate_tells_its_names(tmp_path: Path) -> None:
    files = certificate(tmp_path, "DNS:Bridge.example.org", "DNS:*.home.example", "IP:192.0.2.1")
    context = address.tls(*files)
    assert address.certified(context, files[0]) == {
        "bridge.example.org",
        "*.home.example",
        "192.0.2.1",
    }


@needs_openssl
def test_a_certificate_without_names_or_with_another_key_is_refused(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    with pytest.raises(Bad, match="names no host"):
        address.certified(address.tls(cert, key), cert)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(Bad, match="no certificate and its key"):
        address.tls(cert, certificate(other, "DNS:x")[1])
    with pytest.raises(Bad, match="there is no file"):
        address.tls(cert, str(tmp_path / "nothing"))


@needs_openssl
def test_a_renewed_certificate_is_served_and_a_broken_one_leaves_the_old(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    files, renewed = certificate(old, "DNS:old.example"), certificate(new, "DNS:new.example")
    context = address.tls(*files)
    with pytest.raises(Bad):
        address.renew(context, renewed[0], files[1])
    assert address.certified(context, files[0]) == {"old.example"}
    address.renew(context, *renewed)
    assert address.certified(context, renewed[0]) == {"new.example"}
