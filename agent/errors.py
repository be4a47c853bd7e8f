"""The errors that a client is answered with; no other module of the agent names a code.

    code     function          the client is told
    -32600   not_initialized   a request came before `initialize`
    -32601   unknown_method    an extension's method that this agent doesn't have
    -32602   invalid_params    a parameter is malformed or unknown, or this agent can't take it
    -32800   request_cancelled the client took the request back, or closed its session
    -32002   unknown_session   there is no session with that id
    -32000   auth_required     the key of a model's provider is missing
    -32603   model_failed      the model could not answer, and why; a key that was refused too
    -32603   request_error     a server that the agent drives failed, and why (ServiceError)
    -32603   disk_failed       the disk failed, in the system's words, without a path
    -32603   no_thread         the user runs too many processes
    -32603   internal_error    anything else failed, such as the agent itself

`request_error` turns whatever a request raised into one of them. What is no request at all (-32700,
-32600) is answered by `agent.serve.sdk_transport`, any other unknown method (-32601) by the SDK.

Invariants
- No exception's text reaches the wire but a ModelError's and a ServiceError's, which are made for
  the user. An error carries its code and a message of ours, which holds the places of the wrong
  parameters, or the id under which the log has the rest.
- `data` is `{"details": the message}`, because that is what clients show; it is never null, because
  there are clients that die of it (invariant P16). Only a usage limit has more: `"errorKind":
  "rate_limit"`, as claude-agent-acp names it, and, if the provider has told, `"resetsAt"`, in
  seconds since 1970.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import time
import uuid
from collections.abc import Callable

from acp import RequestError
from pydantic import ValidationError

from acp_bridge.core.protocol import ErrorCode
from agent.model import ModelError

logger = logging.getLogger(__name__)

#: errors of a disk, its rights or a path, which the user can mend
_OF_THE_DISK = frozenset(
    {
        *(errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EIO),
        *(errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),
    }
)
#: how many wrong places in one request are listed
_PLACES = 5
#: characters of a ServiceError's text
_LONGEST = 500


class ServiceError(Exception):
    """A server that the agent drives failed; the text is for the user.

    `auth`: the server refuses the key.
    """

    def __init__(self, sentence: str, *, auth: bool = False) -> None:
        super().__init__(sentence)
        self.auth = auth


def not_initialized() -> RequestError:
    message = "Invalid request: not initialized; send initialize first"
    return _error(ErrorCode.INVALID_REQUEST, message)


def invalid_params(problem: str) -> RequestError:
    return _error(ErrorCode.INVALID_PARAMS, f"Invalid params: {problem}")


def unknown_method(method: str) -> RequestError:
    return _error(ErrorCode.METHOD_NOT_FOUND, f"Method not found: {method[:200]}")


def request_cancelled() -> RequestError:
    return _error(ErrorCode.REQUEST_CANCELLED, "Request cancelled")


def unknown_session() -> RequestError:
    return _error(ErrorCode.RESOURCE_NOT_FOUND, "Unknown session")


def auth_required(sentence: str) -> RequestError:
    return _error(ErrorCode.AUTH_REQUIRED, sentence)


def model_failed(sentence: str, error: Exception) -> RequestError:
    """Returns the error for a model's failure; `error` is only logged, but for its kind."""
    message = f"{sentence} {_logged(error)}"
    if not isinstance(error, ModelError) or error.kind != "rate_limit":
        return _error(ErrorCode.INTERNAL_ERROR, message)
    data: dict[str, object] = {"details": message, "errorKind": "rate_limit"}
    if error.wait is not None:
        data["resetsAt"] = math.ceil(time.time() + error.wait)
    return RequestError(int(ErrorCode.INTERNAL_ERROR), message, data)


def disk_failed(number: int, error: Exception) -> RequestError:
    """Returns the error for a failed disk; `number`: its errno. `error` is only logged."""
    message = (
        f"A file can't be used: {os.strerror(number)}. `acp-bridge doctor` in a terminal looks at"
        f" the folder where sessions are kept. {_logged(error)}"
    )
    return _error(ErrorCode.INTERNAL_ERROR, message)


def no_thread(error: Exception) -> RequestError:
    """Returns the error for a system that lets the agent start no thread; `error` is logged."""
    message = (
        "The system has no room for one more thread: end some programs, or raise your limit"
        f" (ulimit -u). {_logged(error)}"
    )
    return _error(ErrorCode.INTERNAL_ERROR, message)


def internal_error(error: Exception) -> RequestError:
    """Returns the error for an unexpected exception, which is only logged."""
    return _error(ErrorCode.INTERNAL_ERROR, f"Internal error. {_logged(error)}")


def request_error(error: Exception, mask: Callable[[str], str]) -> RequestError:
    """Returns the error for a request that raised `error`, whose details are logged.

    `mask` removes secrets from a sentence.
    """
    match error:
        case RequestError():
            return RequestError(error.code, str(error), {"details": str(error)})
        case ValidationError():
            return invalid_params(_places(error))
        case ModelError(kind="missing_key"):
            logger.info("%s", error, exc_info=error)
            return auth_required(mask(str(error)))
        case ModelError():
            return model_failed(mask(str(error)), error)
        case ServiceError():
            logger.info("%s", error, exc_info=error)
            code = ErrorCode.AUTH_REQUIRED if error.auth else ErrorCode.INTERNAL_ERROR
            return _error(code, mask(str(error))[:_LONGEST])
        case OSError(errno=int(number)) if number in _OF_THE_DISK:
            return disk_failed(number, error)
        case RuntimeError(args=("can't start new thread",)):
            return no_thread(error)
    return internal_error(error)


def _error(code: ErrorCode, message: str) -> RequestError:
    return RequestError(int(code), message, {"details": message})


def _places(error: ValidationError) -> str:
    """Returns the path of each wrong parameter and what is wrong there, without its value."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in found[:_PLACES])
    return "; ".join(told)


def _logged(error: Exception) -> str:
    """Logs the error under a new id and returns the sentence that names the id.

    Commands of acp-bridge know this sentence, and add where the log is.
    """
    error_id = uuid.uuid4().hex[:12]
    logger.error("error id=%s", error_id, exc_info=error)
    return f"(The log has more under id {error_id}.)"
