"""Paging: objects of a long session at several fidelities (seed 002). Plain functions over plain values."""
