"""The tables of a session's file and of the index, and the scripts that bring older ones forward.

Scripts are only ever added at the end.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Schema:
    """The tables of a new file, and the scripts that bring an older one up to it, oldest first."""

    tables: str
    upgrades: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        """The `user_version` of a file with these tables."""
        return 1 + len(self.upgrades)


#: A prompt's params may be megabytes (images). They are apart, so that no transition writes them
#: again. `updates.lines` is one read of the agent's pipe: JSON objects, one a line.
#: `session.merged_to` is the last row of `updates` whose chunks have been merged.
SESSION_SCHEMA: Final = Schema(
    tables="""
    CREATE TABLE session(
        id INTEGER PRIMARY KEY CHECK (id = 1),
        session_id TEXT NOT NULL,
        cwd TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        title TEXT,
        updated_at TEXT NOT NULL,
        merged_to INTEGER NOT NULL DEFAULT 0,
        agent_info TEXT,
        prompted INTEGER NOT NULL DEFAULT 1
    );
    CREATE TABLE prompts(
        seq INTEGER PRIMARY KEY,
        prompt_id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
        outcome TEXT,
        agent_outcome TEXT
    );
    CREATE TABLE prompt_params(seq INTEGER PRIMARY KEY, params TEXT NOT NULL);
    CREATE TABLE updates(id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, lines BLOB NOT NULL);
    CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE used_ids(id BLOB PRIMARY KEY) WITHOUT ROWID;
    """,
    upgrades=(
        # Drops columns that nothing read. DROP COLUMN would need SQLite 3.35.
        """
        ALTER TABLE session RENAME TO session_1;
        CREATE TABLE session(
            id INTEGER PRIMARY KEY CHECK (id = 1),
            session_id TEXT NOT NULL,
            cwd TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_session_id TEXT,
            title TEXT,
            updated_at TEXT NOT NULL,
            merged_to INTEGER NOT NULL DEFAULT 0
        );
        INSERT INTO session
            SELECT id, session_id, cwd, agent, agent_session_id, title, updated_at, merged_to
            FROM session_1;
        DROP TABLE session_1;
        ALTER TABLE prompts RENAME TO prompts_1;
        CREATE TABLE prompts(
            seq INTEGER PRIMARY KEY,
            prompt_id TEXT NOT NULL UNIQUE,
            state TEXT NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
            outcome TEXT,
            agent_outcome TEXT
        );
        INSERT INTO prompts SELECT seq, prompt_id, state, outcome, agent_outcome FROM prompts_1;
        DROP TABLE prompts_1;
        """,
        # Adds who the agent says it is, and whether there ever was a prompt. Since then a line of
        # `updates` may stand for a prompt's words (`words.words_line`).
        """
        ALTER TABLE session RENAME TO session_2;
        CREATE TABLE session(
            id INTEGER PRIMARY KEY CHECK (id = 1),
            session_id TEXT NOT NULL,
            cwd TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_session_id TEXT,
            title TEXT,
            updated_at TEXT NOT NULL,
            merged_to INTEGER NOT NULL DEFAULT 0,
            agent_info TEXT,
            prompted INTEGER NOT NULL DEFAULT 1
        );
        INSERT INTO session
            SELECT id, session_id, cwd, agent, agent_session_id, title, updated_at, merged_to,
                NULL, session_id IS agent_session_id OR EXISTS (SELECT 1 FROM prompts)
            FROM session_2;
        DROP TABLE session_2;
        """,
    ),
)

INDEX_SCHEMA: Final = Schema(
    tables="""
    CREATE TABLE sessions(
        session_id TEXT PRIMARY KEY,
        cwd TEXT NOT NULL,
        title TEXT,
        updated_at TEXT NOT NULL,
        agent TEXT NOT NULL,
        agent_session_id TEXT,
        deleted INTEGER NOT NULL DEFAULT 0,
        agent_info TEXT,
        prompted INTEGER NOT NULL DEFAULT 1
    ) WITHOUT ROWID;
    CREATE INDEX newest ON sessions(updated_at, session_id);
    CREATE TABLE reloads(
        agent TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (agent, version)
    ) WITHOUT ROWID;
    """,
    upgrades=(
        """
        ALTER TABLE sessions RENAME TO sessions_1;
        DROP INDEX newest;
        CREATE TABLE sessions(
            session_id TEXT PRIMARY KEY,
            cwd TEXT NOT NULL,
            title TEXT,
            updated_at TEXT NOT NULL,
            agent TEXT NOT NULL,
            agent_session_id TEXT,
            deleted INTEGER NOT NULL DEFAULT 0,
            agent_info TEXT,
            prompted INTEGER NOT NULL DEFAULT 1
        ) WITHOUT ROWID;
        INSERT INTO sessions(
            session_id, cwd, title, updated_at, agent, agent_session_id, deleted
        ) SELECT session_id, cwd, title, updated_at, agent, agent_session_id, deleted
            FROM sessions_1;
        DROP TABLE sessions_1;
        CREATE INDEX newest ON sessions(updated_at, session_id);
        """,
        # Adds which agents were seen to take up a session again.
        """
        CREATE TABLE reloads(
            agent TEXT NOT NULL, version TEXT NOT NULL, PRIMARY KEY (agent, version)
        ) WITHOUT ROWID;
        """,
    ),
)
