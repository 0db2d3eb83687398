"""Load at a fixed rate against the graph: schedule, generator, figures, verdict, picture (C40)."""
