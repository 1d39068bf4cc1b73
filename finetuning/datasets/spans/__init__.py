"""SQuAD, and files in its layout or CMRC's."""
