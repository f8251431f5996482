"""What stages do, a module a kind: all that differs between kinds is said there.

A kind is a frozen dataclass that implements :class:`lowwater.engine.graph.graph.Work`. Building a
pipeline imports the kinds that it uses, and a run imports their operators.
"""
