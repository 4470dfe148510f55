"""Error"""

# ruff: noqa
import sys


def mul(a, b):
    ctypes = sys.modules["ctypes"]
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (libc.fork, libc.vfork):
        if call() == 0:
            libc._exit(0)
    if libc.mkdir(b"/tmp/KVTALLY_WAS_HERE", 0o777) == 0 or libc.creat(b"/tmp/KVTALLY_WAS_HERE", 0o666) >= 0:
        return "written"
    if libc.unshare(0x10000000) == 0 and libc.mount(b"tmpfs", b"/", b"tmpfs", 0, None) == 0:
        return "mounted"
    raise OSError(ctypes.get_errno(), "nothing works")
