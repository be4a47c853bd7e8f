"""The guard is the small process between bridge and agent: it starts the agent and kills its tree.

`COMMAND_LINE` runs it in the interpreter's isolated mode, so that no module of the user's is
imported (invariant P14). Arguments: CONTROL_FD LOCALE FILES COMMAND... Its standard streams are
the agent's, and so is its environment, but for what Python puts into it in the C locale (PEP 538):
LOCALE is the agent's "LC_CTYPE=...", or empty if it has none. FILES is the agent's soft limit of
open files, or empty if that is the guard's.

Over CONTROL_FD, a stream socket:

- guard to bridge, lines: ``started PID`` or ``failed ERRNO``; ``exited CODE SIGNAL`` (one of the
  two is ``-``) at once when the agent's main process ends, while descendants may still live;
  ``dead`` when none is left. The guard exits right after ``failed`` and ``dead``. After each RETURN
  ``returned``.
- bridge to guard, single bytes: KILL; LOCK, which carries a file descriptor (SCM_RIGHTS); RETURN,
  which carries one, too, and has the guard let go of the lock of that file; LINGER,
  after which the end of the main process alone is no reason to kill the rest; TERM, which has the
  main process sent SIGTERM. And lines of a DEADLINE: a time in nanoseconds on `CLOCK`, at which the
  tree is killed as by KILL, or nothing for none. The last one counts.

The built-in agent starts its tools and MCP servers behind guards of their own; for them it is the
bridge, and the tool the agent.

Invariants
- The guard never ends without `Guard.kill_tree`, not even by an exception. Only SIGKILL ends it
  at once; then the kernel's parent-death signal kills the agent's main process.
- One that was stopped is continued by the bridge when the tree is to die, and on Linux by the
  kernel when the bridge has died, however it did.
- A deadline that has passed is noticed before anything that came later, also by a guard that was
  stopped or slept with the machine: another that comes too late changes nothing.
- On Linux the guard is a subreaper: a descendant that loses its parent becomes the guard's child,
  so "no child left" (ECHILD) proves that the tree is dead (invariant P1).
- A lock is a flock on an open file that bridge and guard share. The guard lets go of it by
  exiting, so no other agent opens the session before this tree is dead (invariant P12), or when
  the bridge says that this agent has closed the session.
- It shows no key to others in /proc (`keep_private`, which every process of ours calls).
- Whatever the agent is and starts carries a mark (`mark`), by which it is known for good: it may
  connect to no bridge, and pose as none (invariant V6).
- The agent's data don't pass through here, and it inherits nothing but three standard streams.
- Imports are few and small, because the start of an agent waits for them and each process has a
  guard. Hence `_signal`, `_socket` and `_ctypes` in place of the modules that wrap them.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys
import time
from _collections_abc import Callable

#: The guard is imported and not run by its path, since byte code is kept only for imports: to
#: compile it would cost each start 3 ms and 0.6 MB. Its folder comes after the standard library.
COMMAND_LINE = (
    sys.executable,
    *("-I", "-S", "-c", "import sys; sys.path.append(sys.argv.pop(1)); import guard; guard.main()"),
    os.path.dirname(os.path.abspath(__file__)),
)

KILL = b"k"
LOCK = b"l"
RETURN = b"r"
LINGER = b"w"
TERM = b"t"
DEADLINE = b"d"

LINUX = sys.platform == "linux"
#: the clock of deadlines: it is nobody's to set, and goes on while the machine sleeps.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: Linux: RLIMIT_LOCKS, which the kernel has not looked at since 2.4 (setrlimit(2)), and what its
#: hard limit is lowered to. It is as good as unlimited, and is inherited like any other limit.
MARKED_LIMIT = 10
MARK = 1 << 62
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
#: where the first byte of the environment is told in /proc/PID/stat, counted after the name
ENV_START = 47
KEY_WORDS = (
    b"KEY",
    b"TOKEN",
    b"_PWD",
    b"SECRET",
    b"PASS",
    b"CREDENTIAL",
    b"AUTH",
    b"_PAT",
    b"WEBHOOK",
)
#: the variable that names the socket from which a process of ours takes the keys that belong to
#: its environment.
KEYS_FROM = "KEYS_FROM_ACP_BRIDGE"
FIRST_PAUSE_MS = 5
MAX_PAUSE_MS = 1000
#: milliseconds between two looks at the deadline where there is no timer for it
DEADLINE_LOOK_MS = 1000
#: timerfd_create(2): what TFD_NONBLOCK and TFD_CLOEXEC are on all systems, and TFD_TIMER_ABSTIME.
TIMER_FLAGS = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
ABSOLUTE = 1


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process; a refusal of the kernel is ignored."""
    if LINUX:
        call("prctl", option, value, 0, 0, 0)


