"""Requests to `/v1/messages` get memory, too: the dialect (`dialect`), which `app.dialects.registry` finds by its name."""
