"""Faults on demand, and what they cost: stages that fail as they are told to, in graphs built for that alone.

``matrix`` says what is expected, ``replica`` fails, ``probe`` finds out, ``run`` is the process of ``strata faults``.
"""
