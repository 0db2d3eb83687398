"""Accounts held in memory, so that small ones are searched in a millisecond instead of LanceDB's ten.

LanceDB and SQLite stay the truth: a snapshot answers only while its account shows what it did when it was read.
"""
