"""Measures: test collections stage by stage, both index backends, corpora, calibration, and load at fixed rates."""
