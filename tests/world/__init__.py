"""Clusters, the records of their producers, movers and the judge of a copy."""
