"""An upstream that answers by itself, where none is configured (`transport`); found by its name."""
