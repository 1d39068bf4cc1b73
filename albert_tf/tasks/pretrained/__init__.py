"""What a pretrained model exports without a task."""
