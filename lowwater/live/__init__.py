"""Shows a run while it goes on: a page for people, and metrics for machines."""
