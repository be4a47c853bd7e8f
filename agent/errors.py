"""The errors that a client is answered with; no other module of the agent names a code.

    code     function          the client is told
    -32600   not_initialized   a request came before `initialize`
    -32602   invalid_params    a parameter is malformed or unknown, or this agent can't take it
    -32002   unknown_session   there is no session with that id
    -32000   auth_required     the key of a model's provider is missing or was refused
    -32603   model_failed      the model could not answer, and why
    -32603   internal_error    anything else failed, such as the disk or the agent itself

`request_error` turns whatever a request raised into one of them. What is no request at all (-32700,
-32600) is answered by `agent.serve.sdk_transport`, an unknown method (-32601) by the SDK.

Invariants
- No exception's text reaches the wire but a ModelError's, which is a sentence of ours. An error
  carries its code, a message of ours, and at most the places of the wrong parameters or the id
  under which the log has the details.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

from acp import RequestError
from pydantic import ValidationError

from acp_bridge.protocol import ErrorCode
from agent.model import ModelError

logger = logging.getLogger(__name__)


def not_initialized() -> RequestError:
    return _error(ErrorCode.INVALID_REQUEST, "Invalid request: not initialized")


def invalid_params(problem: str = "", data: dict[str, Any] | None = None) -> RequestError:
    message = f"Invalid params: {problem}" if problem else "Invalid params"
    return _error(ErrorCode.INVALID_PARAMS, message, data)


def unknown_session() -> RequestError:
    return _error(ErrorCode.RESOURCE_NOT_FOUND, "Unknown session")


def auth_required(sentence: str) -> RequestError:
    return _error(ErrorCode.AUTH_REQUIRED, sentence)


def model_failed(sentence: str, error: Exception) -> RequestError:
    """`error` goes to the log only."""
    return _error(ErrorCode.INTERNAL_ERROR, sentence, _logged(error))


def internal_error(error: Exception) -> RequestError:
    """`error` goes to the log only."""
    return _error(ErrorCode.INTERNAL_ERROR, "Internal error", _logged(error))


def request_error(error: Exception, mask: Callable[[str], str]) -> RequestError:
    """Returns the error that answers a request which raised `error`, and logs the rest.

    `mask` takes secrets out of a sentence.
    """
    match error:
        case RequestError():
            return error
        case ValidationError():
            return invalid_params(data={"errors": _places(error)})
        case ModelError(kind="auth"):
            logger.info("%s", error, exc_info=error)
            return auth_required(mask(str(error)))
        case ModelError():
            return model_failed(mask(str(error)), error)
    return internal_error(error)


def _error(code: ErrorCode, message: str, data: dict[str, Any] | None = None) -> RequestError:
    return RequestError(int(code), message, data)


def _places(error: ValidationError) -> list[dict[str, Any]]:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return [{"loc": list(each["loc"]), "msg": each["msg"]} for each in found]


def _logged(error: Exception) -> dict[str, str]:
    """Logs the error under a new id and returns the id as the data of an answer."""
    error_id = uuid.uuid4().hex[:12]
    logger.error("error %s", error_id, exc_info=error)
    return {"id": error_id}
