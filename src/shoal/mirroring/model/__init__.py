"""Values that driver and tasks share: options, positions, incidents, progress. Nothing here does I/O."""