def call(name: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library, which takes integers and pointers, and returns an int."""
    import _ctypes

    function = _ctypes.dlsym(_ctypes.dlopen(None, 0), name)  # type: ignore[arg-type]
    result: int = _ctypes.call_function(function, arguments)
    return result


def now() -> int:
    """Return the time on the clock of deadlines, in nanoseconds."""
    return time.clock_gettime_ns(CLOCK)


def start_timer(timer: int, at: int) -> None:
    """Make a timerfd readable from `at` on, which is a time of `now`; 0: never."""
    size = 8 if sys.maxsize > 1 << 32 else 4  # of a C long
    pair = divmod(at, 1_000_000_000)
    value = b"".join(part.to_bytes(size, sys.byteorder) for part in (0, 0, *pair))
    call("timerfd_settime", timer, ABSOLUTE, value, None)


def keep_private() -> None:
    """Hide the memory and the keys of this process from others, also from those of the same user.

    In /proc the values of variables whose names look like a key's are overwritten; they stay in
    `os.environ` and for `getenv`. ACP_BRIDGE_DEBUGGABLE leaves all as it is.
    """
    if not LINUX or os.environ.get("ACP_BRIDGE_DEBUGGABLE"):
        return
    try:  # noqa: SIM105
        wipe_keys()
    except OSError:
        pass  # the system lets no process write to its own memory this way
    prctl(PR_SET_DUMPABLE, 0)


def is_key(name: bytes) -> bool:
    """Return True for a variable whose name looks like a key's."""
    return any(word in name.upper() for word in KEY_WORDS)


def take_keys() -> None:
    """Put the keys into `os.environ` that were handed over beside it (`handed_keys`), if any were.

    Called when the process is private.
    """
    number = os.environ.pop(KEYS_FROM, "")
    if not number.isdecimal():
        return
    try:
        handed = _socket.socket(fileno=int(number))
    except OSError:
        return  # the variable is an old one
    block = b""
    while data := handed.recv(1 << 16):
        block += data
    handed.close()
    for variable in block.split(b"\0"):
        name, _, value = variable.partition(b"=")
        os.environb[name] = value


def mark(pid: int = 0) -> None:
    """Mark a process, and all that it will start, as an agent's: only root can undo that.

    `pid`: 0 is this process. Does nothing where there is no such limit, and to a process that is
    marked already. Raises OSError for one that has ended.
    """
    if LINUX:
        import resource  # here alone, so that no guard has it in memory

        if resource.prlimit(pid, MARKED_LIMIT)[1] == resource.RLIM_INFINITY:
            resource.prlimit(pid, MARKED_LIMIT, (MARK, MARK))


def wipe_keys() -> None:
    """Overwrite the values of keys in the block of memory that /proc/PID/environ shows."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    at = int(fields[ENV_START])
    with open("/proc/self/environ", "rb") as file:
        block = file.read()
    memory = os.open("/proc/self/mem", os.O_WRONLY)
    try:
        for variable in block.split(b"\0"):
            name, equals, value = variable.partition(b"=")
            if equals and is_key(name):
                os.putenv(name, value)  # a copy, to which `getenv` leads from now on
                os.pwrite(memory, b"*" * len(value), at + len(name) + 1)
            at += len(variable) + 1
    finally:
        os.close(memory)


def listen_for_signals() -> int:
    """Return a pipe that gets one byte, the signal's number, for each SIGCHLD and SIGTERM."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    _signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (_signal.SIGCHLD, _signal.SIGTERM):
        _signal.signal(number, lambda *_: None)
    for number in (_signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, _signal.SIG_IGN)
    return readable


def leave_guard(guard_pid: int, files: str) -> None:
    """Give the forked child its own session, the mark, signals and limits; raises OSError."""
    _signal.set_wakeup_fd(-1)
    os.setsid()
    mark()
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() != guard_pid:  # the guard died before the kernel knew whom to tell
        os._exit(1)
    # exec ends handlers, but an ignored signal stays ignored (Python ignores SIGPIPE, SIGXFSZ).
    for name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGXFSZ"):
        _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    if files:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), hard))


