"""What we call: tokenizers, embedders, the helper LLM."""
