"""Mneme: an OpenAI-compatible proxy that remembers."""

import os

# numpy reads this once, when it is loaded, so it stands before every import. The threads of one matrix product wait for each
# other by spinning: on cores that have other work, a MiniLM vector took two to eight times as long with them. Whoever has idle
# cores gets more from several products side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")
