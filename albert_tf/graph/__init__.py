"""What exported graphs share: width buckets, windows, text inputs and signatures."""
