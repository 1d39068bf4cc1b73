"""The operations that layers ask for: TensorFlow's own, and sets written by hand for a device.

Nobody needs to read the latter to understand the model: each equals the plain set.
"""

KERNELS = ("auto", "plain")  # of settings: what `choice` finds fastest, or TensorFlow's own
