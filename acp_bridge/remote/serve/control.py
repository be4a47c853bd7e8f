"""The private socket of a running server, on which commands ask it to change its tokens.

Only the user may connect, and no agent, as on a bridge's socket. A connection carries one request
and its answer, a line each.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import anyio

from acp_bridge.core import errors
from acp_bridge.core.clients.rights import May
from acp_bridge.core.protocol import Json, as_object
from acp_bridge.core.runtime import waits
from acp_bridge.core.runtime.log import event
from acp_bridge.core.runtime.threads import in_thread
from acp_bridge.core.wire import jsonrpc
from acp_bridge.core.wire.jsonrpc import Decoder, Err, Malformed, Ok, RpcError
from acp_bridge.core.wire.stdio import Reader, Writer
from acp_bridge.remote.page.codes import Codes
from acp_bridge.remote.serve.local import Address
from acp_bridge.remote.serve.server import Server
from acp_bridge.remote.serve.tokens import FOLDER, Token, Tokens, Unusable, socket_of
from acp_bridge.sharing.listening import peers
from acp_bridge.sharing.listening.places import new_socket_path, private_folder

ADD, REMOVE, LIST = "add", "remove", "list"
#: the method that makes a login code for a page.
CODE: Final = "code"
#: the method by which a process says that a TCP connection of this machine is its own.
VOUCH: Final = "vouch"
#: seconds for one request and its answer.
_PATIENCE: Final = 5.0
#: the most bytes of a request.
_LONGEST: Final = 64 * 1024
#: seconds after which accepting is tried again when the system has no descriptor left.
_NO_ROOM: Final = 0.5


@contextmanager
def private_socket(home: Path, tokens: Tokens) -> Iterator[socket.socket]:
    """Yield a listening Unix socket, whose path is written into the lock of the tokens.

    It is removed at the end. Raises OSError.
    """
    path = new_socket_path(home, os.environ, home / FOLDER)
    private_folder(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        os.chmod(path, 0o600)  # before it listens, so that nobody has connected yet
        listener.listen()
        listener.setblocking(False)
        tokens.tell(str(path))
        yield listener
    finally:
        listener.close()
        with suppress(OSError):
            os.unlink(path)


class Control:
    """Answers the requests on a running server's private socket."""

    def __init__(self, tokens: Tokens, server: Server, codes: Codes, page: str) -> None:
        """`codes`: the login codes of the server's page; `page`: the URL of the page."""
        self._tokens, self._server = tokens, server
        self._codes, self._page = codes, page

    async def serve(self, listener: socket.socket) -> None:
        """Answer requests on a socket of `private_socket`, one at a time, until cancelled."""
        while True:
            await self._next(listener)

    async def _next(self, listener: socket.socket) -> None:
        await anyio.wait_readable(listener)
        try:
            connection, _ = listener.accept()
        except OSError as exc:
            event("remote.not_accepted", what=exc.strerror)
            await anyio.sleep(_NO_ROOM)
            return
        with connection, anyio.move_on_after(_PATIENCE):
            connection.setblocking(False)
            try:
                with anyio.fail_after(waits.PEER):
                    await in_thread(peers.check, connection, abandon_on_cancel=True)
            except (peers.Refused, TimeoutError, OSError) as why:
                event("remote.control_refused", what=why)
                return
            try:
                writing = os.dup(connection.fileno())
                await self._converse(Reader(connection.detach()), Writer(writing))
            except Exception as exc:  # one question is not to end the server
                errors.internal(exc, "a question on the private socket has failed")

    async def _converse(self, reader: Reader, writer: Writer) -> None:
        try:
            decoder, lines = Decoder(_LONGEST), list[Any]()
            while not lines and (data := await reader.read()):
                lines = decoder.feed(data)
            if lines:
                writer.write(jsonrpc.encode(await self._answer(lines[0])))
                await writer.flush(_PATIENCE)
        finally:
            reader.close()
            writer.close()

    async def _answer(self, line: Json | Malformed) -> Json:
        if isinstance(line, Malformed):
            return jsonrpc.error(None, line.error)
        id = line.get("id")
        try:
            return jsonrpc.response(
                id, await self._done(str(line.get("method")), as_object(line.get("params")))
            )
        except RpcError as exc:
            return jsonrpc.error(id, exc)
        except (Unusable, OSError) as exc:
            return jsonrpc.error(id, errors.refused(str(exc)))
        except (TypeError, ValueError, KeyError):
            return jsonrpc.error(id, errors.invalid("are not what is needed", "params"))

    async def _done(self, method: str, params: Json) -> Json:
        """Carry out a request, and return its result; raises as `done` does."""
        if method == VOUCH:
            self._server.vouch((str(params["address"]), int(params["port"])))
            return {}
        if method == CODE:
            name, may = str(params["name"]), May(params["may"])
            self._tokens.check_new(name)
            code = self._codes.make(name, may, anyio.current_time())
            event("remote.code", token=name, may=may)
            return {"code": code, "page": self._page}
        if method == REMOVE:
            return await self._removed(str(params["name"]))
        result = await in_thread(done, self._tokens, method, params)
        if method == LIST:
            for each in result["tokens"]:
                each["open"] = self._server.count(each["name"])
        return result

    async def _removed(self, name: str) -> Json:
        """Revoke the token of a name, drop its login codes, and end its connections.

        Raises Unusable if there is neither a token nor a code.
        """
        dropped = self._codes.drop(name, anyio.current_time())
        try:
            await in_thread(done, self._tokens, REMOVE, {"name": name})
        except Unusable:
            if not dropped:
                raise
        return {"ended": self._server.end(name)}


def done(tokens: Tokens, method: str, params: Json) -> Json:
    """Carry out a request of a command on the tokens, and return its result.

    Raises RpcError, Unusable, OSError, and TypeError, ValueError or KeyError for bad parameters.
    """
    match method:
        case "add":
            named, may = params["name"], May(params["may"])
            tokens.add(Token(named, may, str(params["made"]), str(params["hash"])))
            event("remote.token", token=named, may=may)
            return {}
        case "remove":
            removed = tokens.remove(str(params["name"]))
            event("remote.revoked", token=removed.name)
            return {}
        case "list":
            return {"tokens": [{**asdict(token), "open": 0} for token in tokens.all]}
        case "code":
            raise Unusable("no server runs: a code counts at the one that runs, for five minutes")
    raise errors.unknown_method(method)


def vouch(home: Path, own: Address) -> bool:
    """Vouch for this process's connection from `own` to the server of this home on this machine.

    Returns False if no server runs, or it can't be asked. It is to be called in a thread, before
    anything is sent over the connection.
    """
    path = socket_of(home)
    try:
        if path is not None:
            ask(path, VOUCH, {"address": own[0], "port": own[1]})
    except (OSError, peers.Refused, Unusable):
        return False
    return path is not None


def ask(path: str, method: str, params: Json) -> Json:
    """Send a request to a server's private socket at `path`, and return the result; blocks.

    Raises Unusable, OSError, and Refused if another process than the user's listens there.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2 * _PATIENCE)
        connection.connect(path)
        peers.check(connection)
        connection.sendall(jsonrpc.encode(jsonrpc.request(1, method, params)))
        with connection.makefile("rb") as lines:
            line = lines.readline()
    answer = jsonrpc.read_object(line)
    if answer is None:
        raise Unusable("the server that runs has not answered; its log says why")
    match jsonrpc.read_answer(answer):
        case Ok(result):
            return as_object(result)
        case Err(error):
            raise Unusable(error.message)
