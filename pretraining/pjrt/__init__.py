"""Training under JAX's PJRT client: TensorFlow traces the step, any accelerator runs it."""
