"""What travels between the stages, and the protocols they meet at. Imports nothing else of this product."""
