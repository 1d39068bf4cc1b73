"""Export of encoders and tasks to SavedModel, LiteRT and ONNX, with files for TF Serving."""
