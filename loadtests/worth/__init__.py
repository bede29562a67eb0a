"""Fits the models of app/context/worth.py (`python -m loadtests.worth`)."""
