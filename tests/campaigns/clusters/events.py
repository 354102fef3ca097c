"""Changes of real clusters, and of the mirror between them, at a moment of a run."""

from __future__ import annotations

from ..catalogue import Catalogue, Family
from .world import ClustersWorld

__all__ = ["CLUSTERS", "Family", "happens", "runs"]

#: The modules ``*_events`` and ``runs`` add what they have.
CLUSTERS: Catalogue[ClustersWorld, None] = Catalogue()

happens = CLUSTERS.happens
runs = CLUSTERS.runs
