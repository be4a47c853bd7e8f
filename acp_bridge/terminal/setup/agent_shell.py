"""The settings of agent-shell, a package of Emacs: one agent configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from acp_bridge.terminal.setup.editor import Editor, Launch, in_config, in_home

_SNIPPET: Final = """\
(with-eval-after-load 'agent-shell
  (add-to-list 'agent-shell-agent-configs
               (agent-shell-make-agent-config
                :identifier '{identifier}
                :mode-line-name {name} :buffer-name {name}
                :shell-prompt {prompt} :shell-prompt-regexp {prompt}
                :client-maker (lambda (buffer)
                                (acp-make-client :command {program}{parameters}
                                                 :context-buffer buffer))))
  (setq agent-shell-preferred-agent-config '{identifier}))
"""
_PARAMETERS: Final = """
                                                 :command-params '({words})"""


def _snippet(launch: Launch) -> str:
    identifier = launch.identifier("-")
    words = " ".join(map(_quoted, launch.args))
    return _SNIPPET.format(
        identifier=identifier,
        name=_quoted(identifier),
        prompt=_quoted(f"{identifier}> "),
        program=_quoted(launch.program),
        parameters=_PARAMETERS.format(words=words) if words else "",
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _file(env: Mapping[str, str]) -> str:
    """Return the path of the settings file that Emacs reads, or would read if it were made."""
    for name in (".emacs.el", ".emacs"):
        if Path(only := in_home(env, name)).exists():
            return only
    folder, new = in_home(env, ".emacs.d"), in_config(env, "emacs")
    if Path(new).is_dir() and not Path(folder).exists():
        return str(Path(new, "init.el"))
    return str(Path(folder, "init.el"))


EDITOR: Final = Editor(
    title="Emacs, with agent-shell",
    snippet=_snippet,
    file=_file,
    then=lambda launch: "Evaluate it, or start Emacs again; then M-x agent-shell.",
    why_not="Emacs' settings are a program, which can't be edited safely.",
)
