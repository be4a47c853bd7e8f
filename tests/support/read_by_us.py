"""Compares what our own readers read of others' messages with the models of an SDK.

A list names, for each model, the members that we read and those that we leave, and the version of
the SDK that it was compared with. A member that a model gains is seen here, not by a user.
"""

import json
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any


class ReadByUs:
    """A list in a file."""

    def __init__(self, file: Path) -> None:
        self.listed: dict[str, Any] = json.loads(file.read_text("utf-8"))
        self._file = file.name

    @property
    def models(self) -> list[str]:
        return list(self.listed["models"])

    def compare(self, sdk: ModuleType, name: str) -> None:
        """Fail if the model of this name has other members than those that are listed."""
        fields = getattr(sdk, name).model_fields
        members = {field.alias or member for member, field in fields.items()}
        listed = self.listed["models"][name]
        assert not {*listed["read"]} & {*listed["left"]}
        others = members ^ {*listed["read"], *listed["left"]}
        package = self.listed["package"]
        assert not others, (
            f"{name} of {package} {version(package)} has other members than"
            f" {self.listed['version']}. Read or leave {others}, and"
            f" list them in {self._file}"
        )

    def compare_version(self) -> None:
        """Fail if another version of the SDK is installed than the one that was compared."""
        assert version(self.listed["package"]) == self.listed["version"]
