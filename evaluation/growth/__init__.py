"""``strata eval growth``: what a search costs as records, tenants and trees grow; ``strata eval cost`` prices it."""
