"""Explores how delay, lateness, trigger and windows change what a pipeline emits."""

from lowwater.exploration.exploration import Exploration as Exploration
from lowwater.exploration.exploration import explore as explore
from lowwater.exploration.grid import Settings as Settings
from lowwater.exploration.point import Point as Point
