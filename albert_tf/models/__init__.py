"""The configuration, the encoder and the pretrainer."""
