"""Conversion of trained models to and from other projects' formats."""
