"""From text to shuffled records: segments, layouts, runners."""
