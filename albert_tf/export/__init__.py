"""Export of encoders and tasks to SavedModel and LiteRT, with files for TF Serving."""
