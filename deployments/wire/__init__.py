"""The wire: connections from the callers of a stage straight to its replicas.

Serve starts, places, watches, scales and replaces replicas, and says where they are; calls do not pass through its
router. A call by a Serve handle takes 2 to 4 ms of CPU, by the wire a tenth of it (docs/performance.md).
"""
