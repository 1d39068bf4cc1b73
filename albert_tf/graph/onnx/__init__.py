"""Builders of ONNX graphs: operators, the encoder, int8 weights."""
