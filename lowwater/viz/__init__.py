"""Diagrams of runs and of pipelines, on paper that loads nothing."""

from lowwater.viz.diagram import Diagram as Diagram
from lowwater.viz.graph_diagram import GraphDiagram as GraphDiagram
