"""Figures about what follows the records: translated offsets, the cut-over, and their cost."""
