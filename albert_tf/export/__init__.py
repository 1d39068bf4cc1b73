"""SavedModels: encoder, preprocessing, fill-mask, classifier."""