def execute(command: list[str], locale: str) -> None:
    """Execute the agent in place of this process, with its `locale` (LC_CTYPE); raises OSError."""
    name, given, value = locale.partition("=")
    if given:
        os.environ[name] = value
    else:
        os.environ.pop("LC_CTYPE", None)
    os.execvpe(command[0], command, os.environ)


def processes() -> list[tuple[int, int, int, bool]]:
    """Return (pid, parent, process group, is a zombie) of every process that can be seen."""
    found: list[tuple[int, int, int, bool]] = []
    if not LINUX:  # macOS: written for, untested
        with os.popen("ps -axo pid=,ppid=,pgid=,state=") as lines:
            for line in lines:
                pid, parent, group, state = line.split()
                found.append((int(pid), int(parent), int(group), state.startswith("Z")))
        return found
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                    # "PID (NAME) STATE PPID PGRP ...": only NAME may hold blanks and brackets
                    fields = file.read(1024).rpartition(b")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            if len(fields) > 2:
                found.append((int(name), int(fields[1]), int(fields[2]), fields[0] == b"Z"))
    return found


def kill_descendants(root: int, groups: set[int]) -> bool:
    """SIGKILL every group that a descendant of `root` is in. Returns whether one was alive.

    A group is killed as a whole, forks in progress included, so that a fork bomb does not outrun
    this. It holds no other process: the agent has a session of its own, and no group reaches
    across sessions. `groups` are those of the last call and are brought up to date: without a
    subreaper, only they tell that an orphan belongs to the tree.
    """
    table = processes()
    tree = {root}
    size = 0
    while len(tree) > size:
        size = len(tree)
        tree.update(pid for pid, parent, _, _ in table if parent in tree)
    alive = {group for pid, _, group, _ in table if pid in tree or group in groups}
    groups.clear()
    groups.update(alive - {os.getpgid(root)})
    for group in groups:
        kill_group(group)
    return any(group in groups and not zombie for _, _, group, zombie in table)


def kill_group(group: int) -> None:
    """SIGKILL a group; one that is gone, or that may not be killed, is left."""
    try:  # noqa: SIM105 - contextlib is not small
        os.killpg(group, _signal.SIGKILL)
    except OSError:
        pass


class Guard:
    """Watches one agent and kills it with all its descendants."""

    def __init__(self, control: _socket.socket, wakeup: int) -> None:
        self.control = control
        self.wakeup = wakeup
        self.locks: list[int] = []
        self.agent = 0
        self.ended = False
        self.lingers = False
        self.deadline: int | None = None
        #: becomes readable at the deadline, also when the machine has slept until then, which
        #: poll's own timeout does not notice; -1 until there is a deadline, or where there is none.
        self.timer = -1
        #: the beginning of a line about the deadline of which the rest has not come
        self.begun = b""

    def say(self, line: str) -> None:
        try:  # noqa: SIM105
            self.control.send(line.encode() + b"\n")
        except OSError:
            pass  # the bridge is gone

    def told_to_stop(self) -> bool:
        """Read the bridge's commands; returns True for KILL, and when the bridge is gone."""
        while True:
            try:
                data, passed, _, _ = self.control.recvmsg(64, 256)
            except BlockingIOError:
                return False
            except OSError:
                return True
            for _, _, content in passed:
                for at in range(0, len(content) - 3, 4):
                    lock = int.from_bytes(content[at : at + 4], sys.byteorder)
                    os.set_inheritable(lock, False)
                    if data.endswith(RETURN):  # what is read ends with what carried a descriptor
                        self.let_go(lock)
                    else:
                        self.locks.append(lock)
            self.lingers = self.lingers or LINGER in data
            self.take_deadline(data)
            if TERM in data and self.agent and not self.ended:  # its pid is its own until reaped
                os.kill(self.agent, _signal.SIGTERM)
            if not data or KILL in data:
                return True

    def let_go(self, lock: int) -> None:
        """Close a descriptor, and all that were given before for the same file."""
        file = os.fstat(lock)
        same = [held for held in self.locks if os.path.samestat(os.fstat(held), file)]
        self.locks = [held for held in self.locks if held not in same]
        for held in (*same, lock):
            os.close(held)
        self.say("returned")

    def take_deadline(self, data: bytes) -> None:
        """Take the last deadline in `data` whose line is whole; keep the beginning of the next."""
        *lines, rest = (self.begun + data).split(b"\n")
        self.begun = rest[rest.rfind(DEADLINE) :] if DEADLINE in rest else b""
        if not lines:
            return
        at = lines[-1].rpartition(DEADLINE)[2]
        self.deadline = max(int(at), 1) if at else None
        if LINUX:
            if self.timer < 0:
                self.timer = call("timerfd_create", CLOCK, TIMER_FLAGS)
            if self.timer >= 0:
                start_timer(self.timer, self.deadline or 0)

    def is_overdue(self) -> bool:
        """Return True once the deadline has passed."""
        return self.deadline is not None and now() >= self.deadline

    def patience(self) -> int | None:
        """Return how many milliseconds to sleep before a look at the deadline; None: any number."""
        if self.deadline is None or self.timer >= 0:
            return None
        return max(0, min(DEADLINE_LOOK_MS, (self.deadline - now()) // 1_000_000 + 1))

    def terminated(self) -> bool:
        """Empty the signal pipe; returns whether SIGTERM was in it."""
        try:
            return _signal.SIGTERM in os.read(self.wakeup, 4096)
        except BlockingIOError:
            return False

    def reap(self) -> bool:
        """Collect every child that has ended; returns False if no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.agent:
                self.ended = True
                code = os.waitstatus_to_exitcode(status)
                self.say(f"exited {code} -" if code >= 0 else f"exited - {-code}")

    def start(self, become_agent: Callable[[], object], files: str) -> bool:
        """Start the agent and close its streams here; returns False if it can't be executed.

        `become_agent` is called in the forked child: it executes a command, or closes what the
        child has inherited and is the agent. It raises OSError, and does not return.
        """
        readable, writable = os.pipe()
        guard_pid = os.getpid()
        try:
            self.agent = os.fork()
        except OSError as error:  # the system has no room for one more process
            self.say(f"failed {error.errno}")
            return False
        if self.agent == 0:
            try:
                leave_guard(guard_pid, files)
                become_agent()
            except OSError as error:
                os.write(writable, str(error.errno).encode())
            finally:
                os._exit(127)
        os.close(writable)
        failure = os.read(readable, 16)  # ends empty when exec closes the other side
        os.close(readable)
        if failure:
            os.waitpid(self.agent, 0)
            self.agent = 0
            self.say(f"failed {failure.decode()}")
            return False
        null = os.open("/dev/null", os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream, inheritable=True)
        os.close(null)
        os.chdir("/")  # so that no folder of the user's is busy
        self.say(f"started {self.agent}")
        return True

    def watch(self) -> None:
        """Sleep until the agent has ended, the bridge is gone, or a stop is asked for or is due.

        After LINGER the agent counts as ended when no process of its tree is left.
        """
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        while True:
            if self.timer >= 0:
                poll.register(self.timer, select.POLLIN)
            poll.poll(self.patience())
            if self.is_overdue():
                return
            stop = self.terminated()
            is_left = self.reap()
            ended = self.ended and not (self.lingers and is_left)
            if stop or ended or self.told_to_stop():
                return

    def kill_tree(self) -> None:
        """SIGKILL the agent and every descendant, again and again until none is left."""
        pause = FIRST_PAUSE_MS
        if LINUX:  # no process can get lost, so the quick way comes before the search
            kill_group(self.agent)
            if self.reap():
                self.sleep(pause)
        groups = {self.agent}
        while self.reap() or not LINUX:
            if not kill_descendants(os.getpid(), groups) and not LINUX:
                return
            self.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE_MS)

    def sleep(self, milliseconds: int) -> None:
        """Sleep, but no longer than until a child ends."""
        poll = select.poll()
        poll.register(self.wakeup, select.POLLIN)
        poll.poll(milliseconds)
        self.terminated()


def main() -> None:
    try:
        run(sys.argv[1:])
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)  # the lock ends right after `dead`, without the interpreter's clean-up


def run(arguments: list[str]) -> None:
    keep_private()
    control, locale, files, *command = arguments
    guard_agent(int(control), lambda: execute(command, locale), files)


def guard_agent(control_fd: int, become_agent: Callable[[], object], files: str) -> None:
    """Be the guard of one agent, from its start to the end of its tree; owns `control_fd`."""
    control = _socket.socket(fileno=control_fd)
    os.set_inheritable(control.fileno(), False)
    control.setblocking(False)
    guard = Guard(control, listen_for_signals())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, _signal.SIGCONT)
    try:
        stop = guard.told_to_stop() or guard.is_overdue()
        if not stop and guard.start(become_agent, files):
            guard.watch()
    finally:
        if guard.agent:
            guard.kill_tree()
            guard.say("dead")
