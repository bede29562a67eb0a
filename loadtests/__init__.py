"""What Mneme costs: `make bench` (`bench.py`), and where the time goes (`python -m loadtests.profile`)."""
