"""Keeps the user's secrets out of texts, logs and the processes of tools.

Invariants
- A secret is masked wherever it is in a text: whole, line by line if it has several, escaped as in
  JSON or in a URL, and also where a limit has cut it in two.
- When a text is shown piece by piece, what is shown so far is the beginning of the masked whole,
  wherever it was cut. Only an end that may still become a secret is delayed.
- A tool's process gets the user's environment without the keys of models.
"""

from __future__ import annotations

from agent.secrets.masking import MASK, Secrets
from agent.secrets.model_keys import child_environment, emptied_keys, is_model_key

__all__ = ["MASK", "Secrets", "child_environment", "emptied_keys", "is_model_key"]
