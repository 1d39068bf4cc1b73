"""Configuration, encoder and pretrainer."""
