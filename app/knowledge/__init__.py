"""What is true: which things are spoken of, and what a business's own database says of them (seed 004)."""
