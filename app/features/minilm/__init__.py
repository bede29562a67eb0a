"""The embedder all-MiniLM-L6-v2 (`embedder`), which `app.providers.embeddings` finds by its name."""
