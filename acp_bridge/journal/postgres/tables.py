"""The tables of the journal in PostgreSQL; brings a database up to date.

Scripts are only ever added at the end. JSON is `text`, since `jsonb` would change it. The ids that
agents choose may have any length, and an index takes none of 2,704 bytes: it has their hashes.
"""

from typing import Any, Final

from psycopg import AsyncConnection

from acp_bridge.journal.errors import JournalError, NewerVersion

_LOCK: Final = 0x6163705F62726964  # "acp_brid"
MIGRATIONS: Final = (
    """
    CREATE TABLE acp_bridge.sessions(
        session_id text COLLATE "C" PRIMARY KEY, cwd text NOT NULL, agent text NOT NULL,
        agent_session_id text, title text, updated_at text COLLATE "C" NOT NULL,
        agent_info text, prompted boolean NOT NULL DEFAULT true,
        merged_to bigint NOT NULL DEFAULT 0, deleted boolean NOT NULL DEFAULT false,
        applied bigint NOT NULL DEFAULT 0, owner text, fence bigint NOT NULL DEFAULT 0
    );
    CREATE INDEX newest ON acp_bridge.sessions(updated_at, session_id);
    CREATE TABLE acp_bridge.bridges(
        owner text PRIMARY KEY, machine text NOT NULL, home text NOT NULL,
        until timestamptz NOT NULL
    );
    CREATE TABLE acp_bridge.reloads(agent text, version text, PRIMARY KEY (agent, version));
    CREATE TABLE acp_bridge.prompts(
        session_id text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        seq bigint, prompt_id text NOT NULL,
        state text NOT NULL CHECK (state IN ('waiting', 'held', 'sent', 'done')),
        outcome text, agent_outcome text,
        PRIMARY KEY (session_id, seq), UNIQUE (session_id, prompt_id)
    );
    CREATE TABLE acp_bridge.prompt_params(
        session_id text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        seq bigint, params text NOT NULL, PRIMARY KEY (session_id, seq)
    );
    CREATE TABLE acp_bridge.updates(
        session_id text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        id bigint, turn bigint NOT NULL, lines bytea NOT NULL, PRIMARY KEY (session_id, id)
    );
    CREATE TABLE acp_bridge.settings(
        session_id text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        key text COLLATE "C", value text NOT NULL, PRIMARY KEY (session_id, key)
    );
    CREATE TABLE acp_bridge.used_ids(
        session_id text COLLATE "C" REFERENCES acp_bridge.sessions ON DELETE CASCADE,
        id bytea NOT NULL
    );
    CREATE UNIQUE INDEX used_id ON acp_bridge.used_ids(session_id, sha256(id));
    """,
)


async def migrate(connection: AsyncConnection[Any]) -> None:
    """Bring the database up to date, in one transaction under one lock.

    Raises psycopg.Error; JournalError, NewerVersion: it is left as it is.
    """
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise JournalError("the database does not keep text as UTF-8: make one with ENCODING UTF8")
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        await connection.execute("CREATE SCHEMA IF NOT EXISTS acp_bridge")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS acp_bridge.version(version integer NOT NULL)"
        )
        cursor = await connection.execute("SELECT max(version) FROM acp_bridge.version")
        row = await cursor.fetchone()
        version = int(row[0] or 0) if row else 0
        if version > len(MIGRATIONS):
            raise NewerVersion(
                f"written by a newer acp-bridge (version {version}, this one knows"
                f" {len(MIGRATIONS)})"
            )
        for script in MIGRATIONS[version:]:
            await connection.execute(script.encode())
        if version < len(MIGRATIONS):
            await connection.execute("DELETE FROM acp_bridge.version")
            await connection.execute(
                "INSERT INTO acp_bridge.version VALUES (%s)", (len(MIGRATIONS),)
            )
