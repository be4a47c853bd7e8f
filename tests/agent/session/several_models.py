"""Models to choose from, in memory."""

from collections.abc import Sequence

import anyio

from agent.model import Model, ModelChoice, ModelError, ModelInfo
from agent.scripted.dialogue import parse_dialogue
from agent.scripted.scripted_model import ScriptedModel


class Known(ScriptedModel):
    """What is known of it is found out once the test sets `imported`."""

    def __init__(self, dialogue: str, id: str, info: ModelInfo) -> None:
        super().__init__(parse_dialogue(dialogue), id, info)
        self.imported = anyio.Event()
        #: that it was asked so many times more what it can do
        self.asked = [anyio.Event() for _ in range(30)]
        self._count = iter(self.asked)

    async def info(self) -> ModelInfo:
        next(self._count).set()
        await self.imported.wait()
        return await super().info()


class SeveralModels:
    """The first one is the default; a test can take the `keys` of models away."""

    def __init__(self, *models: Model) -> None:
        self.default = models[0].id
        self.keys = {model.id for model in models}
        #: the models that are not offered and may be chosen all the same
        self.others: set[str] = set()
        #: what was opened: (model, thought level)
        self.opened: list[tuple[str, str | None]] = []
        self.warmed = anyio.Event()
        self._models = {model.id: model for model in models}

    def offered(self) -> Sequence[ModelChoice]:
        shown = self.keys - self.others
        return [ModelChoice(each, each.title()) for each in self._models if each in shown]

    def takes(self, model_id: str) -> bool:
        return model_id in self.others

    async def warm(self) -> None:
        self.warmed.set()

    def open(self, model_id: str, thought_level: str | None = None) -> Model:
        if model_id not in self.keys:
            raise ModelError(f"{model_id} needs a key: set SOME_API_KEY.", "missing_key")
        self.opened.append((model_id, thought_level))
        return self._models[model_id]


def several(*names: str, dialogue: str = "turn\ntext: fine") -> SeveralModels:
    """Models of these names that say the same."""
    return SeveralModels(*(ScriptedModel(parse_dialogue(dialogue), name) for name in names))


def thinker(name: str, *levels: str, dialogue: str = "turn\ntext: fine") -> ScriptedModel:
    """A model with thought levels."""
    return ScriptedModel(parse_dialogue(dialogue), name, ModelInfo(thought_levels=levels))
