"""Settings for every test: a slow machine never decides one."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("kvtally", deadline=None)
settings.load_profile("kvtally")
