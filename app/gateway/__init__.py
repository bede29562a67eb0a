"""One request, from the client to the upstream and back."""
