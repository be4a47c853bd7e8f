"""Says why an agent did not come to a session: what happened, its last lines, and one thing to do.

Whatever starts an agent gives this answer: the bridge, for an editor, `chat` and `run`; and
`doctor`.

Invariants
- The words name the agent as the user has named it, and no other path. No text of the system's is
  in them.
- What the agent has written is masked before it is cut, and each line of it is one line.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from acp_bridge.core import errors
from acp_bridge.core.agents.process import Exit, Replaced, StartFailed
from acp_bridge.core.agents.stderr import as_shown, cut
from acp_bridge.core.protocol import INITIALIZE, ErrorCode
from acp_bridge.core.wire.jsonrpc import UNSET, RpcError, loads

if TYPE_CHECKING:
    from acp_bridge.core.agents.program_file import Fault

#: lines of stderr that are kept, the first and the last: enough to mask a private key as a whole.
_KEPT: Final = 200
#: bytes of stdout in which lines that are not ACP are looked for.
_HEAD: Final = 64 * 1024
#: how many of the last lines people are shown.
_LAST: Final = 3
#: exit codes by which shells and `env` say that a program can't be executed.
_NO_PROGRAM: Final = (126, 127)
#: how a line begins that says what went wrong.
_TELLS: Final = re.compile(
    r"(?!\s*-)\W*(?:[\w.-]+[:\s]\s*)?(?:error|fatal|panic|err!|unknown|unrecogni[sz]ed|unexpected|invalid"
    r"|missing|cannot|can't|could not|failed|usage error|[\w.]*(?:Error|Exception))\b"
    r"|.{0,60}?\b(?-i:ERROR|FATAL|CRITICAL)\b"  # a log's
    r'|.{0,200}?"(?:level|severity)"\s*:\s*(?:"(?:error|fatal|critical)"|[56]0\b)',
    re.IGNORECASE,
)
#: how the answer to a prompt begins that had an agent, and none that took its session.
NOT_READY: Final = "the agent could not be made ready"
#: what a process was asked that has ended before it had a session.
OPENS: Final = "the request for a session"
#: members of which a message of JSON-RPC has one.
_MESSAGE: Final = frozenset({"jsonrpc", "id", "method"})
#: how a StartFailed begins that is a whole sentence.
_THE_AGENT: Final = "the agent "
#: programs that fetch an agent before they start it.
_FETCHING: Final = frozenset({"npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "uvx", "uv", "pipx"})
#: the seconds that this may take, and the bytes that are read and written in each, at least.
FETCH: Final = 600
FETCHES: Final = 10_000
_TERMINAL: Final = "run the same command in a terminal, and read what it says"
_SPEAKS: Final = "does it speak ACP? Many agents need an argument for that, such as acp or --acp"
_TOO_OLD: Final = "update the agent: it may be too old"
#: the end of the arguments with which agents speak ACP.
_ARGUMENT: Final = "acp"
_MISSING: Final = (
    "install the program that it did not find; if a terminal finds that one, --login-shell-path on"
    " takes its PATH"
)


class Trouble(Struct, frozen=True):
    """Why an agent did not come to a session."""

    what: str
    #: what the agent has written, under headings.
    lines: tuple[str, ...] = ()
    advice: str = ""
    #: the message of the agent's own error; "" if it answered none.
    said: str = ""

    @property
    def details(self) -> str:
        """All of it, by lines."""
        return "\n".join(filter(None, (self.what, *self.lines, self.advice)))


class Attempt:
    """What was seen of one start of an agent."""

    def __init__(
        self,
        words: Sequence[str],
        name: str,
        folder: str | None = None,
        keys_in: Path | None = None,
        *,
        ours: bool = False,
    ) -> None:
        """`words`: the command. `name`: of the agent. `folder`: where it starts; None: here.

        `keys_in`: the data folder, whose keys are masked; None: there is none. `ours`: the agent is
        of this project: its errors say what to do, and its log is not for people.
        """
        self._ours = ours
        self._keys_in = keys_in
        self.words = tuple(words)
        self.name = os.path.basename(name) or name
        self._first = list[str]()
        self._last = deque[str](maxlen=_KEPT)
        self._folder = folder
        self._stdout = b""

    def note_stderr(self, line: str) -> None:
        """Note one line; of many the first and the last are kept."""
        (self._first if len(self._first) < _KEPT else self._last).append(line)

    def forget(self) -> None:
        """Forget what it wrote: it has come to a session."""
        self._first.clear()
        self._last.clear()
        self._stdout = b""

    def note_stdout(self, data: bytes) -> None:
        """Note what the agent has written to stdout; no more is kept than is needed."""
        if len(self._stdout) < _HEAD:
            self._stdout += data[: _HEAD - len(self._stdout)]

    @property
    def noise(self) -> list[str]:
        """The lines on stdout that are no messages; one that is not whole is left out."""
        lines = self._stdout.split(b"\n")
        if len(self._stdout) >= _HEAD:
            lines.pop()
        return [
            line.decode(errors="replace").strip()
            for line in lines
            if line.strip() and not _is_message(loads(line))
        ]

    # --- the kinds -----------------------------------------------------------------------------

    def not_started(self, failed: StartFailed, *, spoke: bool) -> Trouble:
        """Return why no process came of it, or none that can be used; reads a disk.

        `spoke`: the process has started, and speaks no version of ACP that the bridge does.
        """
        if isinstance(failed, Replaced):  # what reads tables may be gone, too
            return Trouble(f"the agent could not be started: {failed}")
        fault = self._fault()
        if failed.by_file and fault is not None:
            advice = self._advice(missing=True) or fault.advice
            return Trouble(f"the agent could not be started: {fault.what}", (), advice)
        said = str(failed)
        whole = f"the agent could not be started: {said}"
        if said.startswith(_THE_AGENT):
            whole = f"{self.name} {said.removeprefix(_THE_AGENT)}"
        return Trouble(whole, self._written(), self._advice() or (_TOO_OLD if spoke else ""))

    def ended(
        self, exit_: Exit | None, method: str = INITIALIZE, *, cut_off: bool = False
    ) -> Trouble:
        """Return why its process has ended before it answered `method`; reads a disk.

        `cut_off`: it had closed its stdin or stdout, and was killed for that.
        """
        if cut_off:
            what = f"{self._who_wrote} closed its stdin or stdout before it answered {method}"
            return Trouble(what, self._written(), self._advice() or _TERMINAL)
        if exit_ and exit_.code in _NO_PROGRAM:
            fault = self._fault(ran=True)
            if fault is not None:
                return Trouble(f"the agent could not be started: {fault.what}", (), fault.advice)
        how = f" ({exit_.describe()})" if exit_ else ""
        return Trouble(
            f"{self._who_wrote} ended before it answered {method}{how}",
            self._written(),
            self._advice() or self._after(exit_, method),
        )

    def _after(self, exit_: Exit | None, method: str) -> str:
        """Return what to do about an agent of which no more is known than how it ended.

        One that is content with what it was asked, and has not a word for it, speaks no ACP.
        """
        content = method == INITIALIZE and exit_ is not None and exit_.code == 0
        if self.noise or (content and not self._first):
            return self._speaks
        return _MISSING if exit_ and exit_.code == _NO_PROGRAM[1] else _TERMINAL

    @property
    def _speaks(self) -> str:
        """What to do about a program that seems not to speak ACP."""
        return _TOO_OLD if any(word.endswith(_ARGUMENT) for word in self.words[1:]) else _SPEAKS

    def silent(self, seconds: float, method: str = INITIALIZE) -> Trouble:
        """Return why it is given up after `seconds` without an answer to `method`; reads a disk."""
        return Trouble(
            f"{self._who_wrote} did not answer {method} within {seconds:g} s",
            self._written(),
            self._advice() or (self._speaks if method == INITIALIZE else _TERMINAL),
        )

    def refused(self, refusal: RpcError, method: str = INITIALIZE) -> Trouble:
        """Return what it says by an error as its answer to `method`; reads a disk."""
        mask = self._mask()
        said = message = cut(mask(refusal.message))
        details = errors.details(refusal.data)
        if details and details != refusal.message:
            said += f": {cut(mask(details))}"
        advice = _TOO_OLD if method == INITIALIZE else _TERMINAL
        what = f"{self.name} answered {method} with an error: {said}"
        if self._ours:
            return Trouble(what, said=message)
        return Trouble(what, self._written(), self._advice() or advice, message)

    def beside(self, what: str) -> Trouble:
        """Return a failure that has its own words, `what`, with what the agent wrote."""
        return Trouble(what, self._written())

    @property
    def _who_wrote(self) -> str:
        """The beginning of a sentence: the agent, and that it wrote what is not ACP if it did."""
        return f"{self.name} wrote something that is not ACP, and" if self.noise else self.name

    def _advice(self, *, missing: bool = False) -> str:
        """Return what the table of known agents advises; "" for nothing."""
        from acp_bridge.core.agents.known_agents import advice_for

        return advice_for(self.words, missing=missing)

    def _fault(self, *, ran: bool = False) -> Fault | None:
        from acp_bridge.core.agents.program_file import fault_of

        return fault_of(self.words[0], os.environ.get("PATH", ""), self._folder, ran=ran)

    def _mask(self) -> Callable[[str], str]:
        """Return what masks the secrets of the environment, the command, and all that looks so."""
        from acp_bridge.core.keys.masking import Mask

        return Mask.of(os.environ, self._keys_in, self.words).text

    def _written(self) -> tuple[str, ...]:
        """Return the lines that tell most of what it wrote, under headings."""
        lines: list[str] = []
        if err := telling([*self._first, *self._last], mask := self._mask()):
            lines += ["the last lines of its stderr:", *err]
        if out := telling(self.noise, mask):
            lines += ["what it wrote to stdout:", *out]
        return tuple(lines)


def _is_message(value: object) -> bool:
    """Return True for a message of JSON-RPC, well made or not, or several."""
    return isinstance(value, list) or (isinstance(value, dict) and not _MESSAGE.isdisjoint(value))


def fetches(words: Sequence[str]) -> bool:
    """Return True if a command's program may fetch the agent before it starts it."""
    return os.path.basename(words[0]) in _FETCHING


