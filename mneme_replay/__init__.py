"""Recorded calls, played back: cassettes, the matching of requests, a server of them, and the pytest plugin.

A package of its own beside `app`, of which it knows nothing: it is imported into other projects' test runs, where `app` is
often the name of theirs. Nothing is imported here: pytest loads the plugin in every session.
"""
