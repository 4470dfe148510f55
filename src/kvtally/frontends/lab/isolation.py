"""What keeps the learner's code apart from the rest of the machine, and how far that went."""

# Runs beside the learner's code: standard library of Python 3.9, no import from kvtally.
from __future__ import annotations

import ctypes
import os
import sys

try:
    import resource
except ImportError:  # not a POSIX system: no limits, and `isolate` says so
    resource = None  # type: ignore[assignment]

NOBODY = 65534
USER, PID, NET, IPC, MOUNT = 0x10000000, 0x20000000, 0x40000000, 0x08000000, 0x00020000
READ_ONLY, NO_SUID, NO_DEV, NO_EXEC, PRIVATE, RECURSIVE = 1, 2, 4, 8, 1 << 18, 1 << 14
LANDLOCK_CREATE, LANDLOCK_RESTRICT = 444, 446  # the same numbers on every architecture
NO_NEW_PRIVILEGES = 38


def apart(without: list[str]) -> list[str]:
    """Enter new namespaces and let a child of this process go on in them; the names of what was reached.

    The process that returns is the child. The one that called stays outside, holds the lifeline (its
    standard input), and kills the child when the lifeline ends: nothing that the learner's code
    does can reach it.
    """
    reached = [] if "namespaces" in without or not sys.platform.startswith("linux") else _namespaces()
    child = os.fork()
    if child:
        _guard(child)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return [*reached, "empty root"] if reached and _empty_root() else reached


def isolate(reached: list[str], without: list[str], cpu: int, memory: int) -> list[str]:
    """Give up what the learner's code must not have; the names of what holds now, for people."""
    linux = sys.platform.startswith("linux")
    libc = ctypes.CDLL(None, use_errno=True) if linux else None
    if os.geteuid() == 0:
        reached = ["user nobody" if _nobody() else "user root", *reached]
    if libc is not None:
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        _drop_capabilities(libc)
        abi = 0 if "landlock" in without else _landlock(libc)
        reached = reached + ([f"Landlock {abi}"] if abi else [])
    if resource is not None:
        _limit(cpu, memory)
        reached = [*reached, "limits"]
    return reached


def gaps(reached: list[str]) -> list[str]:
    """What the learner's code could still do, given what was reached; empty for a sandbox."""
    landlock = max((int(name.split()[1]) for name in reached if name.startswith("Landlock")), default=0)
    rooted, other_user = "empty root" in reached, "user nobody" in reached
    found = []
    if "limits" not in reached:
        found.append("open files and sockets, start processes")
    elif "user root" in reached:  # whom the limit on processes does not bind
        found.append("start processes")
    if not (rooted or landlock):
        found.append("delete or rename what anyone may" if other_user else "delete or rename your files")
    elif not (rooted or other_user):
        found.append("change the modes of your files")
    if not (other_user or "namespaces" in reached or landlock >= 6):
        found.append("send signals to your processes")
    return found


def _namespaces() -> list[str]:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    flags = PID | NET | IPC | MOUNT
    if uid == 0 and libc.unshare(flags) == 0:
        return ["namespaces"]
    if libc.unshare(flags | USER) != 0:
        return []
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  # pathlib is slow to import here
            file.write(text)
    return ["namespaces"]


def _guard(child: int) -> None:
    """Wait for the end of the lifeline, then end `child` and this process with its status."""
    os.closerange(1, 256)
    while os.read(0, 64):
        pass
    os.kill(child, 9)
    _, status = os.waitpid(child, 0)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _empty_root() -> bool:
    """Whether the root is now an empty directory that cannot be written."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(None, b"/", None, PRIVATE | RECURSIVE, None) != 0:
        return False
    if libc.mount(b"tmpfs", b"/tmp", b"tmpfs", READ_ONLY | NO_SUID | NO_DEV | NO_EXEC, None) != 0:
        return False
    os.chroot("/tmp")
    os.chdir("/")
    return True


def _nobody() -> bool:
    """Whether root has become nobody; a container may know no other user than root."""
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        return False
    return True


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _landlock(libc: ctypes.CDLL) -> int:
    """The Landlock version under which every file, TCP port and outer process is now out of reach; 0 for none."""
    abi = libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return 0
    files = 0x1FFF | (abi >= 2) << 13 | (abi >= 3) << 14 | (abi >= 5) << 15
    rules = (ctypes.c_uint64 * 3)(files, 0x3 if abi >= 4 else 0, 0x3 if abi >= 6 else 0)
    size = 8 + 8 * (abi >= 4) + 8 * (abi >= 6)
    descriptor = libc.syscall(LANDLOCK_CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    if descriptor < 0 or libc.syscall(LANDLOCK_RESTRICT, descriptor, 0) != 0:
        return 0
    os.close(descriptor)
    return int(abi)


def _limit(cpu: int, memory: int) -> None:
    """CPU seconds, bytes of memory, no file to write or open, no process or thread to start, no core."""
    for name, limit in (("CPU", cpu), ("AS", memory), ("FSIZE", 0), ("CORE", 0), ("NPROC", 0), ("NOFILE", 0)):
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is not None and not (name == "AS" and sys.platform == "darwin"):
            resource.setrlimit(number, (limit, limit))
