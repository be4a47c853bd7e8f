"""Arguments and environment -> a command. `serve`, the default, takes the short way: nothing is
imported for it that it doesn't need."""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from acp_bridge import __version__, log
from acp_bridge.settings import Delivery, OnCancel, ReloadAfterCancel, Settings

_HELP = """\
usage: acp-bridge [OPTIONS] [-- COMMAND ARGS...]
       acp-bridge demo

Start this instead of an ACP agent: it never loses a prompt, stops when told to, and outlives
the agent behind it. It speaks the Agent Client Protocol (version 1) on stdin and stdout.

  acp-bridge                        the built-in agent
  acp-bridge -- codex-acp           any other ACP agent
  acp-bridge demo                   show it working, offline, in under 20 seconds

options (and the environment variables that set them):
  --delivery queue|interrupt        a prompt that comes during a turn waits for its end, or
                                    cancels it (ACP_BRIDGE_DELIVERY; default queue)
  --on-cancel keep|clear            a cancel leaves the prompts that wait, or cancels them
                                    too (ACP_BRIDGE_ON_CANCEL; default keep)
  --drain-timeout SECONDS           how long an agent may take to stop before it is killed
                                    and restarted (ACP_BRIDGE_DRAIN_TIMEOUT; default 2)
  --reload-after-cancel unclean|always
                                    restart the agent only after a cancel that went wrong, or
                                    after each (ACP_BRIDGE_RELOAD_AFTER_CANCEL; default unclean)
  --model MODEL                     the built-in agent's model as LiteLLM names it, such as
                                    anthropic/claude-sonnet-5-5; or demo, or scripted:FILE
                                    (ACP_BRIDGE_MODEL; default the first whose key is there,
                                    else demo)
  --home FOLDER                     where sessions are kept (ACP_BRIDGE_HOME)
  --log-file FILE                   the log; without it, stderr (ACP_BRIDGE_LOG_FILE)
  --log-level LEVEL                 debug, info, warning or error (ACP_BRIDGE_LOG_LEVEL;
                                    default warning on stderr, info in a file)
  --version, --help

The built-in agent takes keys from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, ...) or
from keys.env in its data folder; 'python -m agent --help' says more.

In a session, /queue shows what waits; /queue run and /queue drop decide about prompts that
were held when a bridge was killed.

exit code: 0 the client ended the session, 1 a demo step failed, 2 wrong usage.
"""
_Enum = TypeVar("_Enum", Delivery, OnCancel, ReloadAfterCancel)
#: commands that start another one: the agent's name is what they start.
_LAUNCHERS = frozenset({"npx", "bunx", "uvx", "pipx", "node", "bun", "deno", "env"})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"acp-bridge: {message}\nTry 'acp-bridge --help'.\n")
        raise SystemExit(2)


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say; returns the exit code."""
    if list(arguments[:1]) == ["demo"]:
        from acp_bridge.demo import main

        return main(arguments[1:])
    own, command = _split(arguments)
    try:
        options = _options(own, os.environ)
        settings = _settings(options, command, os.environ)
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else 2
    return _serve(settings, options)


def _serve(settings: Settings, options: argparse.Namespace) -> int:
    file = Path(options.log_file) if options.log_file else None
    level = options.log_level or ("info" if file else "warning")
    try:
        log.configure(level, file)
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: the log file can't be written: {exc.strerror}\n")
        return 2
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(
            "acp-bridge speaks ACP on stdin and stdout: an editor starts it."
            " 'acp-bridge demo' shows it working; Ctrl-D ends.\n"
        )
    # A worker thread that merges the journal must not hold the event loop up for 5 ms.
    sys.setswitchinterval(0.0005)
    import anyio

    from acp_bridge.bridge import serve
    from acp_bridge.wire.stdio import claim_stdio

    try:
        stdin, stdout = claim_stdio()
    except OSError as exc:
        sys.stderr.write(f"acp-bridge: {exc.strerror}\n")
        return 2
    # What is loaded now stays; messages die by their counts, so cycles are looked for rarely.
    gc.freeze()
    gc.set_threshold(50_000)
    anyio.run(serve, settings, stdin, stdout)
    return 0


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    words = list(arguments)
    if "--" not in words:
        return words, []
    at = words.index("--")
    if not words[at + 1 :]:
        return [*words[:at], "--"], []
    return words[:at], words[at + 1 :]


def _options(arguments: list[str], env: Mapping[str, str]) -> argparse.Namespace:
    parser = _Parser(prog="acp-bridge", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    for name in ("delivery", "on-cancel", "drain-timeout", "reload-after-cancel", "model"):
        parser.add_argument(f"--{name}", default=env.get(_variable(name)))
    for name in ("home", "log-file", "log-level"):
        parser.add_argument(f"--{name}", default=env.get(_variable(name)))
    options, rest = parser.parse_known_args(arguments)
    if options.help:
        print(_HELP, end="")
        raise SystemExit(0)
    if options.version:
        print(f"acp-bridge {__version__}")
        raise SystemExit(0)
    if rest == ["--"]:
        parser.error("there is no command after --")
    if rest:
        hint = "" if rest[0].startswith("-") else f"; to run an agent: acp-bridge -- {rest[0]}"
        parser.error(f"unknown argument {rest[0]!r}{hint}")
    if (options.log_level or "info").lower() not in ("debug", "info", "warning", "error"):
        parser.error("--log-level: choose from debug, info, warning, error")
    return options


def _variable(option: str) -> str:
    return "ACP_BRIDGE_" + option.upper().replace("-", "_")


def _settings(options: argparse.Namespace, command: list[str], env: Mapping[str, str]) -> Settings:
    from platformdirs import user_data_dir

    if command and options.model and "ACP_BRIDGE_MODEL" not in env:
        _fail("--model is the built-in agent's; give it to the command after -- instead")
    builtin = [sys.executable, "-I", "-m", "agent"]
    if options.model:
        builtin += ["--model", options.model]
    if options.home:
        builtin += ["--home", str(Path(options.home).expanduser().absolute())]
    return Settings(
        command=tuple(command or builtin),
        agent_name=agent_name(command) if command else "built-in",
        home=Path(options.home or user_data_dir("acp-bridge", appauthor=False)).expanduser(),
        builtin=not command,
        delivery=_choice(Delivery, "delivery", options.delivery) or Delivery.QUEUE,
        on_cancel=_choice(OnCancel, "on-cancel", options.on_cancel) or OnCancel.KEEP,
        reload_after_cancel=_choice(
            ReloadAfterCancel, "reload-after-cancel", options.reload_after_cancel
        )
        or ReloadAfterCancel.UNCLEAN,
        drain_timeout=_seconds(options.drain_timeout),
    )


def agent_name(command: Sequence[str]) -> str:
    """The name under which an agent's sessions are kept: the program, not its options, so that
    another option doesn't hide them, and no secret of a command line is stored."""
    name = Path(command[0]).name
    if name in _LAUNCHERS or name.startswith("python"):
        # No option, no setting, and no address, which may hold a password.
        words = [word for word in command[1:] if not re.match(r"-|.*(=|://)", word)]
        if words:
            return Path(words[0]).name if words[0].startswith(("/", ".")) else words[0]
    return name


def _choice(kind: type[_Enum], name: str, value: str | None) -> _Enum | None:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        _fail(f"--{name}: choose from {', '.join(kind)}")


def _seconds(value: str | None) -> float:
    try:
        seconds = float(value) if value is not None else 2.0
    except ValueError:
        seconds = -1.0
    if not 0.05 <= seconds <= 600:
        _fail("--drain-timeout: a number of seconds from 0.05 to 600")
    return seconds


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"acp-bridge: {message}\nTry 'acp-bridge --help'.\n")
    raise SystemExit(2)
