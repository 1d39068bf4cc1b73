"""Export to ONNX: ids in, answers out, with operators of the standard only."""
