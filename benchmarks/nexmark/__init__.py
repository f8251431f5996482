"""Nexmark: an auction's persons, auctions and bids, and 23 queries over them, each with a reference.

The queries are those of https://github.com/nexmark/nexmark, written for this library. What each is
to answer is computed once more by Polars, over all events at once, and compared row by row.
"""
