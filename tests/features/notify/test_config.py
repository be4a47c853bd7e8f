"""The file that says how the user is told, and what is said of one that is not right."""

from __future__ import annotations

from pathlib import Path

import pytest

from acp_bridge.core.settings import NOTIFY_FILE
from acp_bridge.features.notify.config import Address, BadNotify, Notify, address, parse
from acp_bridge.features.notify.read import others_read, read, rings

TOPIC = "https://ntfy.example/s3cret-topic"


def test_a_file_names_the_ways_in_any_order_and_says_if_words_are_told() -> None:
    chosen = parse(f'words = true\nnotify = ["ntfy:{TOPIC}", "bell", "desktop"]')
    assert chosen == Notify(
        True, True, (Address("ntfy.example", 443, "/s3cret-topic", True),), True
    )
    assert chosen.named == ["desktop", "bell", "ntfy"]
    assert parse("") == Notify()


def test_an_address_may_have_a_port_a_query_and_a_login() -> None:
    found = address("https://me:p%40ss@[2001:db8::1]:8443/a/b?auth=x")
    assert (found.host, found.port, found.target) == ("2001:db8::1", 8443, "/a/b?auth=x")
    assert found.place == "[2001:db8::1]:8443"
    assert found.authorization == "Basic bWU6cEBzcw=="
    assert address("https://ntfy.example").target == "/"
    assert address("https://ntfy.example").place == "ntfy.example"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_an_address_without_tls_is_one_of_this_machine(host: str) -> None:
    assert not address(f"http://{host}:8080/topic").secure
    with pytest.raises(BadNotify, match="has to begin with https://"):
        address("http://ntfy.example/topic")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('notify = ["ntfy:https://ntfy.example/s3cret', "line 1, column 44: a quote is not closed"),
        ("s3cret = " + "[" * 60_000, "its values are nested too deeply"),
        ('\nnotify = "s3cret"', "a list of texts"),
        ("notify = [1]", "a list of texts"),
        ('notify = ["s3cret"]', "one of notify is not"),
        ('notify = ["Desktop"]', "one of notify is not"),
        ('s3cret = ["desktop"]', "the keys notify and words"),
        ('words = "s3cret"', "true or false"),
        ('notify = ["ntfy:s3cret"]', "is written as in"),
        ('notify = ["ntfy:ftp://ntfy.example/s3cret"]', "is written as in"),
        ('notify = ["ntfy:https://ntfy.example/s3 cret"]', "is written as in"),
        ('notify = ["ntfy:https://ntfy.example/s3cret\\r\\nX: y"]', "is written as in"),
        ('notify = ["ntfy:https:///s3cret"]', "is written as in"),
        ('notify = ["ntfy:https://ntfy.example:s3cret/"]', "is none"),
        ('notify = ["ntfy:https://[s3cret/"]', "is none"),
        ('notify = ["ntfy:http://s3cret.example/"]', "https://"),
    ],
)
def test_a_file_that_is_not_right_says_why_without_a_word_of_it(text: str, why: str) -> None:
    with pytest.raises(BadNotify) as bad:
        parse(text)
    assert why in str(bad.value)
    assert "s3cret" not in str(bad.value)
    assert bad.value.__cause__ is None
    assert bad.value.__suppress_context__ or bad.value.__context__ is None


def test_an_address_is_not_in_what_is_printed_of_it() -> None:
    shown = repr(parse(f'notify = ["ntfy:{TOPIC}"]'))
    assert "ntfy.example" not in shown
    assert "s3cret" not in shown


def test_without_a_file_nobody_is_told(tmp_path: Path) -> None:
    assert read(tmp_path) is None
    assert not rings(tmp_path)
    assert not others_read(tmp_path)


def test_the_bell_is_rung_where_the_file_says_so_and_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / NOTIFY_FILE
    file.write_text('notify = ["bell"]')
    assert rings(tmp_path)
    file.write_text('notify = ["desktop"]')
    assert not rings(tmp_path)
    file.write_text("bell")
    assert not rings(tmp_path)


def test_a_file_that_anybody_may_write_or_that_is_none_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / NOTIFY_FILE
    file.write_text('notify = ["desktop"]')
    file.chmod(0o602)
    with pytest.raises(BadNotify, match="anybody may write"):
        read(tmp_path)
    file.chmod(0o640)
    assert read(tmp_path) == Notify(desktop=True)
    assert others_read(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(BadNotify):
        read(tmp_path)
