"""The compiler: what goes into the prompt, and why (seed 000 §6)."""
