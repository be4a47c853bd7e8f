"""Checks the parameters of clients' requests; each function raises RpcError -32602 for bad ones."""

from __future__ import annotations

import os
import re
from typing import Final

from acp_bridge.core import errors
from acp_bridge.core.history import HISTORY, History, history_of
from acp_bridge.core.protocol import CLIENT_NAME, PROMPT_KEY, Json, as_object, own_meta, without
from acp_bridge.core.session.opening import Workspace
from acp_bridge.core.sessions import mcp_servers

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{16,128}")
_HALF_OF_A_PAIR: Final = re.compile(r"[\ud800-\udfff]")


def session_id(params: Json) -> str:
    """Return the member `sessionId` of `params`, which must be a string."""
    found = params.get("sessionId")
    if not isinstance(found, str):
        raise errors.invalid("must be a string", "sessionId")
    return found


def names(params: Json) -> None:
    """Check the session's id and the folders in `params`, if they have any, for odd characters.

    Half of a surrogate pair is refused: JSON allows it, but neither the journal nor a file's name
    takes it. So is a null character in a folder.
    """
    roots = params.get("additionalDirectories")
    folders = {"cwd": params.get("cwd")}
    folders |= {
        f"additionalDirectories.{number}": root
        for number, root in enumerate(roots if isinstance(roots, list) else ())
    }
    for where, name in {"sessionId": params.get("sessionId"), **folders}.items():
        if not isinstance(name, str):
            continue
        if _HALF_OF_A_PAIR.search(name):
            raise errors.invalid("must be Unicode, without half of a surrogate pair", where)
        if where in folders and "\0" in name:
            raise errors.invalid("no folder has a null character in its path", where)


def workspace(params: Json) -> Workspace:
    """Return the workspace that a request names: `cwd`, additional roots and MCP servers."""
    cwd, roots = params.get("cwd"), params.get("additionalDirectories")
    servers = mcp_servers.read(params.get("mcpServers"))
    roots = None if roots == {} else roots
    if not isinstance(cwd, str) or not os.path.isabs(cwd):
        raise errors.invalid("must be an absolute path", "cwd")
    if servers is None:
        raise errors.invalid("must be a list", "mcpServers")
    if roots is not None:
        if not isinstance(roots, list):
            raise errors.invalid("must be a list", "additionalDirectories")
        for number, root in enumerate(roots):
            if not isinstance(root, str) or not os.path.isabs(root):
                raise errors.invalid("must be an absolute path", f"additionalDirectories.{number}")
    extra = without(params, "cwd", "additionalDirectories", "mcpServers", "sessionId")
    return Workspace(cwd, None if roots is None else tuple(roots), tuple(servers), extra)


def prompt(params: Json) -> list[Json]:
    """Return the member `prompt` of `params`: content blocks, at least one."""
    blocks = params.get("prompt")
    if not isinstance(blocks, list) or not blocks:
        raise errors.invalid("must be a list of content blocks, not empty", "prompt")
    for number, block in enumerate(blocks):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise errors.invalid("must be an object with a type", f"prompt.{number}")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise errors.invalid("must be a string", f"prompt.{number}.text")
    return blocks


def prompt_key(params: Json) -> None:
    """Check the key in the `_meta` of a prompt, if there is one: a text of 1 to 255 characters."""
    own = own_meta(params)
    if PROMPT_KEY in own and not (
        isinstance(own[PROMPT_KEY], str) and 0 < len(own[PROMPT_KEY]) < 256
    ):
        raise errors.invalid("the prompt's key must be a text of 1 to 255 characters")


def client_name(params: Json) -> None:
    """Check the client's name in the parameters of its `initialize`, if there is one."""
    own = own_meta(as_object(params.get("clientCapabilities")))
    if CLIENT_NAME in own and not (
        isinstance(own[CLIENT_NAME], str) and _NAME.fullmatch(own[CLIENT_NAME])
    ):
        raise errors.invalid("the client's name must be 16 to 128 of A-Z a-z 0-9 _ -")


def history(params: Json) -> History:
    """Return how much of a session the parameters of `_acp_bridge/attach` ask for."""
    found = history_of(params)
    if found is None:
        raise errors.invalid('must be "full", "pending" or "none"', HISTORY)
    return found


def listing(params: Json) -> tuple[str | None, str | None]:
    """Return `cwd` and `cursor` of the parameters of `session/list`, each None if not given."""
    cwd, cursor = params.get("cwd"), params.get("cursor")
    if cwd is not None and not (isinstance(cwd, str) and os.path.isabs(cwd)):
        raise errors.invalid("must be an absolute path", "cwd")
    if cursor is not None and not (isinstance(cursor, str) and cursor[:2] in ("j:", "a:")):
        raise errors.invalid("not a cursor of ours", "cursor")
    return cwd, cursor


def version(params: Json) -> int:
    """Return the `protocolVersion` of the parameters of `initialize`, an integer."""
    found = params.get("protocolVersion")
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= 65535:
        raise errors.invalid("must be an integer from 0 to 65535", "protocolVersion")
    return found
