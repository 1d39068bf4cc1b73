"""Reading and writing of model folders of Hugging Face's transformers."""
