"""SavedModels and LiteRT models of encoders and tasks, and what TF Serving takes beside them."""
