"""What the graph costs beside the work of its stages, measured by ``strata bench overhead``, searches in turn."""