def telling(lines: Iterable[str], mask: Callable[[str], str]) -> list[str]:
    """Return the last three lines with words, behind the first that says what went wrong.

    If no line says that, behind the first line. Each is as a terminal shows it, indented, and cut
    to 300 characters. `mask`: masks secrets in the whole text.
    """
    text = mask("\n".join(map(as_shown, lines)))
    whole = [line for line in text.split("\n") if line.strip()]
    before, shown = whole[:-_LAST], whole[-_LAST:]
    at = next((at for at, line in enumerate(whole) if _TELLS.match(line)), 0)
    if at < len(before):
        shown = [before[at], *(["..."] if at + 1 < len(before) else []), *shown]
    return [f"  {cut(line)}" for line in shown]


class NotReady(RpcError):
    """The error that a client gets; its `data.details` has all of the trouble."""

    def __init__(self, trouble: Trouble, refusal: RpcError | None = None) -> None:
        """`refusal`: the agent's own error, whose code and other data this one keeps."""
        code = refusal.code if refusal else ErrorCode.INTERNAL_ERROR
        super().__init__(code, trouble.said or trouble.what)
        self.trouble = trouble
        data = refusal.data if refusal else {}
        if not isinstance(data, dict):
            data = {} if data is UNSET or isinstance(data, str) else {"data": data}
        self.data = {**data, "details": trouble.details}

    def as_own(self) -> RpcError:
        """Return an error of the bridge's own that says the same, as the answer to a prompt."""
        error = errors.agent_trouble(self.trouble.what)
        error.data["details"] = self.trouble.details
        return error
