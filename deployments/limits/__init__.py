"""Limits on how often, and how many at once, an account or a key may ask; and on searches at once in an ingress.

The former hold across all ingress replicas: ``ledger`` is the one owner of all counts; it leases small shares to the
ingress replicas, whose ``wallet`` spends them without asking; ``limiter`` carries the messages between the two.
``admission`` is each replica's own. Nothing is imported here: settings need the configuration alone.
"""
