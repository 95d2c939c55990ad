"""The Catch-up tab in Flower."""
