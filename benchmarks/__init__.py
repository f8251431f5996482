"""Benchmarks: ``make bench``, or ``python -m benchmarks --help``."""
