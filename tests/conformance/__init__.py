"""What an OpenAI-compatible proxy must leave alone, tried on the wire: `python -m tests.conformance --help`.

A recording, scripted upstream stands behind the proxy, a client that sees every byte before it. Each check follows from the
OpenAI API's documentation, from that of HTTP, or from plain byte transparency, and says which.
"""
