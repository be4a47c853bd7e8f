"""The rules that hold in one session, found by the words and paths that they name.

A call has few words and there may be many rules: no rule is looked at that can't name it.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from urllib.parse import unquote, urlsplit

from acp_bridge.features.rules.definitions import PATHS, Action, Place, Rule, Tool
from acp_bridge.features.rules.paths import Patterns, names_of
from acp_bridge.features.rules.programs import base

#: the beginning of an address as forgiving programs read it: `https:example.org`.
_FORGIVEN = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):/*")
#: an address that every program reads alike.
_PLAIN = re.compile(r"https?://[^/%\s?#]+([/?#]\S*)?", re.IGNORECASE)
#: how many words are looked at that may be options between those of a rule, where it is not known
#: at which word a command begins.
_MOST_OPTIONS = 24
#: programs of which each word may name a target.
_BUILDERS = frozenset({"make", "gmake", "ninja", "gradle", "gradlew", "mvn", "mvnw"})
#: the short options that are long ones, by program.
_SHORTER_OF = """
git: --all=-a --delete=-d --force=-f --interactive=-i --no-verify=-n
rm cp mv ln: --force=-f --interactive=-i --recursive=-r
chgrp chmod chown: --recursive=-r
docker podman nerdctl: --all=-a --force=-f --interactive=-i --volume=-v --volumes=-v
npm pnpm: --global=-g
curl: --data=-d --output=-o --request=-x --upload-file=-t
wget: --output-document=-o
"""
_SHORTER = {
    name: dict(pair.split("=") for pair in row.partition(":")[2].split())
    for row in _SHORTER_OF.strip().splitlines()
    for name in row.partition(":")[0].split()
}
#: short options of a pattern.
_SHORT = re.compile(r"-[A-Za-z]+")
#: how many words of a command are compared for a refusal: in a line that is not understood each
#: word may begin one.
_MOST_WORDS = 1000


class Ruleset:
    """Rules by their list and tool: those about commands also by their first word."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        """`rules`: the rules that hold, in any order."""
        self._of: dict[tuple[Action, Tool], list[Rule]] = {}
        self._by_word: dict[tuple[Action, str], list[Rule]] = {}
        self._any_word: dict[Action, list[Rule]] = {action: [] for action in Action}
        self._patterns: dict[tuple[Action, Tool, Place], tuple[list[Rule], Patterns]] = {}
        self._bare: dict[tuple[Action, Tool], Rule] = {}
        self._of_paths: dict[Action, list[Rule]] = {action: [] for action in Action}
        for rule in rules:
            self._of.setdefault((rule.action, rule.tool), []).append(rule)
            if not rule.pattern:
                self._bare.setdefault((rule.action, rule.tool), rule)
            elif rule.tool in PATHS:
                self._of_paths[rule.action].append(rule)
            elif rule.tool is Tool.BASH:
                first = _words(rule.pattern)[0]
                if "*" in first:
                    self._any_word[rule.action].append(rule)
                else:
                    name = first if rule.action is Action.ALLOW else base(first.casefold())
                    self._by_word.setdefault((rule.action, name), []).append(rule)

    def of(self, action: Action, tool: Tool) -> Sequence[Rule]:
        """Return the rules about a tool in the list of this action: allow, ask or deny."""
        return self._of.get((action, tool), ())

    def bare(self, action: Action, tool: Tool) -> Rule | None:
        """Return a rule about every call of a tool, such as `Read`."""
        return self._bare.get((action, tool))

    def of_paths(self, action: Action) -> list[Rule]:
        """Return the rules of a list that have a pattern of paths."""
        return self._of_paths[action]

    def about_commands(self, action: Action) -> bool:
        """Return True if a list has rules that name commands."""
        return bool(self._any_word[action]) or any(of is action for of, _ in self._by_word)

    def naming(self, action: Action, tool: Tool, found: Iterable[str], place: Place) -> Rule | None:
        """Return a rule of a list and tool whose pattern names one of these absolute paths."""
        key = action, tool, place
        if key not in self._patterns:
            rules = [rule for rule in self.of(action, tool) if rule.pattern]
            exact = action is Action.ALLOW
            patterns = Patterns([rule.pattern for rule in rules], place, exact=exact)
            self._patterns[key] = rules, patterns
        rules, patterns = self._patterns[key]
        named = (at for path in found if (at := patterns.first(path)) is not None)
        return next((rules[at] for at in named), None)

    # --- commands ----------------------------------------------------------------------------

    def allowing(self, words: tuple[str, ...]) -> Iterator[Rule]:
        """Give the rules whose pattern is that of a command with these words."""
        if bare := self.bare(Action.ALLOW, Tool.BASH):
            yield bare
        for rule in self._beginning(Action.ALLOW, words[:1]):
            if _is_like(_words(rule.pattern), words):
                yield rule

    def refusing(self, action: Action, words: Sequence[str], at: int = 0) -> Rule | None:
        """Return a rule that refuses or asks about a command: also `/bin/rm` and `RM` are `rm`.

        A rule that names a program by its path names it under every path: links and folders may
        lead there. `at`: the place in `words` of the command's first word.
        """
        word = _plain(words[at].casefold())
        name = base(word)
        names = (word,) if word == name else (word, name)
        found = list(self._beginning(action, names, inside=at > 0))
        if not found:
            return None
        given = (word, *words[at + 1 : at + _MOST_WORDS])
        forms = [given, *_targets(given)] if name in _BUILDERS and not at else [given]
        most = _MOST_OPTIONS if at else _MOST_WORDS
        return next((rule for rule in found if _may_be(rule.pattern, forms, most)), None)

    def refusing_expanded(
        self, action: Action, words: Sequence[str], expands: Collection[int]
    ) -> Rule | None:
        """Return a rule about a command in which patterns of a shell stand for names of files.

        `expands`: the places of those words. A file may be named `push`, or `-rf`.
        """
        if not any(expands):
            return None
        name = base(words[0].casefold())
        for rule in self._beginning(action, (words[0].casefold(), name)):
            named = [each for each in _words(rule.pattern)[1:] if each != "*"]
            given = list[str]()
            for at, word in enumerate(words):
                found = filter(names_of(word).fullmatch, named) if at in expands else ()
                given += list(found) or [word]
            if given != list(words) and _may_be(rule.pattern, [given]):
                return rule
        return None

    def refusing_any(
        self, action: Action, may_be: Callable[[str], object], words: Sequence[str]
    ) -> Rule | None:
        """Return a rule of the list about the command `words`, whose name is not known.

        `may_be` returns something true for a name that it may have.
        """
        firsts = [first for of, first in self._by_word if of is action and may_be(base(first))]
        found = (self.refusing(action, (first, *words[1:])) for first in firsts)
        return next(filter(None, found), None)

    def _beginning(
        self, action: Action, names: Iterable[str], *, inside: bool = False
    ) -> Iterator[Rule]:
        """Give the rules whose first word may be one of these names.

        `inside`: they do not begin the line. There a rule that begins with a star is not tried: it
        was at the line's beginning, as the star takes all that stands before.
        """
        for name in names:
            yield from self._by_word.get((action, name), ())
        for rule in self._any_word[action]:
            head = rule.pattern.lstrip("'\"").partition("*")[0]
            head = head if action is Action.ALLOW else head.casefold().removeprefix("./")
            if any(name.startswith(head) for name in names) if head else not inside:
                yield rule


def named_by(rule: Rule) -> tuple[str, ...]:
    """Return the words of the pattern of a rule about commands, its stars among them."""
    return _words(rule.pattern) if rule.pattern else ()


def _may_be(pattern: str, forms: Sequence[Sequence[str]], most: int = _MOST_WORDS) -> bool:
    """Return True if a pattern names a command in one of these forms, however options stand.

    `most`: how many words are compared where options may stand between those of the pattern.
    """
    first, *rest = _words(pattern)
    first = _plain(first) if "*" in first else base(first)
    given = (first.casefold(), *rest)
    whole = glob(pattern.casefold()) if not rest and "*" in first else None
    for words in forms:
        for each in dict.fromkeys((tuple(words), (base(words[0]), *words[1:]))):
            if whole is not None and whole.fullmatch(" ".join(each).casefold()):
                return True
            if whole is None and (_is_among(given, each, most) or _has_options(given, each, most)):
                return True
    return False


def _plain(program: str) -> str:
    """Return a program's path without what changes nothing, such as `./`."""
    return posixpath.normpath(program) if "/" in program else program


