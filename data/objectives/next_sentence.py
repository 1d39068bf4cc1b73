"""Next-sentence prediction: whether the second segment is from another document (BERT's)."""

import tensorflow as tf

from albert_tf.runtime.errors import ConfigError
from albert_tf.text.truncation import truncated_lengths_in_graph
from data.objectives.pair_objective import PairObjective, Record, Segments, bit, segment_lengths
from data.records.manifest import COMPACT, Manifest


class NextSentence(PairObjective):
    """NSP: segment B follows A or is from another document, in equal shares.

    `data.objectives.partners` describes how that segment is chosen.
    """

    name, classes = "nsp", ("B follows A", "B is from another document")
    without_label, has_partners = "there is no such pair", True

    def draw(
        self, record: Record, partner: Record | None, key: tf.Tensor, max_pieces: int
    ) -> Segments:
        """Return `replace_half` with the segments B of partners from other documents."""
        assert partner is not None
        begin, length = segment_lengths(partner)
        is_other = partner["document"] != record["document"]
        return replace_half(
            *segment_lengths(record),
            key,
            begin + record["pieces"].shape[1],
            tf.where(is_other, length, 0),
            max_pieces,
        )

    def check(self, manifest: Manifest) -> None:
        """Check the records as for all objectives of pairs, and that there are two documents."""
        super().check(manifest)
        if manifest.layout == COMPACT and (documents := manifest.counts.documents) < 2:
            raise ConfigError(
                "`objective.pair=nsp` needs records of at least two documents. Received: records "
                f"of {documents}. Choose another, or build with another --document_boundary."
            )


def replace_half(
    first: tf.Tensor,
    second: tf.Tensor,
    key: tf.Tensor,
    partner_begin: tf.Tensor,
    partner_length: tf.Tensor,
    max_pieces: int,
) -> Segments:
    """Return the partner's segment in place of B if a bit of the key is set.

    Both segments together are truncated to `max_pieces` with the lengths of `truncation`, from the
    front and the back alike, as in the build. A `partner_length` of 0 means that there is no
    partner. The pair then stays in order with weight 0, so that the labels are balanced.
    """
    label_bit, odd, odd_first, odd_second = (bit(key, n) for n in (63, 62, 61, 60))
    has_partner = (second > 0) & (partner_length > 0)
    replaced = has_partner & (label_bit == 1)
    other = tf.where(replaced, partner_length, second)
    first_length, other_length = truncated_lengths_in_graph(first, other, max_pieces, odd)
    return Segments(
        first_begin=(first - first_length + odd_first) // 2,
        first_length=first_length,
        second_begin=tf.where(replaced, partner_begin, first)
        + (other - other_length + odd_second) // 2,
        second_length=other_length,
        label=replaced,
        weight=has_partner,
    )
