"""Ports that are named before somebody listens there."""

from __future__ import annotations

import random
import socket

RANGE = range(20_000, 32_000)
"""Below those that a system gives to connections, and to whoever asks for any (Linux: from 32768 on). Between our look and
the listener's start, or its end and its next start, nobody gets one of these by chance."""

_drawn = random.SystemRandom()
"""Not the common generator: with a common seed, two workers of a run would draw the same."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has."""
    while True:
        port = _drawn.choice(RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
