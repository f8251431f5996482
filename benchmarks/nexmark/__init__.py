"""Nexmark: the persons, auctions and bids of an auction house, and 23 queries over them.

The queries are those of https://github.com/nexmark/nexmark, written for this library. What each
is to answer is computed once more by Polars, over all events at once, and compared row by row.
``python -m benchmarks.nexmark --help`` says how to run them.
"""
