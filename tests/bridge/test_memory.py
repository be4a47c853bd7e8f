"""What becomes of the agent's own memory at the user's word."""

from pathlib import Path

import pytest

from acp_bridge.journal.errors import JournalError
from acp_bridge.journal.session import SessionJournal
from acp_bridge.updates import notices
from tests.sessions.agent import until
from tests.sessions.bench import bench


@pytest.mark.parametrize("written", [True, False])
async def test_a_word_to_forget_that_can_not_be_kept_leaves_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    def broken(journal: SessionJournal, key: str, value: object) -> None:
        raise JournalError("broken")

    async with bench(tmp_path) as it:
        session_id = await it.new()
        await it.editor.stop_reason(it.editor.prompt(session_id, "hi"))
        if not written:
            monkeypatch.setattr(SessionJournal, "set", broken)
        await it.editor.stop_reason(it.editor.prompt(session_id, "/queue memory new"))
        assert (notices.MEMORY_STOPPED in str(it.editor.asked("session/update"))) is not written
        monkeypatch.undo()
        await it.editor.stop_reason(it.editor.prompt(session_id, "and now?"))
        await until(lambda: len(it.agent.params("session/prompt")) == 2)
        opened = [it.agent.params(f"session/{how}") for how in ("new", "load", "resume")]
        assert [len(each) for each in opened] == [2 if written else 1, 0, 0]
