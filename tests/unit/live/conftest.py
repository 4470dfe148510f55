"""Tiny models run many times faster on one thread, above all when tests run side by side."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
