"""The pretraining objectives: what each draws from a record, and the head that it declares."""

DEFAULT_PAIR = "sop"  # the paper's, and that of the labels that data.build stores
