"""Settings for every test: a slow machine never decides one."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and threads then wait for each other

settings.register_profile("kvtally", deadline=None)
settings.load_profile("kvtally")
