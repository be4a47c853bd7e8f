"""The parts of one session, put together: each gets the session as its port, and its neighbours."""

from __future__ import annotations

from typing import Protocol

from acp_bridge.agents.link import Link
from acp_bridge.hooks.found import FoundHooks
from acp_bridge.journal import SessionJournal
from acp_bridge.session.clients.audience import Audience, AudiencePort
from acp_bridge.session.clients.permissions import Permissions
from acp_bridge.session.clients.questions import Questions, QuestionsPort
from acp_bridge.session.clients.replay import Replay, ReplayPort
from acp_bridge.session.clients.to_client import ToClient
from acp_bridge.session.deadlines import Deadlines, DeadlinesPort
from acp_bridge.session.from_agent import FromAgent, FromAgentPort
from acp_bridge.session.performer import Performer, PerformerPort
from acp_bridge.session.process.agent_processes import AgentProcesses
from acp_bridge.session.process.memory import Memory
from acp_bridge.session.process.process_effects import ProcessEffects, ProcessEffectsPort
from acp_bridge.session.process.restart import Restart, RestartPort
from acp_bridge.session.process.sleep import Sleep, SleepPort
from acp_bridge.session.prompts import queue_words
from acp_bridge.session.prompts.blocked_notice import BlockedNotice, BlockedPort
from acp_bridge.session.prompts.hook_runs import HookRunsPort
from acp_bridge.session.prompts.hooks import SessionHooks
from acp_bridge.session.prompts.pauses import Pauses, PausesPort
from acp_bridge.session.prompts.prompts import Prompts, PromptsPort
from acp_bridge.session.prompts.queue_command import QueueCommand, QueuePort
from acp_bridge.session.prompts.turn import Turn, TurnPort
from acp_bridge.session.requests.ask import Ask, AskPort
from acp_bridge.session.requests.to_agent import ToAgent, ToAgentPort
from acp_bridge.session.requests.user_settings import UserSettings
from acp_bridge.session.session_context import SessionContext
from acp_bridge.session.stepping import new_machine
from acp_bridge.session.transcript.title import Title, TitlePort
from acp_bridge.session.transcript.transcript_out import TranscriptOut
from acp_bridge.settings import Settings
from acp_bridge.updates import Updates


class SessionPorts(
    PromptsPort,
    AskPort,
    AudiencePort,
    BlockedPort,
    DeadlinesPort,
    FromAgentPort,
    HookRunsPort,
    PausesPort,
    PerformerPort,
    ProcessEffectsPort,
    QuestionsPort,
    QueuePort,
    ReplayPort,
    RestartPort,
    SleepPort,
    TitlePort,
    ToAgentPort,
    TurnPort,
    Protocol,
):
    """What all parts together need of their session."""


class Parts:
    """The parts of one session; nothing happens in them before the session feeds its machine."""

    def __init__(
        self,
        session: SessionPorts,
        context: SessionContext,
        journal: SessionJournal,
        lease: int,
        link: Link | None,
        found: FoundHooks | None,
    ) -> None:
        """The parameters are those of the session. Raises JournalError."""
        settings = context.settings
        words = queue_words.offered(context.capabilities)
        self.updates = updates = Updates(set(journal.used_ids()), queue_words.command(words))
        self.transcript = shown = TranscriptOut(session.id, journal, updates.take_new_ids)
        self.title = Title(session, context.journal, journal, shown)
        self.user_settings = chosen = UserSettings(journal)
        self.memory = memory = Memory(journal)
        self.prompts = prompts = Prompts(journal, shown, session)
        self.hooks = SessionHooks(session, prompts, shown, found)
        self.machine = new_machine(settings, self.hooks.moments, link)
        self.pauses = pauses = Pauses(session, shown, context.capabilities)
        self.to_agent = ToAgent(session, shown, chosen, settings.request_timeout)
        self.ask = ask = Ask(session, context, self.to_agent, shown)
        self.queue = QueueCommand(
            session, prompts, shown, memory, pauses, ask.command, self.title.set_own, words
        )
        people = Questions(session, shown, prompts, kept=settings.keep > 0)
        self.audience = Audience(session, settings, self.machine, shown, prompts, people, ask)
        self.replay = Replay(
            session, journal, shown, prompts, chosen, pauses, self.audience, settings.client_limit
        )
        self.from_agent = self._from_agent(session, journal, people)
        self.sleep = Sleep(session, settings.sleep_after, context.reloads, updates, memory)
        self.processes = AgentProcesses(context, self.from_agent, lease, session.feed)
        self.performer = self._new_performer(session, journal, settings)

    def _from_agent(
        self, session: SessionPorts, journal: SessionJournal, people: Questions
    ) -> FromAgent:
        """Return what takes the words of the processes; `people` are asked their questions."""
        updates, shown = self.updates, self.transcript
        permissions = Permissions(self.hooks, updates, shown.show)
        record = shown.record_at_once
        to_client = ToClient(session.id, shown.asked, updates, record, permissions, people)
        return FromAgent(session, journal, updates, shown, to_client, self.audience.pacing)

    def _new_performer(
        self, session: SessionPorts, journal: SessionJournal, settings: Settings
    ) -> Performer:
        """Return what carries out what the machine asks for."""
        restart = Restart(
            session,
            journal,
            self.transcript,
            self.updates,
            self.user_settings,
            self.to_agent,
            self.memory,
            self.sleep,
        )
        return Performer(
            session,
            ProcessEffects(session, self.processes, restart, settings.close_grace),
            self.prompts,
            Turn(
                session,
                journal,
                self.transcript,
                self.updates,
                self.prompts,
                self.memory,
                self.hooks,
            ),
            self.pauses,
            self.hooks,
            self.sleep,
            Deadlines(session, settings),
            BlockedNotice(session, self.memory, self.transcript),
        )
