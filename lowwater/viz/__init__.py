"""Diagrams of runs and of pipelines, as self-contained pictures."""

from lowwater.viz.diagram import Diagram as Diagram
from lowwater.viz.graph_diagram import GraphDiagram as GraphDiagram