def _targets(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give a command with each of its targets as the first: `make test deploy` is `make deploy`."""
    end = words.index(";") if ";" in words else len(words)  # of a line that is not known
    for at in range(2, min(end, _MOST_OPTIONS)):
        if not words[at].startswith("-") and "=" not in words[at]:
            yield (words[0], *words[at:])


def _is_among(pattern: Sequence[str], words: Sequence[str], most: int) -> bool:
    """Return True if words are those of a pattern, perhaps with options and their values between.

    `git -C x push` is `git push`, and `gh pr -R x merge` is `gh pr merge`.
    """
    # how many words of the pattern were found, and if the next one may be the value of an option.
    states = {(0, False)}
    for at, word in enumerate(words[:most]):
        before, states = states, set()
        for found, valued in before:
            if pattern[found : found + 1] == ("*",) and _is_like(pattern[found:], words[at:]):
                return True
            if found < len(pattern) and glob(pattern[found]).fullmatch(word):
                states.add((found + 1, False))
            option = at and word[:1] in ("-", "+")
            if option and not (word == "--" and "".join(pattern[found:][:1]).startswith("-")):
                states.add((found, word[0] == "-" and word != "--" and "=" not in word))
            elif valued and not option:
                states.add((found, False))
        if not states:
            return False
    return len(words) <= most and any(_is_like(pattern[found:], ()) for found, _ in states)


def _has_options(pattern: Sequence[str], words: Sequence[str], most: int) -> bool:
    """Return True if a command has the options of a pattern, wherever they stand.

    `rm -rf x` is also `rm -fr x`, `rm x -r -f` and `rm --recursive --force x`.
    """
    wanted = [word.casefold() for word in pattern[1:] if word.startswith("-") and word != "--"]
    if not wanted or any("*" in word for word in wanted):
        return False
    words = words[: words.index(";")] if ";" in words else words  # of a line that is not known
    end = words.index("--") if "--" in words else len(words)
    given = [word.casefold() for word in words[1:end] if word.startswith("-")]
    short = set("".join(each for each in given if not each.startswith("--")))
    letters = short | set("".join(each[2:3] for each in given if each.startswith("--")))
    names = {each.partition("=")[0] for each in given}
    for each in wanted:
        bundled = _SHORT.fullmatch(each) and letters.issuperset(each[1:])
        if not (each in names or bundled or not short.isdisjoint(_shorter(words[0], each)[1:])):
            return False
    plain = tuple(word for word in pattern if not word.startswith("-"))
    others = [word for word in words[1:end] if not word.startswith("-")]
    all_words = (*words[:end], *words[end + 1 :])
    if _is_like(plain, (words[0], *others, *words[end + 1 :])):
        return True
    return any(_is_among(each, all_words, most) for each in (plain, _apart(pattern, words[:end])))


def _shorter(program: str, option: str) -> str:
    """Return the short option that is a program's long one; empty: none is known."""
    return _SHORTER.get(base(program), {}).get(option, "")


def _apart(pattern: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a pattern without options, and without their values that words have.

    `gh api -X DELETE` is also `gh api x -X DELETE`.
    """
    given_pairs = (pair for pair in pairwise(words) if pair[0].startswith("-"))
    pairs = {(before.casefold(), word.casefold()) for before, word in given_pairs}
    whole = {word.casefold() for word in words}
    found = list(pattern[:1])
    for before, word in pairwise(pattern):
        option, value = before.casefold(), word.casefold()
        known = [option, *filter(None, [_shorter(words[0], option)])] if option[:1] == "-" else []
        given = any(
            not whole.isdisjoint((each + value, f"{each}={value}"))
            or any(one.endswith(each.lstrip("-")) and two == value for one, two in pairs)
            for each in known
        )
        if not word.startswith("-") and not (given and "*" not in word):
            found.append(word)
    return tuple(found)


def _is_like(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Return True if words are those of a pattern; a `*` alone is any number of words.

    Where they differ, only the last star takes one word more: earlier ones can't help.
    """
    at, star, taken, given = 0, -1, 0, 0
    while given < len(words):
        if at < len(pattern) and pattern[at] == "*":
            star, taken, at = at, given, at + 1
        elif at < len(pattern) and glob(pattern[at]).fullmatch(words[given]):
            at, given = at + 1, given + 1
        elif star >= 0:
            taken += 1
            at, given = star + 1, taken
        else:
            return False
    return all(each == "*" for each in pattern[at:])


@lru_cache(maxsize=1024)
def _words(pattern: str) -> tuple[str, ...]:
    """Return the words of a rule's pattern, which `rules.config` has checked."""
    return tuple(shlex.split(pattern))


@lru_cache(maxsize=1024)
def glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern with stars; a piece matches where it can first."""
    first, *rest = map(re.escape, pattern.split("*"))
    middle = "".join(f"(?>.*?{each})" for each in rest[:-1])
    return re.compile(first + middle + "".join(f".*{each}" for each in rest[-1:]), re.DOTALL)


# --- addresses -----------------------------------------------------------------------------------


def is_from(pattern: str, url: str, *, below: bool) -> bool:
    """Return True if an address is of the domain in a rule's pattern; an empty one is of any.

    `below`, for refusals: domains below it count too, and any way in which programs may read it.
    """
    if not pattern:
        return True
    domain = _plain_host(pattern.removeprefix("domain:"))
    if below:
        hosts = {
            _host(url),
            _host(_FORGIVEN.sub(r"\1://", unquote(url).replace("\\", "/").strip())),
        }
        hosts |= {_host(f"https://{url}")} if "://" not in url else set()
        below_it = domain.removeprefix("*").removeprefix(".")
        only_below = domain.startswith("*.")
        return any(
            host.endswith(f".{below_it}") or (host == below_it and not only_below) for host in hosts
        )
    if not _PLAIN.fullmatch(url) or "\\" in url:
        return False
    host = _host(url)
    return host.endswith(domain[1:]) if domain.startswith("*.") else bool(host) and host == domain


def _host(url: str) -> str:
    try:
        return _plain_host(urlsplit(url).hostname or "")
    except ValueError:
        return ""


def _plain_host(host: str) -> str:
    """Return a host's name as it is looked up: in small letters, others than ASCII as `xn--`."""
    star = "*." if host.startswith("*.") else ""
    host = host.removeprefix("*.").lower()
    with suppress(UnicodeError):
        host = host.encode("idna").decode().lower()
    return star + host.rstrip(".")
