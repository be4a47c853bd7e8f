"""The waits that depend on one another, in seconds, and which of them must be below which.

Each comment begins with what has to happen within that time, or, for a pause, what happens after
it.
tests/core/runtime/test_waits.py holds the order. settings.py takes its defaults from here, so that
a test may shorten them for one bridge. The guard runs by itself and keeps its own, which that test
compares.
"""

from typing import Final

# --- an agent starts -------------------------------------------------------------------------

#: The guard reports that the agent runs. Below START, so that a guard that says nothing is told
#: from an agent that does not answer.
SPAWN: Final = 10.0
#: The parent of the agents forks one, in milliseconds; one that takes longer is killed. Far
#: below SPAWN.
FORK: Final = 1.0
#: The parent loads the agent, which usually takes half a second. The first start waits for it, so
#: below START.
PARENT_LIGHT: Final = 20.0
#: The parent loads the model library, which usually takes 3 s. Restarts wait for it meanwhile.
#: Below RESTART.
PARENT_LOAD: Final = 40.0
#: A parent that loads uses the processor; one that does not for so long hangs. Far below both.
PARENT_HANGS: Final = 3.0
#: A parent that has ended is started again.
PARENT_PAUSE: Final = 0.5
#: A process without a session starts and answers `initialize`.
START: Final = 60.0
#: A command says that its agent is starting.
SLOW_START: Final = 5.0
#: A bridge that a command has started answers `initialize`. It bounds its own start of the agent,
#: which may be tried in two versions of the protocol, while npx or uvx fetches the agent.
OWN_BRIDGE: Final = 1300.0
#: All tries of one restart together. Not below START, or a slow agent could never be restarted.
RESTART: Final = 60.0

# --- a process is kept ready for the next session ---------------------------------------------

#: A spare process that no session has taken is ended.
SPARE: Final = 600.0
#: A session opens in the spare process that it has taken; then the next one is started.
SPARE_PAUSE: Final = 1.0

# --- an agent works outside of a prompt -------------------------------------------------------

#: An agent that says nothing for so long, and has nothing open, does nothing.
WORK: Final = 2.0
#: A Stop waits for so long for a prompt of the same client: some send one before every prompt.
STOP: Final = 0.1
#: The programs of an agent are looked at before it is killed. Far below KILL.
LAST_LOOK: Final = 0.2

# --- an output grows -----------------------------------------------------------------------------

#: An output that grows is recorded again; what is lost if the bridge is killed is not older.
GROWING: Final = 0.5

# --- a turn falls silent -----------------------------------------------------------------------

#: The agent says nothing of its turn: the session says so, and what runs below the agent.
SILENCE: Final = 120.0
#: The same while a tool call is open, which may well take long. Above SILENCE.
SILENCE_IN_CALL: Final = 600.0
#: The programs below a silent agent are looked at. Far below SILENCE.
LOOK: Final = 10.0
#: The longest time between two looks at whether these programs compute.
LOOK_AGAIN: Final = 60.0

# --- an agent's tree is killed ---------------------------------------------------------------

#: A guard kills its tree. Then the bridge does it, too: the guard may hang. Far below END.
GUARD: Final = 0.5
#: A tree is killed. Several times the guard's longest pause between two tries.
KILL: Final = 5.0
#: The rest of a dead agent's stdout is read. The pipe has ended unless it was handed on.
LAST_WORDS: Final = 0.2
#: The rest of a dead agent's stderr is read.
LAST_STDERR: Final = 0.2
#: A session gives up waiting for a dead tree. Above KILL and LAST_WORDS together: a tree that is
#: dead in time is reported before.
GIVE_UP: Final = 6.0

# --- a session or the bridge ends ------------------------------------------------------------

