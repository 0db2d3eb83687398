"""The memory gateway behind HTTP: its route, and how it is opened from the settings."""
