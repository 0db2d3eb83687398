"""What is made of the metrics: their documentation, a dashboard, and the rules as a manifest."""
