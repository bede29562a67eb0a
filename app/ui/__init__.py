"""The page at /ui: what Mneme did, knows and waits for, for people. A client of the API, from within."""
