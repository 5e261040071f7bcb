"""Staged weights: are they whole, and are they what the recipe asks for."""
