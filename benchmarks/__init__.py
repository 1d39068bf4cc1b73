"""Measurements, one JSON line each; speed is reported side by side and never asserted."""
