"""Formats values for people: as text, in colours, and as HTML for notebooks. Needs only Python."""
