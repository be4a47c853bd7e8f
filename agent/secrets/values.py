"""Finds the secrets in the value of a variable, and the forms in which each may appear."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

#: characters; masking shorter values would hide ordinary text
SHORTEST = 8

_SECRET_NAME = re.compile(
    r"(KEY(S|\d+)?|_PAT|_PASS|_PWD|AUTH)(_|$)"
    r"|APIKEY|TOKEN|SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|AUTHORIZATION",
    re.IGNORECASE,
)
#: variables with such a name say where a secret is, not what it is
_PLACE_NAME = re.compile(r"_(FILE|PATH|DIR|SOCK|HOME|HOST|URL|NAME|USER|TYPE)$", re.IGNORECASE)
#: names in the file of keys whose values are settings; nearly all others are secrets
_SETTING_NAME = re.compile(
    r"^ACP_BRIDGE_|REGION|LOCATION|PROJECT|VERSION|MODEL|BASE|ENDPOINT|ORGANI[SZ]ATION|PROFILE"
    r"|DEPLOYMENT|HOST|URL|PATH|FILE|USER",
    re.IGNORECASE,
)
#: matches the user and the password in a URL, whatever the variable's name
_URL_LOGIN = re.compile(r"\b[a-z][a-z0-9+.-]*://([^/@:\s]*)(?::([^/@\s]+))?@", re.IGNORECASE)
#: characters; a user name in a URL that is as long is a token
_LONG_USER = 20
_URL = re.compile(r"https?://[^\s\"'<>]+", re.IGNORECASE)
#: URLs to which anybody who knows them can post
_WEBHOOK = re.compile(
    r"https://(hooks\.slack\.com/|([a-z]+\.)?discord(app)?\.com/api/webhooks/"
    r"|[\w.-]+\.webhook\.office\.com/|outlook\.office\.com/webhook|hooks\.zapier\.com/"
    r"|api\.telegram\.org/bot|chat\.googleapis\.com/v1/spaces/|[\w.-]*\.logic\.azure\.com)",
    re.IGNORECASE,
)
_HEADER_NAME = re.compile(r"AUTHORIZATION", re.IGNORECASE)
_WEBHOOK_NAME = re.compile(r"WEBHOOK", re.IGNORECASE)
#: matches a secret among the settings of a connection string or of a URL's query
_SETTING = re.compile(
    r"\b(?:AccountKey|SharedAccessKey|SharedAccessSignature|AccessKey|SecretKey|ClientSecret"
    r"|Password|Pwd|PrimaryKey|ApiKey)\s*=\s*\"?([^;\s\"]+)",
    re.IGNORECASE,
)
_QUERY_NAME = re.compile(r"^(sig|signature|code|key|token|access_token|api_?key|secret)$", re.I)
#: matches the credentials in a header: `Authorization: Basic ...`, `Bearer ...`
_HEADER = re.compile(
    r"(?:\bauthorization[\"']?\s*[:=]\s*[\"']?(?:[A-Za-z]+\s+)?|^\s*(?:basic|bearer|token)\s+)"
    r"([^\s\"',;]+)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?[\d.,_]+")
#: values that are not secrets even under a secret's name, and too common to mask
_ORDINARY = frozenset({"password", "postgres", "changeme", "disabled", "required", "optional"})
_LINE_END = re.compile(r"\r?\n|\\r\\n|\\n")
_PEM_FRAME = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
#: escapes that some JSON writers use for more characters
_FOR_HTML = (
    str.maketrans({character: f"\\u{ord(character):04x}" for character in "&<>'+"}),
    str.maketrans({character: f"\\u{ord(character):04X}" for character in "&<>'+"}),
)


def secrets_of(name: str, value: str) -> Iterator[str]:
    """Yields the secrets in the value of a variable, a header or a parameter."""
    yield from _inside(value)
    if _HEADER_NAME.search(name):
        yield value.rpartition(" ")[2]  # the token in `Bearer TOKEN`
    if _WEBHOOK_NAME.search(name) and _URL.match(value.strip()):
        yield from _webhook(value.strip())
    if not _SECRET_NAME.search(name) or _PLACE_NAME.search(name):
        return
    if not _is_ordinary(value):
        yield value


def secrets_in_file(name: str, value: str) -> Iterator[str]:
    """Yields the secrets in a line of the file of keys: all values that aren't clearly settings."""
    yield from secrets_of(name, value)
    if not _SETTING_NAME.search(name) and not _is_ordinary(value) and not _URL.match(value):
        yield value


def forms(value: str) -> Iterable[str]:
    """Returns the forms of a secret in texts: the value, its lines, and each of them escaped."""
    value = value.strip()
    lines = [line.strip() for line in _LINE_END.split(value)]
    found = dict.fromkeys(_escaped(value))
    for line in lines if len(lines) > 1 else ():
        if len(line) >= SHORTEST and not _PEM_FRAME.fullmatch(line) and not _is_ordinary(line):
            found |= dict.fromkeys(_escaped(line))
    return found


def _escaped(text: str) -> Iterator[str]:
    yield from (text, repr(text)[1:-1])
    as_json = json.dumps(text)[1:-1]
    for escaped in (as_json, json.dumps(text, ensure_ascii=False)[1:-1]):
        yield escaped
        yield escaped.replace("/", "\\/")
        yield from map(escaped.translate, _FOR_HTML)
        yield json.dumps(escaped, ensure_ascii=False)[1:-1]  # JSON inside a string of JSON
    yield quote(text)
    yield quote(text, safe="")


def _inside(value: str) -> Iterator[str]:
    """Yields the secrets inside a longer value."""
    for user, password in _URL_LOGIN.findall(value):
        yield from (password, unquote(password))
        if len(user) >= _LONG_USER:
            yield user
    for pattern in (_SETTING, _HEADER):
        yield from pattern.findall(value)
    for url in _URL.findall(value):
        if _WEBHOOK.match(url):
            yield from _webhook(url)
        for name, given in parse_qsl(urlsplit(url).query):
            if _QUERY_NAME.match(name):
                yield given
                yield quote(given, safe="")


def _webhook(url: str) -> Iterator[str]:
    yield from (url, urlsplit(url).path.rpartition("/")[2])


def _is_ordinary(value: str) -> bool:
    value = value.strip()
    return value.lower() in _ORDINARY or bool(_NUMBER.fullmatch(value)) or _is_path(value)


def _is_path(value: str) -> bool:
    # A key may begin with a slash too, so the path has to exist.
    if "\0" in value or len(value) > 4096:
        return False
    return value.startswith(("/", "~", ".")) and os.path.exists(os.path.expanduser(value))
