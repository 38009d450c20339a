"""Elastic jobs: their sizes, and where their groups meet."""
