"""What Mneme costs: `make bench` (`__main__.py`), and where the time goes (`python -m loadtests.profile`)."""
