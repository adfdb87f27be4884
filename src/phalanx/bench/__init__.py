"""Measurements beside what a Python user would pick instead, in one run on one machine."""
