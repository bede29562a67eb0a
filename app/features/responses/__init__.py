"""Requests to `/v1/responses` get memory, too: the dialect (`dialect`), which `app.dialects.registry` finds by its name."""
