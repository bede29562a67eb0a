"""What is called: tokenizers, embedders, the helper LLM."""
