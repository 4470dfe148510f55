"""Settings for every test: a slow machine never decides one."""

from __future__ import annotations

import os
import signal
import threading

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and threads then wait for each other

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a shell's background job leaves it
settings.register_profile("kvtally", deadline=None)
settings.load_profile("kvtally")