#: An agent ends by itself when its session or the bridge closes. Well below END, which must leave
#: time for the kill.
CLOSE_GRACE: Final = 1.0
#: An agent takes what was written to it, or answers that it has closed its session.
CLOSE_ANSWER: Final = 0.25
#: An agent answers that it has closed a session, which another process is to open then.
LEAVE_ANSWER: Final = 2.0
#: A session leaves a process that others have: the agent closes it, and the guard lets go of its
#: lock. Above LEAVE_ANSWER and GUARD together, and far below GIVE_UP.
LEAVE_PROCESS: Final = 3.0
#: An agent ends when its stdin has ended; then it gets SIGTERM. With CLOSE_ANSWER, twice, it leaves
#: a part of CLOSE_GRACE for what the agent does at that.
EOF_GRACE: Final = 0.4
#: A process that has closed its stdin or stdout ends by itself. Not below CLOSE_GRACE, or an agent
#: that closes a pipe first would get less than that.
CUT_OFF_GRACE: Final = 1.0
#: A session's folder is looked at for hooks; it may be on a disk that does not answer.
HOOKS_READ: Final = 5.0
#: The state of the repository of a session's folder is read; the second time is for the end of the
#: session, after its hooks. That is below END together with HOOK_AT_END and CLOSE_GRACE.
REPOSITORY: Final = 3.0
REPOSITORY_AT_END: Final = 0.3
#: The hooks of a session's end run, all together. With CLOSE_GRACE below END, as they run after it.
HOOK_AT_END: Final = 1.0
#: All sessions end when the client is gone or a signal came.
END: Final = 2.4
#: The last output reaches the client after that.
FLUSH: Final = 0.3
#: A client on a socket that was let go takes what was sent before. Nobody waits for it, and the
#: end of the bridge ends it.
LET_GO: Final = 10.0
#: The lock of the index is waited for when the journal is closed, after that.
INDEX_CLOSE: Final = 0.1
#: The process leaves, whatever hangs. Not below END, FLUSH and INDEX_CLOSE together.
LEAVE: Final = 2.85
#: Everything has ended (invariants P1, P2). Above LEAVE, which leaves it time to exit.
ENDED: Final = 3.0
#: Another bridge lets go of a session. Above ENDED: a bridge that is ending lets go in time.
LEASE: Final = 5.0
#: The bridge that holds a session answers another one. Below LEASE: it is tried again.
REACH: Final = 3.0

# --- a client on the socket ---------------------------------------------------------------------

#: The socket and the run file of a bridge are made, and removed: on a disk that may not answer.
#: With END far below LEAVE, as they are removed while the sessions end.
SOCKET: Final = 1.0
#: A bridge looks if its socket and its run file are still there; it also does when a client comes
#: or goes.
STANDING: Final = 60.0
#: The process that has connected, and those above it, are looked at.
PEER: Final = 1.0
#: A client begins with `initialize`.
GREETING: Final = 10.0

#: The folders that a remote client names are looked at: on a disk that may not answer.
FOLDERS: Final = 5.0

#: All other bridges say what is live there: a new session's client is told of work in its folder.
KEPT_WORK: Final = 1.0

# --- a message is read ----------------------------------------------------------------------------

#: The rest of a message comes: its newline, or the further lines over which it is spread.
REST_OF_MESSAGE: Final = 1.0

# --- an agent is asked on a client's behalf ---------------------------------------------------

#: An agent opens a session, or takes a setting. Starting the MCP servers of a session takes long.
REQUEST: Final = 60.0

# --- a session stands still on the user's word -------------------------------------------------

#: A prompt waits for the end of a pause or a hold: clients get a sign of life this often.
SIGN: Final = 60.0

# --- a session stands still for a usage limit ---------------------------------------------------

#: After a limit has reset, by the clock of the agent's provider, the queue goes on: a prompt that
#: comes too soon meets it again, and is lost.
RESET: Final = 30.0
#: The wall clock is looked at this often, since it may be set, and does not stand still while the
#: machine sleeps.
WALL_CLOCK: Final = 30.0

# --- a session has spent its budget -------------------------------------------------------------

#: A turn ends by itself: many agents tell its cost right before that. Then it is cancelled.
LAST_COST: Final = 0.5

# --- a client doesn't read ------------------------------------------------------------------

#: The client on stdin takes no byte of a session that others have, too: it goes on without it. It
#: is looked at so many times in between; one on a socket may take nothing for one such step.
UNREAD: Final = 10.0
UNREAD_STEPS: Final = 10

# --- an agent is asked beside a session -----------------------------------------------------

#: An agent answers a question; a model may think for minutes.
ASK: Final = 300.0

# --- an agent is asked by the way ------------------------------------------------------------

#: An agent lists its sessions or deletes one; it may be busy or deaf. Below UNDO and ENDED.
AGENT_PATIENCE: Final = 1.0
#: A process is started to delete a session at the agent, if none waits.
DELETE: Final = 10.0
#: The opening of a session is undone. Above CLOSE_GRACE, since its process is closed first.
UNDO: Final = 5.0

# --- the user is notified ---------------------------------------------------------------------

#: A notification is shown or posted.
NOTIFY: Final = 5.0

# --- the journal can't be written ------------------------------------------------------------

#: What could not be written after a turn is tried again.
JOURNAL_RETRY: Final = 1.0
#: The journal's database answers one statement; then it counts as away. A lock on its tables is
#: waited for there, a little shorter, so that an error tells it.
DATABASE: Final = 5.0
DATABASE_LOCK: Final = 4.0
